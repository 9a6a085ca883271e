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
#include "ranks/lockstep.h"

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
	bool by_driver;   /* put back by the driver alone: kernels must not write what may be a constant of a module */
	uint8_t *host;    /* whole */
	bool locked;      /* host is page-locked */
	uint8_t **chunks; /* NULL entry: zeros */
	bool followed;
	struct md_probe_pointer *pointers; /* pointers in the private memory, ascending */
	size_t pointer_count;
};

/* Tests of several graphs in a row, with nothing of the engine's in between. */
struct md_probe_session {
	struct md_device_session device;
	struct md_probe_copy **copies;
	size_t copy_count;
	uint64_t host_left;  /* bytes that copies may still take there */
	CUdeviceptr scratch; /* where poisoned pointers point to; 0: none was needed yet */
	uint64_t scratch_size;
	CUdeviceptr expected; /* a chunk: what memory held before a replay; 0: not needed yet, or no room */
	/* room on the device for windows of sampled state, twice so many bytes: before and after a replay */
	CUdeviceptr windows;
	uint64_t windows_room;
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
	bool gathered;              /* SAMPLED: ... or they are on the device, in the session's room */
	uint64_t windows_at;        /* from there on */
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
	CUdeviceptr device_after;  /* ... or here; in the session's slabs, or its room for windows */
};

/* Smallest part of private memory that is poisoned or kept as one. */
struct md_probe_unit {
	uint32_t region;
	bool keep, known; /* known: kept since an earlier graph needed it */
	bool inverse;     /* poisoned with the other bits of the pattern */
	uint64_t offset, size;
};

struct md_capture_probe {
	CUgraphExec exec;
	bool communicates; /* all ranks launch the graph together: */
	struct md_lockstep lockstep;
	bool reaches_ranks; /* it does not communicate as far as its nodes tell, but leads to memory that ranks share */
	const struct md_capture_output *outputs; /* of the graph; not owned */
	size_t output_count;
	struct md_probe_session *session;
	CUdeviceptr scratch; /* the session's, if the test needs it */
	uint64_t scratch_size;
	struct md_probe_region *regions;
	uint32_t region_count, sampled_count;
	uint64_t gathered_bytes; /* of windows on the device */
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
	uint8_t *expected;             /* a chunk: what memory held before a replay */
	unsigned written_seen;         /* patterns with which the regions' `written` was found */
	bool written_lost;             /* some of the regions' `written` could not be kept */
	bool any_output;               /* the test may run without an output that the engine reads */
	bool no_windows;               /* sampled state is not looked at: no replay is compared with the first one */
	bool changed;                  /* the first replay has changed bound memory */
	bool spread;                   /* clean replays differ: outputs are judged by what several of them span */
	bool learning;                 /* the replays that show the spread are being made */
	struct md_tolerance tolerance; /* the tolerance that the user accepts */
	bool thorough;                 /* every byte of every output is compared after each replay */
	bool strayed;                  /* a poisoned replay has written where the first one had not */
	bool broken;                   /* the context has a sticky error: nothing can be put back */
};

/*
 * Repeats the poison test of a graph that was tested already, or that is refused anyway, with the given outputs.
 * Afterwards the probe tells which memory the graph needs for them. Release it in any case.
 */
enum md_status md_capture_probe_again(struct md_capture_probe *probe, const struct md_capture_graph *graph,
				      struct md_error *err) MD_CAPTURE_HELD;
/* Writes the kept contents to the trace; anew: without contents that an earlier test has written. */
void md_capture_probe_put_contents(const struct md_capture_probe *probe, bool anew) MD_CAPTURE_HELD;

#endif
