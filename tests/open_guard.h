/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of the hooks for a test that links the restore library's sources, where nothing is preloaded. */
#ifndef TESTS_OPEN_GUARD_H
#define TESTS_OPEN_GUARD_H

#include "driver/interpose.h"

bool md_guard_enter(void)
{
	return true;
}

void md_guard_leave(void)
{
}

void md_guard_close(void)
{
}

bool md_guard_is_closed(void)
{
	return false;
}

#endif
