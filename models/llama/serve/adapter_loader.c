/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/serve/adapter_loader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

struct adapter_job *adapter_job_create(const char *name, const char *path)
{
	struct adapter_job *job = calloc(1, sizeof(*job));
	if (!job)
		return NULL;
	job->name = strdup(name);
	job->path = strdup(path);
	if (job->name && job->path)
		return job;
	adapter_job_destroy(job);
	return NULL;
}

void adapter_job_destroy(struct adapter_job *job)
{
	if (!job)
		return;
	lora_adapter_finish(&job->adapter);
	free(job->name);
	free(job->path);
	free(job);
}

static void ring(const struct adapter_loader *loader)
{
	uint64_t one = 1;
	/* a counter that is full rings as well */
	if (write(loader->fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		return;
}

static struct adapter_job *take_waiting(struct adapter_loader *loader)
{
	pthread_mutex_lock(&loader->lock);
	while (!loader->waiting && !loader->stopped)
		pthread_cond_wait(&loader->wake, &loader->lock);
	struct adapter_job *job = loader->stopped ? NULL : loader->waiting;
	if (job && !(loader->waiting = job->next))
		loader->waiting_end = &loader->waiting;
	pthread_mutex_unlock(&loader->lock);
	return job;
}

static void give_back(struct adapter_loader *loader, struct adapter_job *job)
{
	pthread_mutex_lock(&loader->lock);
	job->next = NULL;
	*loader->done_end = job;
	loader->done_end = &job->next;
	pthread_mutex_unlock(&loader->lock);
	ring(loader);
}

static void *run(void *context)
{
	struct adapter_loader *loader = context;
	for (struct adapter_job *job; (job = take_waiting(loader)); give_back(loader, job)) {
		job->status = lora_adapter_load(&job->adapter, job->path, loader->shape, loader->max_rank,
						loader->max_bytes, &job->err);
		if (job->status == MD_OK)
			continue;
		job->adapter = (struct lora_adapter){0};
		job->absent = access(job->path, F_OK) != 0;
	}
	return NULL;
}

enum md_status adapter_loader_init(struct adapter_loader *loader, struct md_error *err)
{
	pthread_mutex_init(&loader->lock, NULL);
	pthread_cond_init(&loader->wake, NULL);
	loader->waiting_end = &loader->waiting;
	loader->done_end = &loader->done;
	loader->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return loader->fd >= 0 ? MD_OK : md_error_set(err, MD_ERR_IO, "eventfd: %s", strerror(errno));
}

static void destroy_all(struct adapter_job *job)
{
	while (job) {
		struct adapter_job *next = job->next;
		adapter_job_destroy(job);
		job = next;
	}
}

void adapter_loader_finish(struct adapter_loader *loader)
{
	pthread_mutex_lock(&loader->lock);
	loader->stopped = true;
	pthread_cond_signal(&loader->wake);
	pthread_mutex_unlock(&loader->lock);
	if (loader->started)
		pthread_join(loader->thread, NULL);
	pthread_mutex_lock(&loader->lock);
	destroy_all(loader->waiting);
	destroy_all(loader->done);
	loader->waiting = loader->done = NULL;
	pthread_mutex_unlock(&loader->lock);
	if (loader->fd >= 0)
		close(loader->fd);
	pthread_cond_destroy(&loader->wake);
	pthread_mutex_destroy(&loader->lock);
}

void adapter_loader_submit(struct adapter_loader *loader, struct adapter_job *job)
{
	int error = loader->started ? 0 : md_thread_start(&loader->thread, run, loader);
	loader->started = !error;
	if (error) {
		job->status = md_error_set(&job->err, MD_ERR_IO, "a thread for adapters: %s", strerror(error));
		give_back(loader, job);
		return;
	}
	pthread_mutex_lock(&loader->lock);
	job->next = NULL;
	*loader->waiting_end = job;
	loader->waiting_end = &job->next;
	pthread_cond_signal(&loader->wake);
	pthread_mutex_unlock(&loader->lock);
}

struct adapter_job *adapter_loader_take(struct adapter_loader *loader)
{
	pthread_mutex_lock(&loader->lock);
	struct adapter_job *job = loader->done;
	if (job && !(loader->done = job->next))
		loader->done_end = &loader->done;
	pthread_mutex_unlock(&loader->lock);
	return job;
}
