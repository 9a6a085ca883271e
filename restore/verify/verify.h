/* SPDX-License-Identifier: Apache-2.0 */
/* Verify mode: restored graphs are replayed beside the engine's own ones, and compared byte for byte. */
#ifndef MD_RESTORE_VERIFY_VERIFY_H
#define MD_RESTORE_VERIFY_VERIFY_H

#include <pthread.h>
#include <stdbool.h>

#include "base/sample.h"
#include "driver/cuda_driver.h"
#include "driver/device_session.h"
#include "format/verify_line.h"
#include "restore/restore.h"
#include "restore/verify/doubt.h"

/* ---- buffers, before and after (buffers.c, constant_samples.c) ---- */

#define MD_VERIFY_CHUNK MD_DEVICE_CHUNK

struct md_verify_buffer {
	const char *name; /* the engine's */
	CUdeviceptr address;
	uint64_t size;
	bool state, output, sampled;
	enum md_element_type type;
	struct md_sample sample;
	CUdeviceptr copy, live; /* in the session's slabs: contents before, and what the live graph left; or 0 */
	uint8_t *windows;       /* sampled: as they were before the live replay */
	uint8_t **chunks;       /* neither: contents before; NULL entry: zeros */
};

struct md_verify_span { /* what the live graph wrote, or a window; no longer than a chunk */
	uint32_t buffer, size;
	uint64_t offset;
	const uint8_t *before; /* not owned; NULL: sampled, not put back */
	uint8_t *live;
};

/*
 * The buffers that graphs may write: as they were, and what the live graph left. On the device whole, as far as there
 * is room; on the host where it wrote. State that does not fit what there is room for (a KV cache that takes 90 % of
 * the device) is sampled: it is taken to be written idempotently, is compared in windows, and is not put back. A second
 * live replay, after the restored ones, must leave the same, and overwrites what those have left.
 */
struct md_verify_memory {
	struct md_verify_buffer *buffers;
	uint32_t count, sampled_count;
	struct md_verify_span *spans;
	size_t span_count, span_room;
	struct md_device_session device;
	struct md_verify_buffer *constants;
	uint32_t constant_count;
	struct md_hash *constant_hashes;
	struct md_verify_doubt *doubt; /* not owned; NULL, or where every difference is noted */
};

enum md_status md_verify_memory_init(struct md_verify_memory *memory, struct md_restore *r, struct md_error *err);
void md_verify_memory_finish(struct md_verify_memory *memory);
/* Before the live replay. */
enum md_status md_verify_memory_save(struct md_verify_memory *memory, CUstream stream, struct md_error *err);
/* After the live replay: keeps what it wrote, and puts everything back. */
enum md_status md_verify_memory_take_live(struct md_verify_memory *memory, CUstream stream, struct md_error *err);
/*
 * After another replay: MD_ERR_MISMATCH names the buffer, the offset and both values of the first difference from what
 * the live graph left. Looks at what that wrote, and puts it back.
 */
enum md_status md_verify_memory_compare(struct md_verify_memory *memory, CUstream stream, uint64_t *compared,
					struct md_error *err);
/* After a replay: MD_ERR_MISMATCH when it wrote where the live graph did not. Puts everything back. */
enum md_status md_verify_memory_check_rest(struct md_verify_memory *memory, CUstream stream, struct md_error *err);
/* Bytes of host memory for copies: MEDUSA_PROBE_LIMIT, or what the host has to spare. */
uint64_t md_verify_memory_room(void);
/* "kv: 134538092544 bytes, sampled"; empty when everything is compared whole. */
void md_verify_memory_name_sampled(const struct md_verify_memory *memory, char *text, size_t size);
/* live, now: size bytes at the buffer's offset; differs: set to the first difference. */
void md_verify_note_difference(struct md_verify_memory *memory, uint32_t buffer, uint64_t offset, const uint8_t *live,
			       const uint8_t *now, size_t size, struct md_error *differs);

/* ---- whether a comparison shows anything (effects.c) ---- */

/* After the live replay was taken: whether it changed what is bound, or has outputs of its own, which are compared. */
enum md_status md_verify_effects_seen(struct md_verify_memory *memory, const struct md_restore *r,
				      const struct md_artifact_graph *stored, bool *seen, struct md_error *err);
/* Fills what is bound as output before one more live replay, and looks whether that left it so. */
enum md_status md_verify_effects_fill(struct md_verify_memory *memory, uint8_t value, CUstream stream,
				      struct md_error *err);
enum md_status md_verify_effects_found(struct md_verify_memory *memory, uint8_t value, bool *seen,
				       struct md_error *err);

/* ---- buffers whose copies are on the device (device_buffers.c) ---- */

/* False: there is no room, or too little to compare. */
bool md_verify_device_take(struct md_verify_memory *memory, struct md_verify_buffer *buffer);
enum md_status md_verify_device_save(struct md_verify_buffer *buffer, CUstream stream, struct md_error *err);
/* Keeps what the live graph left, and puts back what was there. */
enum md_status md_verify_device_take_live(struct md_verify_buffer *buffer, CUstream stream, struct md_error *err);
enum md_status md_verify_device_put_back(struct md_verify_buffer *buffer, CUstream stream, struct md_error *err);
/* Notes every difference from what the live graph left. What wrote the buffer must be done. */
enum md_status md_verify_device_compare(struct md_verify_memory *memory, uint32_t buffer, struct md_error *differs,
					struct md_error *err);

/* Samples of the constant buffers: kept the first time, compared from then on. */
enum md_status md_verify_constants_check(struct md_verify_memory *memory, CUstream stream, struct md_error *err);

/* ---- words that only replay can tell to be noise (doubtful_words.c) ---- */

struct md_verify_replays {
	struct md_device_session *device;
	/* Builds and replays a restored graph, with its trial; MD_ERR_MISMATCH when it leaves what the live one did
	 * not. */
	enum md_status (*compare)(void *user, struct md_restore_graph *graph, bool other_noise, struct md_error *err);
	void *user;
};

/*
 * After the graph was found equal with all of its doubtful words as the first capture had them. MD_ERR_UNPROVABLE names
 * the first word that matters. Holds work; a note is begun.
 */
enum md_status md_verify_words_prove(struct md_restore *r, struct md_restore_graph *graph,
				     const struct md_verify_replays *replays, struct md_error *err);

/* ---- outputs that no binding holds (unbound_outputs.c) ---- */

struct md_live_output {
	uint64_t address, size; /* size 0: not given */
	enum md_element_type type;
};

/* A part of the memory through which the graphs of a group hand values on (handed_copies.c). */
struct md_verify_part {
	const struct md_artifact_handed *stored;
	uint64_t live;   /* the engine's copy */
	uint8_t *before; /* owned: what that held when the comparison began */
};

struct md_verify_handed {
	struct md_verify_part *parts; /* owned */
	uint32_t count;
	bool loaded;
};

struct md_verify_outputs {
	struct md_live_output *live;           /* owned; those of the graph, then the parts of handed memory */
	uint32_t count, declared;              /* all; those of the graph */
	const struct md_verify_handed *handed; /* not owned */
	uint8_t **bytes, *scratch;             /* what the live graph left; one chunk */
	struct md_verify_doubt *doubt;         /* not owned; where every difference is noted */
};

/* Outputs that the engine declared, and memory that is passed on. */
enum md_status md_verify_outputs_init(struct md_verify_outputs *outputs, const struct md_live_output *live,
				      uint32_t count, const struct md_verify_handed *handed, struct md_error *err);
/* The address of an output of the restored graph. */
uint64_t md_verify_output_address(const struct md_verify_outputs *outputs, const struct md_restore *r,
				  const struct md_artifact_graph *stored, uint32_t index);
/* MD_ERR_MISMATCH: an output that only one side has, or another size or binding. Bindings have been checked. */
enum md_status md_verify_outputs_match(struct md_restore *r, const struct md_artifact_graph *stored,
				       const struct md_live_output *live, uint32_t count, struct md_error *err);
/* After the live replay. */
enum md_status md_verify_outputs_take(struct md_verify_outputs *outputs, CUstream stream, struct md_error *err);
/* After a restored replay: MD_ERR_MISMATCH names the first difference. */
enum md_status md_verify_outputs_compare(const struct md_verify_outputs *outputs, const struct md_restore *r,
					 const struct md_artifact_graph *stored, CUstream stream, uint64_t *compared,
					 struct md_error *err);
void md_verify_outputs_finish(struct md_verify_outputs *outputs);

/* ---- the engine's own graphs (live_graphs.c) ---- */

/* The hash of a graph's inputs at one comparison. */
struct md_verify_inputs {
	bool known, none; /* none: it has none that could vary */
	uint64_t sum;
};

struct md_live_node { /* its parameters, as pointers of artifacts name their bytes */
	uint32_t size;
	uint8_t *bytes; /* owned */
};

struct md_live_nodes {
	struct md_live_node *items;
	uint32_t count, room;
	bool known;
};

extern pthread_mutex_t md_verify_table_lock; /* of the table of live graphs; also held while graphs are compared */

struct md_live_graph {
	CUgraphExec exec;                           /* NULL once destroyed */
	struct md_live_nodes nodes;                 /* as it was instantiated */
	pthread_t maker;                            /* the thread that instantiated it */
	char *label;                                /* owned; NULL until it has one */
	unsigned batch, compared, launches, others; /* others: compared as another one was launched */
	struct md_live_output *outputs;             /* owned; by index */
	uint32_t output_count;
	char *refused;                  /* owned; why, in the engine's words */
	bool passed;                    /* some comparison */
	bool effects;                   /* it was seen to write what is compared */
	struct md_verify_inputs inputs; /* at the first comparison that passed */
	bool varied;                    /* a later one passed on other inputs */
	bool unfed;                     /* it was reported that it is launched before what it reads is written */
	bool sampled;                   /* state was too large to be saved when it was compared last */
};

/* exec NULL: the graph that this thread has instantiated last. */
enum md_status md_verify_label(void *exec, const char *label, unsigned batch, struct md_error *err);
enum md_status md_verify_output(void *exec, unsigned index, uint64_t address, uint64_t size, struct md_error *err);
enum md_status md_verify_refuse(void *exec, const char *why, struct md_error *err);
void md_verify_instantiated(CUgraphExec exec, CUgraph graph);
/* NULL past the end. */
const struct md_live_graph *md_verify_live_at(size_t index) MD_REQUIRES(md_verify_table_lock);
void md_verify_launch(CUgraphExec exec);
void md_verify_forget(CUgraphExec exec);
void md_verify_end(void);
/* The engine calls medusa_mark(). */
void md_verify_mark(const char *name);

/*
 * The engine asks for a graph: what a cold start would lack at this moment fails it. What is loaded and written
 * from then on, until it labels the graph, counts as its live capture's, which a cold start leaves out. No lock.
 */
void md_verify_asked(struct md_restore *r, const char *label, unsigned batch);
void md_verify_labelled(struct md_restore *r, const char *label, unsigned batch);
/* Compares a labelled graph with its restored twin and reports it; false: not now, a capture is in progress. */
bool md_verify_compare(struct md_live_graph *live) MD_REQUIRES(md_verify_table_lock);

/* ---- what the inputs held (inputs.c) ---- */

/* Before a comparison, in the context that is current; waits for the hash. */
enum md_status md_verify_inputs_read(struct md_restore *r, const struct md_restore_graph *graph,
				     const struct md_verify_handed *handed, struct md_verify_inputs *out,
				     struct md_error *err);
/* A comparison on these has passed. */
void md_verify_inputs_note(struct md_live_graph *live, const struct md_verify_inputs *now);
/* The user takes graphs that were always compared on the same inputs. */
bool md_verify_unvaried_accepted(void);

/* ---- the report, and the end of it (report_lines.c, until.c) ---- */

/* Lines of the report: a comparison begins; its verdict; the end. False: the report cannot be written. */
bool md_verify_report_begin(const char *label, unsigned batch);
void md_verify_report(const char *label, unsigned batch, enum md_verdict verdict, uint64_t bytes, const char *reason);
void md_verify_report_end(void);
/* True if MEDUSA_UNTIL was reached just now; the end is reported once. */
bool md_verify_until_mark(const char *name) MD_REQUIRES(md_verify_table_lock);
bool md_verify_until_graphs(size_t labelled) MD_REQUIRES(md_verify_table_lock);
void md_verify_until_end(void) MD_REQUIRES(md_verify_table_lock);

/* ---- the engine's own copy of private memory (originals.c) ---- */

struct md_verify_original {
	uint64_t address, size;
	uint32_t alloc;   /* index into the artifact's */
	CUdeviceptr copy; /* in the session's slabs, or 0 */
	uint8_t *bytes;   /* owned; else NULL */
};

struct md_verify_originals {
	struct md_verify_original *parts; /* owned */
	uint32_t count, begin, end;       /* begin, end: which of them are filled; all but in a trial */
	bool filled;                      /* and not put back */
};

/* What graphs of the artifact have of it, and nobody bound. Under the lock of the table of live graphs. */
enum md_status md_verify_originals_init(struct md_verify_originals *originals, struct md_restore *r,
					struct md_device_session *device, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock);
void md_verify_originals_finish(struct md_verify_originals *originals);
/* Before a restored replay: saves it, and fills it; after the replay, however that went, it is put back. */
enum md_status md_verify_originals_fill(struct md_verify_originals *originals, uint8_t value, CUstream stream,
					struct md_error *err);
enum md_status md_verify_originals_put_back(struct md_verify_originals *originals, CUstream stream,
					    struct md_error *err);

/*
 * After a difference. If there is none without this, err is set anew: MD_ERR_UNPROVABLE names the memory. All other
 * graphs that have it fail, too.
 */
void md_verify_originals_suspect(struct md_verify_originals *originals, struct md_restore *r,
				 struct md_restore_graph *graph,
				 enum md_status (*compare)(void *user, struct md_restore_graph *graph,
							   struct md_error *err),
				 void *user, struct md_error *err) MD_REQUIRES(md_verify_table_lock);

/* ---- live_parameters.c ---- */

void md_verify_nodes_read(struct md_live_nodes *nodes, CUgraph graph);
void md_verify_nodes_finish(struct md_live_nodes *nodes);
/* Finds the live graph's address of an allocation to which the artifact's graph has pointers. */
enum md_status md_verify_nodes_find(const struct md_live_nodes *nodes, const struct md_artifact_graph *stored,
				    uint32_t alloc, uint64_t *start, struct md_error *err);

/* ---- memory that is handed on (handed_copies.c) ---- */

/* Finds the engine's copy of the memory. Call finish in any case. */
enum md_status md_verify_handed_init(struct md_verify_handed *handed, struct md_restore *r,
				     const struct md_restore_graph *graph, const struct md_live_graph *live,
				     struct md_error *err) MD_REQUIRES(md_verify_table_lock);
void md_verify_handed_finish(struct md_verify_handed *handed);
/* Before the live replay; then, before any other and at the end, both copies are what that one began with. */
enum md_status md_verify_handed_load(struct md_verify_handed *handed, CUstream stream, struct md_error *err);
enum md_status md_verify_handed_place(const struct md_verify_handed *handed, const struct md_restore *r,
				      struct md_error *err);
/* Medusa's copy. */
uint64_t md_verify_part_address(const struct md_verify_part *part, const struct md_restore *r);
/* after: what the live replay has left of each part. */
bool md_verify_handed_changed(const struct md_verify_handed *handed, uint8_t *const *after);
/* The engine launches the graph: MD_ERR_UNPROVABLE when nobody has written anew what it reads. */
enum md_status md_verify_handed_launched(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(r->lock);

#endif
