/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator of the collective library keeps in device memory; its kernel and its host code share it. */
#ifndef TESTS_COLLECTIVE_STATE_H
#define TESTS_COLLECTIVE_STATE_H

#include <stdint.h>

#define COLLECTIVE_MOST 1024 /* floats in one sum */

/* The other rank writes here: floats of operation n into the half n % 2, then n into its flag, which is 0 once read. */
struct collective_inbox {
	uint64_t arrived[2];
	float values[2][COLLECTIVE_MOST];
};

struct collective_state {
	uint64_t operations, rank;
	struct collective_inbox *own, *peer;
	volatile uint32_t *stop; /* in host memory; not 0: waiting is in vain */
};

#endif
