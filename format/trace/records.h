/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the trace's frames (trace.c) and its records (records.c). */
#ifndef MD_FORMAT_TRACE_RECORDS_H
#define MD_FORMAT_TRACE_RECORDS_H

#include "base/map.h"
#include "format/codec/pack.h"
#include "format/trace/trace.h"

#define MD_TRACE_MAGIC "MDTRACE" /* and its NUL: 8 bytes */
#define MD_TRACE_VERSION 7
#define MD_TRACE_OLDEST_READER                                                                                         \
	7 /* an older reader would skip records that refuse graphs, or belong to them: handed memory, written memory */
#define MD_TRACE_HEADER_BYTES 32
#define MD_TRACE_FRAME_BYTES 16
#define MD_TRACE_FRAME_MAX (256u << 20)    /* bytes, uncompressed and compressed */
#define MD_TRACE_MEMORY_MAX (960ull << 20) /* bytes: a process that reads one stays below 1 GiB */
/* uncompressed bytes of all frames for each byte of the file, beyond 1 GiB */
#define MD_TRACE_RATIO_MAX 1000u
#define MD_TRACE_TEXT_MAX (1u << 20) /* bytes of a string */

/* The first item of a record. A number is never reused; a reader skips records that it does not know. */
enum md_trace_record {
	MD_RECORD_META = 1,
	MD_RECORD_FINGERPRINT = 2,
	MD_RECORD_ALLOC = 3,
	MD_RECORD_FREE = 4,
	MD_RECORD_IMAGE = 5,
	MD_RECORD_KERNEL = 6,
	MD_RECORD_LAUNCHES = 7,
	MD_RECORD_GRAPH = 8,
	MD_RECORD_LABEL = 9,
	MD_RECORD_BIND = 10,
	MD_RECORD_MARK = 11,
	MD_RECORD_KV = 12,
	MD_RECORD_STAGE = 13,
	MD_RECORD_CONTENT = 14,
	MD_RECORD_PROBE = 15,
	MD_RECORD_END = 16,
	MD_RECORD_TRANSFERS = 17,
	MD_RECORD_OUTPUT = 18,
	MD_RECORD_NOTE = 19,
	MD_RECORD_REFUSAL = 20,
	MD_RECORD_FACT = 21,
	MD_RECORD_EVENT_USE = 22,
	MD_RECORD_TENSOR_MAP = 23,
	MD_RECORD_VARIABLE = 24,
	MD_RECORD_REQUEST = 25,
	MD_RECORD_ARGUMENTS = 26,
	MD_RECORD_TOLERANCE = 27,
	MD_RECORD_RESERVATION = 28,
	MD_RECORD_CONSTANT = 29,
	MD_RECORD_VALUE = 30,
	MD_RECORD_HANDED = 31,
	MD_RECORD_WRITTEN = 32,
	MD_RECORD_UNREAD = 33,
	MD_RECORD_GLOBAL = 34,
	MD_RECORD_REPLAYED = 35,
	MD_RECORD_GIVEN = 36,
	MD_RECORD_LIMITS = 37,
	MD_RECORD_SCRATCH = 38,
	MD_RECORD_TOGETHER = 39,
	MD_RECORD_EVENT_NAME = 40,
};

/* The writer's buffer, locked, with the head of a record in it; NULL (and not locked) when the writer has failed. */
struct md_buf *md_trace_record_begin(struct md_trace_writer *w, enum md_trace_record type, uint64_t sequence,
				     uint32_t fields, msgpack_packer *packer);
/* Unlocks; flushes a buffer that has grown past its bound. */
void md_trace_record_end(struct md_trace_writer *w);
void md_trace_writer_fail(struct md_trace_writer *w, enum md_status status, const char *why);

/* State of a reader, beside the trace itself. */
struct md_trace_event { /* an allocation, or a free (family 0) */
	uint64_t sequence, address, size;
	enum md_alloc_family family;
};

struct md_trace_note { /* a label or a probe result of a graph that has not been read yet */
	uint64_t sequence, graph;
	char *text;
	uint32_t batch;
	enum md_probe_result probe; /* 0: a label */
};

struct md_trace_build {
	struct md_trace *trace;
	struct md_budget budget;
	struct md_map graphs; /* id -> index */
	struct md_trace_event *events;
	uint32_t event_count;
	struct md_trace_note *notes;
	uint32_t note_count;
	uint32_t extra;   /* optional fields of the record that are left; reading one counts it down */
	uint64_t records; /* records read so far, without the end record */
};

/* Room for one more item of a T ** array, zeroed; NULL when refused, then md_trace_no_room says why. */
void *md_trace_append(struct md_trace_build *build, void *array, uint32_t *count, size_t size);
enum md_status md_trace_no_room(const struct md_trace_build *build, struct md_error *err);

/* graph_records.c and said_records.c: records that records.c dispatches to */
#define MD_TRACE_GET(name)                                                                                             \
	enum md_status md_trace_get_##name(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,      \
					   struct md_error *err)
MD_TRACE_GET(image);
MD_TRACE_GET(kernel);
MD_TRACE_GET(launches);
MD_TRACE_GET(graph);
MD_TRACE_GET(label);
MD_TRACE_GET(probe);
MD_TRACE_GET(output);
MD_TRACE_GET(note);
MD_TRACE_GET(refusal);
MD_TRACE_GET(tolerance);
MD_TRACE_GET(fact);
MD_TRACE_GET(event_use);
MD_TRACE_GET(event_name);
MD_TRACE_GET(together);
MD_TRACE_GET(tensor_map);
MD_TRACE_GET(request); /* sequence.c */
MD_TRACE_GET(arguments);
MD_TRACE_GET(constant);
MD_TRACE_GET(handed);  /* handed_records.c */
MD_TRACE_GET(written); /* written_records.c */
MD_TRACE_GET(unread);
MD_TRACE_GET(variable); /* variable_records.c */
MD_TRACE_GET(value);
MD_TRACE_GET(global);
MD_TRACE_GET(replayed);
void md_trace_finish_globals(struct md_trace *trace);
MD_TRACE_GET(given); /* given_records.c */
MD_TRACE_GET(scratch);
/* Hands labels and probe results that came before their graph to it. */
void md_trace_attach_notes(struct md_trace_build *build);

/* Reads the record at the cursor. Errors name the record type, not where it lies. */
enum md_status md_trace_record_read(struct md_trace_build *build, struct md_reader *in, struct md_error *err);
/* Pairs allocations with frees and hands late labels to their graphs. */
enum md_status md_trace_build_end(struct md_trace_build *build, struct md_error *err);
void md_trace_build_finish(struct md_trace_build *build);

#endif
