/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a trace: the writer and the reader of each record stand side by side. */
#include "format/trace/records.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/secret.h"

#define CONTENT_PIECE (64u << 20) /* a larger content becomes several records */

/* Makes room for one more item; arrays grow at powers of two, so no capacity is stored. NULL when refused. */
void *md_trace_append(struct md_trace_build *build, void *array, uint32_t *count, size_t size)
{
	char *items; /* through memcpy: a T * may not be written as a void * */
	memcpy(&items, array, sizeof(items));
	if ((*count & (*count - 1)) == 0) {
		uint64_t capacity = *count ? (uint64_t)*count * 2 : 1;
		if (capacity > UINT32_MAX || !md_budget_take(&build->budget, (capacity - *count) * size))
			return NULL;
		items = md_array_resize(items, capacity, size);
		if (!items)
			return NULL;
		memcpy(array, &items, sizeof(items));
	}
	void *item = items + (size_t)*count * size;
	memset(item, 0, size);
	++*count;
	return item;
}

enum md_status md_trace_no_room(const struct md_trace_build *build, struct md_error *err)
{
	return md_budget_error(&build->budget, err);
}

/* ---- meta ---- */

void md_trace_put_meta(struct md_trace_writer *w, const struct md_trace_meta *meta)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_META, 0, 5, &p))
		return;
	msgpack_pack_uint32(&p, meta->process_id);
	msgpack_pack_uint64(&p, meta->start_unix_ns);
	msgpack_pack_uint64(&p, meta->shift);
	md_pack_text(&p, meta->command);
	md_pack_text(&p, meta->tool_version);
	md_trace_record_end(w);
}

static enum md_status get_meta(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			       struct md_error *err)
{
	struct md_trace *trace = build->trace;
	(void)sequence;
	if (trace->command || trace->tool_version)
		return md_error_set(err, MD_ERR_CORRUPT, "appears twice");
	trace->process_id = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	trace->start_unix_ns = md_unpack_uint(in);
	trace->shift = md_unpack_uint(in);
	MD_AUTO_FREE char *command = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	trace->command =
	    command ? md_secret_hide_line(command) : NULL; /* an earlier version has written it as it was */
	if (command && !trace->command)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a command line");
	trace->tool_version = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	return MD_OK;
}

/* ---- fingerprint ---- */

void md_trace_put_fingerprint(struct md_trace_writer *w, const struct md_fingerprint *fingerprint)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_FINGERPRINT, 0, 7, &p))
		return;
	md_pack_text(&p, fingerprint->device_name);
	msgpack_pack_int32(&p, fingerprint->compute_major);
	msgpack_pack_int32(&p, fingerprint->compute_minor);
	msgpack_pack_int32(&p, fingerprint->multiprocessors);
	msgpack_pack_uint64(&p, fingerprint->device_memory);
	msgpack_pack_int32(&p, fingerprint->driver_version);
	msgpack_pack_array(&p, (size_t)fingerprint->library_count * 2);
	for (uint32_t i = 0; i < fingerprint->library_count; i++) {
		md_pack_text(&p, fingerprint->libraries[i].path);
		md_pack_text(&p, fingerprint->libraries[i].build_id);
	}
	md_trace_record_end(w);
}

static enum md_status get_fingerprint(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				      struct md_error *err)
{
	struct md_fingerprint *fingerprint = &build->trace->fingerprint;
	(void)sequence;
	if (fingerprint->libraries)
		return md_error_set(err, MD_ERR_CORRUPT, "appears twice");
	md_unpack_text_fixed(in, fingerprint->device_name, sizeof(fingerprint->device_name));
	fingerprint->compute_major = md_unpack_int32(in);
	fingerprint->compute_minor = md_unpack_int32(in);
	fingerprint->multiprocessors = md_unpack_int32(in);
	fingerprint->device_memory = md_unpack_uint(in);
	fingerprint->driver_version = md_unpack_int32(in);
	uint32_t count = md_unpack_array(in) / 2;
	fingerprint->libraries = md_budget_alloc(&build->budget, count, sizeof(*fingerprint->libraries));
	if (!fingerprint->libraries)
		return md_trace_no_room(build, err);
	fingerprint->library_count = count;
	for (uint32_t i = 0; i < count && !in->failed; i++) {
		fingerprint->libraries[i].path = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
		fingerprint->libraries[i].build_id = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
		if (!fingerprint->libraries[i].path)
			md_unpack_fail(in);
	}
	return MD_OK;
}

/* ---- limits ---- */

void md_trace_put_limits(struct md_trace_writer *w, uint64_t sequence, const uint64_t limits[MD_LIMITS])
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_LIMITS, sequence, MD_LIMITS, &p))
		return;
	for (unsigned i = 0; i < MD_LIMITS; i++)
		msgpack_pack_uint64(&p, limits[i]);
	md_trace_record_end(w);
}

static enum md_status get_limits(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				 struct md_error *err)
{
	uint64_t limits[MD_LIMITS];
	(void)sequence;
	(void)err;
	for (unsigned i = 0; i < MD_LIMITS; i++)
		limits[i] = md_unpack_uint(in);
	if (!in->failed)
		md_limits_raise(build->trace->fingerprint.limits, limits);
	return MD_OK;
}

/* ---- allocations ---- */

void md_trace_put_alloc(struct md_trace_writer *w, uint64_t sequence, enum md_alloc_family family, uint64_t address,
			uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_ALLOC, sequence, 3, &p))
		return;
	msgpack_pack_uint32(&p, family);
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	md_trace_record_end(w);
}

static enum md_status get_alloc(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				struct md_error *err)
{
	struct md_trace_event *event = md_trace_append(build, &build->events, &build->event_count, sizeof(*event));
	if (!event)
		return md_trace_no_room(build, err);
	event->sequence = sequence;
	event->family = (enum md_alloc_family)md_unpack_uint_max(in, MD_ALLOC_GRAPH);
	event->address = md_unpack_uint(in);
	event->size = md_unpack_uint(in);
	if (!in->failed && (event->family == 0 || event->address + event->size < event->address))
		return md_error_set(err, MD_ERR_CORRUPT, "family %u, address 0x%" PRIx64 ", %" PRIu64 " bytes",
				    (unsigned)event->family, event->address, event->size);
	return MD_OK;
}

void md_trace_put_free(struct md_trace_writer *w, uint64_t sequence, uint64_t address)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_FREE, sequence, 1, &p))
		return;
	msgpack_pack_uint64(&p, address);
	md_trace_record_end(w);
}

static enum md_status get_free(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			       struct md_error *err)
{
	struct md_trace_event *event = md_trace_append(build, &build->events, &build->event_count, sizeof(*event));
	if (!event)
		return md_trace_no_room(build, err);
	event->sequence = sequence;
	event->address = md_unpack_uint(in);
	return MD_OK;
}

void md_trace_put_reservation(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_RESERVATION, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	md_trace_record_end(w);
}

static enum md_status get_reservation(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				      struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_reservation *reservation =
	    md_trace_append(build, &trace->reservations, &trace->reservation_count, sizeof(*reservation));
	(void)sequence;
	if (!reservation)
		return md_trace_no_room(build, err);
	reservation->address = md_unpack_uint(in);
	reservation->size = md_unpack_uint(in);
	if (!in->failed && (!reservation->size || reservation->address + reservation->size < reservation->address))
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes at 0x%" PRIx64, reservation->size,
				    reservation->address);
	return MD_OK;
}

static int by_sequence(const void *a, const void *b)
{
	const struct md_trace_event *x = a, *y = b;
	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static enum md_status pair_event(struct md_trace_build *build, struct md_map *live, const struct md_trace_event *event,
				 struct md_error *err)
{
	struct md_trace *trace = build->trace;
	uint64_t before;
	/* exported to another process: the same memory, which counts as shared from its allocation on */
	if (event->family == MD_ALLOC_SHARED && md_map_get(live, event->address, &before) &&
	    trace->allocs[before].size == event->size) {
		trace->allocs[before].family = MD_ALLOC_SHARED;
		return MD_OK;
	}
	/* an allocation at the address of a live one ends that one, whose free was not recorded */
	if (md_map_remove(live, event->address, &before))
		trace->allocs[before].died = event->sequence;
	if (!event->family)
		return MD_OK;
	if (!md_map_put(live, event->address, trace->alloc_count))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an allocation");
	trace->allocs[trace->alloc_count++] = (struct md_trace_alloc){.family = event->family,
								      .asked = event->family,
								      .address = event->address,
								      .size = event->size,
								      .born = event->sequence,
								      .died = UINT64_MAX};
	return MD_OK;
}

/* Threads may write their records out of order, so allocations and frees are paired in the order of their sequences. */
static enum md_status pair_allocations(struct md_trace_build *build, struct md_error *err)
{
	struct md_trace *trace = build->trace;
	/* sorting copies the events, and each may be in the map of those that live */
	uint64_t passing = build->event_count * (sizeof(*build->events) + (uint64_t)MD_MAP_ENTRY_BYTES);
	if (md_budget_take(&build->budget, passing))
		trace->allocs = md_budget_alloc(&build->budget, build->event_count, sizeof(*trace->allocs));
	if (!trace->allocs)
		return md_trace_no_room(build, err);
	if (build->event_count)
		qsort(build->events, build->event_count, sizeof(*build->events), by_sequence);
	struct md_map live;
	md_map_init(&live);
	enum md_status status = MD_OK;
	for (uint32_t i = 0; i < build->event_count && status == MD_OK; i++)
		status = pair_event(build, &live, &build->events[i], err);
	md_map_finish(&live);
	return status;
}

/* ---- what the engine said ---- */

void md_trace_put_bind(struct md_trace_writer *w, uint64_t sequence, const char *name, uint64_t address, uint64_t size,
		       enum md_bind_role role)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_BIND, sequence, 4, &p))
		return;
	md_pack_text(&p, name);
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	msgpack_pack_uint32(&p, role);
	md_trace_record_end(w);
}

static enum md_status get_bind(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			       struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_bind *bind = md_trace_append(build, &trace->binds, &trace->bind_count, sizeof(*bind));
	if (!bind)
		return md_trace_no_room(build, err);
	bind->sequence = sequence;
	bind->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (!bind->name)
		md_unpack_fail(in);
	bind->address = md_unpack_uint(in);
	bind->size = md_unpack_uint(in);
	bind->role = (enum md_bind_role)md_unpack_uint_max(in, MD_BIND_OUTPUT);
	return MD_OK;
}

void md_trace_put_mark(struct md_trace_writer *w, uint64_t sequence, const char *name)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_MARK, sequence, 1, &p))
		return;
	md_pack_text(&p, name);
	md_trace_record_end(w);
}

static enum md_status get_mark(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			       struct md_error *err)
{
	struct md_trace *trace = build->trace;
	size_t size;
	const char *name = md_unpack_string(in, &size);
	(void)sequence, (void)err;
	if (name && size == strlen(MD_MARK_COMPLETE) && !memcmp(name, MD_MARK_COMPLETE, size))
		trace->said_complete = true;
	if (size > sizeof(trace->mark))
		size = sizeof(trace->mark);
	if (name)
		snprintf(trace->mark, sizeof(trace->mark), "%.*s", (int)size, name);
	return MD_OK;
}

void md_trace_put_kv(struct md_trace_writer *w, uint64_t sequence, const struct md_kv *kv)
{
	const uint64_t numbers[] = {kv->baseline_free, kv->peak,   kv->graph_bytes,    kv->kv_bytes,
				    kv->block_bytes,   kv->blocks, kv->utilization_ppm};
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_KV, sequence, 8, &p))
		return;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		msgpack_pack_uint64(&p, numbers[i]);
	md_pack_text(&p, kv->key);
	md_trace_record_end(w);
}

static enum md_status get_kv(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			     struct md_error *err)
{
	struct md_kv *kv = &build->trace->kv;
	(void)sequence, (void)err;
	kv->baseline_free = md_unpack_uint(in);
	kv->peak = md_unpack_uint(in);
	kv->graph_bytes = md_unpack_uint(in);
	kv->kv_bytes = md_unpack_uint(in);
	kv->block_bytes = md_unpack_uint(in);
	kv->blocks = md_unpack_uint(in);
	kv->utilization_ppm = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	md_unpack_text_fixed(in, kv->key, sizeof(kv->key));
	kv->present = true;
	return MD_OK;
}

void md_trace_put_stage(struct md_trace_writer *w, uint64_t sequence, const struct md_stage_time *stage)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_STAGE, sequence, 2, &p))
		return;
	md_pack_text(&p, stage->name);
	msgpack_pack_uint64(&p, stage->ns);
	md_trace_record_end(w);
}

static enum md_status get_stage(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_stage_time *stage = md_trace_append(build, &trace->stages, &trace->stage_count, sizeof(*stage));
	(void)sequence;
	if (!stage)
		return md_trace_no_room(build, err);
	md_unpack_text_fixed(in, stage->name, sizeof(stage->name));
	stage->ns = md_unpack_uint(in);
	return MD_OK;
}

/* ---- copies and sets ---- */

void md_trace_put_transfers(struct md_trace_writer *w, uint64_t sequence, enum md_transfer_kind kind,
			    const struct md_transfers *transfers)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_TRANSFERS, sequence, 3, &p))
		return;
	msgpack_pack_uint64(&p, kind);
	msgpack_pack_uint64(&p, transfers->count);
	msgpack_pack_uint64(&p, transfers->bytes);
	md_trace_record_end(w);
}

static enum md_status get_transfers(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				    struct md_error *err)
{
	uint64_t kind = md_unpack_uint(in);
	struct md_transfers transfers = {.count = md_unpack_uint(in)};
	(void)sequence;
	(void)err;
	transfers.bytes = md_unpack_uint(in);
	if (kind < MD_TRANSFER_KINDS) /* a later version may know more kinds */
		build->trace->transfers[kind] = transfers;
	return MD_OK;
}

/* ---- permanent contents ---- */

static void put_content_piece(struct md_trace_writer *w, uint64_t sequence, uint64_t address, const void *data,
			      size_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_CONTENT, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, address);
	md_pack_bytes(&p, data, size);
	md_trace_record_end(w);
}

void md_trace_put_content(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size,
			  const void *data)
{
	const uint8_t *bytes = data;
	for (uint64_t at = 0; at < size; at += CONTENT_PIECE) {
		uint64_t piece = size - at < CONTENT_PIECE ? size - at : CONTENT_PIECE;
		put_content_piece(w, sequence, address + at, bytes + at, piece);
	}
}

static enum md_status get_content(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_content *content =
	    md_trace_append(build, &trace->contents, &trace->content_count, sizeof(*content));
	if (!content)
		return md_trace_no_room(build, err);
	content->sequence = sequence;
	content->address = md_unpack_uint(in);
	content->data = md_unpack_blob(in, &build->budget, &content->size);
	if (!content->data)
		md_unpack_fail(in);
	return MD_OK;
}

/* ---- the end ---- */

static enum md_status get_end(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			      struct md_error *err)
{
	uint64_t records = md_unpack_uint(in);
	(void)sequence;
	if (!in->failed && records != build->records)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " records written, %" PRIu64 " found", records,
				    build->records);
	build->trace->complete = true;
	return MD_OK;
}

/* ---- dispatch ---- */

static const struct record_kind {
	const char *name;
	uint32_t fields;
	enum md_status (*get)(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
			      struct md_error *err);
} record_kinds[] = {
    [MD_RECORD_META] = {"meta", 5, get_meta},
    [MD_RECORD_FINGERPRINT] = {"fingerprint", 7, get_fingerprint},
    [MD_RECORD_ALLOC] = {"alloc", 3, get_alloc},
    [MD_RECORD_FREE] = {"free", 1, get_free},
    [MD_RECORD_IMAGE] = {"image", 7, md_trace_get_image},
    [MD_RECORD_KERNEL] = {"kernel", 8, md_trace_get_kernel},
    [MD_RECORD_LAUNCHES] = {"launches", 2, md_trace_get_launches},
    [MD_RECORD_GRAPH] = {"graph", 10, md_trace_get_graph},
    [MD_RECORD_LABEL] = {"label", 3, md_trace_get_label},
    [MD_RECORD_BIND] = {"bind", 4, get_bind},
    [MD_RECORD_MARK] = {"mark", 1, get_mark},
    [MD_RECORD_KV] = {"kv", 8, get_kv},
    [MD_RECORD_STAGE] = {"stage", 2, get_stage},
    [MD_RECORD_CONTENT] = {"content", 2, get_content},
    [MD_RECORD_PROBE] = {"probe", 3, md_trace_get_probe},
    [MD_RECORD_END] = {"end", 1, get_end},
    [MD_RECORD_TRANSFERS] = {"transfers", 3, get_transfers},
    [MD_RECORD_OUTPUT] = {"output", 4, md_trace_get_output},
    [MD_RECORD_NOTE] = {"note", 2, md_trace_get_note},
    [MD_RECORD_REFUSAL] = {"refusal", 2, md_trace_get_refusal},
    [MD_RECORD_FACT] = {"fact", 2, md_trace_get_fact},
    [MD_RECORD_EVENT_USE] = {"event use", 2, md_trace_get_event_use},
    [MD_RECORD_TENSOR_MAP] = {"tensor map", 1, md_trace_get_tensor_map},
    [MD_RECORD_VARIABLE] = {"variable", 2, md_trace_get_variable},
    [MD_RECORD_REQUEST] = {"request", 4, md_trace_get_request},
    [MD_RECORD_ARGUMENTS] = {"arguments", 1, md_trace_get_arguments},
    [MD_RECORD_TOLERANCE] = {"tolerance", 3, md_trace_get_tolerance},
    [MD_RECORD_RESERVATION] = {"reservation", 2, get_reservation},
    [MD_RECORD_CONSTANT] = {"constant", 5, md_trace_get_constant},
    [MD_RECORD_VALUE] = {"value", 3, md_trace_get_value},
    [MD_RECORD_HANDED] = {"handed on", 5, md_trace_get_handed},
    [MD_RECORD_WRITTEN] = {"written", 2, md_trace_get_written},
    [MD_RECORD_UNREAD] = {"unread", 4, md_trace_get_unread},
    [MD_RECORD_GLOBAL] = {"global", 4, md_trace_get_global},
    [MD_RECORD_REPLAYED] = {"replayed", 3, md_trace_get_replayed},
    [MD_RECORD_GIVEN] = {"given", 3, md_trace_get_given},
    [MD_RECORD_SCRATCH] = {"scratch", 2, md_trace_get_scratch},
    [MD_RECORD_TOGETHER] = {"together", 2, md_trace_get_together},
    [MD_RECORD_EVENT_NAME] = {"event name", 2, md_trace_get_event_name},
    [MD_RECORD_LIMITS] = {"limits", MD_LIMITS, get_limits},
};

static enum md_status record_fields(struct md_trace_build *build, const struct record_kind *kind, uint32_t fields,
				    uint64_t sequence, struct md_reader *in, struct md_error *err)
{
	if (fields < kind->fields)
		return md_error_set(err, MD_ERR_CORRUPT, "%s record: %u fields of %u", kind->name, fields,
				    kind->fields);
	build->budget.exhausted = false;
	build->extra = fields - kind->fields;
	enum md_status status = kind->get(build, sequence, in, err);
	if (status == MD_OK && in->failed)
		status = build->budget.exhausted
			     ? md_trace_no_room(build, err)
			     : md_error_set(err, MD_ERR_CORRUPT, "bad field at byte %zu", in->failed_at);
	if (status != MD_OK) {
		md_error_prefix(err, "%s record", kind->name);
		return status;
	}
	for (; build->extra; build->extra--)
		md_unpack_skip(in);
	return MD_OK;
}

enum md_status md_trace_record_read(struct md_trace_build *build, struct md_reader *in, struct md_error *err)
{
	uint32_t items = md_unpack_array(in);
	if (!in->failed && items < 2)
		md_unpack_fail(in);
	uint64_t type = md_unpack_uint(in), sequence = md_unpack_uint(in);
	if (in->failed)
		return md_error_set(err, MD_ERR_CORRUPT, "no record at byte %zu", in->failed_at);
	if (type < sizeof(record_kinds) / sizeof(*record_kinds) && record_kinds[type].get) {
		MD_FORWARD(record_fields(build, &record_kinds[type], items - 2, sequence, in, err));
	} else {
		for (uint32_t i = 2; i < items; i++)
			md_unpack_skip(in);
	}
	build->records++;
	if (in->failed)
		return md_error_set(err, MD_ERR_CORRUPT, "record of type %" PRIu64 " breaks at byte %zu", type,
				    in->failed_at);
	return MD_OK;
}

enum md_status md_trace_build_end(struct md_trace_build *build, struct md_error *err)
{
	md_trace_attach_notes(build);
	return pair_allocations(build, err);
}

void md_trace_build_finish(struct md_trace_build *build)
{
	for (uint32_t i = 0; i < build->note_count; i++)
		free(build->notes[i].text);
	free(build->notes);
	free(build->events);
	md_map_finish(&build->graphs);
}
