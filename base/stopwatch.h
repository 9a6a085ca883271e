/* SPDX-License-Identifier: Apache-2.0 */
/* Times short pieces of one thread's work, and leaves out the time in which other threads had its processor. */
#ifndef MD_BASE_STOPWATCH_H
#define MD_BASE_STOPWATCH_H

#include "base/clock.h"

/*
 * The clock of a thread's processor time is a system call, which takes longer than what is timed here. So it is read only
 * every 1024 pieces, and after a piece that was long: what passed meanwhile without the processor is then taken off that
 * piece, down to MD_STOPWATCH_LONG at most, because it may have been lost between two pieces.
 */
#define MD_STOPWATCH_LONG 20000u /* ns */
#define MD_STOPWATCH_PIECES 1024

struct md_stopwatch {
	uint64_t began;      /* of the current piece */
	uint64_t real, used; /* ns, when the processor time was read last */
	unsigned pieces;     /* since then; 0: never read */
};

static inline uint64_t md_stopwatch_used_ns(void)
{
	struct timespec used;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Reads both clocks; returns the ns since the last time in which others had the processor. */
static inline uint64_t md_stopwatch_lost_ns(struct md_stopwatch *watch, uint64_t real)
{
	uint64_t used = md_stopwatch_used_ns(), passed = real - watch->real, worked = used - watch->used;
	watch->real = real;
	watch->used = used;
	watch->pieces = 1;
	return passed > worked ? passed - worked : 0;
}

/* A piece of work begins. A struct of zeros is a new stopwatch. */
static inline void md_stopwatch_start(struct md_stopwatch *watch)
{
	if (watch->pieces++ % MD_STOPWATCH_PIECES == 0)
		md_stopwatch_lost_ns(watch, md_clock_ns());
	watch->began = md_clock_ns();
}

/* The piece of work ends; returns the ns that it took. */
static inline uint64_t md_stopwatch_stop(struct md_stopwatch *watch)
{
	uint64_t now = md_clock_ns(), took = now - watch->began;
	if (took <= MD_STOPWATCH_LONG)
		return took;
	uint64_t lost = md_stopwatch_lost_ns(watch, now);
	return took > MD_STOPWATCH_LONG + lost ? took - lost : MD_STOPWATCH_LONG;
}

#endif
