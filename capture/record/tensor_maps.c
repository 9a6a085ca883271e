/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor maps that the engine encodes. The trace has each content once, so that the analysis recognizes maps in memory.
 */
#include "base/hash.h"
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/tensor_maps.h"

#define KEPT_MAX 65536u /* libraries encode some for each launch; later ones are relocated as plain pointers */

static struct md_map kept MD_CAPTURE_GUARDED; /* checksum of the bytes -> 1 */

void md_capture_tensor_map(const CUtensorMap *map)
{
	uint64_t checksum = md_hash_checksum(map, sizeof(*map));
	_Static_assert(sizeof(*map) == MD_TENSOR_MAP_BYTES, "a tensor map has 128 bytes");
	md_capture_lock();
	if (md_capture.writer && kept.used < KEPT_MAX && !md_map_get(&kept, checksum, NULL)) {
		if (md_map_put(&kept, checksum, 1))
			md_trace_put_tensor_map(md_capture.writer, md_capture_next(), map);
		else
			md_capture_trouble("out of memory for tensor map %zu", kept.used);
	}
	md_capture_unlock();
}

bool md_capture_is_tensor_map(const void *bytes)
{
	return kept.used && md_map_get(&kept, md_hash_checksum(bytes, MD_TENSOR_MAP_BYTES), NULL);
}
