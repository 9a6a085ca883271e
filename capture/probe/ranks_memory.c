/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at what a graph's nodes point to, and through bound memory, which may be a table of other ranks' buffers. */
#include "capture/probe/ranks_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "capture/record/made.h"
#include "capture/record/others.h"

#define CHUNK (256u << 10)
#define TABLE_MOST (UINT64_C(16) << 20)
#define CONSTANT_MOST (UINT64_C(1) << 20) /* weights are many, and no addresses */

static enum md_status check_word(const struct md_capture_probe *probe, const char *name, uint64_t offset, uint64_t word,
				 struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_capture_made *made = probe->communicates ? NULL : md_capture_made_at(word);
	enum md_others others = md_capture_others_at(word);
	if (others != MD_OTHERS_NONE)
		return md_error_set(err, MD_ERR_UNPROVABLE, "binding \"%.64s\" holds (at byte %llu) an address in %s",
				    name, (unsigned long long)offset, md_capture_others_said(others));
	if (made)
		return md_error_set(
		    err, MD_ERR_UNPROVABLE,
		    "binding \"%.64s\" holds (at byte %llu) an address in %s, memory of the communication "
		    "library %s: a replay of one rank alone would change what others rely on",
		    name, (unsigned long long)offset, made->name, made->soname);
	return MD_OK;
}

static enum md_status read_chunk(struct md_capture_probe *probe, bool host, void *to, uint64_t from, uint64_t size,
				 struct md_error *err)
{
	if (!host)
		return md_device_session_read(&probe->session->device, to, from, size, err);
	memcpy(to, (const void *)(uintptr_t)from, size);
	return MD_OK;
}

/* The part of the binding that lies in that allocation. */
static enum md_status check_table(struct md_capture_probe *probe, const struct md_interval *item,
				  const struct md_interval *bind, struct md_error *err) MD_CAPTURE_HELD
{
	uint64_t from = bind->start > item->start ? bind->start : item->start, word;
	uint64_t bind_end = bind->start + bind->size, item_end = item->start + item->size;
	uint64_t end = bind_end < item_end ? bind_end : item_end;
	uint64_t most = md_capture.bound[bind->value].role == MD_BIND_CONSTANT ? CONSTANT_MOST : TABLE_MOST;
	MD_AUTO_FREE uint8_t *chunk = malloc(CHUNK);
	if (!chunk)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a table of addresses");
	from += (8 - from % 8) % 8; /* addresses lie at multiples of 8 bytes */
	for (uint64_t at = from, size; at + 8 <= end && end - from <= most; at += size) {
		size = end - at < CHUNK ? (end - at) / 8 * 8 : CHUNK;
		MD_FORWARD(read_chunk(probe, item->value == MD_ALLOC_HOST, chunk, at, size, err));
		for (uint64_t i = 0; i < size; i += 8) {
			memcpy(&word, chunk + i, 8);
			MD_FORWARD(
			    check_word(probe, md_capture.bound[bind->value].name, at + i - bind->start, word, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_ranks_memory_check(struct md_capture_probe *probe, const struct md_capture_graph *graph,
					     struct md_error *err)
{
	if (!md_capture_others_any())
		return MD_OK;
	for (size_t c = 0; c < graph->candidate_count; c++) {
		const struct md_interval *item = md_interval_find(&md_capture.live, graph->candidates[c]);
		enum md_others others = item ? md_capture_others_at(item->start) : MD_OTHERS_NONE;
		if (others != MD_OTHERS_NONE)
			return md_error_set(err, MD_ERR_UNPROVABLE, "a node has an address in %s",
					    md_capture_others_said(others));
		for (size_t i = 0; item && i < md_capture.binds.count; i++) {
			const struct md_interval *bind = &md_capture.binds.items[i];
			if (bind->start < item->start + item->size && item->start < bind->start + bind->size &&
			    item->value != MD_ALLOC_GRAPH)
				MD_FORWARD(check_table(probe, item, bind, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_ranks_memory_check_held(uint64_t address, struct md_error *err)
{
	enum md_others others = md_capture_others_at(address);
	if (others == MD_OTHERS_NONE)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNPROVABLE, "its unbound memory holds an address in %s",
			    md_capture_others_said(others));
}
