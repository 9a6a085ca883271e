/* SPDX-License-Identifier: Apache-2.0 */
/* The search for units of private memory that a graph's outputs depend on. */
#ifndef MD_CAPTURE_PROBE_SEARCH_H
#define MD_CAPTURE_PROBE_SEARCH_H

#include "capture/probe/probe.h"

#define MD_PROBE_PATTERNS 3
extern const uint32_t md_probe_patterns[MD_PROBE_PATTERNS];

/*
 * Keeps the units of [from, to) that change the outputs when they are poisoned while all else is as it was. differs: it
 * is known that the outputs change when all of them are poisoned.
 */
enum md_status md_capture_probe_search(struct md_capture_probe *probe, size_t from, size_t to, bool differs,
				       struct md_error *err);

#endif
