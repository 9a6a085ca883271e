/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares device memory before and after a replay: a stream, staging memory, device memory for copies, and a kernel
 * that finds what differs.
 */
#ifndef MD_DRIVER_DEVICE_SESSION_H
#define MD_DRIVER_DEVICE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "driver/cuda_driver.h"

#define MD_DEVICE_CHUNK (4u << 20)     /* bytes of staging memory */
#define MD_DEVICE_GRAIN 4096u          /* a grain, which differs or not as a whole: bytes */
#define MD_DEVICE_GRAINS (256u << 10)  /* most grains that are compared at a time */
#define MD_DEVICE_COMPARED (64u << 10) /* smaller memory is compared on the host */

struct md_device_piece; /* of driver/device_pieces.c */

struct md_device_slab {
	CUdeviceptr base;
	uint64_t size, used;
};

struct md_device_session {
	bool open;
	CUcontext context;
	CUstream stream;
	uint64_t device_left; /* bytes that slabs may still take */
	struct md_device_slab *slabs;
	size_t slab_count, own_slabs; /* own: of the session itself, the first ones */
	uint8_t *now;                 /* one chunk, page-locked if possible */
	bool now_locked;
	uint8_t *zeros; /* one chunk */
	CUmodule module;
	CUfunction differ; /* NULL: memory can only be compared on the host */
	CUmodule search_module;
	CUfunction search;   /* NULL: memory is searched on the host; see driver/device_search.h */
	CUdeviceptr spot;    /* 512 bytes to copy back and forth where that kernel is missing; or 0 */
	CUdeviceptr flags;   /* a byte for each grain that is compared */
	uint8_t *flag_bytes; /* the same on the host */
	/* a batch of copies and comparisons; see driver/device_pieces.h */
	CUmodule pieces_module;
	CUfunction pieces; /* NULL: pieces are copied one by one, and cannot be compared */
	CUdeviceptr table;
	struct md_device_piece *table_bytes; /* the same on the host, page-locked if possible */
	bool table_locked;
	size_t piece_count, pieces_launched; /* since the last wait */
	CUdeviceptr stage;                   /* where bytes are brought together that `now` is to hold */
	size_t staged;                       /* so many of them */
	uint64_t moved_bytes;                /* between host and device */
};

/* ---- device_session.c ---- */

/*
 * Opens a session in the current context. It takes at most device_limit bytes, and leaves memory that others may need.
 */
enum md_status md_device_session_open(struct md_device_session *session, uint64_t device_limit, struct md_error *err);
void md_device_session_close(struct md_device_session *session);
/*
 * A session rests between uses: all device memory goes back but for what the session itself needs, some hundred KiB.
 * False: the context is broken; close the session.
 */
bool md_device_session_rest(struct md_device_session *session);
void md_device_session_wake(struct md_device_session *session, uint64_t device_limit);
/* Takes a slab of this size for the session itself, when the session has no other slab yet. */
bool md_device_session_reserve(struct md_device_session *session, uint64_t size);
/* Device memory until the session closes or its slabs are cut back; 0 when there is no room. Aligned to 512. */
CUdeviceptr md_device_session_take(struct md_device_session *session, uint64_t size);
void md_device_session_cut_back(struct md_device_session *session, size_t slab_count, uint64_t used);
/* Copies to the host and waits, or copies to the device on the session's stream. */
enum md_status md_device_session_read(struct md_device_session *session, void *to, uint64_t from, uint64_t size,
				      struct md_error *err);
enum md_status md_device_session_write(struct md_device_session *session, uint64_t to, const void *from, uint64_t size,
				       struct md_error *err);
enum md_status md_device_session_wait(struct md_device_session *session, struct md_error *err);

/* ---- device_differ.c ---- */

/*
 * Loads a kernel of ours from its PTX text, or from the image that MEDUSA_PROBE_KERNEL names, for devices that cannot
 * translate PTX; "none" disables such kernels.
 */
CUresult md_device_kernel_load(const struct md_cuda *driver, const char *text, const char *name, CUmodule *module,
			       CUfunction *function);
/* Loads the kernel and tests it. If there is none, or it fails its test, session->differ stays NULL. */
void md_device_differ_load(struct md_device_session *session);
void md_device_differ_unload(struct md_device_session *session);
/* True if memory can be compared on the device: both addresses and the size are multiples of 16 bytes. */
bool md_device_differ_can(const struct md_device_session *session, uint64_t address, uint64_t size);
/*
 * Compares on the session's stream; flags from `flag` on are for the grains from 0 on. Call begin first, then this for
 * each range.
 */
enum md_status md_device_differ_begin(struct md_device_session *session, size_t flags, struct md_error *err);
enum md_status md_device_differ_launch(struct md_device_session *session, uint64_t one, uint64_t two, uint64_t size,
				       size_t flag, struct md_error *err);
/* Waits; session->flag_bytes then says which grains differ. */
enum md_status md_device_differ_end(struct md_device_session *session, size_t flags, struct md_error *err);
/*
 * Call this after changing memory that may hold tensor maps, before a graph is launched on the stream: a device reads a
 * map anew for kernels that are launched one by one, but may take it from a cache for those of a graph.
 */
enum md_status md_device_forget_maps(struct md_device_session *session, CUstream stream, struct md_error *err);

#endif
