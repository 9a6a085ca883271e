/* SPDX-License-Identifier: Apache-2.0 */
/* Remembers which allocations other ranks have, too. */
#include "capture/record/others.h"

#include "base/map.h"
#include "capture/record/made.h"
#include "capture/record/unset_words.h"
#include "capture/session/by_rank.h"
#include "driver/maker.h"

static struct md_map others MD_CAPTURE_GUARDED; /* start of an allocation -> enum md_others */

void md_capture_others_note(uint64_t start, enum md_others how)
{
	uint64_t before = MD_OTHERS_NONE;
	md_map_get(&others, start, &before);
	if ((uint64_t)how > before && !md_map_put(&others, start, how))
		md_capture_trouble("out of memory for shared memory 0x%llx", (unsigned long long)start);
	md_capture_unset_words_watch();
}

void md_capture_others_forget(uint64_t start)
{
	if (others.used)
		md_map_remove(&others, start, NULL);
}

bool md_capture_others_any(void)
{
	return others.used != 0;
}

static bool is_bound(const struct md_interval *item) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < md_capture.binds.count; i++) {
		const struct md_interval *bind = &md_capture.binds.items[i];
		if (bind->start < item->start + item->size && item->start < bind->start + bind->size)
			return true;
	}
	return false;
}

bool md_capture_others_bound(uint64_t address)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	return item && is_bound(item);
}

/* Two names for the same memory would have to lie alike, and tests put bound memory back. */
static bool has_its_name(const struct md_interval *item) MD_CAPTURE_HELD
{
	const struct md_capture_made *made = md_capture_made_at(item->start);
	return made && (made->soname || !is_bound(item));
}

enum md_others md_capture_others_at(uint64_t address)
{
	uint64_t how = MD_OTHERS_NONE;
	if (!others.used)
		return MD_OTHERS_NONE;
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	if (!item || !md_map_get(&others, item->start, &how))
		return MD_OTHERS_NONE;
	if (how == MD_OTHERS_MULTICAST)
		return MD_OTHERS_MULTICAST;
	return has_its_name(item) || !md_capture_is_rank() ? MD_OTHERS_NONE : MD_OTHERS_RANKS;
}

const char *md_capture_others_said(enum md_others how)
{
	if (how == MD_OTHERS_MULTICAST)
		return "memory of a multicast object (cuMulticastCreate), where one write reaches several devices, "
		       "which "
		       "Medusa does not restore: turn multicast off (NCCL_NVLS_ENABLE=0), or the engine captures it "
		       "live";
	if (how == MD_OTHERS_RANKS && md_maker_names_peers())
		return "memory that is shared with other ranks and that has no name of its own, because it is bound, "
		       "or lies at several addresses, or a communication library shares it: a replay of one rank "
		       "alone would wait for the others, or change what they rely on, so the engine captures it live";
	if (how == MD_OTHERS_RANKS)
		return "memory that is shared with other ranks and that no communication library made: a replay of one "
		       "rank alone would wait for the others, or change what they rely on, so the engine captures it "
		       "live; if a library that is known by another name makes it, name it in "
		       "MEDUSA_COMMUNICATION_LIBRARIES; if the engine shares it at each start in the same order, "
		       "capture with MEDUSA_RANKS_MEMORY=1";
	return NULL;
}
