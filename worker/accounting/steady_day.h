/* SPDX-License-Identifier: Apache-2.0 */
/* The time of the day by which old rows are removed: one that jumps ahead removes nothing before its time. */
#ifndef MD_WORKER_ACCOUNTING_STEADY_DAY_H
#define MD_WORKER_ACCOUNTING_STEADY_DAY_H

#include <stdbool.h>
#include <stdint.h>

struct md_steady_day {
	int64_t us;        /* since 1970; 0: not set yet */
	uint64_t at;       /* md_clock_ns() then */
	uint64_t ahead_ns; /* md_clock_ns() when the system's clock was first seen ahead; 0: it is not */
};

/*
 * The time since 1970 in us. The system's clock counts where it goes on with the time that has passed, and where it goes back; one
 * that is ahead of that counts when it has been so for patience_ns.
 */
int64_t md_steady_day_now(struct md_steady_day *day, int64_t system_us, uint64_t now_ns, uint64_t patience_ns);

#endif
