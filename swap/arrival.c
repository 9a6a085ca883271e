/* SPDX-License-Identifier: Apache-2.0 */
/* Fills memory in the background: submits chunks, in order or because a call waits, and notes which have come. */
#define MD_LOG_DOMAIN "swap"

#include "swap/arrival.h"

#include <stdlib.h>
#include <time.h>

#include "base/child.h"
#include "base/environment.h"
#include "base/log.h"
#include "swap/layer.h"
#include "swap/physical.h"

#define CHUNK_BLOCKS 16u /* 32 MiB */
#define AHEAD 4u         /* chunks of a flow that are submitted and not yet copied */

_Atomic(uint32_t) md_swap_arriving;
pthread_mutex_t md_swap_arrival_lock = PTHREAD_MUTEX_INITIALIZER;
struct md_swap_arrival md_swap_arrival;

/* ---- beginning ---- */

static void drop(struct md_swap_arrival *a) MD_REQUIRES(md_swap_arrival_lock)
{
	atomic_store(&md_swap_arriving, 0);
	for (uint32_t i = 0; i < a->flow_count; i++) {
		for (uint64_t n = 0; n < a->flows[i].submitted; n++)
			a->links->driver->cuEventDestroy_v2(a->flows[i].events[n]);
		free(a->flows[i].events);
	}
	for (uint32_t i = 0; i < a->part_count; i++)
		free(a->parts[i].leads);
	free(a->variables.leads);
	free(a->parts);
	free(a->queue);
	md_map_finish(&a->words);
	a->counts.left = 0;
	*a = (struct md_swap_arrival){.counts = a->counts, .wish = a->wish};
}

/* False: more contexts than there are flows. */
static bool find_flow(struct md_swap_arrival *a, CUcontext context, uint32_t *index, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_swap_link *link;
	for (*index = 0; *index < a->flow_count; (*index)++)
		if (a->flows[*index].context == context)
			return true;
	if (a->flow_count == MD_SWAP_FLOWS || md_swap_links_get(a->links, context, &link, err) != MD_OK)
		return false;
	struct md_swap_arrival_flow *flow = &a->flows[a->flow_count++];
	*flow = (struct md_swap_arrival_flow){.context = context, .link = *link};
	for (unsigned i = 1; i < MD_SWAP_STREAMS; i++)
		flow->link.streams[i] = flow->link.streams[0];
	return true;
}

static enum md_status add_part(struct md_swap_arrival *a, const struct md_swap_part *from, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_swap_arrival_part *part = &a->parts[a->part_count];
	uint32_t flow;
	if (!find_flow(a, from->range.context, &flow, err))
		return err->status
			   ? err->status
			   : md_error_set(err, MD_ERR_UNSUPPORTED, "more than %u contexts with memory", MD_SWAP_FLOWS);
	*part = (struct md_swap_arrival_part){.address = from->range.address,
					      .bytes = from->range.bytes,
					      .flow = flow,
					      .first = from->first,
					      .next = from->first,
					      .end = from->first + from->count,
					      .alone = from->range.flags & MD_SWAP_ALONE,
					      .anywhere = from->range.flags & MD_SWAP_SEVERAL};
	a->flows[flow].most += (from->count + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS;
	a->total += from->range.bytes;
	a->part_count++;
	return MD_OK;
}

static enum md_status no_memory(struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of memory that comes back");
}

static enum md_status fill_in(struct md_swap_arrival *a, const struct md_swap_leads *leads, struct md_error *err)
    MD_REQUIRES(md_swap_memory_lock, md_swap_arrival_lock)
{
	const struct md_swap_contents *contents = a->contents;
	a->parts = calloc(contents->part_count + 1, sizeof(*a->parts));
	a->queue = calloc(2 * contents->part_count + 2, sizeof(*a->queue));
	if (!a->parts || !a->queue)
		return no_memory(err);
	for (size_t i = 0; i < contents->part_count; i++)
		if (contents->parts[i].count && contents->parts[i].place == MD_SWAP_EMPTY)
			MD_FORWARD(add_part(a, &contents->parts[i], err));
	for (uint32_t i = 0; i < a->flow_count; i++) {
		a->flows[i].events = calloc(a->flows[i].most + 1, sizeof(*a->flows[i].events));
		if (!a->flows[i].events)
			return no_memory(err);
	}
	return md_swap_reach_prepare(a, leads) ? MD_OK : no_memory(err);
}

enum md_status md_swap_arrival_begin(const struct md_swap_contents *contents, struct md_swap_links *links,
				     const struct md_swap_leads *leads, struct md_error *err)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	pthread_mutex_lock(&md_swap_memory_lock);
	pthread_mutex_lock(&md_swap_arrival_lock);
	*a = (struct md_swap_arrival){.contents = contents,
				      .links = links,
				      .serial = md_swap_physical_serial,
				      .wish = a->wish,
				      .counts = {.at_first = UINT64_MAX}};
	md_map_init(&a->words);
	enum md_status status = fill_in(a, leads, err);
	a->counts.left = a->total;
	if (status == MD_OK)
		atomic_store(&md_swap_arriving, 1);
	else
		drop(a);
	pthread_mutex_unlock(&md_swap_arrival_lock);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return status;
}

/* ---- submitting ---- */

/* The links belong to the exchange's thread, which does not change the parts that copies use. */
static enum md_status copy_chunk(const struct md_swap_arrival *a, const struct md_swap_arrival_flow *flow, size_t from,
				 size_t to, struct md_error *err) MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_swap_run run = {.links = a->links, .link = &flow->link, .direction = MD_SWAP_TO_DEVICE};
	for (size_t i = from; i < to; i++) {
		const struct md_hash_range *at = &a->contents->hashes[i];
		if (a->contents->blocks[i] == MD_SWAP_ZERO)
			MD_FORWARD(md_swap_link_zero(a->links, &flow->link, at->address, at->size, err));
		else
			MD_FORWARD(md_swap_run_add(&run, at->address, a->contents->blocks[i], at->size, err));
	}
	return md_swap_run_end(&run, err);
}

static enum md_status mark(const struct md_cuda *driver, struct md_swap_arrival_flow *flow, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	CUevent *event = &flow->events[flow->submitted];
	MD_FORWARD(md_cuda_call_in(driver, err, cuEventCreate, event, CU_EVENT_DISABLE_TIMING));
	enum md_status status = md_cuda_call_in(driver, err, cuEventRecord, *event, flow->link.streams[0]);
	if (status != MD_OK)
		driver->cuEventDestroy_v2(*event);
	return status;
}

/* A chunk that was copied in part before an error is copied again: no call has been told that it has come. */
static enum md_status submit_chunk(struct md_swap_arrival_part *part, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	struct md_swap_arrival_flow *flow = &a->flows[part->flow];
	size_t to = part->end - part->next > CHUNK_BLOCKS ? part->next + CHUNK_BLOCKS : part->end;
	MD_FORWARD(copy_chunk(a, flow, part->next, to, err));
	MD_FORWARD(mark(a->links->driver, flow, err));
	part->next = to;
	part->last = ++flow->submitted;
	return MD_OK;
}

/* Works with any current context, and while another thread captures. */
static enum md_status submit_in_context(struct md_swap_arrival_part *part, bool whole, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	const struct md_cuda *driver = md_swap_arrival.links->driver;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext ignored;
	MD_FORWARD(md_cuda_call_in(driver, err, cuCtxPushCurrent_v2, md_swap_arrival.flows[part->flow].context));
	driver->cuThreadExchangeStreamCaptureMode(&mode);
	enum md_status status;
	do
		status = submit_chunk(part, err);
	while (status == MD_OK && whole && part->next < part->end);
	driver->cuThreadExchangeStreamCaptureMode(&mode);
	driver->cuCtxPopCurrent_v2(&ignored);
	return status;
}

/* Fails closed: a call that needs memory that cannot be copied gets this error, and is not made. */
static CUresult submit(struct md_swap_arrival_part *part) MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_error err = {0};
	if (part->next == part->end || submit_in_context(part, true, &err) == MD_OK)
		return CUDA_SUCCESS;
	md_warn("memory at %#llx (%llu bytes) could not be copied back, and a call that needs it fails: %s",
		(unsigned long long)part->address, (unsigned long long)part->bytes, err.message);
	return CUDA_ERROR_MAP_FAILED;
}

/* ---- in the background ---- */

static enum md_status note_done(struct md_swap_arrival_flow *flow, const struct md_cuda *driver, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	while (flow->done < flow->submitted) {
		CUresult result = driver->cuEventQuery(flow->events[flow->done]);
		if (result == CUDA_ERROR_NOT_READY)
			return MD_OK;
		MD_FORWARD(md_cuda_status(result, "cuEventQuery of a copy", err));
		flow->done++;
	}
	return MD_OK;
}

static struct md_swap_arrival_part *next_part(struct md_swap_arrival *a) MD_REQUIRES(md_swap_arrival_lock)
{
	while (a->turn < a->part_count && a->parts[a->turn].next == a->parts[a->turn].end)
		a->turn++;
	return a->turn < a->part_count ? &a->parts[a->turn] : NULL;
}

static enum md_status submit_some(struct md_swap_arrival *a, bool hurry, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_swap_arrival_part *part;
	while ((part = next_part(a)) != NULL) {
		const struct md_swap_arrival_flow *flow = &a->flows[part->flow];
		if (!hurry && flow->submitted - flow->done >= AHEAD)
			return MD_OK;
		MD_FORWARD(submit_in_context(part, false, err));
	}
	return MD_OK;
}

static uint64_t bytes_left(const struct md_swap_arrival *a) MD_REQUIRES(md_swap_arrival_lock)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < a->part_count; i++) {
		const struct md_swap_arrival_part *part = &a->parts[i];
		if (part->next < part->end || part->last > a->flows[part->flow].done)
			bytes += part->bytes;
	}
	return bytes;
}

static enum md_status carry(struct md_swap_arrival *a, bool hurry, struct md_error *err)
    MD_REQUIRES(md_swap_arrival_lock)
{
	for (uint32_t i = 0; i < a->flow_count; i++)
		MD_FORWARD(note_done(&a->flows[i], a->links->driver, err));
	MD_FORWARD(submit_some(a, hurry, err));
	a->counts.left = bytes_left(a);
	return MD_OK;
}

enum md_status md_swap_arrival_carry(bool hurry, bool *over, struct md_error *err)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	enum md_status status = MD_OK;
	pthread_mutex_lock(&md_swap_arrival_lock);
	if (a->parts)
		status = carry(a, hurry, err);
	*over = !a->parts || (status == MD_OK && !a->counts.left && !a->users);
	if (*over && a->parts)
		drop(a);
	pthread_mutex_unlock(&md_swap_arrival_lock);
	return status;
}

void md_swap_arrival_count(struct md_swap_arrival_counts *counts)
{
	pthread_mutex_lock(&md_swap_arrival_lock);
	*counts = md_swap_arrival.counts;
	pthread_mutex_unlock(&md_swap_arrival_lock);
}

/* ---- settling ---- */

CUresult md_swap_arrival_need(struct md_swap_arrival_part *part, struct md_swap_wait *wait)
{
	const struct md_swap_arrival_flow *flow = &md_swap_arrival.flows[part->flow];
	if (part->next == part->end && part->last <= flow->done)
		return CUDA_SUCCESS;
	CUresult result = submit(part);
	if (result == CUDA_SUCCESS && part->last > wait->chunk[part->flow])
		wait->chunk[part->flow] = part->last;
	return result;
}

void md_swap_arrival_hold(struct md_swap_wait *wait)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	for (uint32_t i = 0; i < a->flow_count; i++)
		if (wait->chunk[i])
			wait->events[wait->count++] = a->flows[i].events[wait->chunk[i] - 1];
	if (wait->count) {
		wait->driver = a->links->driver;
		a->users++;
	}
}

void md_swap_arrival_let_go(const struct md_swap_wait *wait)
{
	if (!wait->count)
		return;
	pthread_mutex_lock(&md_swap_arrival_lock);
	md_swap_arrival.users--;
	pthread_mutex_unlock(&md_swap_arrival_lock);
}

static CUresult need_range(uint64_t address, uint64_t bytes, struct md_swap_wait *wait)
    MD_REQUIRES(md_swap_arrival_lock)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	CUresult result = CUDA_SUCCESS;
	for (uint32_t i = 0; i < a->part_count && result == CUDA_SUCCESS; i++)
		if (a->parts[i].address < address + bytes && address < a->parts[i].address + a->parts[i].bytes)
			result = md_swap_arrival_need(&a->parts[i], wait);
	return result;
}

static CUresult settle(const struct md_swap_wait *wait)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult result = CUDA_SUCCESS;
	if (!wait->count)
		return CUDA_SUCCESS;
	wait->driver->cuThreadExchangeStreamCaptureMode(&mode);
	for (unsigned i = 0; i < wait->count && result == CUDA_SUCCESS; i++)
		result = wait->driver->cuEventSynchronize(wait->events[i]);
	wait->driver->cuThreadExchangeStreamCaptureMode(&mode);
	return result;
}

/* The lock is free while this waits, so that other threads' calls go on. */
CUresult md_swap_arrival_settle(uint64_t address, uint64_t bytes)
{
	struct md_swap_wait wait = {0};
	if (!atomic_load(&md_swap_arriving))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&md_swap_arrival_lock);
	CUresult result = need_range(address, bytes, &wait);
	if (result == CUDA_SUCCESS)
		md_swap_arrival_hold(&wait);
	pthread_mutex_unlock(&md_swap_arrival_lock);
	if (result != CUDA_SUCCESS)
		return result;
	result = settle(&wait);
	md_swap_arrival_let_go(&wait);
	return result;
}

CUresult md_swap_arrival_settle_all(void)
{
	return md_swap_arrival_settle(0, UINT64_MAX);
}

/* Waits for threads that wait for an event. They are done soon, because all chunks have been submitted. */
CUresult md_swap_arrival_finish(void)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	CUresult result = md_swap_arrival_settle_all();
	pthread_mutex_lock(&md_swap_arrival_lock);
	while (result == CUDA_SUCCESS && a->parts && a->users) {
		pthread_mutex_unlock(&md_swap_arrival_lock);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		pthread_mutex_lock(&md_swap_arrival_lock);
	}
	if (result == CUDA_SUCCESS && a->parts)
		drop(a);
	pthread_mutex_unlock(&md_swap_arrival_lock);
	return result;
}

/* The child has neither the device nor the memory. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_init(&md_swap_arrival_lock, NULL);
	atomic_store(&md_swap_arriving, 0);
	md_swap_arrival.parts = NULL;
	md_swap_arrival.part_count = 0;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
