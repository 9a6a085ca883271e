/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes of device memory, 128 bits for each range: by a kernel of ours where the driver can load it, else on the host.
 */
#ifndef MD_DRIVER_DEVICE_HASH_H
#define MD_DRIVER_DEVICE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "driver/cuda_driver.h"

struct md_hash_range {
	uint64_t address, size; /* in device memory, or in page-locked memory */
	struct md_hash hash;    /* output */
};

struct md_hash_room { /* buffers that the kernel and the host share */
	uint8_t *staging;
	bool locked;      /* the staging memory is page-locked */
	CUdeviceptr room; /* device memory: pieces, then sums; 0: none */
};

/*
 * The kernel, if there is one. Loading translates it, which takes tens of milliseconds, so it is opened before time
 * matters. A hasher that is all zero hashes on the host.
 */
struct md_device_hasher {
	const struct md_cuda *driver; /* NULL: md_cuda */
	CUmodule module;
	CUfunction function; /* NULL: memory is hashed on the host */
	bool mapped; /* the caller knows that all ranges are mapped device memory: nothing is asked of the driver */
	struct md_hash_room room; /* kept between calls; staging is NULL where it is taken for each call */
};

/* Opens the hasher in the current context, and tests the kernel on a sample, on the stream. */
void md_device_hasher_open(struct md_device_hasher *hasher, CUstream stream);
/*
 * The same through another table of the driver, for ranges that the caller knows to be mapped. The hasher keeps its
 * buffers (some 6 MB, of which 1.1 MB are device memory), so that it can hash when no memory is left.
 */
void md_device_hasher_open_mapped(struct md_device_hasher *hasher, const struct md_cuda *driver, CUstream stream);
void md_device_hasher_close(struct md_device_hasher *hasher);

/*
 * Hashes every range in the current context, on the stream, and waits. Whatever writes the memory must have finished.
 * The kernel reads at the speed of device memory, in a few large launches however many ranges there are. Without it (on
 * hostcuda), the bytes are copied to the host. Both give the same value. *failed is the index of the range that could
 * not be read, or count when no single range failed.
 *
 * The hash detects accidental change, not an attacker. docs/format.md defines it ("Hashes of constants").
 */
enum md_status md_device_hash(const struct md_device_hasher *hasher, CUstream stream, struct md_hash_range *ranges,
			      size_t count, size_t *failed, struct md_error *err);
/* Whether the driver has memory at all these addresses. */
bool md_device_is_mapped(uint64_t address, uint64_t size);
/* The same for memory of this process. */
struct md_hash md_device_hash_bytes(const void *data, uint64_t size);

/* ---- for who hashes pieces of many ranges in one launch; and for device_hash.c, device_hash_kernel.c ---- */

struct md_hash_sums {
	uint64_t one, two;
};

#define MD_HASH_PIECE (1u << 20) /* bytes that a block of the kernel takes at a time; a multiple of 16 */

struct md_hash_piece { /* layout that the kernel reads; size at most MD_HASH_PIECE */
	uint64_t address, bytes;
	uint64_t lane; /* index in its range of the first lane (16 bytes) */
	uint64_t sums; /* device address of a struct md_hash_sums, to which it adds */
};

/* Adds the lanes of data, the first of which is lane `lane`. size must be a multiple of 16, except in the last call. */
void md_hash_add(struct md_hash_sums *sums, uint64_t lane, const void *data, uint64_t size);

struct md_hash md_hash_end(const struct md_hash_sums *sums, uint64_t size);

#define MD_HASH_STAGING (4u << 20) /* bytes of host memory */
#define MD_HASH_PIECES 32768u      /* in one launch */
#define MD_HASH_SUMS 4096u

const struct md_cuda *md_hash_driver(const struct md_device_hasher *hasher);
bool md_hash_room_take(const struct md_device_hasher *hasher, bool on_device, struct md_hash_room *room);
void md_hash_room_give(const struct md_device_hasher *hasher, struct md_hash_room *room);

/* Adds pieces to sums, and waits. piece->sums holds the index of the piece's sums. */
enum md_status md_hash_kernel_run(const struct md_device_hasher *hasher, CUstream stream,
				  const struct md_hash_room *room, const struct md_hash_piece *pieces, size_t count,
				  struct md_hash_sums *sums, size_t sum_count, struct md_error *err);

#endif
