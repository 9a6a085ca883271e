/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of device memory, 128 bits a range: by a kernel of our own where the driver takes it, else
 * through the host. */
#ifndef MD_DRIVER_DEVICE_HASH_H
#define MD_DRIVER_DEVICE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "driver/cuda_driver.h"

struct md_hash_range {
	uint64_t address, size; /* of the device, or page-locked */
	struct md_hash hash;    /* out */
};

/*
 * The kernel, if there is one. It is translated when it is loaded, which takes tens of milliseconds: whoever is in a
 * hurry opens the hasher beforehand. All zero is a hasher that goes through the host.
 */
struct md_device_hasher {
	CUmodule module;
	CUfunction function; /* NULL: memory is hashed on the host */
};

/* Opens the hasher in the current context; tests the kernel on a sample, on the stream. */
void md_device_hasher_open(struct md_device_hasher *hasher, CUstream stream);
void md_device_hasher_close(struct md_device_hasher *hasher);

/*
 * Hashes every range, in the current context and on the stream; waits. What writes the memory must be done. With the
 * kernel, which reads at the speed of the device's memory, a few large launches do it however many ranges there are;
 * without it, as on hostcuda, the bytes are copied to the host: both give the same value. *failed is the range that
 * could not be read, or count when the trouble is not one range's.
 *
 * The hash tells whether memory is what it was, not who made it: it resists accident, not an attacker. It is defined by
 * docs/format.md, "Hashes of constants".
 */
enum md_status md_device_hash(const struct md_device_hasher *hasher, CUstream stream, struct md_hash_range *ranges,
			      size_t count, size_t *failed, struct md_error *err);
/* The same of memory of this process. */
struct md_hash md_device_hash_bytes(const void *data, uint64_t size);

/* ---- for the two files of it: device_hash.c, device_hash_kernel.c ---- */

struct md_hash_sums {
	uint64_t one, two;
};

#define MD_HASH_PIECE (1u << 20) /* bytes that a block of the kernel takes at a time; a multiple of 16 */

struct md_hash_piece { /* as the kernel reads it; no larger than MD_HASH_PIECE */
	uint64_t address, bytes;
	uint64_t lane; /* of 16 bytes, in its range: the first one here */
	uint64_t sums; /* device address of a struct md_hash_sums, to which it adds */
};

/* Adds what the lanes from `lane` on stand for; size need not be a multiple of 16 if nothing follows. */
void md_hash_add(struct md_hash_sums *sums, uint64_t lane, const void *data, uint64_t size);

#define MD_HASH_STAGING (4u << 20) /* bytes of host memory */
#define MD_HASH_PIECES 32768u      /* in one launch */
#define MD_HASH_SUMS 4096u

struct md_hash_room { /* for one call */
	uint8_t *staging;
	bool locked;      /* it is page-locked */
	CUdeviceptr room; /* of device memory: pieces, then sums; 0: there is none */
};
bool md_hash_room_take(struct md_hash_room *room, bool on_device);
void md_hash_room_give(struct md_hash_room *room);

/* Adds pieces to sums; piece->sums is here the index of its sums. Waits. */
enum md_status md_hash_kernel_run(const struct md_device_hasher *hasher, CUstream stream,
				  const struct md_hash_room *room, const struct md_hash_piece *pieces, size_t count,
				  struct md_hash_sums *sums, size_t sum_count, struct md_error *err);

#endif
