/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/loop_turn.h"

#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/export.h"

static _Thread_local bool counts; /* this thread runs the loop */
static _Thread_local uint64_t began, cpu_began;
static _Thread_local struct md_loop_turns turns;

static uint64_t cpu_ns(void)
{
	struct timespec used = {0};
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void begin(void)
{
	began = md_clock_ns();
	cpu_began = cpu_ns();
}

void md_loop_turn_begin(void)
{
	turns = (struct md_loop_turns){0};
	begin();
	counts = true;
}

struct md_loop_turns md_loop_turn_get(void)
{
	return turns;
}

static void note(void)
{
	uint64_t took = md_clock_ns() - began, cpu = cpu_ns() - cpu_began;
	turns.count++;
	turns.late += took > MD_LOOP_TURN_LATE_NS;
	if (took > turns.longest_ns)
		turns.longest_ns = took;
	if (cpu > turns.longest_cpu_ns)
		turns.longest_cpu_ns = cpu;
}

/*
 * libevent 2.1 tells nobody when it waits, so what it waits with is ours: this program's function comes before that of the C
 * library.
 */
MD_EXPORT int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms)
{
	if (counts)
		note();
	int found = (int)syscall(SYS_epoll_pwait, epoll, events, most, timeout_ms, NULL, 0);
	if (counts)
		begin();
	return found;
}
