/* SPDX-License-Identifier: Apache-2.0 */
/* Generation: prompts are prefilled one by one, then decode together by graph launches (or eagerly). */
#ifndef LLAMA_GENERATE_H
#define LLAMA_GENERATE_H

#include <stddef.h>

#include "base/hash.h"
#include "models/llama/graphs.h"
#include "models/llama/tokenizer.h"

struct llama_sequence {
	struct token_list prompt, output;
	int adapter; /* its slot; -1: none */
};

struct llama_generation {
	struct llama_sequence *sequences; /* the caller's, with prompts filled in */
	size_t count;
	int max_tokens;                    /* for each sequence; the context may end it earlier */
	const struct tokenizer *tokenizer; /* tells where a text ends; may be NULL */
	float *kept; /* [count][max_tokens][vocabulary] room for the logits of each token; may be NULL */
	/* results */
	uint64_t prefill_ns, first_token_ns, decode_ns;
	size_t tokens, steps, graph_launches;
	struct md_hash logits; /* XXH3-128 of all logits rows, in the order in which they were made */
};

/* graphs == NULL or without a graph large enough: eager decode. */
enum md_status llama_generate(struct llama_generation *generation, struct llama_engine *engine,
			      const struct llama_graphs *graphs, struct md_error *err);

#endif
