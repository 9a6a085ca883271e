/* SPDX-License-Identifier: Apache-2.0 */
/* The trace's file: header and frames, written under a lock and read with every size checked first. */
#include "format/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/thread.h"
#include "format/artifact/artifact.h"
#include "format/trace/part_file.h"
#include "format/trace/records.h"

#define FLUSH_BYTES (1u << 20)
#define FRAME_LEVEL 1 /* zstd level: the traced program waits for it */

/* ---- writer ---- */

struct md_trace_writer {
	pthread_mutex_t lock;
	struct md_trace_part *part; /* own, or the caller's */
	struct md_trace_part own;
	char *path; /* final name */
	struct md_buf raw, stored;
	size_t record_start; /* in raw */
	uint64_t records;
	struct md_error failure; /* sticky; status MD_OK while all is well */
};

static void writer_free(struct md_trace_writer *w)
{
	md_trace_part_close(&w->own);
	md_buf_finish(&w->raw);
	md_buf_finish(&w->stored);
	free(w->path);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static enum md_status write_header(struct md_trace_writer *w, struct md_error *err)
{
	struct md_buf header;
	md_buf_init(&header);
	md_buf_put(&header, MD_TRACE_MAGIC, 8);
	md_buf_put_u32(&header, MD_TRACE_VERSION);
	md_buf_put_u32(&header, MD_TRACE_OLDEST_READER);
	md_buf_put_u64(&header, 0); /* features a reader must know */
	md_buf_put_u64(&header, 0); /* features a reader may ignore */
	enum md_status status = header.failed
				    ? md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the header")
				    : md_file_write(w->part->file.fd, header.data, header.size, w->part->path, err);
	md_buf_finish(&header);
	return status;
}

static enum md_status begin(struct md_trace_writer *w, struct md_trace_writer **out, struct md_error *err)
{
	enum md_status status = write_header(w, err);
	if (status != MD_OK)
		writer_free(w);
	else
		*out = w;
	return status;
}

static struct md_trace_writer *writer_new(const char *path, struct md_error *err)
{
	struct md_trace_writer *w = calloc(1, sizeof(*w));
	if (w && (w->path = strdup(path))) {
		pthread_mutex_init(&w->lock, NULL);
		w->own = MD_TRACE_PART_NONE;
		return w;
	}
	free(w);
	md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the writer of %s", path);
	return NULL;
}

enum md_status md_trace_writer_create(const char *path, struct md_trace_writer **out, struct md_error *err)
{
	struct md_trace_writer *w = writer_new(path, err);
	if (!w)
		return MD_ERR_NO_MEMORY;
	enum md_status status = md_trace_part_open(path, O_WRONLY | O_CREAT | O_TRUNC, &w->own, err);
	if (status != MD_OK) {
		writer_free(w);
		return status;
	}
	w->part = &w->own;
	return begin(w, out, err);
}

enum md_status md_trace_writer_create_in(struct md_trace_part *part, const char *path, struct md_trace_writer **out,
					 struct md_error *err)
{
	struct md_trace_writer *w = writer_new(path, err);
	if (!w)
		return MD_ERR_NO_MEMORY;
	w->part = part;
	if ((ftruncate(part->file.fd, 0) && errno != EINVAL) ||
	    (lseek(part->file.fd, 0, SEEK_SET) && errno != ESPIPE)) {
		md_error_set(err, MD_ERR_OUTPUT, "%s: cannot be emptied: %s", part->path, strerror(errno));
		writer_free(w);
		return MD_ERR_OUTPUT;
	}
	return begin(w, out, err);
}

static enum md_status write_frame(struct md_trace_writer *w, struct md_error *err)
{
	md_buf_clear(&w->stored);
	md_buf_put_u32(&w->stored, 0);
	md_buf_put_u32(&w->stored, (uint32_t)w->raw.size);
	md_buf_put_u64(&w->stored, 0);
	MD_FORWARD(md_zip_append(&w->stored, w->raw.data, w->raw.size, FRAME_LEVEL, false, err));
	size_t size = w->stored.size - MD_TRACE_FRAME_BYTES;
	if (size > MD_TRACE_FRAME_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%s: a frame of %zu bytes", w->part->path, size);
	uint64_t checksum = md_hash_checksum(w->stored.data + MD_TRACE_FRAME_BYTES, size);
	for (int i = 0; i < 4; i++)
		w->stored.data[i] = (uint8_t)(size >> 8 * i);
	for (int i = 0; i < 8; i++)
		w->stored.data[8 + i] = (uint8_t)(checksum >> 8 * i);
	MD_FORWARD(md_trace_part_check(w->part, err));
	return md_file_write(w->part->file.fd, w->stored.data, w->stored.size, w->part->path, err);
}

/* Under the lock. Leaves raw empty unless it fails. */
static void flush_locked(struct md_trace_writer *w)
{
	if (w->failure.status != MD_OK || !w->raw.size)
		return;
	if (write_frame(w, &w->failure) == MD_OK)
		md_buf_clear(&w->raw);
}

static enum md_status failure_of(const struct md_trace_writer *w, struct md_error *err)
{
	if (w->failure.status != MD_OK && err)
		*err = w->failure;
	return w->failure.status;
}

struct md_buf *md_trace_record_begin(struct md_trace_writer *w, enum md_trace_record type, uint64_t sequence,
				     uint32_t fields, msgpack_packer *packer)
{
	pthread_mutex_lock(&w->lock);
	if (w->failure.status != MD_OK) {
		pthread_mutex_unlock(&w->lock);
		return NULL;
	}
	w->record_start = w->raw.size;
	md_pack_init(packer, &w->raw);
	msgpack_pack_array(packer, 2 + fields);
	msgpack_pack_uint32(packer, type);
	msgpack_pack_uint64(packer, sequence);
	return &w->raw;
}

void md_trace_record_end(struct md_trace_writer *w)
{
	if (w->raw.failed)
		md_error_set(&w->failure, MD_ERR_NO_MEMORY, "%s: out of memory for %zu buffered bytes", w->part->path,
			     w->raw.size);
	else if (w->raw.size - w->record_start > MD_TRACE_FRAME_MAX - FLUSH_BYTES)
		md_error_set(&w->failure, MD_ERR_TOO_LARGE, "%s: one record of %zu bytes", w->part->path,
			     w->raw.size - w->record_start);
	else
		w->records++;
	if (w->raw.size >= FLUSH_BYTES)
		flush_locked(w);
	pthread_mutex_unlock(&w->lock);
}

void md_trace_writer_fail(struct md_trace_writer *w, enum md_status status, const char *why)
{
	pthread_mutex_lock(&w->lock);
	if (w->failure.status == MD_OK)
		md_error_set(&w->failure, status, "%s: %s", w->part->path, why);
	pthread_mutex_unlock(&w->lock);
}

enum md_status md_trace_writer_flush(struct md_trace_writer *writer, struct md_error *err)
{
	pthread_mutex_lock(&writer->lock);
	flush_locked(writer);
	enum md_status status = failure_of(writer, err);
	pthread_mutex_unlock(&writer->lock);
	return status;
}

enum md_status md_trace_writer_status(struct md_trace_writer *writer, struct md_error *err)
{
	pthread_mutex_lock(&writer->lock);
	enum md_status status = failure_of(writer, err);
	pthread_mutex_unlock(&writer->lock);
	return status;
}

static void put_end(struct md_trace_writer *w)
{
	msgpack_packer p;
	uint64_t records = w->records; /* nobody else writes any more */
	if (!md_trace_record_begin(w, MD_RECORD_END, 0, 1, &p))
		return;
	msgpack_pack_uint64(&p, records);
	md_trace_record_end(w);
}

enum md_status md_trace_writer_close(struct md_trace_writer *writer, struct md_error *err)
{
	if (!writer)
		return MD_OK;
	put_end(writer);
	enum md_status status = md_trace_writer_flush(writer, err);
	if (status == MD_OK)
		status = md_trace_part_check(writer->part, err);
	if (status == MD_OK)
		status = md_file_publish(writer->part->file.fd, writer->part->path, writer->path, err);
	writer_free(writer);
	return status;
}

void md_trace_writer_abandon(struct md_trace_writer *writer)
{
	if (!writer)
		return;
	md_trace_writer_flush(writer, NULL);
	writer_free(writer);
}

/* ---- reader ---- */

static enum md_status read_header(struct md_reader *in, struct md_trace *trace, struct md_error *err)
{
	const void *magic = md_reader_take(in, 8);
	if (!magic || memcmp(magic, MD_TRACE_MAGIC, 8) != 0)
		return md_error_set(err, in->failed ? MD_ERR_TRUNCATED : MD_ERR_CORRUPT,
				    "header at offset 0: not a trace of Medusa");
	uint32_t version = md_reader_u32(in), oldest = md_reader_u32(in);
	uint64_t required = md_reader_u64(in);
	md_reader_u64(in);
	trace->version = version;
	if (in->failed)
		return md_error_set(err, MD_ERR_TRUNCATED, "header: %zu bytes of %d", in->size, MD_TRACE_HEADER_BYTES);
	if (oldest > MD_TRACE_VERSION)
		return md_error_set(err, MD_ERR_VERSION,
				    "header: version %u needs a reader of version %u, this one is %d; capture again "
				    "or use the newer tools",
				    version, oldest, MD_TRACE_VERSION);
	if (required)
		return md_error_set(err, MD_ERR_VERSION, "header: unknown required features 0x%" PRIx64, required);
	return MD_OK;
}

static enum md_status read_records(struct md_trace_build *build, const void *data, size_t size, struct md_error *err)
{
	struct md_reader in;
	md_reader_init(&in, data, size);
	while (in.offset < in.size) {
		if (build->trace->complete)
			return md_error_set(err, MD_ERR_CORRUPT, "records after the end record");
		size_t at = in.offset;
		enum md_status status = md_trace_record_read(build, &in, err);
		if (status != MD_OK) {
			md_error_prefix(err, "record %" PRIu64 " at byte %zu of the frame", build->records, at);
			return status;
		}
	}
	return MD_OK;
}

static enum md_status read_frame(struct md_trace_build *build, const void *stored, uint32_t stored_size, uint32_t raw,
				 uint64_t checksum, struct md_error *err)
{
	if (md_hash_checksum(stored, stored_size) != checksum)
		return md_error_set(err, MD_ERR_CORRUPT, "checksum differs");
	if (build->trace->complete)
		return md_error_set(err, MD_ERR_CORRUPT, "a frame after the end record");
	MD_AUTO_FREE void *data = md_budget_alloc(&build->budget, raw, 1);
	if (!data)
		return md_budget_error(&build->budget, err);
	enum md_status status = md_zip_expand(stored, stored_size, data, raw, err);
	if (status == MD_OK)
		status = read_records(build, data, raw, err);
	md_budget_give(&build->budget, raw);
	return status;
}

struct frame {
	unsigned number;
	uint64_t at; /* in the file */
	uint32_t stored, raw;
	uint64_t checksum;
};

static enum md_status take(const struct md_file_source *source, uint64_t at, size_t size, void **owned,
			   struct md_reader *in, struct md_error *err)
{
	const void *bytes = NULL;
	MD_FORWARD(md_file_source_take(source, at, size, &bytes, owned, err));
	md_reader_init(in, bytes, size);
	return MD_OK;
}

static enum md_status read_frame_head(const struct md_file_source *source, uint64_t raw_left, struct frame *frame,
				      struct md_error *err)
{
	struct md_reader in;
	MD_AUTO_FREE void *owned = NULL;
	MD_FORWARD(take(source, frame->at, MD_TRACE_FRAME_BYTES, &owned, &in, err));
	frame->stored = md_reader_u32(&in);
	frame->raw = md_reader_u32(&in);
	frame->checksum = md_reader_u64(&in);
	if (!frame->stored || frame->stored > MD_TRACE_FRAME_MAX || frame->raw > MD_TRACE_FRAME_MAX)
		return md_error_set(err, frame->stored ? MD_ERR_TOO_LARGE : MD_ERR_CORRUPT,
				    "announces %u bytes, %u uncompressed; at most %u", frame->stored, frame->raw,
				    MD_TRACE_FRAME_MAX);
	if (frame->stored <= source->size - frame->at - MD_TRACE_FRAME_BYTES && frame->raw > raw_left)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "%u bytes, uncompressed, are more than a file of %" PRIu64 " bytes may hold",
				    frame->raw, source->size);
	return MD_OK;
}

static enum md_status read_frame_body(struct md_trace_build *build, const struct md_file_source *source,
				      const struct frame *frame, struct md_error *err)
{
	struct md_reader in;
	MD_AUTO_FREE void *owned = NULL;
	uint64_t taken = source->data ? 0 : frame->stored;
	if (!md_budget_take(&build->budget, taken))
		return md_budget_error(&build->budget, err);
	MD_FORWARD(take(source, frame->at + MD_TRACE_FRAME_BYTES, frame->stored, &owned, &in, err));
	MD_FORWARD(
	    read_frame(build, md_reader_take(&in, frame->stored), frame->stored, frame->raw, frame->checksum, err));
	md_budget_give(&build->budget, taken);
	return MD_OK;
}

/* A frame that is cut off ends the loop without an error: the process was killed while writing it. */
static enum md_status read_frames(struct md_trace_build *build, const struct md_file_source *source,
				  struct md_error *err)
{
	uint64_t raw_left = (1ull << 30) + MD_TRACE_RATIO_MAX * source->size;
	struct frame frame = {.at = MD_TRACE_HEADER_BYTES};
	for (; source->size - frame.at >= MD_TRACE_FRAME_BYTES; frame.number++) {
		uint64_t left = source->size - frame.at - MD_TRACE_FRAME_BYTES;
		enum md_status status = read_frame_head(source, raw_left, &frame, err);
		if (status == MD_OK && frame.stored > left)
			return MD_OK;
		if (status == MD_OK)
			status = read_frame_body(build, source, &frame, err);
		if (status != MD_OK)
			return md_error_prefix(err, "frame %u at offset %" PRIu64, frame.number, frame.at);
		raw_left -= frame.raw;
		frame.at += MD_TRACE_FRAME_BYTES + frame.stored;
	}
	if (build->trace->complete && frame.at < source->size)
		return md_error_set(err, MD_ERR_CORRUPT, "offset %" PRIu64 ": %" PRIu64 " bytes after the end",
				    frame.at, source->size - frame.at);
	return MD_OK;
}

static enum md_status read_head(const struct md_file_source *source, struct md_trace *trace, struct md_error *err)
{
	struct md_reader in;
	MD_AUTO_FREE void *owned = NULL;
	size_t size = source->size < MD_TRACE_HEADER_BYTES ? (size_t)source->size : MD_TRACE_HEADER_BYTES;
	MD_FORWARD(take(source, 0, size, &owned, &in, err));
	return read_header(&in, trace, err);
}

static enum md_status read_source(const struct md_file_source *source, struct md_trace *out, struct md_error *err)
{
	struct md_trace trace = {0};
	struct md_trace_build build = {.trace = &trace, .budget = {.left = MD_TRACE_MEMORY_MAX}};
	md_map_init(&build.graphs);
	enum md_status status = read_head(source, &trace, err);
	if (status == MD_OK)
		status = read_frames(&build, source, err);
	if (status == MD_OK)
		status = md_trace_build_end(&build, err);
	md_trace_build_finish(&build);
	if (status == MD_OK)
		*out = trace;
	else
		md_trace_finish(&trace);
	return status;
}

enum md_status md_trace_parse(const void *data, size_t size, struct md_trace *out, struct md_error *err)
{
	return read_source(&(struct md_file_source){size ? data : "", -1, size}, out, err);
}

enum md_status md_trace_read(const char *path, struct md_trace *out, struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	struct md_file_source source = {NULL, -1, 0};
	MD_FORWARD(md_file_open(path, UINT64_MAX, &fd, &source.size, err));
	source.fd = fd;
	enum md_status status = read_source(&source, out, err);
	if (status != MD_OK) {
		md_error_prefix(err, "%s", path);
		return status;
	}
	out->path = strdup(path);
	if (!out->path) {
		md_trace_finish(out);
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its path", path);
	}
	return MD_OK;
}

struct reading {
	const char *path;
	struct md_trace *trace;
	struct md_error err;
};

static void *read_one(void *argument)
{
	struct reading *reading = argument;
	md_trace_read(reading->path, reading->trace, &reading->err);
	return NULL;
}

enum md_status md_trace_read_two(const char *const paths[2], struct md_trace out[2], size_t *failed,
				 struct md_error *err)
{
	struct reading readings[2] = {{paths[0], &out[0], {0}}, {paths[1], &out[1], {0}}};
	pthread_t thread;
	bool apart = md_thread_start(&thread, read_one, &readings[1]) == 0;
	read_one(&readings[0]);
	if (apart)
		pthread_join(thread, NULL);
	else
		read_one(&readings[1]);
	if (!readings[0].err.status && !readings[1].err.status)
		return MD_OK;
	*failed = readings[0].err.status ? 0 : 1;
	if (!readings[1 - *failed].err.status)
		md_trace_finish(&out[1 - *failed]);
	return md_error_set(err, readings[*failed].err.status, "%s", readings[*failed].err.message);
}

static void graph_finish(struct md_trace_graph *graph)
{
	free(graph->label);
	free(graph->nodes);
	free(graph->edges);
	free(graph->refused);
	free(graph->probe_why);
	free(graph->outputs);
	free(graph->written);
	free(graph->note);
	md_arena_free(&graph->arena);
}

static void kernels_finish(struct md_trace *trace)
{
	for (uint32_t i = 0; i < trace->image_count; i++) {
		free(trace->images[i].path);
		free(trace->images[i].build_id);
		free(trace->images[i].data);
	}
	for (uint32_t i = 0; i < trace->kernel_count; i++) {
		free(trace->kernels[i].name);
		free(trace->kernels[i].params);
	}
	free(trace->images);
	free(trace->kernels);
	free(trace->launches);
}

uint32_t md_trace_labelled(const struct md_trace *trace)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < trace->graph_count; i++)
		count += trace->graphs[i].label != NULL;
	return count;
}

void md_trace_finish(struct md_trace *trace)
{
	for (uint32_t i = 0; i < trace->graph_count; i++)
		graph_finish(&trace->graphs[i]);
	for (uint32_t i = 0; i < trace->bind_count; i++)
		free(trace->binds[i].name);
	for (uint32_t i = 0; i < trace->content_count; i++)
		free(trace->contents[i].data);
	for (uint32_t i = 0; i < trace->unread_count; i++)
		free(trace->unread[i].data);
	free(trace->unread);
	for (uint32_t i = 0; i < trace->event_use_count; i++)
		free(trace->event_uses[i].call);
	for (uint32_t i = 0; i < trace->handed_count; i++)
		free(trace->handed[i].call);
	free(trace->handed);
	free(trace->given);
	free(trace->scratch);
	free(trace->event_uses);
	for (uint32_t i = 0; i < trace->event_name_count; i++)
		free(trace->event_names[i].name);
	free(trace->event_names);
	for (uint32_t i = 0; i < trace->value_count; i++) {
		free(trace->values[i].name);
		free(trace->values[i].data);
	}
	free(trace->values);
	for (uint32_t i = 0; i < trace->constant_count; i++) {
		free(trace->constants[i].name);
		free(trace->constants[i].why);
	}
	free(trace->constants);
	for (uint32_t i = 0; i < trace->variable_count; i++)
		free(trace->variables[i].name);
	free(trace->variables);
	md_trace_finish_globals(trace);
	free(trace->tensor_maps);
	free(trace->requests);
	free(trace->reservations);
	kernels_finish(trace);
	md_fingerprint_finish(&trace->fingerprint);
	free(trace->graphs);
	free(trace->binds);
	free(trace->contents);
	free(trace->allocs);
	free(trace->stages);
	free(trace->path);
	free(trace->command);
	free(trace->tool_version);
	*trace = (struct md_trace){0};
}
