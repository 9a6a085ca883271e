/* SPDX-License-Identifier: Apache-2.0 */
/* Interposition: a whole process asks for every entry point under each preloaded library; see tests/subjects/lookup.c.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/run.h"

static void assert_lookups_right(const char *preload)
{
	char path[4096];
	char *argv[] = {path, (char *)(preload ? preload : "none"), NULL};
	struct md_run run = {.preload = preload, .argv = argv};
	struct md_error err = {0};
	int code = -1;

	cr_assert_not_null(getenv("MEDUSA_BUILD"), "MEDUSA_BUILD says where the subjects are");
	snprintf(path, sizeof(path), "%s/tests/subjects/lookup", getenv("MEDUSA_BUILD"));
	cr_assert_eq(md_run_child(&run, &code, &err), MD_OK, "%s", err.message);
	cr_assert_eq(code, 0, "exit code %d; what is wrong stands above", code);
}

Test(interpose, nothing_preloaded)
{
	assert_lookups_right(NULL);
}

Test(interpose, capture)
{
	assert_lookups_right("libmedusa-capture.so");
}

Test(interpose, restore)
{
	assert_lookups_right("libmedusa-restore.so");
}
