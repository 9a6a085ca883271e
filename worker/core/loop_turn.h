/* SPDX-License-Identifier: Apache-2.0 */
/* How long the loop was busy between two looks at its descriptors: so long a request may have waited for others' work. */
#ifndef MD_WORKER_CORE_LOOP_TURN_H
#define MD_WORKER_CORE_LOOP_TURN_H

#include <stdint.h>

#define MD_LOOP_TURN_LATE_NS UINT64_C(10000000) /* a turn that is longer holds requests up */

struct md_loop_turns {
	uint64_t longest_ns;
	uint64_t
	    longest_cpu_ns; /* the most processor time of one; less than longest_ns where it was blocked, or not scheduled */
	uint64_t count, late; /* turns, and those of them that were longer than MD_LOOP_TURN_LATE_NS */
};

void md_loop_turn_begin(void);               /* the calling thread runs the loop: its turns count from now on */
struct md_loop_turns md_loop_turn_get(void); /* from the loop's thread */

#endif
