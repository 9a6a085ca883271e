/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory: units of it, poisoned or put back before a replay. */
#ifndef MD_CAPTURE_PROBE_POISON_H
#define MD_CAPTURE_PROBE_POISON_H

#include "capture/probe/probe.h"

/* Chooses the word that replays from here on poison with, and the memory that poisoned pointers point to. */
enum md_status md_capture_probe_prepare_poison(struct md_capture_probe *probe, uint32_t word, struct md_error *err);
/* Private memory before a replay: units [from, to) that are not kept are poisoned, inverse ones with the other
 * bits of the word; all others are as they were. */
enum md_status md_capture_probe_place_private(struct md_capture_probe *probe, size_t from, size_t to,
					      struct md_error *err);
/* A run of units from *at on, in one region, that are treated alike; *at is behind them afterwards. */
struct md_probe_run {
	uint32_t region;
	bool poisoned, inverse;
	uint64_t offset, size;
};
struct md_probe_run md_capture_probe_next_run(const struct md_capture_probe *probe, size_t *at, size_t from, size_t to);
/* The bytes of a poisoned part of at most one chunk; the poison is a word of equal bytes. */
void md_capture_probe_expect(const struct md_capture_probe *probe, const struct md_probe_region *region,
			     uint64_t offset, uint64_t size, uint8_t *to);
/* The same into device memory; *done is false when that takes too many steps. */
enum md_status md_capture_probe_expect_on_device(struct md_capture_probe *probe, const struct md_probe_region *region,
						 uint64_t offset, uint64_t size, uint64_t to, bool *done,
						 struct md_error *err);
/*
 * Cuts private memory into units of at most `bytes`. The first cut keeps, as known, what earlier graphs were found to
 * need. A later cut divides only units that are kept and not known, and keeps none of their parts.
 */
enum md_status md_capture_probe_cut(struct md_capture_probe *probe, uint32_t bytes,
				    struct md_error *err) MD_CAPTURE_HELD;
/* Remembers the kept units for later graphs. */
void md_capture_probe_learn(const struct md_capture_probe *probe);
/* The bytes are kept by tests from here on, as if a graph had been found to need them. Before the first cut. */
enum md_status md_capture_probe_need(uint64_t address, uint64_t size, struct md_error *err) MD_CAPTURE_HELD;
/* memory that graphs were found to need */
const struct md_interval_index *md_capture_probe_needed(void) MD_CAPTURE_HELD;

#endif
