/* SPDX-License-Identifier: Apache-2.0 */
/* Looks that are repeated for a reader take a small part of the loop's time, however long one takes: there may be 10,000 models. */
#ifndef MD_WORKER_PAGE_LOOK_PACE_H
#define MD_WORKER_PAGE_LOOK_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define MD_LOOK_PACE_PART 20u /* of the time between two looks */

struct md_look_pace {
	uint64_t began, until; /* ns; all zero: nothing was looked at yet */
};

/* False: the last look took so long that this one is left out. */
static inline bool md_look_pace_begin(struct md_look_pace *pace)
{
	pace->began = md_clock_ns();
	return pace->began >= pace->until;
}

static inline void md_look_pace_end(struct md_look_pace *pace)
{
	uint64_t now = md_clock_ns();
	pace->until = now + (now - pace->began) * MD_LOOK_PACE_PART;
}

#endif
