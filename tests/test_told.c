/* SPDX-License-Identifier: Apache-2.0 */
/* What plug-ins say in the file MEDUSA_TELL, as commands read it: lines that are none, repeated ones, and hostile files. */
#include "tools/told.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct md_told told;

static void read_text(const char *text, size_t size)
{
	char path[] = "/tmp/medusa-told-XXXXXX";
	int fd = mkstemp(path);
	cr_assert(fd >= 0 && write(fd, text, size) == (ssize_t)size);
	md_told_read(path, &told);
	close(fd);
	unlink(path);
}

static void assert_told(const char *text, unsigned count, const char *first)
{
	read_text(text, strlen(text));
	cr_assert_eq(told.count, count, "%u lines of \"%s\"", told.count, text);
	if (count)
		cr_assert_str_eq(told.lines[0], first);
}

Test(told, lines)
{
	assert_told("medusa-vllm 0.2.0 17 is loaded\n", 1, "medusa-vllm 0.2.0 in process 17: is loaded");
	assert_told("a 1 2 x\na 1 3 x\nb 1 3 x\na 1 2 y\n", 3, "a 1 in process 2: x");
	assert_told("", 0, NULL);
	assert_told("a 1 2 x", 0, NULL); /* not written to its end */
	assert_told("\n\n \na\na 1\na 1 2\na 1 2 \na 1 x y\na 1 -2 y\na  1 2 x\n a 1 2 x\n", 0, NULL);
}

Test(told, no_more_than_there_is_room_for)
{
	static char text[100000];
	size_t at = 0;
	for (unsigned i = 0; i < 100; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "plug-in%u 1 2 text\n", i);
	assert_told(text, MD_TOLD_MOST, "plug-in0 1 in process 2: text");
	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "a 1 2 ", 6);
	text[sizeof(text) - 2] = '\n';
	assert_told(text, 0, NULL); /* its end lies behind what is read */
	text[5000] = '\n';
	read_text(text, sizeof(text) - 1);
	cr_assert_eq(told.count, 1);
	cr_assert_eq(strlen(told.lines[0]), MD_TOLD_BYTES - 1);
	read_text("a 1 2 x\0y\nb 1 2 y\n", 18);
	cr_assert_eq(told.count, 0, "nothing behind a NUL");
}

Test(told, what_is_no_file)
{
	char folder[] = "/tmp/medusa-told-XXXXXX", path[64];
	cr_assert_not_null(mkdtemp(folder));
	md_told_read(folder, &told);
	cr_assert_eq(told.count, 0);
	snprintf(path, sizeof(path), "%s/pipe", folder);
	cr_assert_eq(mkfifo(path, 0600), 0);
	md_told_read(path, &told); /* nobody writes to it */
	cr_assert_eq(told.count, 0);
	unlink(path);
	cr_assert_eq(symlink("/proc/self/environ", path), 0);
	md_told_read(path, &told);
	cr_assert_eq(told.count, 0);
	unlink(path);
	md_told_read(path, &told);
	cr_assert_eq(told.count, 0);
	rmdir(folder);
}
