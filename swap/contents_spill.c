/* SPDX-License-Identifier: Apache-2.0 */
/* Copies blocks between the device and the spill file: a ring of cells, of which each is read, copied, or written. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "swap/contents.h"
#include "swap/pool_spill.h"
#include "swap/pulse.h"
#include "swap/spill_queue.h"

#define CELLS (2 * MD_SWAP_SPILL_AT_ONCE) /* half of them with the file, half of them with the device */
#define STAGING (CELLS * MD_SWAP_BLOCK)

struct cell {
	struct md_swap_spill_job job;
	CUevent event; /* of the copy */
	bool copies;
};

/* Of one context. */
struct flow {
	const struct md_swap_contents *contents;
	struct md_swap_links *links;
	const struct md_swap_link *link;
	struct md_swap_spill_queue *queue;
	CUstream stream;
	uint8_t *staging; /* CELLS blocks */
	bool locked;
	struct cell cells[CELLS];
	size_t *blocks;  /* of the contents, that are copied */
	uint32_t *spare; /* of each of them, a block in memory that it is read into, or MD_SWAP_NOT_TAKEN */
	size_t count;
};

/* ---- beginning and end ---- */

/* Pages that a child of the engine does not share, so that a read does not go into a copy of them. */
static enum md_status take_staging(struct flow *flow, struct md_error *err)
{
	const struct md_cuda *driver = flow->links->driver;
	void *at = mmap(NULL, STAGING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return md_error_set(err, MD_ERR_NO_MEMORY,
				    "out of memory for %llu bytes between the spill file and "
				    "the device",
				    STAGING);
	madvise(at, STAGING, MADV_DONTFORK);
	flow->staging = at;
	flow->locked =
	    driver->cuMemHostRegister_v2 && !driver->cuMemHostRegister_v2(at, STAGING, CU_MEMHOSTREGISTER_PORTABLE);
	return MD_OK;
}

static enum md_status begin(struct flow *flow, struct md_error *err)
{
	const struct md_cuda *driver = flow->links->driver;
	flow->spare = calloc(flow->count, sizeof(*flow->spare));
	if (!flow->spare)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %zu blocks", flow->count);
	for (size_t i = 0; i < flow->count; i++)
		flow->spare[i] = MD_SWAP_NOT_TAKEN;
	MD_FORWARD(take_staging(flow, err));
	MD_FORWARD(md_cuda_call_in(driver, err, cuStreamCreate, &flow->stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < CELLS; i++)
		MD_FORWARD(md_cuda_call_in(driver, err, cuEventCreate, &flow->cells[i].event, CU_EVENT_DISABLE_TIMING));
	return md_swap_spill_queue_begin(md_swap_pool_spill(flow->links->pool), &flow->queue, err);
}

/* Nothing reads or writes the cells, or spare blocks, when this goes on. */
static void end(struct flow *flow)
{
	const struct md_cuda *driver = flow->links->driver;
	md_swap_spill_queue_end(flow->queue);
	driver->cuCtxSynchronize();
	for (size_t i = 0; i < CELLS; i++)
		if (flow->cells[i].event)
			driver->cuEventDestroy_v2(flow->cells[i].event);
	if (flow->stream)
		driver->cuStreamDestroy_v2(flow->stream);
	if (flow->locked)
		driver->cuMemHostUnregister(flow->staging);
	if (flow->staging)
		munmap(flow->staging, STAGING);
	free(flow->spare);
}

/* ---- steps of one block ---- */

static struct cell *cell_of(struct flow *flow, size_t turn)
{
	return &flow->cells[turn % CELLS];
}

static enum md_status await_copy(struct flow *flow, struct cell *cell, struct md_error *err)
{
	if (!cell->copies)
		return MD_OK;
	cell->copies = false;
	MD_FORWARD(md_cuda_call_in(flow->links->driver, err, cuEventSynchronize, cell->event));
	md_swap_pulse_step();
	return MD_OK;
}

static enum md_status await_file(struct flow *flow, struct cell *cell, struct md_error *err)
{
	int failure = md_swap_spill_await(flow->queue, &cell->job);
	if (!failure)
		return MD_OK;
	return md_swap_spill_explain(md_swap_pool_spill(flow->links->pool), cell->job.block, cell->job.write, failure,
				     err);
}

static void put_job(struct flow *flow, size_t turn, bool write, void *data)
{
	struct cell *cell = cell_of(flow, turn);
	cell->job = (struct md_swap_spill_job){
	    .block = flow->contents->blocks[flow->blocks[turn]] - MD_SWAP_SPILLED, .data = data, .write = write};
	md_swap_spill_put(flow->queue, &cell->job);
}

static enum md_status copy(struct flow *flow, size_t turn, bool to_device, void *data, struct md_error *err)
{
	const struct md_hash_range *at = &flow->contents->hashes[flow->blocks[turn]];
	const struct md_cuda *driver = flow->links->driver;
	struct cell *cell = cell_of(flow, turn);
	if (to_device)
		MD_FORWARD(
		    md_cuda_call_in(driver, err, cuMemcpyHtoDAsync_v2, at->address, data, at->size, flow->stream));
	else
		MD_FORWARD(
		    md_cuda_call_in(driver, err, cuMemcpyDtoHAsync_v2, data, at->address, at->size, flow->stream));
	MD_FORWARD(md_cuda_call_in(driver, err, cuEventRecord, cell->event, flow->stream));
	cell->copies = true;
	return MD_OK;
}

static void *staging_of(const struct flow *flow, size_t turn)
{
	return flow->staging + turn % CELLS * MD_SWAP_BLOCK;
}

/* ---- to the file ---- */

static enum md_status write_step(struct flow *flow, size_t turn, struct md_error *err)
{
	size_t copied = turn - MD_SWAP_SPILL_AT_ONCE, written = turn - CELLS;
	if (turn >= CELLS && written < flow->count)
		MD_FORWARD(await_file(flow, cell_of(flow, written), err));
	if (turn < flow->count)
		MD_FORWARD(copy(flow, turn, false, staging_of(flow, turn), err));
	if (turn >= MD_SWAP_SPILL_AT_ONCE && copied < flow->count) {
		MD_FORWARD(await_copy(flow, cell_of(flow, copied), err));
		put_job(flow, copied, true, staging_of(flow, copied));
	}
	return MD_OK;
}

/* ---- to the device ---- */

/* Into the pool's memory, if a block there costs no other engine's. */
static void *place_for(struct flow *flow, size_t turn)
{
	size_t block = flow->blocks[turn];
	uint32_t spare;
	if (!md_swap_pool_take_spare(flow->links->pool, &flow->contents->hashes[block].hash, &spare))
		return staging_of(flow, turn);
	flow->spare[turn] = spare;
	md_swap_links_lock(flow->links, flow->link, spare);
	return md_swap_pool_bytes(flow->links->pool, spare);
}

static enum md_status read_step(struct flow *flow, size_t turn, struct md_error *err)
{
	size_t read = turn - MD_SWAP_SPILL_AT_ONCE;
	if (turn < flow->count) {
		MD_FORWARD(await_copy(flow, cell_of(flow, turn), err));
		put_job(flow, turn, false, place_for(flow, turn));
	}
	if (turn >= MD_SWAP_SPILL_AT_ONCE && read < flow->count) {
		struct cell *cell = cell_of(flow, read);
		MD_FORWARD(await_file(flow, cell, err));
		MD_FORWARD(copy(flow, read, true, cell->job.data, err));
	}
	return MD_OK;
}

static enum md_status differs(const struct flow *flow, size_t block, struct md_error *err)
{
	const struct md_swap_spill_file *spill = md_swap_pool_spill(flow->links->pool);
	return md_error_set(err, MD_ERR_CORRUPT,
			    "the spill file in %s: the 2 MiB at offset %" PRIu64 " have other bytes than were written "
			    "there, for the memory at %#" PRIx64 " of process %d",
			    spill->path, (flow->contents->blocks[block] - MD_SWAP_SPILLED) * (uint64_t)MD_SWAP_BLOCK,
			    flow->contents->hashes[block].address, (int)getpid());
}

/* By the bytes on the device, which are hashed fast there. */
static enum md_status compare(const struct flow *flow, struct md_error *err)
{
	MD_AUTO_FREE struct md_hash_range *now = calloc(flow->count, sizeof(*now));
	size_t failed = 0;
	if (!now)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the hashes of %zu blocks", flow->count);
	for (size_t i = 0; i < flow->count; i++)
		now[i] = flow->contents->hashes[flow->blocks[i]];
	MD_FORWARD(md_cuda_call_in(flow->links->driver, err, cuStreamSynchronize, flow->stream));
	MD_FORWARD(md_device_hash(&flow->link->hasher, flow->stream, now, flow->count, &failed, err));
	for (size_t i = 0; i < flow->count; i++)
		if (!md_hash_equal(&now[i].hash, &flow->contents->hashes[flow->blocks[i]].hash))
			return differs(flow, flow->blocks[i], err);
	return MD_OK;
}

/* Spare blocks have the right bytes, or are free again. */
static void give_spare(const struct flow *flow, bool good)
{
	for (size_t i = 0; flow->spare && i < flow->count; i++) {
		if (flow->spare[i] == MD_SWAP_NOT_TAKEN)
			continue;
		if (good)
			md_swap_pool_filled(flow->links->pool, flow->spare[i]);
		md_swap_pool_give(flow->links->pool, flow->spare[i]);
	}
}

/* ---- all of one context ---- */

static enum md_status carry_out(struct flow *flow, bool to_device, struct md_error *err)
{
	enum md_status status = begin(flow, err);
	for (size_t turn = 0; status == MD_OK && turn < flow->count + CELLS; turn++)
		status = to_device ? read_step(flow, turn, err) : write_step(flow, turn, err);
	if (status == MD_OK && to_device)
		status = compare(flow, err);
	md_swap_spill_queue_end(flow->queue);
	flow->queue = NULL;
	if (status != MD_OK)
		flow->links->driver->cuCtxSynchronize();
	give_spare(flow, status == MD_OK);
	end(flow);
	return status;
}

static bool is_mine(const struct md_swap_contents *contents, const struct md_swap_part *part, size_t block,
		    enum md_swap_direction direction)
{
	return md_swap_is_spilled(contents->blocks[block]) &&
	       (direction == MD_SWAP_TO_HOST ? contents->fresh[block] : part->place == MD_SWAP_EMPTY);
}

static void add_part(struct flow *flow, const struct md_swap_part *part, enum md_swap_direction direction)
{
	for (size_t i = part->first; i < part->first + part->count; i++)
		if (is_mine(flow->contents, part, i, direction))
			flow->blocks[flow->count++] = i;
}

/* Parts from `first` on, of one context. */
static enum md_status copy_some(const struct md_swap_contents *contents, struct md_swap_links *links,
				enum md_swap_direction direction, size_t *blocks, size_t *first,
				struct md_swap_report *report, struct md_error *err)
{
	struct flow flow = {.contents = contents, .links = links, .blocks = blocks};
	CUcontext context = contents->parts[*first].range.context;
	struct md_swap_link *link;
	while (*first < contents->part_count && contents->parts[*first].range.context == context)
		add_part(&flow, &contents->parts[(*first)++], direction);
	if (!flow.count)
		return MD_OK;
	MD_FORWARD(md_swap_links_get(links, context, &link, err));
	flow.link = link;
	MD_FORWARD(carry_out(&flow, direction == MD_SWAP_TO_DEVICE, err));
	for (size_t i = 0; i < flow.count; i++)
		report->copied += contents->hashes[blocks[i]].size;
	report->spilled += flow.count * MD_SWAP_BLOCK;
	return MD_OK;
}

enum md_status md_swap_contents_copy_spilled(const struct md_swap_contents *contents, struct md_swap_links *links,
					     enum md_swap_direction direction, struct md_swap_report *report,
					     struct md_error *err)
{
	uint64_t began = md_clock_ns();
	enum md_status status = MD_OK;
	if (!md_swap_pool_spill(links->pool)->blocks)
		return MD_OK;
	MD_AUTO_FREE size_t *blocks = calloc(contents->block_count + 1, sizeof(*blocks));
	if (!blocks)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %zu blocks",
				    contents->block_count);
	for (size_t i = 0; i < contents->part_count && status == MD_OK;)
		status = copy_some(contents, links, direction, blocks, &i, report, err);
	report->ns_spill += md_clock_ns() - began;
	return status;
}
