/* SPDX-License-Identifier: Apache-2.0 */
/* Names memory of communication libraries by its maker. To the analysis, the names are bindings. */
#include "capture/record/made.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "capture/record/graphs.h"
#include "capture/record/others.h"
#include "capture/record/shared.h"
#include "capture/record/unset_words.h"
#include "driver/maker.h"

static struct md_map made MD_CAPTURE_GUARDED; /* start of an allocation -> struct md_capture_made *, owned */

static bool is_named(uint64_t address)
{
	md_capture_lock();
	bool named = md_capture_made_at(address) != NULL;
	md_capture_unlock();
	return named;
}

/* Host memory stays what it is: copies treat it differently. Everything else counts as shared with other processes. */
static bool is_of(enum md_alloc_family family, uint64_t address)
{
	md_capture_lock();
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	bool is = item && item->value == (uint64_t)family;
	md_capture_unlock();
	return is;
}

static void put_name(uint64_t address, const struct md_capture_made *name)
{
	md_capture_lock();
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	struct md_capture_made *kept = item && md_capture.writer ? malloc(sizeof(*kept)) : NULL;
	if (kept)
		*kept = *name;
	if (kept && md_map_put(&made, item->start, (uintptr_t)kept)) {
		md_trace_put_bind(md_capture.writer, md_capture_next(), kept->name, item->start, item->size,
				  MD_BIND_STATE);
	} else if (item && md_capture.writer) {
		free(kept);
		md_capture_trouble("out of memory for the name %s", name->name);
	}
	md_capture_unlock();
}

void md_capture_made(const void *caller, uint64_t address)
{
	struct md_maker *maker = md_maker_find(caller);
	struct md_capture_made name = {0};
	if (!maker || is_named(address) || is_of(MD_ALLOC_GRAPH, address))
		return;
	if (!is_of(MD_ALLOC_HOST, address))
		md_capture_shared_reached(address);
	name.soname = maker->soname;
	if (atomic_load(&md_capture.capturing))
		md_maker_name_captured(maker, name.name);
	else
		md_maker_name_next(maker, name.name);
	md_capture_unset_words_watch();
	put_name(address, &name);
}

void md_capture_made_shared(const void *caller, uint64_t address, bool own)
{
	struct md_capture_made name = {0};
	bool late;
	if (!md_maker_names_peers() || md_maker_find(caller))
		return;
	md_capture_lock();
	bool is = md_capture_others_at(address) == MD_OTHERS_RANKS && !md_capture_others_bound(address);
	late = md_capture_graphs_labelled() != 0;
	md_capture_unlock();
	if (!is)
		return;
	if (late || atomic_load(&md_capture.capturing))
		md_maker_name_peers_late(name.name);
	else
		md_maker_name_peers(own, name.name);
	put_name(address, &name);
}

const char *md_capture_made_said(const struct md_capture_made *of, char text[MD_MADE_SAID])
{
	if (of->soname)
		snprintf(text, MD_MADE_SAID, "%s, memory of the communication library %s", of->name, of->soname);
	else
		snprintf(text, MD_MADE_SAID, "%s, memory that is shared with other ranks", of->name);
	return text;
}

void md_capture_made_seen(const void *caller, uint64_t host, uint64_t device)
{
	if (host != device && is_named(host))
		md_capture_made(caller, device);
}

const struct md_capture_made *md_capture_made_at(uint64_t address)
{
	uint64_t found;
	if (!made.used)
		return NULL;
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	return item && md_map_get(&made, item->start, &found) ? (const struct md_capture_made *)(uintptr_t)found : NULL;
}

void md_capture_made_forget(uint64_t start)
{
	uint64_t found;
	if (made.used && md_map_remove(&made, start, &found))
		free((void *)(uintptr_t)found);
}
