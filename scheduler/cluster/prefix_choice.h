/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node a request with a prompt goes to, where nodes may have a prefix of it in their KV cache: that whose first token is
 * expected first, once what the cache saves is taken off. The worker routes with it, and so does the simulator.
 */
#ifndef MD_SCHEDULER_CLUSTER_PREFIX_CHOICE_H
#define MD_SCHEDULER_CLUSTER_PREFIX_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

struct md_prefix_candidate {
	uint32_t index;   /* the caller's number of it */
	double seconds;   /* to a first token there, whatever the prompt is: md_offer_expected_s, md_offer_here_s */
	double first_s;   /* of them, those that its engine takes for prompts as it had them; 0: it is not on a GPU */
	double rest_s;    /* what it would take without a prompt; 0: not known */
	double prefill_s; /* for a byte of a prompt, as measured there; 0: not known */
	double cached;    /* bytes of the prompt that its cache is expected to have */
	bool uncached;    /* its engine caches no prefixes */
	bool away;        /* no engine of the model has its cache there */
	uint32_t load;    /* requests there, as far as is known */
	uint64_t rank;    /* by rendezvous: of equal ones, the greatest */
};

#define MD_PREFIX_NOBODY UINT32_MAX

/* What is known of the prompt itself; bytes. */
struct md_prefix_prompt {
	double bytes;
	double begun; /* up to the end of the first turn of the conversation that it is; 0: it is none */
	double told;  /* of its earlier turns; 0: this is the first one */
};

/*
 * The place of one of them in the list, or MD_PREFIX_NOBODY: a cache would save next to nothing, or nobody knows what it would, so the
 * choice is that of first_token.h; so it is where the model has to be loaded first. Where nobody has measured how long a byte takes, the median of the other nodes counts.
 *
 * Nodes whose first token is expected within a half and 5 ms of the best one's count as equal. Of them, one with far more requests
 * than another is left out; then what is cached decides, and then the rank, so that all nodes choose the same one.
 *
 * A conversation that goes on where nobody knows of it began with the same rank somewhere else: the node with the greatest rank is assumed to have
 * its earlier turns, and `cached` there says so then.
 */
uint32_t md_prefix_choose(struct md_prefix_candidate *list, uint32_t count, const struct md_prefix_prompt *prompt);

#endif
