/* SPDX-License-Identifier: Apache-2.0 */
/* fine(call): the call, which may use `&err`, returns MD_OK; else the test fails with its line and message. */
#ifndef TESTS_FINE_H
#define TESTS_FINE_H

#include <criterion/criterion.h>

#include "base/status.h"

static inline void good(enum md_status status, const struct md_error *err, int line)
{
	cr_assert_eq(status, MD_OK, "line %d: %s", line, err->message);
}
#define fine(call)                                                                                                     \
	do {                                                                                                           \
		struct md_error err = {0};                                                                             \
		good((call), &err, __LINE__);                                                                          \
	} while (0)

#endif
