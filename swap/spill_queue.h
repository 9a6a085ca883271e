/* SPDX-License-Identifier: Apache-2.0 */
/* Several blocks on their way to and from the spill file at once, by a few threads. */
#ifndef MD_SWAP_SPILL_QUEUE_H
#define MD_SWAP_SPILL_QUEUE_H

#include "swap/spill_file.h"

#define MD_SWAP_SPILL_AT_ONCE 8u

/* Belongs to the caller, and must stay until md_swap_spill_await has returned, or the queue has ended. */
struct md_swap_spill_job {
	uint32_t block; /* of the file */
	void *data;
	bool write;
	int failure; /* errno; when it is done */
	bool done;
	struct md_swap_spill_job *next;
};

struct md_swap_spill_queue;

/* Takes jobs for the file until it ends. Without a single thread, jobs are done when they are put in. */
enum md_status md_swap_spill_queue_begin(const struct md_swap_spill_file *file, struct md_swap_spill_queue **queue,
					 struct md_error *err);
void md_swap_spill_put(struct md_swap_spill_queue *queue, struct md_swap_spill_job *job);
/* Waits for a job that was put in. Its failure. */
int md_swap_spill_await(struct md_swap_spill_queue *queue, struct md_swap_spill_job *job);
/* Waits for all jobs. NULL is allowed. */
void md_swap_spill_queue_end(struct md_swap_spill_queue *queue);

#endif
