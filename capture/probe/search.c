/* SPDX-License-Identifier: Apache-2.0 */
/* The search for units of private memory that a graph's outputs depend on. */
#include "capture/probe/search.h"

#include "capture/probe/probe_replay.h"

/*
 * Patterns, mildest first. A word of private memory may be an index, and a wrong index may fault: zero is the safest
 * one, then one; only what survived both without changing the outputs is filled with 0xff. A fault is still possible (a
 * kernel that computes an address from such a word): it breaks the engine's context, as no driver lets us take it back.
 * A semaphore that a kernel waits for could even hang. Either is noted (base/note.h), and the command starts the engine
 * again with this graph's test left out.
 */
const uint32_t md_probe_patterns[MD_PROBE_PATTERNS] = {0x00000000, 0x00000001, 0xffffffff};

#define RUN_TRUSTED 8 /* after so many needed units in a row, the next ones are taken several at a time */

static bool replay_equal(struct md_capture_probe *probe, size_t from, size_t to, bool *equal, enum md_status *status,
			 struct md_error *err)
{
	*status = md_capture_probe_replay(probe, from, to, equal, err);
	return *status == MD_OK && *equal;
}

/* How many units are kept at a time: the longer the run of needed units so far, the more. */
static size_t run_width(size_t run)
{
	return run < RUN_TRUSTED ? 1 : run / 4;
}

/*
 * The first unit of [from, to) that changes the outputs when all units from `from` up to it are poisoned. The
 * neighbours are tried first, then units further and further away, and then the search bisects. It is known that the
 * outputs change when the whole range is poisoned.
 */
static enum md_status find_first(struct md_capture_probe *probe, size_t from, size_t to, size_t width, size_t *found,
				 struct md_error *err)
{
	size_t low = from, high = to;
	enum md_status status = MD_OK;
	bool equal;
	for (size_t step = width; from + step < to; step *= 2) {
		if (!replay_equal(probe, from, from + step, &equal, &status, err)) {
			MD_FORWARD(status);
			high = from + step;
			break;
		}
		low = from + step;
	}
	while (high - low > 1 && (low > from || high > from + width)) {
		size_t middle = low + (high - low) / 2;
		if (replay_equal(probe, from, middle, &equal, &status, err))
			low = middle;
		else
			high = middle;
		MD_FORWARD(status);
	}
	*found = low;
	return MD_OK;
}

enum md_status md_capture_probe_search(struct md_capture_probe *probe, size_t from, size_t to, bool differs,
				       struct md_error *err)
{
	size_t run = 0;
	for (;; differs = false) {
		size_t found, width = run_width(run);
		bool equal = false;
		while (from < to && probe->units[from].keep)
			from++;
		while (from < to && probe->units[to - 1].keep)
			to--;
		if (from >= to)
			return MD_OK;
		if (!differs)
			MD_FORWARD(md_capture_probe_replay(probe, from, to, &equal, err));
		if (equal)
			return MD_OK;
		MD_FORWARD(find_first(probe, from, to, width, &found, err));
		run = found == from ? run + width : 0;
		if (found > from)
			width = 1;
		/* a run tells nothing about units elsewhere */
		for (from = found; from < found + width && from < to; from++) {
			if (probe->units[from].region != probe->units[found].region)
				break;
			probe->units[from].keep = true;
		}
	}
}
