/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine is doing, as /proc says: processors, memory, load and network. */
#ifndef MD_WORKER_PAGE_MACHINE_SAMPLE_H
#define MD_WORKER_PAGE_MACHINE_SAMPLE_H

#include <jansson.h>
#include <stdint.h>

#define MD_MACHINE_CORES_MAX 1024u

/* Time that processors have spent since the machine began. */
struct md_machine_cores {
	uint32_t count;
	uint64_t busy[MD_MACHINE_CORES_MAX], all[MD_MACHINE_CORES_MAX];
};

void md_machine_cores_read(struct md_machine_cores *cores);
/*
 * {"cpu_util_per_core", "mem_total_mb", ...} since `before`, which becomes what there is now. Reads files, so it is for other threads than
 * the loop's. The caller owns the reference; NULL: out of memory.
 */
json_t *md_machine_sample(struct md_machine_cores *before);

#endif
