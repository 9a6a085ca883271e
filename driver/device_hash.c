/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes ranges of device memory: divides them into pieces for the kernel, or reads them in chunks where the kernel
 * cannot be used.
 */
#include "driver/device_hash.h"

#include <stdlib.h>
#include <string.h>

#define MAPPED_STEP (2ull << 20) /* the driver maps no less at a time */

/* ---- the value ---- */

/* A bijection of 64-bit words in which each input bit changes about half of the output bits. */
static uint64_t mix(uint64_t z)
{
	const uint64_t odd = 0xd6e8feb86659fd93u;
	z = (z ^ z >> 32) * odd;
	z = (z ^ z >> 32) * odd;
	return z ^ z >> 32;
}

/*
 * Each lane of 16 bytes passes through a bijection that depends on its place in the range; the sums of the results are
 * the hash. So a single changed lane always changes the hash, several changed lanes go unnoticed with probability
 * 2^-128, and the order in which the kernel's blocks add does not matter.
 */
static void add_lane(struct md_hash_sums *sums, uint64_t lane, uint64_t first, uint64_t second)
{
	uint64_t key = (lane + 1) * 0x9e3779b97f4a7c15u;
	uint64_t x = mix(first + key), y = mix((second + key) ^ x);
	sums->one += mix(x + y);
	sums->two += y;
}

void md_hash_add(struct md_hash_sums *sums, uint64_t lane, const void *data, uint64_t size)
{
	const uint8_t *bytes = data;
	struct md_hash_sums local = *sums; /* in registers: bytes may alias *sums */
	uint64_t words[2], whole = size / 16 * 16;
	for (uint64_t at = 0; at < whole; at += 16, lane++) {
		memcpy(words, bytes + at, 16);
		add_lane(&local, lane, words[0], words[1]);
	}
	if (whole < size) {
		words[0] = words[1] = 0;
		memcpy(words, bytes + whole, size - whole);
		add_lane(&local, lane, words[0], words[1]);
	}
	*sums = local;
}

struct md_hash md_hash_end(const struct md_hash_sums *sums, uint64_t size)
{
	uint64_t one = mix(sums->one + size), two = mix(sums->two ^ one);
	struct md_hash hash;
	for (int i = 0; i < 8; i++) {
		hash.bytes[i] = (uint8_t)(one >> (56 - 8 * i));
		hash.bytes[8 + i] = (uint8_t)(two >> (56 - 8 * i));
	}
	return hash;
}

struct md_hash md_device_hash_bytes(const void *data, uint64_t size)
{
	struct md_hash_sums sums = {0, 0};
	md_hash_add(&sums, 0, data, size);
	return md_hash_end(&sums, size);
}

/* ---- one call ---- */

struct hashing {
	const struct md_device_hasher *hasher;
	CUstream stream;
	struct md_hash_range *ranges;
	size_t count;
	struct md_hash_room room;
	struct md_hash_sums *sums;    /* of each range */
	struct md_hash_piece *pieces; /* of one launch */
	size_t piece_count, first;    /* the range of sum 0 in this launch */
};

static bool is_mapped(const struct md_cuda *driver, uint64_t address, uint64_t size)
{
	uint64_t end = address + size;
	if (!driver->cuPointerGetAttribute)
		return false;
	for (uint64_t at = address; at < end; at = (at / MAPPED_STEP + 1) * MAPPED_STEP) {
		int mapped = 0;
		if (driver->cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at) || !mapped)
			return false;
	}
	return true;
}

bool md_device_is_mapped(uint64_t address, uint64_t size)
{
	return is_mapped(&md_cuda, address, size);
}

/*
 * A kernel that reads unmapped memory breaks the engine's context, while a copy only fails. So the kernel reads only
 * what the driver reports as mapped.
 */
static bool is_for_kernel(const struct hashing *h, const struct md_hash_range *range)
{
	const struct md_cuda *driver = md_hash_driver(h->hasher);
	unsigned type = 0;
	if (!h->hasher->function || !h->room.room || h->hasher->mapped)
		return h->hasher->function && h->room.room;
	return driver->cuPointerGetAttribute &&
	       !driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range->address) &&
	       type == CU_MEMORYTYPE_DEVICE && is_mapped(driver, range->address, range->size);
}

static enum md_status through_host(struct hashing *h, size_t index, struct md_error *err)
{
	const struct md_cuda *driver = md_hash_driver(h->hasher);
	const struct md_hash_range *range = &h->ranges[index];
	for (uint64_t at = 0, size; at < range->size; at += size) {
		size = range->size - at < MD_HASH_STAGING ? range->size - at : MD_HASH_STAGING;
		MD_FORWARD(md_cuda_call_in(driver, err, cuMemcpyDtoHAsync_v2, h->room.staging, range->address + at,
					   size, h->stream));
		MD_FORWARD(md_cuda_call_in(driver, err, cuStreamSynchronize, h->stream));
		md_hash_add(&h->sums[index], at / 16, h->room.staging, size);
	}
	return MD_OK;
}

static enum md_status launch(struct hashing *h, size_t next, struct md_error *err)
{
	enum md_status status = MD_OK;
	if (h->piece_count)
		status = md_hash_kernel_run(h->hasher, h->stream, &h->room, h->pieces, h->piece_count,
					    h->sums + h->first, next - h->first, err);
	h->piece_count = 0;
	h->first = next;
	return status;
}

/* A range may be divided among launches: then it keeps what the earlier ones added. */
static enum md_status add_pieces(struct hashing *h, size_t index, struct md_error *err)
{
	const struct md_hash_range *range = &h->ranges[index];
	for (uint64_t at = 0; at < range->size; at += MD_HASH_PIECE) {
		uint64_t left = range->size - at;
		if (h->piece_count == MD_HASH_PIECES) {
			MD_FORWARD(launch(h, index + 1, err));
			h->first = index;
		}
		h->pieces[h->piece_count++] =
		    (struct md_hash_piece){.address = range->address + at,
					   .bytes = left < MD_HASH_PIECE ? left : MD_HASH_PIECE,
					   .lane = at / 16,
					   .sums = index - h->first};
	}
	return MD_OK;
}

static enum md_status hash_range(struct hashing *h, size_t index, struct md_error *err)
{
	if (!is_for_kernel(h, &h->ranges[index]))
		return through_host(h, index, err);
	if (!h->piece_count || index - h->first >= MD_HASH_SUMS)
		MD_FORWARD(launch(h, index, err));
	return add_pieces(h, index, err);
}

static enum md_status hash_all(struct hashing *h, size_t *failed, struct md_error *err)
{
	for (size_t i = 0; i < h->count; i++) {
		*failed = i;
		MD_FORWARD(hash_range(h, i, err));
	}
	*failed = h->count;
	return launch(h, h->count, err);
}

enum md_status md_device_hash(const struct md_device_hasher *hasher, CUstream stream, struct md_hash_range *ranges,
			      size_t count, size_t *failed, struct md_error *err)
{
	struct hashing h = {.hasher = hasher, .stream = stream, .ranges = ranges, .count = count, .room = hasher->room};
	enum md_status status = MD_ERR_NO_MEMORY;
	bool kept = hasher->room.staging != NULL;
	*failed = count;
	h.sums = calloc(count + 1, sizeof(*h.sums));
	h.pieces = calloc(MD_HASH_PIECES, sizeof(*h.pieces));
	if ((kept || md_hash_room_take(hasher, hasher->function != NULL, &h.room)) && h.sums && h.pieces)
		status = hash_all(&h, failed, err);
	else
		md_error_set(err, status, "out of memory for the pieces of a hash");
	for (size_t i = 0; status == MD_OK && i < count; i++)
		ranges[i].hash = md_hash_end(&h.sums[i], ranges[i].size);
	if (!kept)
		md_hash_room_give(hasher, &h.room);
	free(h.sums);
	free(h.pieces);
	return status;
}
