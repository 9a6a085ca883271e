/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A processor copies to page-locked memory while the device copies from it, so that 60 MB take two milliseconds instead of
 * eight. The adapters' own memory is not page-locked: taking and releasing such memory waits while the engine is swapped
 * out, and adapters are loaded and unloaded then, too.
 */
#include "models/llama/lora/copier.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/thread.h"
#include "models/llama/loader.h"

struct layers { /* that are copied now */
	const struct lora_copier *copier;
	const struct lora_adapter *adapter;
	CUstream stream;
	int slot, end;
	atomic_int next;
	pthread_mutex_t lock;
	struct md_error error; /* guarded by the lock: the first one */
};

struct layer_thread {
	struct layers *layers;
	unsigned number;
	pthread_t thread;
	bool started;
};

static void fail(struct layers *layers, const struct md_error *why)
{
	pthread_mutex_lock(&layers->lock);
	if (layers->error.status == MD_OK)
		layers->error = *why;
	pthread_mutex_unlock(&layers->lock);
	atomic_store(&layers->next, layers->end);
}

static enum md_status put_layer(const struct layers *layers, int layer, unsigned char *buffer, CUevent copied,
				struct md_error *err)
{
	const struct lora_copier *copier = layers->copier;
	MD_FORWARD(md_cuda_call(err, cuEventSynchronize, copied)); /* not recorded yet: it is done */
	MD_FORWARD(
	    lora_pool_put_layer(copier->pool, layers->stream, layers->slot, layer, layers->adapter, buffer, err));
	return md_cuda_call(err, cuEventRecord, copied, layers->stream);
}

static void put_layers(const struct layer_thread *own)
{
	struct layers *layers = own->layers;
	const struct lora_copier *copier = layers->copier;
	struct md_error err;
	int layer;
	for (unsigned turn = 0; (layer = atomic_fetch_add(&layers->next, 1)) < layers->end; turn++) {
		unsigned number = turn % LORA_COPIER_BUFFERS;
		unsigned char *buffer =
		    copier->staging + (own->number * LORA_COPIER_BUFFERS + number) * copier->buffer_bytes;
		if (put_layer(layers, layer, buffer, copier->copied[own->number][number], &err) != MD_OK)
			fail(layers, &err);
	}
}

static void *run(void *argument)
{
	const struct layer_thread *own = argument;
	struct md_error err;
	if (md_cuda_call(&err, cuCtxSetCurrent, own->layers->copier->context) == MD_OK)
		put_layers(own);
	else
		fail(own->layers, &err);
	return NULL;
}

/* A thread that cannot be started leaves its layers to the others; the calling one is always there. */
static void run_all(struct layers *layers, unsigned count)
{
	struct layer_thread threads[LORA_COPIER_THREADS] = {0};
	for (unsigned i = 0; i < count; i++)
		threads[i] = (struct layer_thread){.layers = layers, .number = i};
	for (unsigned i = 1; i < count; i++)
		threads[i].started = !md_thread_start(&threads[i].thread, run, &threads[i]);
	put_layers(&threads[0]);
	for (unsigned i = 1; i < count; i++)
		if (threads[i].started)
			pthread_join(threads[i].thread, NULL);
}

/* Also after a failure the stream is awaited: copies that are on their way read the staging memory. */
static enum md_status put_staged(const struct lora_copier *copier, CUstream stream, int slot, int first, int count,
				 const struct lora_adapter *adapter, struct md_error *err)
{
	struct layers layers = {.copier = copier,
				.adapter = adapter,
				.stream = stream,
				.slot = slot,
				.end = first + count,
				.lock = PTHREAD_MUTEX_INITIALIZER};
	atomic_init(&layers.next, first);
	run_all(&layers, (unsigned)count < copier->threads ? (unsigned)count : copier->threads);
	enum md_status status = md_cuda_call(err, cuStreamSynchronize, stream);
	if (layers.error.status == MD_OK)
		return status;
	if (err)
		*err = layers.error;
	return layers.error.status;
}

enum md_status lora_copier_put(struct lora_copier *copier, CUstream stream, int slot, int first, int count,
			       const struct lora_adapter *adapter, struct md_error *err)
{
	if (copier->threads && count > 1)
		return put_staged(copier, stream, slot, first, count, adapter, err);
	for (int layer = first; layer < first + count; layer++)
		MD_FORWARD(lora_pool_put_layer(copier->pool, stream, slot, layer, adapter, NULL, err));
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

enum md_status lora_copier_init(struct lora_copier *copier, struct lora_pool *pool, CUcontext context,
				struct md_error *err)
{
	unsigned threads = loader_default_threads();
	*copier = (struct lora_copier){.pool = pool, .context = context, .buffer_bytes = 2 * pool->layer_elements};
	if (!pool->slots)
		return MD_OK;
	threads = threads < LORA_COPIER_THREADS ? threads : LORA_COPIER_THREADS;
	if (md_cuda_call(NULL, cuMemHostAlloc, (void **)&copier->staging,
			 (size_t)threads * LORA_COPIER_BUFFERS * copier->buffer_bytes, 0) != MD_OK)
		return MD_OK;
	copier->threads = threads;
	for (unsigned i = 0; i < threads; i++)
		for (unsigned k = 0; k < LORA_COPIER_BUFFERS; k++)
			MD_FORWARD(md_cuda_call(err, cuEventCreate, &copier->copied[i][k], CU_EVENT_DISABLE_TIMING));
	return MD_OK;
}

void lora_copier_finish(struct lora_copier *copier)
{
	for (unsigned i = 0; i < LORA_COPIER_THREADS; i++)
		for (unsigned k = 0; k < LORA_COPIER_BUFFERS; k++)
			if (copier->copied[i][k])
				md_cuda_call(NULL, cuEventDestroy_v2, copier->copied[i][k]);
	if (copier->staging)
		md_cuda_call(NULL, cuMemFreeHost, copier->staging);
	memset(copier, 0, sizeof(*copier));
}
