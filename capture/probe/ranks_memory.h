/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that reach memory of other ranks, which no rank may replay alone: found before their first replay. */
#ifndef MD_CAPTURE_PROBE_RANKS_MEMORY_H
#define MD_CAPTURE_PROBE_RANKS_MEMORY_H

#include "capture/probe/probe.h"

/*
 * MD_ERR_UNPROVABLE names what the graph reaches: memory that other ranks have, too, or a bound table with an address of such
 * memory, or of a communication library's. probe->reaches_ranks: all ranks together may replay it. Bindings of more than 16 MiB, and constants of more than 1 MiB, are not looked through.
 */
enum md_status md_capture_ranks_memory_check(struct md_capture_probe *probe, const struct md_capture_graph *graph,
					     struct md_error *err) MD_CAPTURE_HELD;
/* Whether that part of a private region holds addresses of memory that ranks share, and nothing else. */
bool md_capture_ranks_memory_lists(const struct md_probe_region *region, uint64_t offset,
				   uint64_t size) MD_CAPTURE_HELD;
/* As md_capture_ranks_memory_check for an address in unbound memory. */
enum md_status md_capture_ranks_memory_check_held(struct md_capture_probe *probe, uint64_t address,
						  struct md_error *err) MD_CAPTURE_HELD;

#endif
