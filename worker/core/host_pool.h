/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of host memory that all engines share while they are swapped out (medusa.pool_bytes). */
#ifndef MD_WORKER_CORE_HOST_POOL_H
#define MD_WORKER_CORE_HOST_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct md_worker;
struct md_model;

/* Of the daemon; all zero, and fd -1, is without one. */
struct md_worker_pool {
	int fd;         /* -1: there is none, or not yet */
	uint64_t bytes; /* medusa.pool_bytes when the daemon began; 0: each engine has a pool of its own */
	uint64_t full;  /* how often an engine was stopped, because there was no room for it */
};

struct md_worker_pool_sizes {
	uint64_t bytes, held, cached, free;
};

/* Says what engines will need. Call it first: engines are started with what it decides. */
void md_pool_begin(struct md_worker *worker);
/*
 * Goes on with the pool of an engine that an earlier daemon has started: pid is its medusa-swap run. Any time before
 * md_pool_make. False: it has a shared pool, and that cannot be had or is another one than that of engines before it.
 */
bool md_pool_adopt(struct md_worker *worker, const char *model, pid_t pid);
/* Makes the pool, unless there is one or none is wanted. */
enum md_status md_pool_make(struct md_worker *worker, struct md_error *err);
void md_pool_end(struct md_worker *worker);

/* False: there is none. */
bool md_pool_sizes(const struct md_worker *worker, struct md_worker_pool_sizes *sizes);
/* There was no room for the model's engine, which is stopped instead. */
void md_pool_is_full(struct md_model *model);

#endif
