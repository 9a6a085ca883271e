/* SPDX-License-Identifier: Apache-2.0 */
/* Links to devices: opened once for each context, and copies over them. */
#define MD_LOG_DOMAIN "swap"

#include "swap/device_link.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "swap/pulse.h"

enum md_status md_swap_links_init(struct md_swap_links *links, const struct md_cuda *driver, struct md_swap_pool *pool,
				  struct md_error *err)
{
	uint32_t blocks = md_swap_pool_count(pool).blocks;
	*links = (struct md_swap_links){
	    .driver = driver, .pool = pool, .chunks = (blocks + MD_SWAP_CHUNK - 1) / MD_SWAP_CHUNK};
	links->locked = calloc(links->chunks, 1);
	if (!links->locked)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the state of %u chunks of the pool",
				    links->chunks);
	return MD_OK;
}

/* ---- links ---- */

/* Without the entry point (driver 525 and older) handles have to do. */
static unsigned long long id_of(const struct md_swap_links *links, CUcontext context)
{
	unsigned long long id = 0;
	if (links->driver->cuCtxGetId && links->driver->cuCtxGetId(context, &id))
		id = 0;
	return id;
}

static enum md_status open_link(const struct md_swap_links *links, struct md_swap_link *link, struct md_error *err)
{
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++)
		MD_FORWARD(
		    md_cuda_call_in(links->driver, err, cuStreamCreate, &link->streams[i], CU_STREAM_NON_BLOCKING));
	MD_FORWARD(md_cuda_call_in(links->driver, err, cuStreamCreate, &link->aside, CU_STREAM_NON_BLOCKING));
	md_device_hasher_open_mapped(&link->hasher, links->driver, link->streams[0]);
	return MD_OK;
}

static void close_link(const struct md_swap_links *links, struct md_swap_link *link)
{
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++)
		if (link->streams[i])
			links->driver->cuStreamDestroy_v2(link->streams[i]);
	if (link->aside)
		links->driver->cuStreamDestroy_v2(link->aside);
	md_device_hasher_close(&link->hasher);
}

enum md_status md_swap_links_get(struct md_swap_links *links, CUcontext context, struct md_swap_link **link,
				 struct md_error *err)
{
	struct md_swap_link made = {.context = context, .id = id_of(links, context)};
	CUstreamCaptureMode mode =
	    CU_STREAM_CAPTURE_MODE_RELAXED; /* another thread's capture must not mind our calls */
	size_t at = 0;
	while (at < links->count && links->list[at].context != context)
		at++;
	MD_FORWARD(md_cuda_call_in(links->driver, err, cuCtxSetCurrent, context));
	links->driver->cuThreadExchangeStreamCaptureMode(&mode);
	if (at < links->count && links->list[at].id == made.id) {
		*link = &links->list[at];
		return MD_OK;
	}
	/* Objects of a destroyed context were destroyed with it. */
	if (at == links->count && !MD_ARRAY_EXTEND(links->list, links->count))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the link to a device");
	enum md_status status = open_link(links, &made, err);
	if (status != MD_OK) {
		close_link(links, &made);
		return status;
	}
	links->list[at] = made;
	links->count += at == links->count;
	*link = &links->list[at];
	return MD_OK;
}

/* ---- locked pages ---- */

static void *chunk_at(const struct md_swap_links *links, uint32_t chunk, uint64_t *bytes)
{
	uint32_t first = chunk * MD_SWAP_CHUNK, blocks = md_swap_pool_count(links->pool).blocks - first;
	*bytes = (blocks < MD_SWAP_CHUNK ? blocks : MD_SWAP_CHUNK) * MD_SWAP_BLOCK;
	return md_swap_pool_bytes(links->pool, first);
}

void md_swap_links_lock(struct md_swap_links *links, const struct md_swap_link *link, uint32_t block)
{
	uint32_t chunk = block / MD_SWAP_CHUNK;
	uint64_t bytes;
	if (links->locked_count && (links->locked_in == link->context && links->locked_id != link->id)) {
		for (uint32_t i = 0; i < links->chunks; i++)
			links->locked[i] = 0;
		links->locked_count = 0;
	}
	if (links->locked[chunk] || links->cannot_lock)
		return;
	md_swap_pulse_step();
	void *at = chunk_at(links, chunk, &bytes);
	CUresult result = links->driver->cuMemHostRegister_v2
			      ? links->driver->cuMemHostRegister_v2(at, bytes, CU_MEMHOSTREGISTER_PORTABLE)
			      : CUDA_ERROR_NOT_SUPPORTED;
	if (result && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
		links->cannot_lock = true;
		if (!links->warned)
			md_warn("the pool's pages cannot be locked (%s): copies are slow", md_cuda_error_name(result));
		links->warned = true;
		return;
	}
	if (!links->locked_count) {
		links->locked_in = link->context;
		links->locked_id = link->id;
	}
	links->locked[chunk] = 1;
	links->locked_count++;
}

static void unlock_all(struct md_swap_links *links)
{
	uint64_t bytes;
	for (uint32_t i = 0; i < links->chunks; i++)
		if (links->locked[i])
			links->driver->cuMemHostUnregister(chunk_at(links, i, &bytes));
}

enum md_status md_swap_links_unlock(struct md_swap_links *links, struct md_error *err)
{
	uint64_t bytes;
	if (!links->locked_count || id_of(links, links->locked_in) != links->locked_id)
		return MD_OK;
	MD_FORWARD(md_cuda_call_in(links->driver, err, cuCtxSetCurrent, links->locked_in));
	for (uint32_t i = 0; i < links->chunks; i++) {
		if (!links->locked[i])
			continue;
		MD_FORWARD(md_cuda_call_in(links->driver, err, cuMemHostUnregister, chunk_at(links, i, &bytes)));
		links->locked[i] = 0;
		links->locked_count--;
	}
	return MD_OK;
}

void md_swap_links_finish(struct md_swap_links *links)
{
	for (size_t i = 0; i < links->count; i++) {
		struct md_swap_link *link = &links->list[i];
		if (id_of(links, link->context) != link->id || links->driver->cuCtxSetCurrent(link->context))
			continue;
		if (link->context == links->locked_in)
			unlock_all(links);
		close_link(links, link);
	}
	free(links->list);
	free(links->locked);
	*links = (struct md_swap_links){0};
}

/* ---- copies ---- */

static enum md_status start(struct md_swap_run *run, struct md_error *err)
{
	const struct md_cuda *driver = run->links->driver;
	CUstream stream = run->link->streams[run->turn++ % MD_SWAP_STREAMS];
	void *host = md_swap_pool_bytes(run->links->pool, run->block);
	md_swap_pulse_step();
	if (run->direction == MD_SWAP_TO_HOST)
		return md_cuda_call_in(driver, err, cuMemcpyDtoHAsync_v2, host, run->address, run->bytes, stream);
	return md_cuda_call_in(driver, err, cuMemcpyHtoDAsync_v2, run->address, host, run->bytes, stream);
}

enum md_status md_swap_run_end(struct md_swap_run *run, struct md_error *err)
{
	enum md_status status = run->bytes ? start(run, err) : MD_OK;
	run->bytes = 0;
	return status;
}

static bool continues(const struct md_swap_run *run, CUdeviceptr address, uint32_t block)
{
	return run->bytes && run->bytes % MD_SWAP_BLOCK == 0 && address == run->address + run->bytes &&
	       block == run->block + run->bytes / MD_SWAP_BLOCK && block % MD_SWAP_CHUNK;
}

enum md_status md_swap_run_add(struct md_swap_run *run, CUdeviceptr address, uint32_t block, uint64_t bytes,
			       struct md_error *err)
{
	if (!continues(run, address, block)) {
		MD_FORWARD(md_swap_run_end(run, err));
		run->address = address;
		run->block = block;
	}
	run->bytes += bytes;
	return MD_OK;
}

enum md_status md_swap_link_zero(const struct md_swap_links *links, const struct md_swap_link *link,
				 CUdeviceptr address, uint64_t bytes, struct md_error *err)
{
	return md_cuda_call_in(links->driver, err, cuMemsetD8Async, address, 0, bytes, link->streams[0]);
}

enum md_status md_swap_link_wait(const struct md_swap_links *links, const struct md_swap_link *link,
				 struct md_error *err)
{
	enum md_status status = MD_OK;
	struct md_error later = {0};
	for (unsigned i = 0; i < MD_SWAP_STREAMS; i++) {
		enum md_status one = md_cuda_call_in(links->driver, status == MD_OK ? err : &later, cuStreamSynchronize,
						     link->streams[i]);
		md_swap_pulse_step();
		status = status == MD_OK ? one : status;
	}
	return status;
}
