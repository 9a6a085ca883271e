/* SPDX-License-Identifier: Apache-2.0 */
/* The trace (.mtrace): everything that one warm start did, in order. Writer for capture, reader for analysis. */
#ifndef MD_FORMAT_TRACE_TRACE_H
#define MD_FORMAT_TRACE_TRACE_H

#include "base/element.h"
#include "driver/alloc_sequence.h"
#include "format/fingerprint.h"
#include "format/model.h"

/*
 * File: a 32-byte header (magic "MDTRACE\0", version, oldest reader, feature bits), then frames until the end:
 *	u32 compressed size | u32 uncompressed size | u64 checksum of the compressed bytes | zstd frame
 * A frame holds msgpack records [type, sequence, fields...]. A killed process leaves whole frames: the reader reads up
 * to there and says that the trace is incomplete. docs/format.md is normative.
 *
 * `sequence` is the position in the order of all recorded calls of the process, from 1.
 */

/* ---- writer: thread-safe; one file; errors are sticky ---- */

struct md_trace_writer;

/* Writes to path + ".part" until md_trace_writer_close renames it; a killed process leaves the .part file. */
enum md_status md_trace_writer_create(const char *path, struct md_trace_writer **out, struct md_error *err);
/* The same, into a file that the caller has opened, and closes after the writer. The file is emptied. */
struct md_trace_part;
enum md_status md_trace_writer_create_in(struct md_trace_part *part, const char *path, struct md_trace_writer **out,
					 struct md_error *err);
/* Ends the trace ("complete") and renames it. Frees the writer either way. NULL is allowed. */
enum md_status md_trace_writer_close(struct md_trace_writer *writer, struct md_error *err);
/* Frees the writer without completing the trace: the .part file stays for diagnosis. */
void md_trace_writer_abandon(struct md_trace_writer *writer);
/* Compresses and writes the buffer. Called by the drain thread, and when the buffer exceeds 1 MiB. */
enum md_status md_trace_writer_flush(struct md_trace_writer *writer, struct md_error *err);
/* The first failure of any put (a full disk, say), or MD_OK. After a failure, puts do nothing. */
enum md_status md_trace_writer_status(struct md_trace_writer *writer, struct md_error *err);

struct md_trace_meta {
	uint32_t process_id;
	uint64_t start_unix_ns;
	uint64_t shift;      /* 0, or the address-space shift seed this run was made with */
	const char *command; /* the engine's command line, joined with spaces */
	const char *tool_version;
};

void md_trace_put_meta(struct md_trace_writer *w, const struct md_trace_meta *meta);
void md_trace_put_fingerprint(struct md_trace_writer *w, const struct md_fingerprint *fingerprint);
/* Limits of the context in which graphs are made, whenever they have changed. */
void md_trace_put_limits(struct md_trace_writer *w, uint64_t sequence, const uint64_t limits[MD_LIMITS]);
void md_trace_put_alloc(struct md_trace_writer *w, uint64_t sequence, enum md_alloc_family family, uint64_t address,
			uint64_t size);
void md_trace_put_free(struct md_trace_writer *w, uint64_t sequence, uint64_t address);
/*
 * Each image is put once for each content hash; its index is the order of the puts, from 0. data NULL: referenced, not
 * stored.
 */
void md_trace_put_image(struct md_trace_writer *w, uint64_t sequence, const struct md_image *image);
/* The same for kernels. kernel->image is the index of an image in this trace. */
void md_trace_put_kernel(struct md_trace_writer *w, uint64_t sequence, const struct md_kernel *kernel);
/* Launches outside of capture are counted per kernel: one record at the first, then totals at the end. */
void md_trace_put_launches(struct md_trace_writer *w, uint64_t sequence, uint32_t kernel, uint64_t count);
/* Copies and sets outside of capture are counted by kind; a later record replaces an earlier one. */
void md_trace_put_transfers(struct md_trace_writer *w, uint64_t sequence, enum md_transfer_kind kind,
			    const struct md_transfers *transfers);
struct md_trace_graph;
void md_trace_put_graph(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_graph *graph);
/* graph is the id in struct md_trace_graph. A later label of the same graph replaces the earlier. */
void md_trace_put_label(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const char *label,
			uint32_t batch);
void md_trace_put_bind(struct md_trace_writer *w, uint64_t sequence, const char *name, uint64_t address, uint64_t size,
		       enum md_bind_role role);
/*
 * An output of a graph, the engine's own data about the graph, and the engine's statement that it must not be restored.
 */
void md_trace_put_output(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, uint32_t index, uint64_t address,
			 uint64_t size);
void md_trace_put_note(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const void *data, uint64_t size);
void md_trace_put_refusal(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const char *why);
/*
 * A graph writes unbound memory that another graph reads; size 0: it is not known which bytes. Or the engine writes or
 * reads it, by a call outside of graphs.
 */
/* as reader or writer: any graph that has the address; it is not known what the graph does there */
#define MD_ANY_GRAPH UINT64_MAX
struct md_trace_handed {
	uint64_t reader, writer; /* ids of graphs; 0: the engine */
	char *call;              /* the driver call of the engine; owned; NULL for two graphs */
	uint64_t address, size, sequence;
};
void md_trace_put_handed(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_handed *handed);
/*
 * Unbound memory that a graph writes, as replays on poisoned memory show; ascending, without overlaps. Recorded for a
 * graph that has passed its poison test, before the result; for other graphs it is not known.
 */
struct md_trace_range {
	uint64_t address, size;
};
void md_trace_put_written(struct md_trace_writer *w, uint64_t sequence, uint64_t graph,
			  const struct md_trace_range *ranges, uint32_t count);
/*
 * Outside of graphs and after the graphs' warm-ups, a kernel was launched with an address in unbound memory of graphs
 * in its parameters. With a size: a kernel that is not known may have been given any address in that range.
 */
struct md_trace_given {
	uint32_t kernel; /* MD_NONE if there is a size */
	uint64_t address, size, sequence;
	uint32_t offset; /* of the word, in the parameters; MD_NONE: not known */
	bool scratch;    /* the address lay in memory that only graphs use, as the engine stated */
};
void md_trace_put_given(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_given *given);
/*
 * The engine states that only graphs use this memory. It holds until the
 * next of these records that has no size, or until the memory is freed.
 */
struct md_trace_scratch {
	uint64_t address, size, sequence; /* size 0: earlier statements no longer hold */
};
void md_trace_put_scratch(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size);
/* The arguments of the process; an empty list writes no record. */
void md_trace_put_arguments(struct md_trace_writer *w, const struct md_argument_list *arguments);
/* The graph's replays differ among themselves; the poison test judged them within this tolerance. */
void md_trace_put_tolerance(struct md_trace_writer *writer, uint64_t sequence, uint64_t graph,
			    const struct md_tolerance *tolerance);
/* A fact that the engine states; a name that is stated again gets the new value. */
void md_trace_put_fact(struct md_trace_writer *w, uint64_t sequence, const char *name, const char *value);
/* The engine uses an event outside of graphs that nodes of a graph record or wait for; call: the function. */
void md_trace_put_event_use(struct md_trace_writer *w, uint64_t sequence, uint32_t event, const char *call);
/* A communication library has made an event that nodes record: a name of the library and the order, "@nccl.event.3". */
void md_trace_put_event_name(struct md_trace_writer *w, uint64_t sequence, uint32_t event, const char *name);
/*
 * The poison test of a graph that communicates, which its record refuses for that. why NULL: all ranks have replayed it
 * together, and it is refused no longer; otherwise that is the reason now.
 */
void md_trace_put_together(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const char *why);
/* 128 bytes that were encoded as a tensor map. */
void md_trace_put_tensor_map(struct md_trace_writer *w, uint64_t sequence, const void *map);
/* The engine has written a variable of the image's module. */
void md_trace_put_variable(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name);
/* The place of a variable of an image's module, when the engine asks for its address. */
void md_trace_put_global(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name,
			 uint64_t address, uint64_t size);
/* A replay of the graph wrote such a variable. */
void md_trace_put_replayed(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name,
			   uint64_t graph);
/* Addresses that were reserved where the driver chose. */
void md_trace_put_reservation(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size);
/*
 * sequence.c: the allocations of an engine that binds nothing, in their order, all at once when the engine asks for a
 * graph.
 */
void md_trace_put_request(struct md_trace_writer *w, uint64_t sequence, const struct md_sequence_request *request);
/* The value of such a variable; written again when it has changed. */
void md_trace_put_value(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name,
			const void *data, uint64_t size);
/* The hash of a binding that counts as constant (driver/device_hash.h), or NULL and the reason why there is none. */
void md_trace_put_constant(struct md_trace_writer *w, uint64_t sequence, const char *name, uint64_t address,
			   uint64_t size, const struct md_hash *hash, const char *why);
void md_trace_put_mark(struct md_trace_writer *w, uint64_t sequence, const char *name);
void md_trace_put_kv(struct md_trace_writer *w, uint64_t sequence, const struct md_kv *kv);
void md_trace_put_stage(struct md_trace_writer *w, uint64_t sequence, const struct md_stage_time *stage);
/* Permanent contents, found by poisoning: bytes that must be in [address, address + size) before a replay. */
void md_trace_put_content(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size,
			  const void *data);
/*
 * Memory beside permanent contents, up to the next place that a graph writes or that is bound: no replay has read it,
 * and no graph writes it. data NULL: zeros. If several records cover the same bytes, the last one counts. copied: the
 * engine has filled it from the host; such memory need not lie beside contents, if a graph has its address.
 */
#define MD_UNREAD_MAX (1u << 20) /* bytes of one record */
void md_trace_put_unread(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size,
			 const void *data, bool copied);
/* The result of the poison test of a graph, and the reason for it. */
enum md_probe_result { MD_PROBE_CLEAN = 1, MD_PROBE_CONTENT_SAVED = 2, MD_PROBE_FAILED = 3 };
void md_trace_put_probe(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, enum md_probe_result result,
			const char *why);

/* ---- what a trace says, as read ---- */

struct md_trace_alloc {
	enum md_alloc_family family;
	enum md_alloc_family asked; /* family before it was exported, if it was */
	uint64_t address, size;
	uint64_t born, died; /* sequences; died = UINT64_MAX while live at the end */
};

struct md_trace_reservation { /* reserved addresses that the driver chose */
	uint64_t address, size;
};

struct md_trace_bind {
	char *name; /* owned */
	uint64_t address, size, sequence;
	enum md_bind_role role;
};

struct md_trace_output {        /* of a graph, by index */
	uint64_t address, size; /* size 0: no output with this index was declared */
};

struct md_trace_graph {
	uint64_t id;
	char *label; /* owned; NULL when the engine gave none */
	uint32_t batch;
	uint64_t sequence; /* of the instantiation */
	uint64_t instantiate_flags;
	struct md_node *nodes;
	uint32_t node_count;
	struct md_edge *edges;
	uint32_t edge_count;
	char *refused; /* owned; NULL, or why this graph cannot be materialized ("host node at index 12") */
	bool together; /* it communicates, and all ranks have replayed it together */
	enum md_probe_result probe; /* 0: not tested */
	uint64_t probe_sequence;    /* of the test's end */
	char *probe_why;            /* owned */
	/* if given: the graph is nondeterministic, and was judged within this tolerance */
	struct md_tolerance tolerance;
	struct md_trace_output *outputs; /* owned */
	uint32_t output_count;
	struct md_trace_range *written; /* unbound memory that it writes, ascending; owned */
	uint32_t written_count;
	bool written_known; /* false: the graph may write anything that it has the address of */
	uint8_t *note;      /* owned; NULL when there is none */
	uint64_t note_size;
	void *arena; /* owns params and attributes of the nodes */
};

struct md_trace_content {
	uint64_t sequence, address, size;
	uint8_t *data; /* owned */
};

struct md_trace_unread {
	uint64_t sequence, address, size;
	uint8_t *data; /* owned; NULL: zeros */
	bool copied;
};

struct md_trace_event_use {
	uint32_t event;
	char *call; /* owned */
};

struct md_trace_event_name {
	uint32_t event;
	char *name; /* owned */
};

struct md_trace_variable {
	uint32_t image;
	char *name; /* owned */
};

struct md_trace_value { /* of a variable */
	uint32_t image;
	char *name; /* owned */
	uint64_t sequence, size;
	uint8_t *data; /* owned */
};

struct md_trace_global { /* a variable of a module; each copy of an image has its own */
	uint32_t image;
	char *name; /* owned */
	uint64_t sequence, address, size;
};

struct md_trace_replayed {
	uint32_t image;
	char *name; /* owned; of the variable */
	uint64_t graph;
};

struct md_trace_constant {
	char *name; /* owned; of the binding */
	uint64_t sequence, address, size;
	bool known;
	struct md_hash hash; /* if known, else `why` */
	char *why;           /* owned */
};

#define MD_TENSOR_MAP_BYTES 128u

struct md_trace_tensor_map {
	uint8_t bytes[MD_TENSOR_MAP_BYTES];
};

#define MD_TRACE_ANALYZED_FROM 6 /* the oldest version that an analysis takes */

struct md_trace {
	char *path, *command, *tool_version; /* owned */
	uint32_t process_id;
	uint64_t start_unix_ns, shift;
	uint32_t version; /* of the file: an older recorder did not look for everything that refuses graphs */
	bool complete;    /* false: the process was killed; everything up to there is here */
	struct md_fingerprint fingerprint;
	struct md_trace_alloc *allocs;
	uint32_t alloc_count;
	struct md_image *images;
	uint32_t image_count;
	struct md_kernel *kernels;
	uint32_t kernel_count;
	uint64_t *launches; /* per kernel, outside of capture */
	struct md_transfers transfers[MD_TRANSFER_KINDS];
	struct md_trace_graph *graphs;
	uint32_t graph_count;
	struct md_trace_bind *binds;
	uint32_t bind_count;
	struct md_trace_content *contents;
	uint32_t content_count;
	struct md_trace_unread *unread; /* in the order of the file */
	uint32_t unread_count;
	struct md_trace_event_use *event_uses;
	uint32_t event_use_count;
	struct md_trace_event_name *event_names;
	uint32_t event_name_count;
	struct md_trace_variable *variables; /* variables that were written */
	struct md_trace_value *values;
	uint32_t value_count;
	uint32_t variable_count;
	struct md_trace_global *globals;
	uint32_t global_count;
	struct md_trace_replayed *replayed;
	uint32_t replayed_count;
	struct md_trace_constant *constants; /* a binding may have several: it may be hashed more than once */
	uint32_t constant_count;
	struct md_trace_tensor_map *tensor_maps; /* each content once */
	uint32_t tensor_map_count;
	struct md_sequence_request *requests; /* of an engine that binds nothing, until it asked for a graph */
	uint32_t request_count;
	struct md_trace_reservation *reservations;
	uint32_t reservation_count;
	struct md_trace_handed *handed;
	uint32_t handed_count;
	struct md_trace_given *given;
	uint32_t given_count;
	struct md_trace_scratch *scratch; /* in the order of the file */
	uint32_t scratch_count;
	struct md_kv kv;
	struct md_stage_time *stages;
	uint32_t stage_count;
	bool said_complete; /* there is a mark MD_MARK_COMPLETE */
	char mark[100];     /* the last one that the engine has set, or as much of it as fits; "" when there is none */
};

/*
 * Errors name the frame, its offset in the file and the record. A truncated file is not an error: complete is false
 * then.
 */
enum md_status md_trace_read(const char *path, struct md_trace *out, struct md_error *err);
/*
 * Reads two traces at the same time, on a thread each. If one fails,
 * neither is kept, and *failed is the index of the first that failed.
 */
enum md_status md_trace_read_two(const char *const paths[2], struct md_trace out[2], size_t *failed,
				 struct md_error *err);
/* The same for a file in memory, for fuzzing; at most 1 GiB is allocated, whatever the bytes say. */
enum md_status md_trace_parse(const void *data, size_t size, struct md_trace *out, struct md_error *err);
void md_trace_finish(struct md_trace *trace);
/* The number of labelled graphs. If there are any, the others are helpers and are left out of the artifact. */
uint32_t md_trace_labelled(const struct md_trace *trace);

#endif
