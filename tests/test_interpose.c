/* SPDX-License-Identifier: Apache-2.0 */
/* Interposition: a whole process asks for every entry point under each preloaded
 * library; see tests/subjects/lookup.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run.h"

static void assert_lookups_right_with(const char *preload, const char *const *env, size_t env_count)
{
	char path[4096];
	char *argv[] = {path, (char *)(preload ? preload : "none"), NULL};
	struct md_run run = {.preload = preload, .env = env, .env_count = env_count, .argv = argv};
	struct md_error err = {0};
	int code = -1;
	cr_assert_not_null(getenv("MEDUSA_BUILD"), "MEDUSA_BUILD says where the subjects are");
	snprintf(path, sizeof(path), "%s/tests/subjects/lookup", getenv("MEDUSA_BUILD"));
	cr_assert_eq(md_run_child(&run, &code, &err), MD_OK, "%s", err.message);
	cr_assert_eq(code, 0, "exit code %d; what is wrong stands above", code);
}

static void assert_lookups_right(const char *preload)
{
	assert_lookups_right_with(preload, NULL, 0);
}

/* What the library has to say when the driver loads it in cuInit. */
static void assert_injected(const char *library, const char *preload, bool warned)
{
	char log[] = "/tmp/test_interpose.XXXXXX", log_setting[64], path_setting[4200], text[4096] = "";
	const char *const env[] = {log_setting, path_setting};
	int fd = mkstemp(log);
	cr_assert_geq(fd, 0);
	snprintf(log_setting, sizeof(log_setting), "MEDUSA_LOG_FILE=%s", log);
	snprintf(path_setting, sizeof(path_setting), "CUDA_INJECTION64_PATH=%s/lib/%s", getenv("MEDUSA_BUILD"),
		 library);
	assert_lookups_right_with(preload, env, 2);
	cr_assert_geq(read(fd, text, sizeof(text) - 1), 0);
	close(fd);
	unlink(log);
	cr_assert_eq(strstr(text, "CUDA_INJECTION64_PATH") != NULL, warned, "the log says: %s", text);
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

/* Injection alone changes no answer, and the library says that it sees nothing. */
Test(interpose, injected_by_the_driver_alone)
{
	assert_injected("libmedusa-capture.so", NULL, true);
	assert_injected("libmedusa-restore.so", NULL, true);
}

Test(interpose, injected_and_preloaded)
{
	assert_injected("libmedusa-capture.so", "libmedusa-capture.so", false);
	assert_injected("libmedusa-restore.so", "libmedusa-restore.so", false);
}
