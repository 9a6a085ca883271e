/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a context: what the driver does not tell, which one is too low, and the most of all that a trace says. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver/cuda_driver.h"
#include "format/fingerprint.h"
#include "format/trace/trace.h"

static CUresult CUDAAPI tell(size_t *value, CUlimit limit)
{
	if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = 100 + (size_t)limit;
	return CUDA_SUCCESS;
}

Test(limits, what_the_driver_does_not_tell_is_not_known)
{
	uint64_t now[MD_LIMITS];
	md_cuda.cuCtxGetLimit = tell;
	md_limits_read(now);
	cr_assert(now[0] == 100 && now[1] == 101 && now[2] == 102 && now[3] == 0 && now[4] == 104);
	md_cuda.cuCtxGetLimit = NULL; /* an older driver */
	md_limits_read(now);
	for (unsigned i = 0; i < MD_LIMITS; i++)
		cr_assert_eq(now[i], 0, "limit %u", i);
}

Test(limits, should_fail_a_lower_one)
{
	static const struct {
		uint64_t stored[MD_LIMITS], now[MD_LIMITS];
		const char *message;
	} cases[] = {
	    {{0}, {0}, NULL},
	    {{0}, {1024, 1, 1, 1, 1}, NULL},
	    {{1024, 7, 8, 2, 3}, {1024, 7, 8, 2, 3}, NULL},
	    {{1024}, {8192}, NULL},
	    {{8192, 7},
	     {1024, 3},
	     "stack limit is 1024, the graphs were captured with 8192: call "
	     "cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192) before graphs are asked for"},
	    {{8192, 7}, {8192, 3}, "printf buffer limit is 3, the graphs were captured with 7"},
	    {{0, 0, 9}, {8192, 3, 8}, "CU_LIMIT_MALLOC_HEAP_SIZE, 9"},
	    {{0, 0, 0, 2}, {0}, "device launch depth limit is 0"},
	    {{0, 0, 0, 0, 2048}, {0, 0, 0, 0, 2047}, "CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct md_error err = {0};
		enum md_status status = md_limits_compare(cases[i].stored, cases[i].now, &err);
		cr_assert_eq(status, cases[i].message ? MD_ERR_MISMATCH : MD_OK, "case %zu: %s", i, err.message);
		cr_assert(!cases[i].message || strstr(err.message, cases[i].message), "case %zu: %s", i, err.message);
	}
}

static unsigned asked;

static CUresult CUDAAPI count_and_tell(size_t *value, CUlimit limit)
{
	asked++;
	return tell(value, limit);
}

Test(limits, the_driver_is_asked_for_those_that_are_compared)
{
	struct md_error err = {0};
	md_cuda.cuCtxGetLimit = count_and_tell;
	cr_assert_eq(md_limits_check((uint64_t[MD_LIMITS]){100, 0, 102, 0, 104}, &err), MD_OK, "%s", err.message);
	cr_expect_eq(asked, 3);
	cr_assert_eq(md_limits_check((uint64_t[MD_LIMITS]){100, 0, 103}, &err), MD_ERR_MISMATCH);
	cr_expect(strstr(err.message, "heap limit is 102"), "%s", err.message);
	cr_assert_eq(md_limits_check((uint64_t[MD_LIMITS]){0, 0, 0, 1}, &err), MD_ERR_MISMATCH, "not known");
}

Test(limits, a_trace_says_the_most_that_there_was)
{
	const uint64_t first[MD_LIMITS] = {1024, 7, 8, 0, 3}, second[MD_LIMITS] = {8192, 6, 8, 0, 4};
	struct md_trace_writer *w = NULL;
	struct md_trace trace;
	struct md_error err = {0};
	char path[64];
	snprintf(path, sizeof(path), "/tmp/medusa-limits-%d.mtrace", (int)getpid());
	cr_assert(md_trace_writer_create(path, &w, &err) == MD_OK, "%s", err.message);
	md_trace_put_limits(w, 1, first);
	md_trace_put_limits(w, 2, second);
	md_trace_put_limits(w, 3, first);
	cr_assert(md_trace_writer_close(w, &err) == MD_OK, "%s", err.message);
	cr_assert(md_trace_read(path, &trace, &err) == MD_OK, "%s", err.message);
	unlink(path);
	const uint64_t *limits = trace.fingerprint.limits;
	cr_assert(limits[0] == 8192 && limits[1] == 7 && limits[2] == 8 && limits[3] == 0 && limits[4] == 4);
	md_trace_finish(&trace);
}
