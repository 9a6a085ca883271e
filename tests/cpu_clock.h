/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time for tests that bound what something costs: a busy machine makes it hardly longer. */
#ifndef TESTS_CPU_CLOCK_H
#define TESTS_CPU_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Of all threads of this process. */
static inline uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
