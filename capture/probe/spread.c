/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The poison test of graphs whose clean replays differ: outputs are
 * compared element by element with the spread of clean replays.
 */
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "capture/probe/probe.h"
#include "capture/probe/probe_replay.h"
#include "capture/probe/spread.h"

#define CLEAN_REPLAYS 16

struct md_tolerance md_capture_tolerance(void)
{
	struct md_tolerance tolerance = {0};
	const char *text = md_environment_get("MEDUSA_NONDETERMINISTIC");
	if (text && *text && !md_tolerance_parse(text, &tolerance))
		md_warn("MEDUSA_NONDETERMINISTIC=%s is not ULPS[:TYPE]: no nondeterministic graph is accepted", text);
	return tolerance;
}

static bool keep_ends(struct md_probe_span *span)
{
	span->low = malloc(span->size);
	span->high = malloc(span->size);
	if (!span->low || !span->high)
		return false;
	memcpy(span->low, span->after, span->size);
	memcpy(span->high, span->after, span->size);
	return true;
}

static struct md_element_span ends_at(const struct md_probe_span *span, enum md_element_type type, size_t at)
{
	struct md_element_span ends = {0};
	md_element_span_add(&ends, type, span->after + at, span->low + at);
	md_element_span_add(&ends, type, span->after + at, span->high + at);
	return ends;
}

static void widen(struct md_probe_span *span, enum md_element_type type, const uint8_t *now)
{
	size_t step = md_element_size(type);
	for (size_t at = 0; at + step <= span->size; at += step) {
		struct md_element_span ends = ends_at(span, type, at);
		int64_t order;
		if (!memcmp(now + at, span->after + at, step) || !md_element_order(type, now + at, &order))
			continue;
		if (!ends.any || order < ends.low)
			memcpy(span->low + at, now + at, step);
		if (!ends.any || order > ends.high)
			memcpy(span->high + at, now + at, step);
	}
}

static bool holds(const struct md_probe_span *span, const struct md_tolerance *tolerance, const uint8_t *now)
{
	size_t step = md_element_size(tolerance->type), at = 0;
	for (; at + step <= span->size; at += step) {
		struct md_element_span ends;
		if (!memcmp(now + at, span->after + at, step))
			continue;
		ends = ends_at(span, tolerance->type, at);
		if (!md_element_span_holds(&ends, tolerance->type, now + at, tolerance->ulps))
			return false;
	}
	return !memcmp(now + at, span->after + at, span->size - at);
}

bool md_capture_spread_judge(const struct md_capture_probe *probe, struct md_probe_span *span, const uint8_t *now,
			     struct md_error *err)
{
	if (!probe->spread)
		return !memcmp(now, span->after, span->size);
	if (!span->low && !keep_ends(span)) {
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the spread of an output");
		return false;
	}
	if (probe->learning)
		widen(span, probe->tolerance.type, now);
	return probe->learning || holds(span, &probe->tolerance, now);
}

enum md_status md_capture_spread_gather(struct md_capture_probe *probe, struct md_error *err)
{
	enum md_status status = MD_OK;
	bool equal;
	probe->learning = true;
	for (int i = 0; status == MD_OK && i < CLEAN_REPLAYS; i++)
		status = md_capture_probe_replay(probe, 0, 0, &equal, err);
	probe->learning = false;
	return status;
}
