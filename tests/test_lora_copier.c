/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters come into a slot by threads, over a driver that copies as late as it may: what arrives, also in pieces and without
 * page-locked memory, what a failure says, and that no copy is on its way afterwards.
 */
#include "models/llama/lora/copier.c"
#include "models/llama/lora/pool.c"

#include <criterion/criterion.h>
#include <unistd.h>

#define CONTEXT ((CUcontext)0x77)
enum { LAYERS = 23, RANK = 8, SLOTS = 2, MOST_COPIES = 1024, MOST_EVENTS = 16 };

static const struct llama_shape shape = {
    .hidden_size = 24, .intermediate_size = 40, .layers = LAYERS, .heads = 3, .kv_heads = 1, .head_dim = 8};
static unsigned processors;

/* ---- the rest of the engine ---- */

unsigned loader_default_threads(void)
{
	return processors;
}

enum md_status llama_launch(const struct llama_device *device, enum llama_kernel kernel, struct llama_grid grid,
			    CUstream stream, void **parameters, struct md_error *err)
{
	(void)device, (void)kernel, (void)grid, (void)stream, (void)parameters;
	return md_error_set(err, MD_ERR_DRIVER, "nothing is launched here");
}

int lora_inputs(const struct llama_shape *of, enum lora_projection projection)
{
	return projection == LORA_DOWN ? of->intermediate_size : of->hidden_size;
}

int lora_outputs(const struct llama_shape *of, enum lora_projection projection)
{
	const int outputs[] = {24, 8, 8, 24, 40, 40, 24};
	(void)of;
	return outputs[projection];
}

/* ---- the device ---- */

static _Thread_local CUcontext current;
static struct {
	pthread_mutex_t lock;
	const char *failing; /* a call of the driver */
	unsigned calls, at;  /* the one that fails first */
	struct copy {
		CUdeviceptr to;
		const void *from;
		size_t bytes;
	} waiting[MOST_COPIES];
	size_t submitted, copied, live, events;
	size_t recorded[MOST_EVENTS];
	bool wrong_context;
} device;

/* Each call of the driver begins here, and takes the lock. */
static CUresult enter(const char *call)
{
	pthread_mutex_lock(&device.lock);
	device.wrong_context |= current != CONTEXT && strcmp(call, "cuCtxSetCurrent") != 0;
	if (!device.failing || strcmp(device.failing, call) != 0 || ++device.calls < device.at)
		return CUDA_SUCCESS;
	pthread_mutex_unlock(&device.lock);
	return CUDA_ERROR_ILLEGAL_ADDRESS;
}

#define ENTER(call)                                                                                                    \
	do {                                                                                                           \
		CUresult entered = enter(call);                                                                        \
		if (entered != CUDA_SUCCESS)                                                                           \
			return entered;                                                                                \
	} while (0)

/* Threads take turns, so that each of them has layers to copy. */
static CUresult leave(void)
{
	pthread_mutex_unlock(&device.lock);
	usleep(1);
	return CUDA_SUCCESS;
}

static void copy_until(size_t end)
{
	for (; device.copied < end; device.copied++) {
		const struct copy *one = &device.waiting[device.copied];
		memcpy((void *)(uintptr_t)one->to, one->from, one->bytes);
	}
}

static void forget_copies(void)
{
	device.submitted = device.copied = 0;
	memset(device.recorded, 0, sizeof(device.recorded));
}

static CUresult CUDAAPI set_current(CUcontext context)
{
	ENTER("cuCtxSetCurrent");
	current = context;
	return leave();
}

static CUresult CUDAAPI host_alloc(void **out, size_t bytes, unsigned flags)
{
	(void)flags;
	ENTER("cuMemHostAlloc");
	*out = malloc(bytes);
	device.live++;
	return leave();
}

static CUresult CUDAAPI host_free(void *memory)
{
	ENTER("cuMemFreeHost");
	free(memory);
	device.live--;
	return leave();
}

static CUresult CUDAAPI event_create(CUevent *out, unsigned flags)
{
	(void)flags;
	ENTER("cuEventCreate");
	*out = (CUevent)&device.recorded[device.events++];
	device.live++;
	return leave();
}

static CUresult CUDAAPI event_destroy(CUevent event)
{
	ENTER("cuEventDestroy_v2");
	device.live -= event != NULL;
	return leave();
}

static CUresult CUDAAPI event_record(CUevent event, CUstream stream)
{
	(void)stream;
	ENTER("cuEventRecord");
	*(size_t *)event = device.submitted;
	return leave();
}

static CUresult CUDAAPI event_synchronize(CUevent event)
{
	ENTER("cuEventSynchronize");
	copy_until(*(size_t *)event);
	return leave();
}

static CUresult CUDAAPI copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	(void)stream;
	ENTER("cuMemcpyHtoDAsync_v2");
	device.waiting[device.submitted++] = (struct copy){to, from, bytes};
	return leave();
}

static CUresult CUDAAPI stream_synchronize(CUstream stream)
{
	(void)stream;
	ENTER("cuStreamSynchronize");
	copy_until(device.submitted);
	return leave();
}

static CUresult CUDAAPI error_name(CUresult error, const char **out)
{
	*out = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "another";
	return CUDA_SUCCESS;
}

static void open_device(void)
{
	pthread_mutex_init(&device.lock, NULL);
	current = CONTEXT;
	md_cuda.cuGetErrorName = error_name;
	md_cuda.cuCtxSetCurrent = set_current;
	md_cuda.cuMemHostAlloc = host_alloc;
	md_cuda.cuMemFreeHost = host_free;
	md_cuda.cuEventCreate = event_create;
	md_cuda.cuEventDestroy_v2 = event_destroy;
	md_cuda.cuEventRecord = event_record;
	md_cuda.cuEventSynchronize = event_synchronize;
	md_cuda.cuMemcpyHtoDAsync_v2 = copy_to_device;
	md_cuda.cuStreamSynchronize = stream_synchronize;
}

TestSuite(lora_copier, .init = open_device);

/* ---- an adapter ---- */

struct fixture {
	struct lora_pool pool;
	struct lora_copier copier;
	struct lora_adapter adapter;
	struct lora_part parts[LAYERS * LORA_PROJECTIONS];
	uint16_t values[1 << 16];
	uint16_t *memory; /* the slots */
	struct md_error err;
};

/* Ranks differ, and some projections are left out. */
static void make_parts(struct fixture *f)
{
	for (int i = 0; i < LAYERS * LORA_PROJECTIONS; i++) {
		const enum lora_projection projection = (enum lora_projection)(i % LORA_PROJECTIONS);
		int rank = 1 + i * 5 % RANK;
		if (i % 11 == 3)
			continue;
		f->parts[i] =
		    (struct lora_part){.a = f->values + i * 131, .b = f->values + i * 97 + 1, .rank = rank, .scale = 1};
		cr_assert_leq(i * 131 + rank * lora_inputs(&shape, projection), (int)(sizeof(f->values) / 2));
	}
}

static struct fixture *make(unsigned threads)
{
	struct fixture *f = calloc(1, sizeof(*f));
	processors = threads;
	for (size_t i = 0; i < sizeof(f->values) / 2; i++)
		f->values[i] = (uint16_t)(i * 40503u >> 3 | 1);
	make_parts(f);
	f->adapter = (struct lora_adapter){.parts = f->parts, .layers = LAYERS, .rank = RANK};
	f->pool = (struct lora_pool){.shape = &shape, .slots = SLOTS, .max_rank = RANK};
	lay_out(&f->pool);
	f->memory = calloc(SLOTS * f->pool.slot_elements, 2);
	f->pool.weights.address = (CUdeviceptr)(uintptr_t)f->memory;
	return f;
}

static enum md_status begin(struct fixture *f)
{
	return lora_copier_init(&f->copier, &f->pool, CONTEXT, &f->err);
}

static void finish(struct fixture *f)
{
	device.failing = NULL;
	lora_copier_finish(&f->copier);
	cr_assert_eq(device.live, 0, "%zu events and allocations are left", device.live);
	cr_assert(!device.wrong_context, "a call without the context");
	free(f->memory);
	free(f);
}

/* In pieces of so many layers, into slot 0; slot 1 gets the same from the adapter's own memory, layer by layer. */
static void assert_arrives(struct fixture *f, int piece)
{
	for (int first = 0; first < LAYERS; first += piece) {
		int count = LAYERS - first < piece ? LAYERS - first : piece;
		cr_assert_eq(lora_copier_put(&f->copier, NULL, 0, first, count, &f->adapter, &f->err), MD_OK, "%s",
			     f->err.message);
		cr_assert_eq(device.copied, device.submitted, "copies are on their way");
	}
	for (int layer = 0; layer < LAYERS; layer++)
		cr_assert_eq(lora_pool_put_layer(&f->pool, NULL, 1, layer, &f->adapter, NULL, &f->err), MD_OK);
	copy_until(device.submitted);
	cr_assert(!memcmp(f->memory, f->memory + f->pool.slot_elements, 2 * f->pool.slot_elements),
		  "pieces of %d layers, %u threads: other bytes", piece, f->copier.threads);
	forget_copies();
	memset(f->memory, 0, 2 * SLOTS * f->pool.slot_elements);
}

Test(lora_copier, all_of_an_adapter_arrives)
{
	for (unsigned threads = 1; threads <= 6; threads++) {
		struct fixture *f = make(threads);
		cr_assert_eq(begin(f), MD_OK, "%s", f->err.message);
		cr_assert_eq(f->copier.threads, threads < LORA_COPIER_THREADS ? threads : LORA_COPIER_THREADS);
		for (int piece = 1; piece <= LAYERS; piece += 11)
			assert_arrives(f, piece);
		device.events = 0;
		finish(f);
	}
}

Test(lora_copier, without_page_locked_memory)
{
	struct fixture *f = make(4);
	device.failing = "cuMemHostAlloc";
	cr_assert_eq(begin(f), MD_OK, "%s", f->err.message);
	cr_assert_eq(f->copier.threads, 0);
	assert_arrives(f, LAYERS);
	finish(f);
}

Test(lora_copier, a_failure_ends_it_with_no_copy_on_its_way)
{
	static const char *const calls[] = {"cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize",
					    "cuCtxSetCurrent"};
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct fixture *f = make(1 + 3 * (i == 3));
		cr_assert_eq(begin(f), MD_OK);
		device.failing = calls[i];
		device.at = i == 3 ? 1 : 5;
		device.calls = 0;
		enum md_status status = lora_copier_put(&f->copier, NULL, 0, 0, LAYERS, &f->adapter, &f->err);
		cr_assert_eq(status, MD_ERR_DRIVER, "%s: status %d", calls[i], (int)status);
		cr_assert(strstr(f->err.message, calls[i]), "%s: %s", calls[i], f->err.message);
		cr_assert_eq(device.copied, device.submitted, "%s: copies are on their way", calls[i]);
		device.failing = NULL;
		forget_copies();
		assert_arrives(f, LAYERS);
		device.events = 0;
		finish(f);
	}
}

Test(lora_copier, no_events)
{
	struct fixture *f = make(4);
	device.failing = "cuEventCreate";
	device.at = 3;
	cr_assert_eq(begin(f), MD_ERR_DRIVER);
	finish(f);
}
