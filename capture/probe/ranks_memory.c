/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at what a graph's nodes point to, and through bound memory, which may be a table of other ranks' buffers. */
#include "capture/probe/ranks_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "capture/record/made.h"
#include "capture/record/others.h"
#include "capture/record/shared.h"
#include "driver/maker.h"

#define CHUNK (256u << 10)
#define TABLE_MOST (UINT64_C(16) << 20)
#define CONSTANT_MOST (UINT64_C(1) << 20) /* weights are many, and no addresses */

static enum md_status check_word(const struct md_capture_probe *probe, const char *name, uint64_t offset, uint64_t word,
				 struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_capture_made *made = md_capture_made_at(word);
	enum md_others others = md_capture_others_at(word);
	char text[MD_MADE_SAID];
	if (others != MD_OTHERS_NONE)
		return md_error_set(err, MD_ERR_UNPROVABLE, "binding \"%.64s\" holds (at byte %llu) an address in %s",
				    name, (unsigned long long)offset, md_capture_others_said(others));
	if (made && !made->soname)
		return md_error_set(
		    err, MD_ERR_UNPROVABLE,
		    "binding \"%.64s\" holds (at byte %llu) an address in %s: in another start, nothing "
		    "shows that the engine has put it there by then; leave the table unbound",
		    name, (unsigned long long)offset, md_capture_made_said(made, text));
	if (made && !probe->communicates)
		return md_error_set(
		    err, MD_ERR_UNPROVABLE,
		    "binding \"%.64s\" holds (at byte %llu) an address in %s: a replay of one rank alone "
		    "would change what others rely on",
		    name, (unsigned long long)offset, md_capture_made_said(made, text));
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

/*
 * Of memory that ranks share. What a node has an address in may have come to be shared after the graph was recorded; unbound memory
 * is not looked through before the test.
 */
static enum md_status check_named(struct md_capture_probe *probe, const char *who, uint64_t address,
				  struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_capture_made *made = md_capture_made_at(address);
	char text[MD_MADE_SAID];
	if (!made || made->soname)
		return MD_OK;
	md_capture_made_said(made, text);
	if (md_maker_is_captured(made->name))
		return md_error_set(err, MD_ERR_UNPROVABLE,
				    "%s %s, and came to be shared after the first graph was captured: in a start that "
				    "restores graphs, nothing shares it by then; share it before",
				    who, text);
	if (md_capture_has_multicast())
		return md_error_set(err, MD_ERR_UNPROVABLE, "%s %s, which may reach %s", who, text,
				    md_capture_others_said(MD_OTHERS_MULTICAST));
	if (probe->communicates)
		return MD_OK;
	probe->reaches_ranks = true;
	return md_error_set(
	    err, MD_ERR_UNPROVABLE,
	    "%s %s: no rank restores it unless all ranks have replayed it together in a capture, so the "
	    "engine captures it live",
	    who, text);
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
		if (item)
			MD_FORWARD(check_named(probe, "a node has an address in", item->start, err));
		for (size_t i = 0; item && i < md_capture.binds.count; i++) {
			const struct md_interval *bind = &md_capture.binds.items[i];
			if (bind->start < item->start + item->size && item->start < bind->start + bind->size &&
			    item->value != MD_ALLOC_GRAPH)
				MD_FORWARD(check_table(probe, item, bind, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_ranks_memory_check_held(struct md_capture_probe *probe, uint64_t address,
						  struct md_error *err)
{
	MD_FORWARD(check_named(probe, "its unbound memory holds an address in", address, err));
	enum md_others others = md_capture_others_at(address);
	if (others == MD_OTHERS_NONE)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNPROVABLE, "its unbound memory holds an address in %s",
			    md_capture_others_said(others));
}

bool md_capture_ranks_memory_lists(const struct md_probe_region *region, uint64_t offset, uint64_t size)
{
	const struct md_probe_copy *copy = region->copy;
	uint64_t at = offset;
	for (size_t i = 0; i < copy->pointer_count && at < offset + size; i++) {
		const struct md_capture_made *made =
		    copy->pointers[i].offset == at ? md_capture_made_at(copy->pointers[i].value) : NULL;
		if (made && !made->soname)
			at += 8;
	}
	return at == offset + size;
}
