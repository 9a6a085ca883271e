/* SPDX-License-Identifier: Apache-2.0 */
/* Copies layers of an adapter into a slot: several threads, each through page-locked memory of its own. */
#ifndef LLAMA_LORA_COPIER_H
#define LLAMA_LORA_COPIER_H

#include <stdbool.h>

#include "models/llama/lora/pool.h"

enum { LORA_COPIER_THREADS = 4, LORA_COPIER_BUFFERS = 2 /* of each thread */ };

struct lora_copier {
	struct lora_pool *pool;
	CUcontext context;
	unsigned threads;    /* 0: copies are made from the adapter's own memory, which takes longer */
	size_t buffer_bytes; /* has room for a layer */
	unsigned char *staging;
	CUevent copied[LORA_COPIER_THREADS][LORA_COPIER_BUFFERS];
};

/*
 * context is current in the calling thread. Takes page-locked memory of two layers for each thread; where the driver has
 * none, threads is 0, which is no error. Nothing is taken for a pool without slots.
 */
enum md_status lora_copier_init(struct lora_copier *copier, struct lora_pool *pool, CUcontext context,
				struct md_error *err);
void lora_copier_finish(struct lora_copier *copier); /* also on a zeroed one */

/*
 * Layers `first` to `first + count - 1` of the adapter into a slot that no token uses. Waits until they are there. One
 * thread calls it at a time.
 */
enum md_status lora_copier_put(struct lora_copier *copier, CUstream stream, int slot, int first, int count,
			       const struct lora_adapter *adapter, struct md_error *err);

#endif
