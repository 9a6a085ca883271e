/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator of the collective library keeps in device memory; its kernel and its host code share it. */
#ifndef TESTS_COLLECTIVE_STATE_H
#define TESTS_COLLECTIVE_STATE_H

#include <stdint.h>

#define COLLECTIVE_MOST 1024 /* floats in one sum */
#define COLLECTIVE_RANKS_MOST 8

/* Each other rank writes here: floats of operation n into its half n % 2, then n into its flag, which is 0 once read. */
struct collective_inbox {
	struct {
		uint64_t arrived[2];
		float values[2][COLLECTIVE_MOST];
	} from[COLLECTIVE_RANKS_MOST];
};

struct collective_state {
	uint64_t operations, rank, ranks;
	struct collective_inbox *inboxes[COLLECTIVE_RANKS_MOST]; /* by rank */
	volatile uint32_t *stop;                                 /* in host memory; not 0: waiting is in vain */
};

/*
 * What an engine shares between its ranks by itself, as vLLM's custom all-reduce and PyTorch's symmetric memory do: numbers of operations, which each
 * other rank writes when it has filled its buffer, and when it has read all others'.
 */
struct peers_signals {
	uint64_t operations, stop, arrived[COLLECTIVE_RANKS_MOST], left[COLLECTIVE_RANKS_MOST];
};

struct peers_table { /* in memory of the engine that nobody shares */
	float *buffers[COLLECTIVE_RANKS_MOST];
	struct peers_signals *signals[COLLECTIVE_RANKS_MOST]; /* NULL: the kernel is given them */
};

struct peers_work {
	const struct peers_table *table;
	struct peers_signals *signals[COLLECTIVE_RANKS_MOST]; /* NULL: the table has them */
	float *data;
	int32_t n, rank, ranks, unused;
};

union collective_memory {
	struct collective_state state;
	struct peers_table table;
};

struct collective_work { /* what the kernel is given */
	struct collective_state *state;
	float *data;
	int32_t n;
};

#endif
