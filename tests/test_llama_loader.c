/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading tensors from a file with threads, over a driver that copies as late as it may: what arrives, in which order,
 * what a failure says, and that nothing is left behind.
 */
#include "models/llama/gguf.c"
#include "models/llama/loader.c"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define CONTEXT ((CUcontext)0x77)
#define MOST_EVENTS 256
#define MOST_COPIES 256
#define MOST_TENSORS 16

/* ---- reads that go wrong ------------------------------------------------------------------------------------------ */

static struct {
	atomic_uint calls;
	unsigned at; /* the call that fails, or shortens the file; 0: none */
	int error;
	bool crumble; /* every second call is interrupted, and the others give a part */
	bool shorten;
} reads;

ssize_t pread(int fd, void *out, size_t size, off_t offset)
{
	unsigned call = atomic_fetch_add(&reads.calls, 1) + 1;
	if (reads.crumble && call % 2) {
		errno = EINTR;
		return -1;
	}
	if (reads.at && call >= reads.at && reads.shorten)
		cr_assert_eq(ftruncate(fd, offset), 0);
	if (reads.at && call >= reads.at && reads.error) {
		errno = reads.error;
		return -1;
	}
	return syscall(SYS_pread64, fd, out, reads.crumble && size > 1 ? size / 2 : size, offset);
}

/* ---- a driver ----------------------------------------------------------------------------------------------------- */

static _Thread_local CUcontext current;
static struct {
	pthread_mutex_t lock;
	struct copy {
		CUdeviceptr to;
		const void *from;
		size_t bytes;
	} copies[MOST_COPIES];
	size_t copied, submitted, recorded[MOST_EVENTS], events, live; /* live: streams, events, page-locked memory */
	bool wrong_context;
	const char *failing;
	unsigned calls, at;
} device;

/* Each call of the driver begins here. */
static CUresult enter(const char *call)
{
	pthread_mutex_lock(&device.lock);
	device.wrong_context |= current != CONTEXT && strcmp(call, "cuCtxSetCurrent") != 0;
	bool fails = device.failing && !strcmp(device.failing, call) && ++device.calls >= device.at;
	if (fails)
		pthread_mutex_unlock(&device.lock);
	return fails ? strcmp(call, "cuMemHostAlloc") ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_OUT_OF_MEMORY
		     : CUDA_SUCCESS;
}

#define ENTER(call)                                                                                                    \
	do {                                                                                                           \
		CUresult entered = enter(call);                                                                        \
		if (entered != CUDA_SUCCESS)                                                                           \
			return entered;                                                                                \
	} while (0)

static CUresult leave(void)
{
	pthread_mutex_unlock(&device.lock);
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI set_current(CUcontext context)
{
	ENTER("cuCtxSetCurrent");
	current = context;
	return leave();
}

static CUresult CUDAAPI host_alloc(void **out, size_t bytes, unsigned flags)
{
	ENTER("cuMemHostAlloc");
	(void)flags;
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

static CUresult CUDAAPI stream_create(CUstream *out, unsigned flags)
{
	ENTER("cuStreamCreate");
	(void)flags;
	*out = (CUstream)&device;
	device.live++;
	return leave();
}

static CUresult CUDAAPI stream_destroy(CUstream stream)
{
	ENTER("cuStreamDestroy_v2");
	device.live -= stream == (CUstream)&device;
	return leave();
}

static CUresult CUDAAPI event_create(CUevent *out, unsigned flags)
{
	ENTER("cuEventCreate");
	(void)flags;
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

/* As late as it may: a buffer that is filled again before its copy was waited for gives wrong weights. */
static void copy_until(size_t end)
{
	for (; device.copied < end; device.copied++) {
		const struct copy *copy = &device.copies[device.copied];
		memcpy((void *)(uintptr_t)copy->to, copy->from, copy->bytes);
	}
}

static CUresult CUDAAPI copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ENTER("cuMemcpyHtoDAsync_v2");
	(void)stream;
	device.copies[device.submitted++] = (struct copy){to, from, bytes};
	return leave();
}

static CUresult CUDAAPI event_record(CUevent event, CUstream stream)
{
	ENTER("cuEventRecord");
	(void)stream;
	*(size_t *)event = device.submitted;
	return leave();
}

static CUresult CUDAAPI event_synchronize(CUevent event)
{
	ENTER("cuEventSynchronize");
	copy_until(*(size_t *)event);
	return leave();
}

static CUresult CUDAAPI stream_synchronize(CUstream stream)
{
	ENTER("cuStreamSynchronize");
	(void)stream;
	copy_until(device.submitted);
	return leave();
}

static CUresult CUDAAPI error_name(CUresult error, const char **out)
{
	*out = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_ILLEGAL_ADDRESS";
	return CUDA_SUCCESS;
}

static void open_device(void)
{
	current = CONTEXT;
	pthread_mutex_init(&device.lock, NULL);
	device.copied = device.submitted = device.events = device.live = device.calls = 0;
	md_cuda.cuGetErrorName = error_name;
	md_cuda.cuCtxSetCurrent = set_current;
	md_cuda.cuMemHostAlloc = host_alloc;
	md_cuda.cuMemFreeHost = host_free;
	md_cuda.cuStreamCreate = stream_create;
	md_cuda.cuStreamDestroy_v2 = stream_destroy;
	md_cuda.cuStreamSynchronize = stream_synchronize;
	md_cuda.cuEventCreate = event_create;
	md_cuda.cuEventDestroy_v2 = event_destroy;
	md_cuda.cuEventRecord = event_record;
	md_cuda.cuEventSynchronize = event_synchronize;
	md_cuda.cuMemcpyHtoDAsync_v2 = copy_to_device;
}

/* ---- a file ------------------------------------------------------------------------------------------------------- */

static const struct sort {
	enum gguf_tensor_type type;
	uint64_t columns, rows;
} every_sort[] = {
    {GGUF_TENSOR_BF16, 7, 1},  {GGUF_TENSOR_BF16, PIECE_ELEMENTS + 3, 2}, /* three pieces */
    {GGUF_TENSOR_F32, 33, 1},  {GGUF_TENSOR_F32, RAW_ELEMENTS + 1, 1},
    {GGUF_TENSOR_F16, 5, 3},   {GGUF_TENSOR_F16, PIECE_ELEMENTS + 1, 1},
    {GGUF_TENSOR_Q8_0, 64, 1}, {GGUF_TENSOR_Q8_0, RAW_ELEMENTS + 32, 3},
    {GGUF_TENSOR_Q4_0, 32, 5}, {GGUF_TENSOR_Q4_0, PIECE_ELEMENTS, 1}, /* exactly one piece */
    {GGUF_TENSOR_Q4_1, 96, 3}, {GGUF_TENSOR_Q4_1, PIECE_ELEMENTS + 32, 1},
    {GGUF_TENSOR_BF16, 1, 1},
};
#define SORTS (sizeof(every_sort) / sizeof(every_sort[0]))
#define PLAIN 1, 1 /* the tensor of three pieces alone */

struct fixture {
	struct md_buf bytes;
	char path[32];
	struct gguf gguf;
	struct loader_part parts[MOST_TENSORS];
	size_t count;
	uint16_t *memory[MOST_TENSORS], *want[MOST_TENSORS];
	struct loader_report report;
	struct md_error err;
};

static void align_file(struct md_buf *buf)
{
	while (buf->size % 32)
		md_buf_put_u8(buf, 0);
}

/* Bytes of any value: among the floats are infinities and NaNs. */
static void put_noise(struct md_buf *buf, size_t bytes)
{
	static uint64_t state = 88172645463325252u;
	for (size_t i = 0; i < bytes; i++) {
		if (i % 8 == 0)
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		md_buf_put_u8(buf, (uint8_t)(state >> i % 8 * 8));
	}
}

static void put_file(struct fixture *f, size_t first, size_t count)
{
	uint64_t offset = 0;
	md_buf_init(&f->bytes);
	md_buf_put(&f->bytes, "GGUF", 4);
	md_buf_put_u32(&f->bytes, 3);
	md_buf_put_u64(&f->bytes, count);
	md_buf_put_u64(&f->bytes, 0);
	for (size_t i = first; i < first + count; i++) {
		const struct sort *sort = &every_sort[i];
		struct gguf_tensor tensor = {.type = sort->type, .shape = {sort->columns, sort->rows, 1, 1}};
		md_buf_put_u64(&f->bytes, 3);
		md_buf_put(&f->bytes, (char[]){'t', (char)('0' + i / 10), (char)('0' + i % 10)}, 3);
		md_buf_put_u32(&f->bytes, 2);
		md_buf_put_u64(&f->bytes, sort->columns);
		md_buf_put_u64(&f->bytes, sort->rows);
		md_buf_put_u32(&f->bytes, sort->type);
		md_buf_put_u64(&f->bytes, offset);
		cr_assert_eq(size_tensor(&tensor, 0, NULL), MD_OK);
		offset += (tensor.size + 31) / 32 * 32;
	}
	align_file(&f->bytes);
	put_noise(&f->bytes, offset);
}

static void make(struct fixture *f, size_t first, size_t count)
{
	memset(f, 0, sizeof(*f));
	put_file(f, first, count);
	atomic_store(&reads.calls, 0);
	strcpy(f->path, "/tmp/llama-loader-XXXXXX");
	int fd = mkstemp(f->path);
	cr_assert_eq(md_file_write(fd, f->bytes.data, f->bytes.size, f->path, NULL), MD_OK);
	cr_assert_eq(gguf_open(&f->gguf, f->path, &f->err), MD_OK, "%s", f->err.message);
	close(f->gguf.fd);
	f->gguf.fd = fd; /* may be written, and so shortened */
	f->count = count;
	for (size_t i = 0; i < count; i++) {
		const struct gguf_tensor *tensor = &f->gguf.tensors[i];
		f->memory[i] = calloc(tensor->elements, 2);
		f->want[i] = calloc(tensor->elements, 2);
		f->parts[i] = (struct loader_part){tensor, (CUdeviceptr)(uintptr_t)f->memory[i]};
		gguf_to_bf16(tensor->type, f->bytes.data + tensor->offset, tensor->elements, f->want[i]);
	}
	atomic_store(&reads.calls, 0);
}

static void finish(struct fixture *f)
{
	for (size_t i = 0; i < f->count; i++) {
		free(f->memory[i]);
		free(f->want[i]);
	}
	gguf_close(&f->gguf);
	md_buf_finish(&f->bytes);
	unlink(f->path);
}

static enum md_status load(struct fixture *f, unsigned threads)
{
	open_device();
	enum md_status status = loader_run(&f->gguf, f->parts, f->count, CONTEXT, threads, &f->report, &f->err);
	cr_assert_eq(device.live, 0, "%zu streams, events and allocations are left", device.live);
	cr_assert(!device.wrong_context, "a call without the context");
	return status;
}

static void assert_loaded(struct fixture *f, unsigned threads)
{
	cr_assert_eq(load(f, threads), MD_OK, "%u threads: %s", threads, f->err.message);
	for (size_t i = 0; i < f->count; i++) {
		size_t bytes = f->parts[i].tensor->elements * 2;
		cr_assert(!memcmp(f->memory[i], f->want[i], bytes), "%u threads: other elements of tensor %zu", threads,
			  i);
		memset(f->memory[i], 0, bytes);
	}
}

Test(llama_loader, gives_each_type_bit_by_bit)
{
	static const unsigned threads[] = {1, 2, 3, 8, 64};
	struct fixture f;
	make(&f, 0, SORTS);
	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
		assert_loaded(&f, threads[i]);
	cr_assert_eq(f.report.threads, SORTS + 4, "no more threads than pieces");
	cr_assert(f.report.page_locked);
	finish(&f);
}

/* One thread shows the order of the queue: that of the parts, each from its first element on. */
Test(llama_loader, goes_in_the_order_of_the_parts)
{
	struct fixture f;
	size_t seen = 0;
	make(&f, 0, SORTS);
	assert_loaded(&f, 1);
	for (size_t i = 0; i < f.count; i++)
		for (uint64_t done = 0; done < f.parts[i].tensor->elements * 2; done += device.copies[seen++].bytes)
			cr_assert_eq(device.copies[seen].to, f.parts[i].target + done, "copy %zu", seen);
	cr_assert_eq(seen, device.submitted);
	cr_assert_eq(f.report.staging_bytes, BUFFERS * (size_t)PIECE_ELEMENTS * 2);
	finish(&f);
}

Test(llama_loader, goes_on_after_short_and_interrupted_reads)
{
	struct fixture f;
	make(&f, 0, SORTS);
	reads.crumble = true;
	assert_loaded(&f, 1);
	assert_loaded(&f, 8);
	reads.crumble = false;
	finish(&f);
}

Test(llama_loader, does_without_page_locked_memory, .init = cr_redirect_stderr)
{
	char said[512];
	struct fixture f;
	make(&f, 0, SORTS);
	device.failing = "cuMemHostAlloc";
	assert_loaded(&f, 8);
	device.failing = NULL;
	cr_assert(!f.report.page_locked);
	finish(&f);
	fflush(stderr);
	size_t size = fread(said, 1, sizeof(said) - 1, cr_get_redirected_stderr());
	said[size] = 0;
	cr_assert(strstr(said, "pageable memory, which is slower: cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY"), "%s",
		  said);
	cr_assert_eq(strchr(said, '\n') - said + 1, (ptrdiff_t)size, "said once: %s", said);
}

Test(llama_loader, of_nothing_does_nothing)
{
	struct fixture f;
	make(&f, 0, 0);
	cr_assert_eq(load(&f, 8), MD_OK);
	cr_assert_eq(f.report.threads, 0);
	finish(&f);
}

static void assert_refused(unsigned threads, enum md_status status, const char *words)
{
	struct fixture f;
	make(&f, PLAIN);
	enum md_status found = load(&f, threads);
	cr_assert_eq(found, status, "%u threads: status %d, wanted %d: %s", threads, (int)found, (int)status,
		     f.err.message);
	cr_assert(strstr(f.err.message, words), "%u threads: \"%s\" does not say \"%s\"", threads, f.err.message,
		  words);
	finish(&f);
}

Test(llama_loader, should_fail_reads)
{
	for (unsigned threads = 1; threads <= 8; threads += 7) {
		reads.at = 2;
		reads.error = EIO;
		assert_refused(threads, MD_ERR_IO, "elements ");
		assert_refused(threads, MD_ERR_IO, ": Input/output error");
		reads.error = 0;
		reads.shorten = true;
		assert_refused(threads, MD_ERR_TRUNCATED, "tensor t01, elements ");
		assert_refused(threads, MD_ERR_TRUNCATED, "the file ends at offset ");
		reads.shorten = false;
		reads.at = 0;
	}
}

Test(llama_loader, should_fail_calls)
{
	static const struct {
		const char *call;
		unsigned at;
		const char *words;
	} cases[] = {
	    {"cuStreamCreate", 1, "cuStreamCreate: CUDA_ERROR_ILLEGAL_ADDRESS"},
	    {"cuEventCreate", 2, "cuEventCreate: CUDA_ERROR_ILLEGAL_ADDRESS"},
	    {"cuMemcpyHtoDAsync_v2", 1, "tensor t01, elements 0 to 2097151: cuMemcpyHtoDAsync_v2: CUDA_ERROR"},
	    {"cuMemcpyHtoDAsync_v2", 2, "cuMemcpyHtoDAsync_v2: CUDA_ERROR_ILLEGAL_ADDRESS"},
	    {"cuEventRecord", 1, "cuEventRecord: CUDA_ERROR_ILLEGAL_ADDRESS"},
	    {"cuStreamSynchronize", 1, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		device.failing = cases[i].call;
		device.at = cases[i].at;
		assert_refused(1, MD_ERR_DRIVER, cases[i].words);
	}
	device.failing = "cuEventSynchronize"; /* of the third piece, by the one thread */
	device.at = 1;
	assert_refused(1, MD_ERR_DRIVER, "tensor t01, elements 4194304 to 4194309: cuEventSynchronize: CUDA_ERROR");
	device.failing = "cuCtxSetCurrent"; /* of the second thread, which may find nothing left to do */
	struct fixture f;
	make(&f, PLAIN);
	cr_assert_eq(load(&f, 2), MD_ERR_DRIVER);
	cr_assert(strstr(f.err.message, "cuCtxSetCurrent: CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", f.err.message);
	finish(&f);
	device.failing = NULL;
}

Test(llama_loader, takes_a_number_of_processors)
{
	cpu_set_t before, one;
	cr_assert_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &before))
			CPU_SET(i, &one);
	unsigned all = loader_default_threads();
	cr_assert(all >= 1 && all <= MOST_THREADS);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	cr_assert_eq(loader_default_threads(), 1, "a process that may use one processor");
}
