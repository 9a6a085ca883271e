/* SPDX-License-Identifier: Apache-2.0 */
/* One poison test: the memory a graph touches, its contents before and after, and replays with some of it poisoned. */
#ifndef MD_CAPTURE_PROBE_PROBE_H
#define MD_CAPTURE_PROBE_PROBE_H

#include "base/element.h"
#include "base/sample.h"
#include "base/status.h"
#include "capture/capture.h"
#include "capture/record/graphs.h"
#include "driver/device_session.h"

enum md_probe_region_kind {
	MD_PROBE_REGION_OUTPUT,   /* bound, but not as constant: compared, put back */
	MD_PROBE_REGION_SAMPLED,  /* bound state too large to be saved: compared in windows, never put back */
	MD_PROBE_REGION_PRIVATE,  /* a candidate: poisoned, put back */
	MD_PROBE_REGION_HOST,     /* host memory that the graph can reach: put back */
	MD_PROBE_REGION_VARIABLE, /* variable of a module: its pointers are followed; put back */
};

#define MD_PROBE_CHUNK_BYTES MD_DEVICE_CHUNK

/* A word of private memory that points into an allocation. */
struct md_probe_pointer {
	uint64_t offset, value, reach; /* reach: bytes from there to the end of the allocation */
	bool host;                     /* to host memory: poisoned like any other word if it reaches far */
	bool whole;                    /* part of a tensor map: stays as it is, because hardware faults on half a map */
};

/*
 * A copy of memory from when the session began. Every test puts the memory back, so the copy serves the next graph,
 * too, and nothing is copied twice. It stays on the device if there is room, where copying it costs hardly anything. An
 * output on the host may be large, mostly zero, and mostly left alone by a replay: it is kept chunk by chunk, and only
 * chunks that are not zero take memory. Private memory is kept whole.
 */
struct md_probe_copy {
	uint64_t address, size;
	bool sampled;       /* nothing is kept of state that did not fit, and no graph's test puts it back */
	CUdeviceptr device; /* the copy, if it is on the device; 0: it is on the host; not owned */
	uint8_t *host;      /* whole */
	bool locked;        /* host is page-locked */
	uint8_t **chunks;   /* NULL entry: zeros */
	bool followed;
	struct md_probe_pointer *pointers; /* pointers in the private memory, ascending */
	size_t pointer_count;
};

/* Tests of several graphs in a row, with nothing of the engine's in between. */
struct md_probe_session {
	struct md_device_session device;
	struct md_probe_copy **copies;
	size_t copy_count;
	uint64_t host_left; /* bytes that copies may still take there */
};

/*
 * State that does not fit the limit (a KV cache that takes 90 % of the device) is SAMPLED. It is taken to be written
 * idempotently: a replay of the same inputs writes the same values to the same places, so that nothing needs putting
 * back. Where this can be checked it is: two clean replays must give the same outputs and the same sampled windows.
 * When the test ends, one clean replay overwrites what poisoned replays have left.
 */
struct md_probe_region {
	enum md_probe_region_kind kind;
	bool state;   /* OUTPUT: may become SAMPLED */
	bool changed; /* VARIABLE: a replay has changed it */
	/* OUTPUT, SAMPLED: the engine reads it; false for inputs of the engine, which tell nothing of a graph */
	bool read;
	uint64_t address, size;
	const char *name;           /* of the binding; not owned */
	struct md_probe_copy *copy; /* not owned */
	struct md_sample sample;    /* SAMPLED */
	uint8_t *windows;           /* SAMPLED: contents when the test began, one after the other */
	uint8_t *written;           /* PRIVATE: a bit for each byte that the graph writes; NULL: none */
};

/*
 * A piece of memory that is compared after each replay. First the graph's outputs, which may lie in private memory and
 * are then poisoned and put back with it. Then bound memory: replays of the same inputs write the same places, so these
 * are what the first replay changed, and the windows of sampled state; everything else is looked at once, at the end.
 * No longer than a chunk.
 */
struct md_probe_span {
	uint64_t address;
	uint32_t size;
	const uint8_t *before;     /* put back from here ... Not owned */
	CUdeviceptr device_before; /* ... or from here; both 0: not put back by itself */
	uint8_t *after;            /* what the first replay left, here ... */
	uint8_t *low, *high;       /* spread: the least and the most that clean replays left, element by element */
	CUdeviceptr device_after;  /* ... or here; in the session's slabs */
};

/* Smallest part of private memory that is poisoned or kept as one. */
struct md_probe_unit {
	uint32_t region;
	bool keep, known; /* known: kept since an earlier graph needed it */
	uint64_t offset, size;
};

struct md_capture_probe {
	CUgraphExec exec;
	const struct md_capture_output *outputs; /* of the graph; not owned */
	size_t output_count;
	struct md_probe_session *session;
	CUdeviceptr scratch; /* where poisoned pointers point to */
	uint64_t scratch_size;
	struct md_probe_region *regions;
	uint32_t region_count, sampled_count;
	struct md_probe_span *spans;
	size_t span_count, span_room;
	struct md_probe_unit *units; /* units of small regions come first */
	size_t unit_count;
	bool slabs_marked;
	size_t slabs_before; /* end of the session's slabs before the spans were added */
	uint64_t slab_used_before;
	uint32_t word; /* the poison of private memory */
	unsigned replays;
	uint64_t usual_ns; /* how long a replay takes; see md_replay */
	uint64_t started_ns, deadline_ns;
	uint8_t *expected;             /* a chunk: what memory held before a replay; on the host, */
	CUdeviceptr device_expected;   /* and on the device */
	unsigned written_seen;         /* patterns with which the regions' `written` was found */
	bool written_lost;             /* some of the regions' `written` could not be kept */
	bool any_output;               /* the test may run without an output that the engine reads */
	bool changed;                  /* the first replay has changed bound memory */
	bool spread;                   /* clean replays differ: outputs are judged by what several of them span */
	bool learning;                 /* the replays that show the spread are being made */
	struct md_tolerance tolerance; /* the tolerance that the user accepts */
	bool thorough;                 /* every byte of every output is compared after each replay */
	bool strayed;                  /* a poisoned replay has written where the first one had not */
	bool broken;                   /* the context has a sticky error: nothing can be put back */
};

/* ---- probe.c ---- */

/*
 * Repeats the poison test of a graph that was tested already, or that is refused anyway, with the given outputs.
 * Afterwards the probe tells which memory the graph needs for them. Release it in any case.
 */
enum md_status md_capture_probe_again(struct md_capture_probe *probe, const struct md_capture_graph *graph,
				      struct md_error *err) MD_CAPTURE_HELD;
/* Writes the kept contents to the trace; anew: without contents that an earlier test has written. */
void md_capture_probe_put_contents(const struct md_capture_probe *probe, bool anew) MD_CAPTURE_HELD;

/* ---- copies.c ---- */

/* In the current context. */
enum md_status md_capture_session_open(struct md_probe_session *session, struct md_error *err);
void md_capture_session_close(struct md_probe_session *session);

struct md_probe_copy *md_capture_copy_find(const struct md_probe_session *session, uint64_t address, uint64_t size);
/* Makes a copy of the memory as it is. MD_ERR_TOO_LARGE when neither device nor host has room. */
enum md_status md_capture_copy_make(struct md_probe_session *session, enum md_probe_region_kind kind, uint64_t address,
				    uint64_t size, struct md_probe_copy **out, struct md_error *err);
/* Notes that the memory cannot be copied. */
enum md_status md_capture_copy_sampled(struct md_probe_session *session, uint64_t address, uint64_t size,
				       struct md_probe_copy **out, struct md_error *err);
/* Puts a part of a whole copy back, on the session's stream; or reads it. */
enum md_status md_capture_copy_put_back(struct md_probe_session *session, const struct md_probe_copy *copy,
					uint64_t offset, uint64_t size, struct md_error *err);
enum md_status md_capture_copy_read(struct md_probe_session *session, const struct md_probe_copy *copy, uint64_t offset,
				    uint64_t size, void *to, struct md_error *err);
/* Finds the pointers in private memory, once. */
enum md_status md_capture_copy_follow(struct md_probe_session *session, struct md_probe_copy *copy,
				      struct md_error *err) MD_CAPTURE_HELD;
size_t md_capture_probe_chunk_count(uint64_t size);
size_t md_capture_probe_chunk_size(uint64_t size, size_t chunk);

/* ---- regions.c ---- */

/*
 * Lists the memory that the graph can reach, and copies it. MD_ERR_TOO_LARGE beyond the limits; MD_ERR_NOT_FOUND when
 * no output is known that the engine reads.
 */
enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const struct md_capture_graph *graph,
					struct md_error *err) MD_CAPTURE_HELD;
void md_capture_probe_release(struct md_capture_probe *probe);

/* ---- probe_variables.c: variables of the modules that a graph's kernels are of ---- */

bool md_capture_probe_reads_image(const struct md_capture_graph *graph, uint32_t image) MD_CAPTURE_HELD;
enum md_status md_capture_probe_put_variables(struct md_capture_probe *probe, struct md_error *err);
/* After the first replay: marks the variables that it has changed. */
enum md_status md_capture_probe_find_written(struct md_capture_probe *probe, struct md_error *err);
/* Writes the changed variables to the trace. */
void md_capture_probe_say_written(const struct md_capture_probe *probe,
				  const struct md_capture_graph *graph) MD_CAPTURE_HELD;

/* ---- poison.c ---- */

/* Chooses the word that replays from here on poison with, and the memory that poisoned pointers point to. */
enum md_status md_capture_probe_prepare_poison(struct md_capture_probe *probe, uint32_t word, struct md_error *err);
/* Private memory before a replay: units [from, to) that are not kept are poisoned, all others are as they were. */
enum md_status md_capture_probe_place_private(struct md_capture_probe *probe, size_t from, size_t to,
					      struct md_error *err);
/* A run of units from *at on, in one region, that are treated alike; *at is behind them afterwards. */
struct md_probe_run {
	uint32_t region;
	bool poisoned;
	uint64_t offset, size;
};
struct md_probe_run md_capture_probe_next_run(const struct md_capture_probe *probe, size_t *at, size_t from, size_t to);
/* The bytes of a poisoned part of at most one chunk; the poison is a word of equal bytes. */
void md_capture_probe_expect(const struct md_capture_probe *probe, const struct md_probe_region *region,
			     uint64_t offset, uint64_t size, uint8_t *to);
/* The same into device memory; *done is false when that takes too many steps. */
enum md_status md_capture_probe_expect_on_device(struct md_capture_probe *probe, const struct md_probe_region *region,
						 uint64_t offset, uint64_t size, uint64_t to, bool *done,
						 struct md_error *err);
/*
 * Cuts private memory into units of at most `bytes`. The first cut keeps, as known, what earlier graphs were found to
 * need. A later cut divides only units that are kept and not known, and keeps none of their parts.
 */
enum md_status md_capture_probe_cut(struct md_capture_probe *probe, uint32_t bytes,
				    struct md_error *err) MD_CAPTURE_HELD;
/* Remembers the kept units for later graphs. */
void md_capture_probe_learn(const struct md_capture_probe *probe);
/* memory that graphs were found to need */
const struct md_interval_index *md_capture_probe_needed(void) MD_CAPTURE_HELD;

/* ---- written.c ---- */

/*
 * After a replay with all of private memory poisoned that left
 * the outputs right: notes the bytes that the replay wrote.
 */
enum md_status md_capture_written_look(struct md_capture_probe *probe, struct md_error *err);
void md_capture_written_drop(struct md_capture_probe *probe); /* forgets the bytes that were noted so far */
/* Writes the noted bytes to the trace, if they are known; the graph keeps them. */
void md_capture_written_put(const struct md_capture_probe *probe, struct md_capture_graph *graph);
void md_capture_written_release(struct md_capture_probe *probe);

/* ---- unread.c ---- */

/* Writes the memory beside contents of graphs to the trace. A context is current. */
void md_capture_unread_put(struct md_probe_session *session) MD_CAPTURE_HELD;

/* ---- spans.c ---- */

/*
 * After the first replay: makes spans of what it has changed and of the windows of sampled state; puts everything back.
 */
enum md_status md_capture_probe_find_spans(struct md_capture_probe *probe, struct md_error *err);
void md_capture_probe_drop_spans(struct md_capture_probe *probe);
/* Compares all spans with those after the first replay, and puts them back. */
enum md_status md_capture_probe_compare_spans(struct md_capture_probe *probe, bool *equal, struct md_error *err);
/* Compares all outputs once, and puts back those that changed; sets strayed if any did. */
enum md_status md_capture_probe_check_outputs(struct md_capture_probe *probe, struct md_error *err);

/* ---- spread.c: graphs that are not deterministic ---- */

/* The tolerance that the user accepts (MEDUSA_NONDETERMINISTIC). */
struct md_tolerance md_capture_tolerance(void);
/* True if a clean replay may leave these bytes in the span. While the spread is learned, the replay is a clean one. */
bool md_capture_spread_judge(const struct md_capture_probe *probe, struct md_probe_span *span, const uint8_t *now,
			     struct md_error *err);
/* After the first replay: makes clean replays until their spread is known. */
enum md_status md_capture_spread_gather(struct md_capture_probe *probe, struct md_error *err);

/* ---- probe_replay.c ---- */

/*
 * One replay with memory as it is; and the placing before a
 * replay: host memory, variables, and private memory as below.
 */
enum md_status md_capture_probe_launch(struct md_capture_probe *probe, struct md_error *err);
enum md_status md_capture_probe_place(struct md_capture_probe *probe, size_t from, size_t to, struct md_error *err);
enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err);
/*
 * Replays with the units of [from, to) poisoned, except kept
 * ones. Afterwards outputs are put back, private memory is not.
 */
enum md_status md_capture_probe_replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				       struct md_error *err);
/*
 * Ends the test: memory is as it was before the first replay, and sampled state is as one live replay leaves it.
 * status, err: the outcome of the test; an error is not replaced.
 */
enum md_status md_capture_probe_settle(struct md_capture_probe *probe, enum md_status status, struct md_error *err);

#endif
