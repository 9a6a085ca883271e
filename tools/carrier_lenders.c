/* SPDX-License-Identifier: Apache-2.0 */
/* Asks lenders for memory as it is wanted, copies from it, and gives it back; a lender that fails is left out. */
#include "tools/carrier_lenders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"

#define PARTS_MOST (1u << 20)
#define ANSWER_NS 1000000000ull /* for a part that was asked for */

void md_lenders_init(struct md_lenders *lenders, struct md_lanes *lanes, struct md_mapper *mapper)
{
	*lenders = (struct md_lenders){.lanes = lanes, .mapper = mapper};
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		lenders->list[i].fd = -1;
}

enum md_status md_lenders_add(struct md_lenders *lenders, uint32_t number, const char *gpu, int *fd,
			      struct md_error *err)
{
	unsigned lane = 0;
	if (number >= MD_CARRY_LENDERS || lenders->list[number].added || *fd < 0)
		return md_error_set(err, MD_ERR_CORRUPT, "lender %u makes no sense", number);
	while (lane < lenders->lanes->count && strcmp(lenders->lanes->list[lane].gpu, gpu) != 0)
		lane++;
	if (lane == lenders->lanes->count)
		snprintf(lenders->missed, sizeof(lenders->missed), "%.47s", gpu);
	lenders->list[number] = (struct md_lender){
	    .fd = *fd, .added = true, .gone = lane == lenders->lanes->count, .lane = lane % MD_CARRY_LINKS};
	*fd = -1;
	return MD_OK;
}

unsigned md_lenders_poll(const struct md_lenders *lenders, struct pollfd ready[MD_LENDERS_POLL])
{
	unsigned count = 0;
	ready[count++] = (struct pollfd){.fd = md_mapper_fd(lenders->mapper), .events = POLLIN};
	for (size_t i = 0; i < MD_CARRY_LENDERS && lenders->mapping < MD_LENDER_PARTS; i++)
		if (lenders->list[i].fd >= 0 && !lenders->list[i].gone)
			ready[count++] = (struct pollfd){.fd = lenders->list[i].fd, .events = POLLIN};
	return count;
}

static bool copies(const struct md_lenders *lenders)
{
	bool any = false;
	for (size_t i = 0; i < MD_LENDER_COPIES; i++)
		any = any || lenders->copies[i].busy;
	return any;
}

bool md_lenders_copy(const struct md_lenders *lenders)
{
	return lenders->queued || copies(lenders);
}

/* ---- hearing lenders ---- */

static void take_part(struct md_lenders *lenders, struct md_lender *lender, const struct md_carry_message *message,
		      int *memory)
{
	struct md_lender_part *part = message->part < lender->part_count ? &lender->parts[message->part] : NULL;
	const struct md_carrier_lane *reader = &lenders->lanes->list[lender->lane];
	if (!part || part->state != MD_LENDER_ASKED) {
		lender->gone = true;
		return;
	}
	lenders->lanes->times[MD_PEER_ANSWER] += md_clock_ns() - part->asked_at;
	part->state = MD_LENDER_REFUSED;
	if (!md_mapper_put(lenders->mapper, &(struct md_mapper_part){.lender = (unsigned)(lender - lenders->list),
								     .part = message->part,
								     .memory = *memory,
								     .bytes = message->bytes,
								     .context = reader->context,
								     .device = reader->device}))
		return;
	*memory = -1;
	part->state = MD_LENDER_HANDED_OVER;
	lenders->mapping++;
}

static void obey(struct md_lenders *lenders, struct md_lender *lender, const struct md_carry_message *message,
		 int *passed)
{
	switch (message->kind) {
	case MD_CARRY_PART:
		take_part(lenders, lender, message, passed);
		break;
	case MD_CARRY_NOT:
		if (message->part < lender->part_count && lender->parts[message->part].state == MD_LENDER_ASKED)
			lender->parts[message->part].state = MD_LENDER_REFUSED;
		break;
	default: /* it wants its memory back, or says what makes no sense */
		lender->gone = true;
	}
}

static void hear(struct md_lenders *lenders, struct md_lender *lender)
{
	bool there = true;
	while (there && lenders->mapping < MD_LENDER_PARTS && lender->fd >= 0 && !lender->gone) {
		struct md_carry_message message;
		struct md_error none = {0};
		int passed = -1;
		if (md_carry_wire_receive(lender->fd, &message, &passed, &there, &none) != MD_OK)
			lender->gone = true;
		else if (there)
			obey(lenders, lender, &message, &passed);
		if (passed >= 0)
			close(passed);
	}
}

/* ---- what the engine wants ---- */

enum md_status md_lenders_take(struct md_lenders *lenders, const struct md_carry_message *take, struct md_error *err)
{
	bool good = take->link < MD_CARRY_LENDERS && lenders->list[take->link].added && take->count;
	for (uint32_t i = 0; good && i < take->count; i++)
		good = take->takes[i].part < PARTS_MOST &&
		       md_lanes_covers(lenders->lanes, take->part, take->takes[i].offset, MD_SWAP_BLOCK);
	if (!good)
		return md_error_set(err, MD_ERR_CORRUPT, "a chunk of no lender, or outside of part %u", take->part);
	if (lenders->queued == MD_CARRY_TAKES_MOST)
		return md_error_set(err, MD_ERR_CORRUPT, "more than %u chunks from lenders at a time",
				    MD_CARRY_TAKES_MOST);
	lenders->queue[lenders->queued++] = *take;
	return MD_OK;
}

void md_lenders_stale(struct md_lenders *lenders, const struct md_carry_message *stale)
{
	struct md_carry_message message = *stale;
	struct md_error none = {0};
	if (stale->link < MD_CARRY_LENDERS && lenders->list[stale->link].fd >= 0)
		md_carry_wire_send(lenders->list[stale->link].fd, &message, -1, &none);
}

/* NULL: there is no room. */
static struct md_lender_part *part_of(struct md_lender *lender, uint32_t number)
{
	if (number >= lender->part_count) {
		struct md_lender_part *parts = md_array_resize(lender->parts, number + 1, sizeof(*parts));
		if (!parts)
			return NULL;
		memset(parts + lender->part_count, 0, (number + 1 - lender->part_count) * sizeof(*parts));
		lender->parts = parts;
		lender->part_count = number + 1;
	}
	return &lender->parts[number];
}

/* A lender that is at something long reads later; it has as much time as for its answer. */
static void ask(struct md_lender *lender, struct md_lender_part *part, uint32_t number)
{
	struct md_carry_message message = {.kind = MD_CARRY_PART, .part = number};
	struct md_error none = {0};
	part->asked_at = part->asked_at ? part->asked_at : md_clock_ns();
	enum md_status status = md_carry_wire_send(lender->fd, &message, -1, &none);
	if (status == MD_OK)
		part->state = MD_LENDER_ASKED;
	lender->gone = status != MD_OK && status != MD_ERR_BUSY;
}

enum readiness { READY, MAPPING, WAITS, NEVER };

static enum readiness look_at(struct md_lender *lender, const struct md_carry_take *take)
{
	struct md_lender_part *part = lender->gone ? NULL : part_of(lender, take->part);
	if (!part || part->state == MD_LENDER_REFUSED)
		return NEVER;
	if (part->state == MD_LENDER_UNASKED)
		ask(lender, part, take->part);
	if (part->state == MD_LENDER_HANDED_OVER)
		return MAPPING;
	if (part->state != MD_LENDER_MAPPED) {
		lender->gone = lender->gone || md_clock_ns() - part->asked_at > ANSWER_NS;
		return lender->gone ? NEVER : WAITS;
	}
	return (uint64_t)(take->block + 1ull) * MD_SWAP_BLOCK <= part->bytes ? READY : NEVER;
}

/* Asks for all that is missing at once. */
static enum readiness look_at_all(struct md_lender *lender, const struct md_carry_message *take)
{
	enum readiness all = READY;
	for (uint32_t i = 0; i < take->count; i++) {
		enum readiness one = look_at(lender, &take->takes[i]);
		all = one > all ? one : all;
	}
	return all;
}

/* ---- copies ---- */

static bool follows(const struct md_carry_take *before, const struct md_carry_take *take)
{
	return take->part == before->part && take->block == before->block + 1 &&
	       take->offset == before->offset + MD_SWAP_BLOCK;
}

static enum md_status copy(struct md_lenders *lenders, const struct md_carry_message *take, CUstream stream,
			   struct md_error *err)
{
	const struct md_lender *lender = &lenders->list[take->link];
	CUdeviceptr to = lenders->lanes->parts[take->part].address;
	for (uint32_t i = 0, next; i < take->count; i = next) {
		const struct md_carry_take *first = &take->takes[i];
		CUdeviceptr from = lender->parts[first->part].address + first->block * MD_SWAP_BLOCK;
		for (next = i + 1; next < take->count && follows(&take->takes[next - 1], &take->takes[next]);)
			next++;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoDAsync_v2, to + first->offset, from, (next - i) * MD_SWAP_BLOCK,
					stream));
	}
	return MD_OK;
}

static enum md_status begin_copy(struct md_lenders *lenders, struct md_lender_copy *at,
				 const struct md_carry_message *take, struct md_error *err)
{
	struct md_lender *lender = &lenders->list[take->link];
	const struct md_carrier_lane *lane = &lenders->lanes->list[lender->lane];
	CUstream stream = lane->takes[lenders->turn++ % lenders->lanes->take_streams];
	uint64_t began = md_clock_ns();
	*at = (struct md_lender_copy){
	    .lane = lender->lane, .lender = take->link, .chunk = take->chunk, .bytes = take->count * MD_SWAP_BLOCK};
	MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lane->context));
	MD_FORWARD(copy(lenders, take, stream, err));
	MD_FORWARD(md_cuda_call(err, cuEventCreate, &at->done, CU_EVENT_DISABLE_TIMING));
	MD_FORWARD(md_cuda_call(err, cuEventRecord, at->done, stream));
	at->busy = true;
	lender->under_way++;
	lenders->lanes->times[MD_PEER_COPIES]++;
	lenders->lanes->times[MD_PEER_ISSUE] += md_clock_ns() - began;
	return MD_OK;
}

static struct md_lender_copy *free_copy(struct md_lenders *lenders)
{
	for (size_t i = 0; i < MD_LENDER_COPIES; i++)
		if (!lenders->copies[i].busy)
			return &lenders->copies[i];
	return NULL;
}

static enum md_status say_not(int session, uint32_t chunk, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_NOT, .chunk = chunk};
	return md_carry_wire_send(session, &message, -1, err);
}

/* Chunks that wait for a part do not hold up others. */
static enum md_status feed(struct md_lenders *lenders, int session, struct md_error *err)
{
	unsigned kept = 0;
	enum md_status status = MD_OK;
	lenders->unmapped = false;
	for (unsigned i = 0; i < lenders->queued; i++) {
		const struct md_carry_message *take = &lenders->queue[i];
		struct md_lender_copy *at = free_copy(lenders);
		enum readiness ready = status == MD_OK ? look_at_all(&lenders->list[take->link], take) : WAITS;
		lenders->unmapped = lenders->unmapped || ready == MAPPING;
		if (ready == NEVER)
			status = say_not(session, take->chunk, err);
		else if (ready == READY && at)
			status = begin_copy(lenders, at, take, err);
		else
			lenders->queue[kept++] = *take;
	}
	lenders->queued = kept;
	return status;
}

static enum md_status reap(struct md_lenders *lenders, int session, struct md_error *err)
{
	for (size_t i = 0; i < MD_LENDER_COPIES; i++) {
		struct md_lender_copy *at = &lenders->copies[i];
		struct md_carry_message message = {
		    .kind = MD_CARRY_DONE, .chunk = at->chunk, .link = at->lane, .bytes = at->bytes};
		if (!at->busy)
			continue;
		MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lenders->lanes->list[at->lane].context));
		CUresult result = md_cuda.cuEventQuery(at->done);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		MD_FORWARD(md_cuda_status(result, "cuEventQuery of copies", err));
		at->busy = false;
		lenders->list[at->lender].under_way--;
		md_cuda.cuEventDestroy_v2(at->done);
		MD_FORWARD(md_carry_wire_send(session, &message, -1, err));
	}
	return MD_OK;
}

/* ---- giving back ---- */

static void drop(struct md_lender *lender)
{
	free(lender->parts);
	lender->parts = NULL;
	lender->part_count = 0;
	if (lender->fd >= 0)
		close(lender->fd);
	lender->fd = -1;
}

/* A lender gets its memory back from the mapper, so that copies from others go on; it sees that by the end of its connection. */
static void give_back(struct md_lenders *lenders, unsigned number)
{
	struct md_lender *lender = &lenders->list[number];
	if (lender->fd < 0 || lender->returned)
		return;
	lender->gone = lender->returned = true;
	md_mapper_give_back(lenders->mapper, number);
}

/* The number stays taken, since the engine knows the lender by it. */
static void give_back_gone(struct md_lenders *lenders)
{
	for (unsigned i = 0; i < MD_CARRY_LENDERS; i++)
		if (lenders->list[i].gone && !lenders->list[i].under_way)
			give_back(lenders, i);
}

/* Memory that cannot be mapped is refused, as if the lender had done that. */
static void note_part(struct md_lender_part *part, const struct md_mapper_done *done)
{
	part->state = done->there ? MD_LENDER_MAPPED : MD_LENDER_REFUSED;
	part->address = done->address;
	part->bytes = done->bytes;
}

static enum md_status hear_mapper(struct md_lenders *lenders, struct md_error *err)
{
	struct md_mapper_done done;
	while (md_mapper_next(lenders->mapper, &done)) {
		struct md_lender *lender = &lenders->list[done.lender];
		if (!done.gave_back) {
			lenders->mapping--;
			note_part(&lender->parts[done.part], &done);
		} else if (!done.there) {
			drop(lender);
		}
	}
	return md_mapper_check(lenders->mapper, err);
}

/* Chunks have waited since the last look for what was not handed over or mapped then. */
static void count_idle(const struct md_lenders *lenders)
{
	uint64_t took = lenders->idle_since ? md_clock_ns() - lenders->idle_since : 0;
	lenders->lanes->times[MD_PEER_IDLE] += took;
	lenders->lanes->times[MD_PEER_UNMAPPED] += lenders->unmapped ? took : 0;
}

enum md_status md_lenders_work(struct md_lenders *lenders, int session, struct md_error *err)
{
	count_idle(lenders);
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		hear(lenders, &lenders->list[i]);
	MD_FORWARD(hear_mapper(lenders, err));
	MD_FORWARD(reap(lenders, session, err));
	MD_FORWARD(feed(lenders, session, err));
	md_mapper_note_copying(lenders->mapper, copies(lenders));
	lenders->idle_since = lenders->queued && !copies(lenders) ? md_clock_ns() : 0;
	give_back_gone(lenders);
	return MD_OK;
}

void md_lenders_take_times(struct md_lenders *lenders, uint64_t times[MD_PEER_TIMES])
{
	memcpy(times, lenders->lanes->times, sizeof(lenders->lanes->times));
	md_mapper_take_times(lenders->mapper, times);
}

enum md_status md_lenders_settle(struct md_lenders *lenders, struct md_error *err)
{
	for (unsigned i = 0; i < lenders->lanes->count; i++) {
		MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lenders->lanes->list[i].context));
		for (unsigned s = 0; s < lenders->lanes->take_streams; s++)
			MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, lenders->lanes->list[i].takes[s]));
	}
	for (size_t i = 0; i < MD_LENDER_COPIES; i++) {
		if (lenders->copies[i].busy)
			md_cuda.cuEventDestroy_v2(lenders->copies[i].done);
		lenders->copies[i].busy = false;
	}
	md_mapper_note_copying(lenders->mapper, false);
	return MD_OK;
}

enum md_status md_lenders_drop(struct md_lenders *lenders, struct md_error *err)
{
	char missed[MD_CARRY_GPU_BYTES];
	uint64_t unused[MD_PEER_TIMES];
	memcpy(missed, lenders->missed, sizeof(missed));
	MD_FORWARD(md_lenders_settle(lenders, err));
	for (unsigned i = 0; i < MD_CARRY_LENDERS; i++)
		give_back(lenders, i);
	md_mapper_await(lenders->mapper);
	MD_FORWARD(hear_mapper(lenders, err));
	md_lenders_take_times(lenders, unused);
	md_lenders_init(lenders, lenders->lanes, lenders->mapper);
	memcpy(lenders->missed, missed, sizeof(missed));
	return MD_OK;
}

void md_lenders_open_missed(struct md_lenders *lenders)
{
	if (*lenders->missed)
		md_lanes_add(lenders->lanes, lenders->missed);
	*lenders->missed = '\0';
}
