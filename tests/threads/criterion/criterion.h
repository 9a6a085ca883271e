/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the unit tests use of Criterion, for builds with the thread sanitizer, which does not support where Criterion maps
 * memory. Each test runs in a process that was forked for it, as there.
 */
#ifndef MD_TESTS_THREADS_CRITERION_H
#define MD_TESTS_THREADS_CRITERION_H
/* Comparisons that the macros make are not warned of, as with Criterion's. */
#pragma GCC system_header

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cr_named {
	const char *name;
};

/* A test, or a suite (run is NULL), whose values count for its tests that have none. */
struct cr_entry {
	const char *suite, *name;
	void (*run)(void);
	void (*init)(void);
	void (*fini)(void);
	double timeout; /* seconds; 0: none of its own */
};

extern const struct cr_named *criterion_current_suite, *criterion_current_test;

void cr_add(const struct cr_entry *entry);
/* Both say what was not so; the test has failed then, and cr_end ends it. */
void cr_blame(const char *file, int line, const char *claim, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void cr_end(const char *file, int line, const char *claim, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void cr_leave(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cr_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CR_ADD(id, ...)                                                                                                \
	__attribute__((constructor)) static void add_##id(void)                                                        \
	{                                                                                                              \
		static const struct cr_entry entry = {__VA_ARGS__};                                                    \
		cr_add(&entry);                                                                                        \
	}
#define Test(s, n, ...)                                                                                                \
	static void run_##s##_##n(void);                                                                               \
	CR_ADD(s##_##n, .suite = #s, .name = #n, .run = run_##s##_##n, __VA_ARGS__)                                    \
	static void run_##s##_##n(void)
#define TestSuite(s, ...) CR_ADD(suite_##s, .suite = #s, __VA_ARGS__) _Static_assert(1, "a semicolon follows")

#define CR_END(good, claim, ...) ((good) ? (void)0 : cr_end(__FILE__, __LINE__, claim, " " __VA_ARGS__))
#define CR_BLAME(good, claim, ...) ((good) ? (void)0 : cr_blame(__FILE__, __LINE__, claim, " " __VA_ARGS__))
#define cr_assert(good, ...) CR_END(good, #good, __VA_ARGS__)
#define cr_assert_not(bad, ...) CR_END(!(bad), "not " #bad, __VA_ARGS__)
#define cr_assert_null(p, ...) CR_END(!(p), #p " is NULL", __VA_ARGS__)
#define cr_assert_not_null(p, ...) CR_END((p) != NULL, #p " is not NULL", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) CR_END((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) CR_END((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) CR_END((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) CR_END((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) CR_END((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) CR_END((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) CR_END(strcmp((a), (b)) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) CR_END(strcmp((a), (b)) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_assert_str_empty(a, ...) CR_END(*(a) == '\0', #a " is empty", __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) CR_END(memcmp((a), (b), (size)) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, by, ...) CR_END(fabs((double)(a) - (b)) <= (by), #a " is near " #b, __VA_ARGS__)
#define cr_assert_fail(...) CR_END(false, "this is not reached", __VA_ARGS__)
#define cr_expect(good, ...) CR_BLAME(good, #good, __VA_ARGS__)
#define cr_expect_not(bad, ...) CR_BLAME(!(bad), "not " #bad, __VA_ARGS__)
#define cr_expect_null(p, ...) CR_BLAME(!(p), #p " is NULL", __VA_ARGS__)
#define cr_expect_not_null(p, ...) CR_BLAME((p) != NULL, #p " is not NULL", __VA_ARGS__)
#define cr_expect_eq(a, b, ...) CR_BLAME((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) CR_BLAME((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) CR_BLAME((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) CR_BLAME((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) CR_BLAME((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) CR_BLAME(strcmp((a), (b)) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) CR_BLAME(strcmp((a), (b)) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, by, ...) CR_BLAME(fabs((double)(a) - (b)) <= (by), #a " is near " #b, __VA_ARGS__)
#define cr_skip(...) cr_leave(" " __VA_ARGS__)
#define cr_skip_test(...) cr_leave(" " __VA_ARGS__)
#define cr_log_info(...) cr_note(__VA_ARGS__)

#endif
