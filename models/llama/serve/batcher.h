/* SPDX-License-Identifier: Apache-2.0 */
/* Continuous batching: requests join and leave between two steps of the model. One thread, that of the device. */
#ifndef LLAMA_SERVE_BATCHER_H
#define LLAMA_SERVE_BATCHER_H

#include "models/llama/adapters/slots.h"
#include "models/llama/graphs.h"
#include "models/llama/lora/copier.h"
#include "models/llama/serve/kv_blocks.h"
#include "models/llama/serve/mailbox.h"
#include "models/llama/tokenizer.h"

/* Read by other threads at any time. */
struct batcher_counts {
	atomic_size_t running, waiting;            /* requests */
	atomic_size_t free_blocks;                 /* of the KV cache */
	atomic_size_t asked_tokens, reused_tokens; /* of admitted sequences: all, and those that were in the KV cache */
	atomic_size_t preemptions, steps, graph_launches;
	struct lora_counts lora;
};

struct batcher {
	struct llama_engine *engine;
	const struct llama_graphs *graphs;
	const struct tokenizer *tokenizer; /* tells where a text ends; NULL: nowhere */
	struct serve_mailbox *mailbox;
	struct batcher_counts *counts;
	/* below: the batcher's own */
	struct kv_blocks blocks;
	struct lora_slots slots;
	struct lora_copier copier;     /* into them */
	struct serve_request *waiting; /* linked by `next` */
	size_t waiting_count;
	struct serve_request **running; /* in the order of their admission */
	size_t running_count;
	int *free_slots;
	size_t free_slot_count;
	struct serve_request **rows; /* of the last decode step */
	size_t row_count;
	bool moved; /* the device's inputs are not those of `rows` any more */
	float *logits;
	int32_t *next;
	struct sampler_item *draw_room;
};

/* Most positions that one sequence can take: the context, or all of the KV cache. */
size_t batcher_context(const struct llama_engine *engine);

/* The fields above `blocks` are set. */
enum md_status batcher_init(struct batcher *batcher, struct md_error *err);
void batcher_finish(struct batcher *batcher);

/* Serves until the mailbox is stopped, or the device fails: then all requests have ended as failed. */
enum md_status batcher_run(struct batcher *batcher, struct md_error *err);

#endif
