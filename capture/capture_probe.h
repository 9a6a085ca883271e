/* SPDX-License-Identifier: Apache-2.0 */
/* One poison test: the memory a graph touches, its contents before and after, and replays with some of it poisoned. */
#ifndef MD_CAPTURE_CAPTURE_PROBE_H
#define MD_CAPTURE_CAPTURE_PROBE_H

#include "base/status.h"
#include "capture/capture.h"

enum md_probe_region_kind {
	MD_PROBE_REGION_OUTPUT,  /* bound and not constant: compared, put back */
	MD_PROBE_REGION_PRIVATE, /* a candidate: poisoned, put back */
	MD_PROBE_REGION_HOST,    /* host memory that the graph can reach: put back */
};

#define MD_PROBE_CHUNK_BYTES (4u << 20)

/*
 * An output (a KV cache) may be large, mostly zero and mostly left alone by a replay: it is kept chunk by chunk, and
 * only the chunks that differ from zero (before) or from before (after) take memory. Private memory is kept whole.
 */
struct md_probe_region {
	enum md_probe_region_kind kind;
	uint64_t address, size;
	uint8_t *before;         /* PRIVATE, HOST: contents when the probe began */
	uint8_t *poison;         /* PRIVATE */
	uint8_t **chunks_before; /* OUTPUT; NULL entry: zeros */
	uint8_t **chunks_after;  /* OUTPUT, after the first replay; NULL entry: as before */
};

/* Smallest part of private memory that is poisoned or kept as one. */
struct md_probe_unit {
	uint32_t region;
	uint32_t size;
	uint64_t offset;
	bool keep;
};

struct md_capture_probe {
	CUgraphExec exec;
	CUstream stream;
	CUdeviceptr scratch; /* where poisoned pointers point to */
	uint64_t scratch_size;
	struct md_probe_region *regions;
	uint32_t region_count;
	struct md_probe_unit *units;
	size_t unit_count;
	uint8_t *now; /* one chunk, page-locked if possible */
	bool now_locked;
	uint8_t *zeros; /* one chunk */
	unsigned replays;
	uint64_t deadline_ns;
	bool broken; /* the context has a sticky error: nothing can be put back */
};

/* ---- capture_probe_regions.c ---- */

/* Collects what the graph can reach and copies it to the host. MD_ERR_TOO_LARGE beyond the limit. Lock held. */
enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const uint64_t *candidates, size_t count,
					uint64_t limit, struct md_error *err);
void md_capture_probe_release(struct md_capture_probe *probe);
/* Fills the poison of all private regions: `word` over and over, and scratch where a pointer was. */
enum md_status md_capture_probe_prepare_poison(struct md_capture_probe *probe, uint32_t word, struct md_error *err);
bool md_capture_probe_has_output(const struct md_capture_probe *probe);
size_t md_capture_probe_chunk_count(const struct md_probe_region *region);
size_t md_capture_probe_chunk_size(const struct md_probe_region *region, size_t chunk);
/* Cuts private memory into units of at most `bytes`; those of a kept unit only, when units exist already. */
enum md_status md_capture_probe_cut(struct md_capture_probe *probe, uint32_t bytes, struct md_error *err);

/* ---- capture_probe_replay.c ---- */

enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err);
/* Replays with the units [from, to) poisoned that are not kept; all memory is put back after. */
enum md_status md_capture_probe_replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				       struct md_error *err);

#endif
