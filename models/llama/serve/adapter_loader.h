/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that reads adapters from files, one after the other, so that nobody else waits for a disk. */
#ifndef LLAMA_SERVE_ADAPTER_LOADER_H
#define LLAMA_SERVE_ADAPTER_LOADER_H

#include <pthread.h>

#include "models/llama/adapters/adapter.h"

struct adapter_job {
	char *name, *path; /* the job's */
	void *owner;       /* NULL: nobody waits for it */
	bool again;        /* a name whose weights were forgotten */
	bool in_place;
	/* when it is done */
	bool absent; /* there is nothing at the path */
	enum md_status status;
	struct md_error err;
	struct lora_adapter adapter; /* the caller's, unless status is an error */
	struct adapter_job *next;
};

struct adapter_loader {
	const struct llama_shape *shape; /* set before the first job */
	int max_rank;
	size_t max_bytes;
	int fd;           /* an eventfd: readable when jobs are done */
	pthread_t thread; /* from the first job on */
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* guarded by the lock */
	struct adapter_job *waiting, **waiting_end;
	struct adapter_job *done, **done_end;
	bool stopped;
};

enum md_status adapter_loader_init(struct adapter_loader *loader, struct md_error *err);
/* Waits for the file that is being read; all other jobs are dropped. */
void adapter_loader_finish(struct adapter_loader *loader);

struct adapter_job *adapter_job_create(const char *name, const char *path); /* NULL: out of memory */
void adapter_job_destroy(struct adapter_job *job);                          /* NULL is fine */

void adapter_loader_submit(struct adapter_loader *loader, struct adapter_job *job);
struct adapter_job *adapter_loader_take(struct adapter_loader *loader); /* one that is done; NULL: none is */

#endif
