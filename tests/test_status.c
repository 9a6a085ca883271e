/* SPDX-License-Identifier: Apache-2.0 */
/* Error objects: messages are whole, bounded and forwarded; the log is filtered and goes where it is told. */
#include "base/status.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MD_LOG_DOMAIN "test"
#include "base/log.h"

Test(status, sets_and_returns)
{
	struct md_error err = {0};
	cr_assert_eq(md_error_set(&err, MD_ERR_CORRUPT, "section %s at %d", "kv", 7), MD_ERR_CORRUPT);
	cr_assert_eq(err.status, MD_ERR_CORRUPT);
	cr_assert_str_eq(err.message, "section kv at 7");
	cr_assert_eq(md_error_set(NULL, MD_ERR_IO, "nobody reads %d", 1), MD_ERR_IO, "a NULL error object is allowed");
}

Test(status, message_may_be_its_own_argument)
{
	struct md_error err;
	md_error_set(&err, MD_ERR_IO, "inner");
	md_error_set(&err, MD_ERR_BUSY, "outer (%s)", err.message);
	cr_assert_str_eq(err.message, "outer (inner)");
}

Test(status, prefixes)
{
	struct md_error err;
	md_error_set(&err, MD_ERR_TRUNCATED, "9 bytes missing");
	cr_assert_eq(md_error_prefix(&err, "%s, frame %d", "a.mtrace", 3), MD_ERR_TRUNCATED);
	cr_assert_str_eq(err.message, "a.mtrace, frame 3: 9 bytes missing");
}

Test(status, long_messages_are_cut_and_ended)
{
	char text[2 * MD_ERROR_MESSAGE_BYTES];
	struct md_error err;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	md_error_set(&err, MD_ERR_IO, "%s", text);
	cr_assert_eq(strlen(err.message), MD_ERROR_MESSAGE_BYTES - 1);
	for (size_t size = MD_ERROR_MESSAGE_BYTES - 4; size < MD_ERROR_MESSAGE_BYTES + 4; size++) {
		md_error_set(&err, MD_ERR_IO, "tail");
		md_error_prefix(&err, "%.*s", (int)size, text);
		cr_assert(strlen(err.message) < MD_ERROR_MESSAGE_BYTES, "prefix of %zu bytes", size);
	}
}

Test(status, every_status_has_a_name_of_its_own)
{
	static const enum md_status all[] = {
	    MD_OK,
	    MD_ERR_INVALID,
	    MD_ERR_NO_MEMORY,
	    MD_ERR_IO,
	    MD_ERR_NOT_FOUND,
	    MD_ERR_UNSUPPORTED,
	    MD_ERR_OUTPUT,
	    MD_ERR_TIMEOUT,
	    MD_ERR_BUSY,
	    MD_ERR_TRUNCATED,
	    MD_ERR_CORRUPT,
	    MD_ERR_VERSION,
	    MD_ERR_TOO_LARGE,
	    MD_ERR_DRIVER,
	    MD_ERR_DRIVER_MEMORY,
	    MD_ERR_DRIVER_MISSING,
	    MD_ERR_MISMATCH,
	    MD_ERR_UNPROVABLE,
	    MD_ERR_AMBIGUOUS,
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (size_t j = 0; j < i; j++)
			cr_assert_str_neq(md_status_name(all[i]), md_status_name(all[j]));
	cr_assert_str_eq(md_status_name((enum md_status)9999), "unknown status");
}

/* Each Criterion test is a process of its own, so the environment is read anew. */
Test(log, is_filtered_and_written_to_the_file)
{
	char path[] = "/tmp/medusa-log-XXXXXX", text[4096];
	int fd = mkstemp(path);
	ssize_t size;
	cr_assert(fd >= 0);
	setenv("MEDUSA_LOG", "info", 1);
	setenv("MEDUSA_LOG_FILE", path, 1);
	errno = 42;
	md_info("seen %d", 1);
	cr_assert_eq(errno, 42, "logging keeps errno");
	md_debug("not seen");
	md_error_log("%02000d", 5);
	size = read(fd, text, sizeof(text) - 1);
	cr_assert(size > 0);
	text[size] = '\0';
	close(fd);
	unlink(path);
	cr_assert_eq(strncmp(text, "medusa test: seen 1\nmedusa test: 000", 36), 0, "log is: %.60s", text);
	cr_assert_null(strstr(text, "not seen"));
	cr_assert_eq(text[size - 1], '\n', "a line that was cut still ends");
	cr_assert(md_log_enabled(MD_LOG_INFO) && !md_log_enabled(MD_LOG_DEBUG));
}
