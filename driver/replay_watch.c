/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for a replay by polling, because no other wait can be given up; kernels that never end are noted. */
#include "driver/replay_watch.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define MD_LOG_DOMAIN "replay"
#include "base/clock.h"
#include "base/environment.h"
#include "base/setting.h"
#include "base/log.h"
#include "base/note.h"

#define DEADLINE_SECONDS 30
#define USUAL_TIMES 100
#define SPIN_NS 200000u
#define NAP_MOST_NS 2000000u
#define SECOND_NS UINT64_C(1000000000)

static uint64_t deadline_ns(void)
{
	return md_setting_number("MEDUSA_REPLAY_DEADLINE", 1, 1000000, DEADLINE_SECONDS) * SECOND_NS;
}

/*
 * Sleeps briefly at first, then for a small part of the time that has passed, so that no replay takes noticeably
 * longer.
 */
static void nap(uint64_t passed)
{
	uint64_t ns = passed / 16 < NAP_MOST_NS ? passed / 16 : NAP_MOST_NS;
	struct timespec time = {.tv_nsec = (long)ns};
	if (passed < SPIN_NS)
		sched_yield();
	else
		nanosleep(&time, NULL);
}

static void say_hung(uint64_t passed, uint64_t usual)
{
	struct md_error why;
	if (usual)
		md_error_set(&why, MD_ERR_TIMEOUT,
			     "a replay has not ended after %.1f s (MEDUSA_REPLAY_DEADLINE); one took %.3f ms before",
			     (double)passed / 1e9, (double)usual / 1e6);
	else
		md_error_set(&why, MD_ERR_TIMEOUT, "a replay has not ended after %.1f s (MEDUSA_REPLAY_DEADLINE)",
			     (double)passed / 1e9);
	md_error_log("%s", why.message);
	md_note_break(MD_NOTE_HUNG, why.message);
}

/* Polls until the stream is done or has failed, or until the command should have ended this process long ago. */
static void watch(CUstream stream, uint64_t usual)
{
	uint64_t start = md_clock_ns(), passed = 0, limit = deadline_ns();
	if (limit < USUAL_TIMES * usual)
		limit = USUAL_TIMES * usual;
	while (md_cuda.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
		passed = md_clock_ns() - start;
		if (passed > limit) {
			say_hung(passed, usual);
			return;
		}
		nap(passed);
	}
}

void md_replay_check_context(const struct md_error *why)
{
	if (md_note_is_read() && md_cuda.cuCtxSynchronize() != CUDA_SUCCESS)
		md_note_break(MD_NOTE_BROKE, why->message);
}

enum md_status md_replay(CUgraphExec exec, CUstream stream, uint64_t *usual_ns, struct md_error *err)
{
	uint64_t start = md_clock_ns();
	enum md_status status = md_cuda_call(err, cuGraphLaunch, exec, stream);
	if (status == MD_OK && md_note_is_read())
		watch(stream, *usual_ns);
	if (status == MD_OK)
		status = md_cuda_call(err, cuStreamSynchronize, stream);
	if (status != MD_OK)
		md_replay_check_context(err);
	else if (!*usual_ns)
		*usual_ns = md_clock_ns() - start;
	return status;
}
