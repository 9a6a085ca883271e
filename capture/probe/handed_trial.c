/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of one graph that show which unbound memory it writes that others read. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/code.h"
#include "capture/probe/handed_trial.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe_replay.h"
#include "capture/probe/regions.h"
#include "capture/probe/spans.h"
#include "capture/record/graphs.h"
#include "driver/device_pieces.h"

#define CHECK_NS 30000000000ull
#define UNIT_BYTES 4096
#define SMALL_BYTES 512
#define MOST_ALL (16ull << 20) /* bytes of private memory up to which all of it is looked at */
#define NEAR (64u << 10)       /* bytes between two spots that are read with them: a copy of its own takes longer */

void md_handed_trial_finish(struct md_handed_trial *trial)
{
	for (size_t i = 0; i < trial->spot_count; i++) {
		free(trial->spots[i].before);
		free(trial->spots[i].written);
	}
	free(trial->spots);
	free(trial->own);
	free(trial->code);
	md_capture_probe_release(&trial->probe);
}

static bool add_spot(struct md_handed_trial *trial, uint32_t region, uint64_t address, uint64_t size)
{
	if (!MD_ARRAY_GROW(trial->spots, trial->spot_count, trial->spot_room))
		return false;
	trial->spots[trial->spot_count++] = (struct md_handed_spot){.region = region, .address = address, .size = size};
	return true;
}

static bool add_spots(struct md_handed_trial *trial, const struct md_interest *interest)
{
	for (uint32_t i = 0; i < trial->probe.region_count; i++) {
		const struct md_probe_region *region = &trial->probe.regions[i];
		uint64_t from = interest->address > region->address ? interest->address : region->address;
		uint64_t to = interest->address + interest->size < region->address + region->size
				  ? interest->address + interest->size
				  : region->address + region->size;
		if (region->kind == MD_PROBE_REGION_PRIVATE && from < to && !add_spot(trial, i, from, to - from))
			return false;
	}
	return true;
}

static int compare_spots(const void *left, const void *right)
{
	const struct md_handed_spot *a = left, *b = right;
	return (a->address > b->address) - (a->address < b->address);
}

/* Many graphs may read the same memory: overlapping spots become one, which is looked at once. */
static void merge_spots(struct md_handed_trial *trial)
{
	size_t count = 0;
	qsort(trial->spots, trial->spot_count, sizeof(*trial->spots), compare_spots);
	for (size_t i = 0; i < trial->spot_count; i++) {
		const struct md_handed_spot spot = trial->spots[i];
		struct md_handed_spot *last = count ? &trial->spots[count - 1] : NULL;
		uint64_t end = spot.address + spot.size;
		if (!last || spot.address >= last->address + last->size)
			trial->spots[count++] = spot;
		else if (end > last->address + last->size)
			last->size = end - last->address;
	}
	trial->spot_count = count;
}

static bool make_room(struct md_handed_trial *trial)
{
	for (size_t i = 0; i < trial->spot_count; i++) {
		struct md_handed_spot *spot = &trial->spots[i];
		spot->before = malloc(spot->size);
		spot->written = calloc(spot->size, 1);
		if (!spot->before || !spot->written)
			return false;
	}
	return true;
}

/* Memory that the graph needs stays, all else is poisoned; the graph's own test has shown that this does no harm. */
static enum md_status keep_own(struct md_capture_probe *probe, uint64_t graph, struct md_error *err) MD_CAPTURE_HELD
{
	size_t count = 0, all;
	const struct md_interest *interests = md_capture_interests(&all);
	MD_AUTO_FREE size_t *own = calloc(all + 1, sizeof(*own));
	if (!own)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu places that graphs read", all);
	for (size_t i = 0; i < all; i++)
		if (interests[i].graph == graph && interests[i].size)
			own[count++] = i;
	for (size_t u = 0; u < probe->unit_count; u++) {
		struct md_probe_unit *unit = &probe->units[u];
		uint64_t address = probe->regions[unit->region].address + unit->offset;
		unit->keep = unit->known = false;
		for (size_t i = 0; i < count && !unit->keep; i++)
			unit->keep =
			    md_handed_overlap(address, unit->size, interests[own[i]].address, interests[own[i]].size);
	}
	return MD_OK;
}

/* Compares blocks before bytes, because most of the memory has not changed. */
static void compare_bytes(const uint8_t *before, const uint8_t *now, uint64_t size, uint8_t *written)
{
	enum { BLOCK = 256 };
	for (uint64_t at = 0, some; at < size; at += some) {
		some = size - at < BLOCK ? size - at : BLOCK;
		if (!memcmp(before + at, now + at, some))
			continue;
		for (uint64_t b = at; b < at + some; b++)
			written[b] |= now[b] != before[b];
	}
}

static void take_bytes(struct md_handed_spot *spot, uint64_t at, const uint8_t *now, uint64_t size, bool after)
{
	if (after)
		compare_bytes(spot->before + at, now, size, spot->written + at);
	else
		memcpy(spot->before + at, now, size);
}

/* Reads a spot that does not fit in the staging memory. */
static enum md_status read_long_spot(struct md_device_session *device, struct md_handed_spot *spot, bool after,
				     struct md_error *err)
{
	for (uint64_t at = 0, size; at < spot->size; at += size) {
		size = spot->size - at < MD_DEVICE_CHUNK ? spot->size - at : MD_DEVICE_CHUNK;
		MD_FORWARD(md_device_session_read(device, device->now, spot->address + at, size, err));
		take_bytes(spot, at, device->now, size, after);
	}
	return MD_OK;
}

/* From *at on, finds the spots that one copy to `staged` brings, with the bytes between them: at most `room` bytes. */
static uint64_t next_stretch(struct md_handed_spot *spots, size_t count, size_t *at, size_t staged, uint64_t room)
{
	const struct md_handed_spot *first = &spots[*at];
	uint64_t size = 0;
	for (; *at < count; ++*at) {
		struct md_handed_spot *spot = &spots[*at];
		uint64_t offset = spot->address - first->address;
		if (spot->region != first->region || spot->address < first->address || offset > size + NEAR ||
		    offset + spot->size > room)
			break;
		spot->staged = staged + offset;
		size = offset + spot->size > size ? offset + spot->size : size;
	}
	return size;
}

/* Reads as many spots as the staging memory holds, and waits once for all of them. */
static enum md_status read_batch(struct md_handed_trial *trial, size_t *at, bool after, struct md_error *err)
{
	struct md_device_session *device = &trial->probe.session->device;
	size_t first = *at, staged = 0;
	md_device_batch_begin(device);
	while (*at < trial->spot_count) {
		uint64_t address = trial->spots[*at].address;
		uint64_t size = next_stretch(trial->spots, trial->spot_count, at, staged, MD_DEVICE_CHUNK - staged);
		if (!size)
			break;
		MD_FORWARD(md_device_batch_read(device, staged, address, size, err));
		staged += size;
	}
	if (*at == first)
		return read_long_spot(device, &trial->spots[(*at)++], after, err);
	MD_FORWARD(md_device_batch_read_wait(device, err));
	for (size_t i = first; i < *at; i++)
		take_bytes(&trial->spots[i], 0, device->now + trial->spots[i].staged, trial->spots[i].size, after);
	return MD_OK;
}

static enum md_status read_spots(struct md_handed_trial *trial, bool after, struct md_error *err)
{
	for (size_t at = 0; at < trial->spot_count;)
		MD_FORWARD(read_batch(trial, &at, after, err));
	return MD_OK;
}

static enum md_status replay_poisoned(struct md_handed_trial *trial, uint32_t word, struct md_error *err)
{
	struct md_capture_probe *probe = &trial->probe;
	MD_FORWARD(md_capture_probe_prepare_poison(probe, word, err));
	MD_FORWARD(md_capture_probe_place(probe, 0, probe->unit_count, err));
	MD_FORWARD(read_spots(trial, false, err));
	MD_FORWARD(md_capture_probe_launch(probe, "what it writes", err));
	MD_FORWARD(read_spots(trial, true, err));
	return md_capture_probe_check_outputs(probe, err);
}

enum md_status md_handed_trial_collect(struct md_handed_trial *trial, const struct md_capture_graph *graph,
				       struct md_error *err)
{
	struct md_capture_probe *probe = &trial->probe;
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(md_capture_probe_collect(probe, graph, err));
	MD_FORWARD(md_capture_probe_cut(probe, UNIT_BYTES, err));
	return keep_own(probe, graph->id, err);
}

/* The first spot that overlaps the unit; spot_count: none does. */
static size_t spot_of(const struct md_handed_trial *trial, uint64_t address, uint64_t size)
{
	const struct md_handed_spot *spots = trial->spots;
	size_t low = 0, high = trial->spot_count; /* the first that ends behind address */
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (spots[middle].address + spots[middle].size <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < trial->spot_count && spots[low].address < address + size ? low : trial->spot_count;
}

/*
 * A graph may write the very poison that it reads, by copying it. So each replay poisons some of the spots, and leaves
 * the others as they were, or poisons them otherwise: of any two spots, some replay treats the one so and the other one
 * otherwise (base/code.h). Units that no spot lies in are left by all of them.
 */
static void give_codes(struct md_handed_trial *trial, size_t *codes)
{
	const struct md_capture_probe *probe = &trial->probe;
	size_t used = 0, count = trial->spot_count;
	for (size_t u = 0; u < probe->unit_count; u++) {
		const struct md_probe_unit *unit = &probe->units[u];
		uint64_t address = probe->regions[unit->region].address + unit->offset;
		trial->own[u] = unit->keep;
		trial->code[u] = spot_of(trial, address, unit->size);
		used += trial->code[u] < count && !codes[trial->code[u]];
		codes[trial->code[u]] = 1;
	}
	trial->code_bits = md_code_width(used);
	for (size_t i = 0, code = md_code_first(trial->code_bits); i < count; i++) {
		if (!codes[i])
			continue;
		codes[i] = code;
		code = md_code_next(code);
	}
	codes[count] = 0;
	for (size_t u = 0; u < probe->unit_count; u++)
		trial->code[u] = codes[trial->code[u]];
}

static enum md_status plan_replays(struct md_handed_trial *trial, struct md_error *err)
{
	MD_AUTO_FREE size_t *codes = calloc(trial->spot_count + 1, sizeof(*codes));
	trial->own = calloc(trial->probe.unit_count + 1, sizeof(*trial->own));
	trial->code = calloc(trial->probe.unit_count + 1, sizeof(*trial->code));
	if (!codes || !trial->own || !trial->code || !make_room(trial))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu places that a graph writes",
				    trial->spot_count);
	give_codes(trial, codes);
	return MD_OK;
}

/* Poisoned addresses are the same whatever the word, so a graph that copies one to where another one lies is not seen. */
static bool has_address(const struct md_handed_trial *trial, const struct md_handed_spot *spot)
{
	const struct md_probe_region *region = &trial->probe.regions[spot->region];
	uint64_t from = spot->address - region->address;
	for (size_t i = 0; i < region->copy->pointer_count; i++) {
		uint64_t at = region->copy->pointers[i].offset;
		if (at < from + spot->size && from < at + 8)
			return true;
	}
	return false;
}

static bool any_address(const struct md_handed_trial *trial)
{
	for (size_t i = 0; i < trial->spot_count; i++)
		if (has_address(trial, &trial->spots[i]))
			return true;
	return false;
}

static enum md_status replay_some(struct md_handed_trial *trial, unsigned bit, uint32_t word, struct md_error *err)
{
	for (size_t u = 0; u < trial->probe.unit_count; u++)
		trial->probe.units[u].keep = trial->own[u] || !(trial->code[u] >> bit & 1);
	return replay_poisoned(trial, word, err);
}

/* Of any two spots, one is all zeros in some of these replays while the other one is all ones. */
static enum md_status replay_both(struct md_handed_trial *trial, unsigned bit, struct md_error *err)
{
	enum md_status status;
	for (size_t u = 0; u < trial->probe.unit_count; u++) {
		trial->probe.units[u].keep = trial->own[u] || !trial->code[u];
		trial->probe.units[u].inverse = trial->code[u] >> bit & 1;
	}
	status = replay_poisoned(trial, 0x00000000, err);
	for (size_t u = 0; u < trial->probe.unit_count; u++)
		trial->probe.units[u].inverse = false;
	return status;
}

/* With one bit, a spot would not be zeros in one replay and ones in another while all else is as it was. */
static enum md_status replay_all(struct md_handed_trial *trial, struct md_error *err)
{
	bool both = trial->code_bits > 1 && !any_address(trial);
	MD_FORWARD(replay_poisoned(trial, 0x00000000, err));
	MD_FORWARD(replay_poisoned(trial, 0xffffffff, err));
	for (unsigned bit = 0; bit < trial->code_bits; bit++) {
		if (both) {
			MD_FORWARD(replay_both(trial, bit, err));
			continue;
		}
		MD_FORWARD(replay_some(trial, bit, 0x00000000, err));
		MD_FORWARD(replay_some(trial, bit, 0xffffffff, err));
	}
	return MD_OK;
}

enum md_status md_handed_trial_find_written(struct md_handed_trial *trial, const struct md_capture_graph *graph,
					    struct md_error *err)
{
	size_t count;
	const struct md_interest *interests = md_capture_interests(&count);
	trial->probe.no_windows = true;
	MD_FORWARD(md_handed_trial_collect(trial, graph, err));
	for (size_t i = graph->handed_seen; i < count; i++)
		if (md_handed_matters(&interests[i], graph) && !add_spots(trial, &interests[i]))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a place that a graph writes");
	if (!trial->spot_count)
		return MD_OK;
	merge_spots(trial);
	MD_FORWARD(plan_replays(trial, err));
	return md_capture_probe_settle(&trial->probe, replay_all(trial, err), err);
}

struct md_handed_trial md_handed_trial_new(struct md_probe_session *session, const struct md_capture_graph *graph)
{
	uint64_t now = md_clock_ns();
	return (struct md_handed_trial){.probe = {.exec = graph->exec,
						  .communicates = graph->communicates,
						  .session = session,
						  .any_output = true,
						  .started_ns = now,
						  .deadline_ns = now + CHECK_NS}};
}

/* ---- all that it writes ---- */

/* Poisons half of the units, those whose index has this bit set to `set`: copies from the other half show. */
static enum md_status replay_half(struct md_handed_trial *trial, unsigned bit, bool set, uint32_t word,
				  struct md_error *err)
{
	for (size_t i = 0; i < trial->probe.unit_count; i++)
		trial->probe.units[i].keep = (i >> bit & 1) != set;
	return replay_poisoned(trial, word, err);
}

static enum md_status replay_halves(struct md_handed_trial *trial, struct md_error *err)
{
	for (unsigned bit = 0; !bit || (trial->probe.unit_count - 1) >> bit; bit++)
		for (unsigned way = 0; way < 4; way++) /* the mildest poison first */
			MD_FORWARD(replay_half(trial, bit, way & 1, way >> 1, err));
	return MD_OK;
}

/* For a graph without any visible output: whatever it writes in private memory may be read by somebody. */
enum md_status md_handed_trial_find_all(struct md_handed_trial *trial, const struct md_capture_graph *graph,
					struct md_error *err)
{
	uint64_t bytes = 0;
	trial->probe.no_windows = true;
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(md_capture_probe_collect(&trial->probe, graph, err));
	MD_FORWARD(md_capture_probe_cut(&trial->probe, SMALL_BYTES, err));
	for (uint32_t i = 0; i < trial->probe.region_count; i++) {
		const struct md_probe_region *region = &trial->probe.regions[i];
		if (region->kind != MD_PROBE_REGION_PRIVATE)
			continue;
		bytes += region->size;
		if (bytes > MOST_ALL)
			return md_error_set(err, MD_ERR_TOO_LARGE,
					    "the graph reaches more than %llu bytes of private memory", MOST_ALL);
		if (!add_spot(trial, i, region->address, region->size))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a place that a graph writes");
	}
	if (!trial->spot_count)
		return MD_OK;
	if (!make_room(trial))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what a graph writes");
	return md_capture_probe_settle(&trial->probe, replay_halves(trial, err), err);
}
