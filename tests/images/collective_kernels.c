/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the collective library: sums over all ranks, in place, for which each writes to all others, or reads from them. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "hostcuda/kernel.h"
#include "tests/collective/collective_state.h"

#define PATIENCE_SECONDS 10 /* a rank that waits in vain leaves NaN, and does not wait again */

/* One struct, of which less than a hundredth is given: NCCL's kernels are like that. */
struct collective_sum {
	struct collective_storage {
		struct collective_work work;
		uint8_t rest[4096 - sizeof(struct collective_work)];
	} storage;
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

HOSTCUDA_KERNEL(collective_sum, struct collective_sum, HOSTCUDA_PARAM(struct collective_sum, storage))
{
	const struct collective_work *work = &p->storage.work;
	struct collective_state *state = work->state;
	uint64_t operation = ++state->operations, half = operation % 2;
	struct collective_inbox *own = state->inboxes[state->rank];
	int arrived = 1;
	for (uint64_t to = 0; to < state->ranks; to++) { /* to itself, too: all ranks add in one order */
		memcpy(state->inboxes[to]->from[state->rank].values[half], work->data, (size_t)work->n * sizeof(float));
		__atomic_store_n(&state->inboxes[to]->from[state->rank].arrived[half], operation, __ATOMIC_RELEASE);
	}
	for (uint64_t from = 0; from < state->ranks && arrived; from++)
		arrived = has_arrived(state, &own->from[from].arrived[half], operation);
	for (int32_t i = 0; i < work->n; i++) {
		float sum = arrived ? 0 : NAN;
		for (uint64_t from = 0; from < state->ranks; from++)
			sum += own->from[from].values[half][i];
		work->data[i] = sum;
	}
	for (uint64_t from = 0; from < state->ranks; from++)
		own->from[from].arrived[half] =
		    0; /* taken: nothing comes of a replay that another rank does not make */
}

static int await(struct peers_signals *own, const uint64_t *flag, uint64_t operation)
{
	time_t started = time(NULL);
	unsigned turns = 0;
	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < operation && !own->stop) {
		nanosleep(&(struct timespec){.tv_nsec = turns++ < 50 ? 20000 : 1000000}, NULL);
		own->stop = time(NULL) - started > PATIENCE_SECONDS;
	}
	return !own->stop;
}

struct peers_sum {
	struct peers_work work;
};

/* The sum of what all ranks have in their buffers. */
HOSTCUDA_KERNEL(peers_sum, struct peers_sum, HOSTCUDA_PARAM(struct peers_sum, work))
{
	const struct peers_work *work = &p->work;
	const struct peers_table *table = work->table;
	struct peers_signals *const *signals = work->signals[0] ? work->signals : table->signals,
				    *own = signals[work->rank];
	uint64_t operation = ++own->operations;
	int arrived = 1;
	for (int32_t to = 0; to < work->ranks; to++)
		__atomic_store_n(&signals[to]->arrived[work->rank], operation, __ATOMIC_RELEASE);
	for (int32_t from = 0; from < work->ranks; from++)
		arrived = await(own, &own->arrived[from], operation) && arrived;
	for (int32_t i = 0; i < work->n; i++) {
		float sum = arrived ? 0 : NAN;
		for (int32_t from = 0; from < work->ranks; from++)
			sum += table->buffers[from][i];
		work->data[i] = sum;
	}
	for (int32_t to = 0; to < work->ranks; to++)
		__atomic_store_n(&signals[to]->left[work->rank], operation, __ATOMIC_RELEASE);
	for (int32_t from = 0; from < work->ranks; from++)
		await(own, &own->left[from], operation);
}
