/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a model's engine takes for a byte of a prompt, learned from the first tokens of requests, and whether it keeps prefixes of
 * prompts: from what it tells of its cache, else from the same times.
 */
#ifndef MD_WORKER_CORE_PREFILL_H
#define MD_WORKER_CORE_PREFILL_H

#include <stdbool.h>
#include <stdint.h>

#define MD_PREFILL_SAMPLES 32u /* the last ones count */

struct md_prefill_samples {
	struct {
		double bytes, seconds;
	} list[MD_PREFILL_SAMPLES];
	uint32_t taken; /* in all */
};

/* All zero: nothing is known. */
struct md_prefill {
	struct md_prefill_samples sure; /* what was computed is known: all of the prompt, or the engine has told */
	struct md_prefill_samples
	    assumed;     /* what the cache was expected to have was left out; until there are enough of the others */
	bool is_sure;    /* byte_s and rest_s are of the first ones */
	double byte_s;   /* for a byte of a prompt; 0: not known */
	double rest_s;   /* of a first token besides */
	uint32_t misses; /* in a row: the cache did not have what it was expected to have */
	bool uncached;   /* that was so often that nothing is expected of it, until it has something */
};

struct md_prefill_request {
	double bytes, cached; /* of its prompt; cached: of them, what the cache was expected to have */
	double seconds;   /* to its first byte, since the engine was given it; 0: not known, or others waited then */
	bool told;        /* the engine has said what it had: */
	double told_part; /* of the prompt, 0 to 1 */
};

void md_prefill_note(struct md_prefill *prefill, const struct md_prefill_request *request);
/* Another engine of the model: it may have been told to keep prefixes. Times stay. */
void md_prefill_begin_life(struct md_prefill *prefill);

#endif
