/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that write and read blocks of the spill file, in the order in which they were asked for. */
#include "swap/spill_queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "swap/pulse.h"

struct md_swap_spill_queue {
	const struct md_swap_spill_file *file;
	pthread_mutex_t lock;
	pthread_cond_t more, less; /* a job was put in, or the end has come; a job is done */
	struct md_swap_spill_job *first, *last;
	bool ends;
	pthread_t threads[MD_SWAP_SPILL_AT_ONCE];
	unsigned count;
};

static int carry_out(const struct md_swap_spill_file *file, const struct md_swap_spill_job *job)
{
	return job->write ? md_swap_spill_write(file, job->block, job->data)
			  : md_swap_spill_read(file, job->block, job->data);
}

/* NULL: the end has come, and no job is left. The lock is held. */
static struct md_swap_spill_job *next_job(struct md_swap_spill_queue *queue)
{
	while (!queue->first && !queue->ends)
		pthread_cond_wait(&queue->more, &queue->lock);
	struct md_swap_spill_job *job = queue->first;
	if (job)
		queue->first = job->next;
	return job;
}

static void *work(void *argument)
{
	struct md_swap_spill_queue *queue = argument;
	struct md_swap_spill_job *job;
	pthread_mutex_lock(&queue->lock);
	while ((job = next_job(queue)) != NULL) {
		pthread_mutex_unlock(&queue->lock);
		int failure = carry_out(queue->file, job);
		md_swap_pulse_step();
		pthread_mutex_lock(&queue->lock);
		job->failure = failure;
		job->done = true;
		pthread_cond_broadcast(&queue->less);
	}
	pthread_mutex_unlock(&queue->lock);
	return NULL;
}

enum md_status md_swap_spill_queue_begin(const struct md_swap_spill_file *file, struct md_swap_spill_queue **queue,
					 struct md_error *err)
{
	struct md_swap_spill_queue *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a queue of blocks");
	made->file = file;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->more, NULL);
	pthread_cond_init(&made->less, NULL);
	while (made->count < MD_SWAP_SPILL_AT_ONCE && !md_thread_start(&made->threads[made->count], work, made))
		made->count++;
	*queue = made;
	return MD_OK;
}

void md_swap_spill_put(struct md_swap_spill_queue *queue, struct md_swap_spill_job *job)
{
	job->next = NULL;
	job->done = false;
	if (!queue->count) { /* the calling thread is one of ours, and blocks signals, too */
		job->failure = carry_out(queue->file, job);
		job->done = true;
		return;
	}
	pthread_mutex_lock(&queue->lock);
	if (queue->first)
		queue->last->next = job;
	else
		queue->first = job;
	queue->last = job;
	pthread_cond_signal(&queue->more);
	pthread_mutex_unlock(&queue->lock);
}

int md_swap_spill_await(struct md_swap_spill_queue *queue, struct md_swap_spill_job *job)
{
	pthread_mutex_lock(&queue->lock);
	while (!job->done)
		pthread_cond_wait(&queue->less, &queue->lock);
	pthread_mutex_unlock(&queue->lock);
	return job->failure;
}

void md_swap_spill_queue_end(struct md_swap_spill_queue *queue)
{
	if (!queue)
		return;
	pthread_mutex_lock(&queue->lock);
	queue->ends = true;
	pthread_cond_broadcast(&queue->more);
	pthread_mutex_unlock(&queue->lock);
	for (unsigned i = 0; i < queue->count; i++)
		pthread_join(queue->threads[i], NULL);
	pthread_mutex_destroy(&queue->lock);
	pthread_cond_destroy(&queue->more);
	pthread_cond_destroy(&queue->less);
	free(queue);
}
