/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of the collective library: a sum over two ranks, in place, each of which writes to the other one. */
#include <math.h>
#include <time.h>

#include "hostcuda/kernel.h"
#include "tests/collective/collective_state.h"

#define PATIENCE_SECONDS 10 /* a rank that waits in vain leaves NaN, and does not wait again */

struct collective_sum {
	struct collective_state *state;
	float *data;
	int32_t n;
};

static int has_arrived(const struct collective_state *state, const uint64_t *flag, uint64_t operation)
{
	time_t started = time(NULL);
	unsigned turns = 0;
	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != operation) {
		nanosleep(&(struct timespec){.tv_nsec = turns++ < 50 ? 20000 : 1000000}, NULL);
		if (*state->stop)
			return 0;
		*state->stop = time(NULL) - started > PATIENCE_SECONDS;
	}
	return 1;
}

HOSTCUDA_KERNEL(collective_sum, struct collective_sum, HOSTCUDA_PARAM(struct collective_sum, state),
		HOSTCUDA_PARAM(struct collective_sum, data), HOSTCUDA_PARAM(struct collective_sum, n))
{
	struct collective_state *state = p->state;
	uint64_t operation = ++state->operations;
	float *to = state->peer->values[operation % 2];
	const float *from = state->own->values[operation % 2];
	for (int32_t i = 0; i < p->n; i++)
		to[i] = p->data[i];
	__atomic_store_n(&state->peer->arrived[operation % 2], operation, __ATOMIC_RELEASE);
	int arrived = has_arrived(state, &state->own->arrived[operation % 2], operation);
	for (int32_t i = 0; i < p->n; i++)
		p->data[i] = arrived ? p->data[i] + from[i] : NAN;
	state->own->arrived[operation % 2] = 0; /* taken: nothing comes of a replay that the other rank does not make */
}
