/* SPDX-License-Identifier: Apache-2.0 */
/* One poison test: the memory a graph touches, its contents before and after, and replays with some of it poisoned. */
#ifndef MD_CAPTURE_CAPTURE_PROBE_H
#define MD_CAPTURE_CAPTURE_PROBE_H

#include "base/sample.h"
#include "base/status.h"
#include "capture/capture.h"

enum md_probe_region_kind {
	MD_PROBE_REGION_OUTPUT,  /* bound and not constant: compared, put back */
	MD_PROBE_REGION_SAMPLED, /* bound state too large to be saved: compared in windows, never put back */
	MD_PROBE_REGION_PRIVATE, /* a candidate: poisoned, put back */
	MD_PROBE_REGION_HOST,    /* host memory that the graph can reach: put back */
};

#define MD_PROBE_CHUNK_BYTES (4u << 20)

/* A word of private memory that points into an allocation. */
struct md_probe_pointer {
	uint64_t offset, value, reach; /* reach: bytes from there to the end of the allocation */
};

/*
 * An output may be large, mostly zero and mostly left alone by a replay: it is kept chunk by chunk, and only the chunks
 * that are not zero take memory. Private memory is kept whole.
 *
 * State that does not fit the limit (a KV cache that takes 90 % of the device) is SAMPLED. It is taken to be written
 * idempotently: a replay of the same inputs writes the same values to the same places, so that nothing needs putting
 * back. Where this can be checked it is: two clean replays must give the same outputs and the same sampled windows.
 * When the test ends, one clean replay overwrites what poisoned replays have left.
 */
struct md_probe_region {
	enum md_probe_region_kind kind;
	bool state; /* OUTPUT: may become SAMPLED */
	bool read;  /* OUTPUT, SAMPLED: the engine reads it; false for its inputs, which say nothing of a graph */
	uint64_t address, size;
	const char *name; /* of what is bound; not owned */
	uint8_t *before;  /* PRIVATE, HOST: contents when the probe began; SAMPLED: windows, one after the other */
	uint8_t **chunks_before;           /* OUTPUT; NULL entry: zeros */
	struct md_sample sample;           /* SAMPLED */
	struct md_probe_pointer *pointers; /* PRIVATE, ascending */
	size_t pointer_count;
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
	const uint8_t *before; /* put back from here; NULL: not put back by itself. Not owned */
	uint8_t *after;        /* what the first replay left */
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
	CUstream stream;
	CUdeviceptr scratch; /* where poisoned pointers point to */
	uint64_t scratch_size;
	struct md_probe_region *regions;
	uint32_t region_count, sampled_count;
	struct md_probe_span *spans;
	size_t span_count, span_room;
	struct md_probe_unit *units; /* those of small regions first */
	size_t unit_count;
	uint8_t *now; /* one chunk, page-locked if possible */
	bool now_locked;
	uint8_t *zeros; /* one chunk */
	uint32_t word;  /* what private memory is poisoned with */
	unsigned replays;
	uint64_t started_ns, deadline_ns;
	bool thorough; /* every byte of every output is compared after each replay */
	bool strayed;  /* a poisoned replay has written where the first one had not */
	bool broken;   /* the context has a sticky error: nothing can be put back */
};

/* ---- capture_probe_regions.c ---- */

/* Collects what the graph can reach and copies it to the host. MD_ERR_TOO_LARGE beyond the limit. Lock held. */
enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const uint64_t *candidates, size_t count,
					uint64_t limit, struct md_error *err);
void md_capture_probe_release(struct md_capture_probe *probe);
bool md_capture_probe_has_output(const struct md_capture_probe *probe);
size_t md_capture_probe_chunk_count(const struct md_probe_region *region);
size_t md_capture_probe_chunk_size(const struct md_probe_region *region, size_t chunk);

/* ---- capture_probe_poison.c ---- */

/* Chooses the word that replays from here on poison with, and the memory that poisoned pointers point to. */
enum md_status md_capture_probe_prepare_poison(struct md_capture_probe *probe, uint32_t word, struct md_error *err);
/* Private memory before a replay: units [from, to) that are not kept are poisoned, all others are as they were. */
enum md_status md_capture_probe_place_private(struct md_capture_probe *probe, size_t from, size_t to,
					      struct md_error *err);
/*
 * Cuts private memory into units of at most `bytes`, anew. The first time, what earlier graphs were found to need is
 * kept as known; then, only what is kept and not known is cut, and is kept no more.
 */
enum md_status md_capture_probe_cut(struct md_capture_probe *probe, uint32_t bytes, struct md_error *err);
/* Remembers what is kept for the graphs to come. */
void md_capture_probe_learn(const struct md_capture_probe *probe);

/* ---- capture_probe_spans.c ---- */

/* After the first replay: what it has changed, and the windows of sampled state; puts everything back. */
enum md_status md_capture_probe_find_spans(struct md_capture_probe *probe, struct md_error *err);
/* Whether all spans are what they were after the first replay; puts them back. */
enum md_status md_capture_probe_compare_spans(struct md_capture_probe *probe, bool *equal, struct md_error *err);
/* Looks at all of every output once, and puts back what is not as it was; sets strayed if there was any. */
enum md_status md_capture_probe_check_outputs(struct md_capture_probe *probe, struct md_error *err);

/* ---- capture_probe_replay.c ---- */

enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err);
/* Replays with the units [from, to) poisoned that are not kept; outputs are put back after, private memory is not. */
enum md_status md_capture_probe_replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				       struct md_error *err);
/*
 * Ends the test: everything is as it was before the first replay, and sampled state as one live replay leaves it.
 * status, err: how the test went; an error is not replaced.
 */
enum md_status md_capture_probe_settle(struct md_capture_probe *probe, enum md_status status, struct md_error *err);

#endif
