/* SPDX-License-Identifier: Apache-2.0 */
/* Which adapters daemons have told an engine to load, in a file for the next one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/engine/adopt_adapters.h"

#define PID 77

static char folder[] = "/tmp/medusa-adapters.XXXXXX";
static char file[64], taken[400];

static void begin(void)
{
	cr_assert(mkdtemp(folder) != NULL);
	snprintf(file, sizeof(file), "%s/engine-%d.adapters", folder, PID);
}

static void end(void)
{
	md_adopt_adapters_remove(folder, PID);
	cr_assert_eq(rmdir(folder), 0, "only the file was there");
}

TestSuite(worker_adopt_adapters, .init = begin, .fini = end);

static void take(void *context, const char *name, const char *path)
{
	size_t have = strlen(context);
	snprintf((char *)context + have, sizeof(taken) - have, "%s=%s;", name, path);
}

static void add(uint64_t began, const char *name, const char *path)
{
	struct md_error err = {0};
	cr_assert_eq(md_adopt_adapters_add(folder, PID, began, name, path, &err), MD_OK, "%s", err.message);
}

static void assert_taken(uint64_t began, const char *expected)
{
	struct md_error err = {0};
	*taken = '\0';
	cr_assert_eq(md_adopt_adapters_read(folder, PID, began, take, taken, &err), MD_OK, "%s", err.message);
	cr_assert_str_eq(taken, expected);
}

static void write_file(const char *text)
{
	FILE *out = fopen(file, "w");
	cr_assert(out && fputs(text, out) >= 0 && !fclose(out) && !chmod(file, 0600));
}

Test(worker_adopt_adapters, what_was_added_is_read)
{
	assert_taken(5, "");
	add(5, "a", "/p a");
	add(5, "b \"q\"\n", "/b\xff");
	assert_taken(5, "a=/p a;b \"q\"\n=/b\xff;");
	struct stat is;
	cr_assert(!stat(file, &is) && (is.st_mode & 07777) == 0600);
}

Test(worker_adopt_adapters, another_process_of_that_number_has_none)
{
	add(5, "a", "/a");
	add(6, "b", "/b");
	assert_taken(6, "b=/b;");
	md_adopt_adapters_remove(folder, PID);
	assert_taken(6, "");
}

static void drop(uint64_t began, const char *name)
{
	struct md_error err = {0};
	cr_assert_eq(md_adopt_adapters_drop(folder, PID, began, name, &err), MD_OK, "%s", err.message);
}

Test(worker_adopt_adapters, what_was_dropped_is_not_read)
{
	drop(5, "a");
	add(5, "a", "/a");
	add(5, "b \"q\"\n", "/b\xff");
	add(5, "a", "/other");
	add(5, "c", "/c");
	drop(5, "nobody");
	assert_taken(5, "a=/a;b \"q\"\n=/b\xff;a=/other;c=/c;");
	drop(5, "a");
	assert_taken(5, "b \"q\"\n=/b\xff;c=/c;");
	struct stat is;
	cr_assert(!stat(file, &is) && (is.st_mode & 07777) == 0600);
	add(5, "a", "/a");
	assert_taken(5, "b \"q\"\n=/b\xff;c=/c;a=/a;");
	drop(5, "a");
	drop(5, "c");
	drop(5, "b \"q\"\n");
	cr_assert(stat(file, &is), "an empty file is none");
	assert_taken(5, "");
}

Test(worker_adopt_adapters, what_is_no_line_is_passed_over)
{
	write_file("\n{}\nnothing\n{\"began\":5,\"name\":\"a\"}\n{\"began\":5,\"name\":1,\"path\":\"/a\"}\n"
		   "{\"began\":5,\"name\":\"b\",\"path\":\"/b\"}\n{\"began\":5,\"name\":\"c\",\"pa");
	assert_taken(5, "b=/b;");
}

static void assert_refused(const char *why)
{
	struct md_error err = {0};
	*taken = '\0';
	cr_assert_neq(md_adopt_adapters_read(folder, PID, 5, take, taken, &err), MD_OK);
	cr_assert(strstr(err.message, why) && strstr(err.message, file), "%s", err.message);
	cr_assert_str_eq(taken, "");
}

Test(worker_adopt_adapters, a_file_of_others_is_refused)
{
	add(5, "a", "/a");
	cr_assert_eq(chmod(file, 0622), 0);
	assert_refused("not a file that only user");
	char other[80];
	snprintf(other, sizeof(other), "%s.other", file);
	cr_assert(!chmod(file, 0600) && !rename(file, other) && !symlink(other, file));
	assert_refused("not a file that only user");
	cr_assert(!unlink(other) && !unlink(file) && !mkdir(file, 0700));
	assert_refused("not a file that only user");
	cr_assert(!rmdir(file) && !symlink("/dev/null", file));
	assert_refused("not a file that only user");
	struct md_error err = {0};
	cr_assert_neq(md_adopt_adapters_add(folder, PID, 5, "a", "/a", &err), MD_OK, "it is no file");
}

Test(worker_adopt_adapters, it_has_a_limit)
{
	struct md_error err = {0};
	add(5, "a", "/a");
	cr_assert_eq(truncate(file, 4 << 20), 0);
	cr_assert_eq(md_adopt_adapters_add(folder, PID, 5, "b", "/b", &err), MD_ERR_TOO_LARGE);
}
