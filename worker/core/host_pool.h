/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of host memory that all engines share while they are swapped out (medusa.pool_bytes, medusa.spill). */
#ifndef MD_WORKER_CORE_HOST_POOL_H
#define MD_WORKER_CORE_HOST_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct md_worker;
struct md_model;

/* Of the daemon, when it began. */
struct md_worker_pool {
	int fds[2];           /* the pool's, and its spill file's; -1: there is none, or not yet */
	uint64_t bytes;       /* medusa.pool_bytes; 0: each engine has a pool of its own */
	const char *spill;    /* medusa.spill, owned; NULL: there is no file */
	uint64_t spill_bytes; /* medusa.spill_bytes */
	uint64_t full;        /* how often an engine was stopped, because there was no room for it */
};

struct md_worker_pool_sizes {
	uint64_t bytes, held, cached, free;
	uint64_t spill_bytes, spill_held, spill_cached, spill_free; /* of the spill file; 0 without one */
};

/* Call it first: engines are started with what it decides. */
enum md_status md_pool_begin(struct md_worker *worker, struct md_error *err);
/*
 * Goes on with the pool of an engine that an earlier daemon has started: pid is its medusa-swap run. Any time before
 * md_pool_make. False: it has a shared pool, and that cannot be had, or is another one than that of engines before it, or has a
 * spill file where the configuration has none, or the other way round.
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
