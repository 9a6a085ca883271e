/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to files: what it opens, what it refuses without waiting, and names that nobody can prepare. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"

static char folder[] = "/tmp/medusa-test-file.XXXXXX", path[64], other[64];

static void setup(void)
{
	cr_assert_not_null(mkdtemp(folder), "a folder");
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	alarm(60); /* what waits for ever ends here, and by name */
}

static void teardown(void)
{
	char command[80];
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_assert(system(command) == 0, "cleared away");
}

TestSuite(file, .init = setup, .fini = teardown);

static void put(const char *where, const char *text)
{
	int fd = open(where, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write %s", where);
	close(fd);
}

static void assert_is(const char *where, const char *text)
{
	struct md_file_bytes bytes;
	struct md_error err = {0};
	cr_assert(md_file_read(where, 1000, &bytes, &err) == MD_OK, "%s", err.message);
	cr_assert_str_eq((char *)bytes.data, text, "%s", where);
	cr_assert_eq(bytes.size, strlen(text), "bytes of %s", where);
	md_file_release(&bytes);
}

static void assert_refused(const char *where, uint64_t most, enum md_status status, const char *why)
{
	struct md_error err = {0};
	struct md_file_bytes bytes = {0};
	uint64_t size = 0;
	int fd = -1;
	cr_assert_eq(md_file_open(where, most, &fd, &size, &err), status, "open %s: %s", where, err.message);
	cr_assert(strstr(err.message, where) && strstr(err.message, why), "%s", err.message);
	cr_assert_eq(fd, -1, "nothing of %s stays open", where);
	cr_assert_eq(md_file_read(where, most, &bytes, &err), status, "read %s", where);
	cr_assert_null(bytes.data, "nothing was read of %s", where);
}

Test(file, reads_regular_files_within_a_bound)
{
	put(path, "twelve bytes");
	assert_is(path, "twelve bytes");
	cr_assert(symlink(path, other) == 0, "a link");
	assert_is(other, "twelve bytes");
	assert_refused(path, 11, MD_ERR_TOO_LARGE, "12 bytes, at most 11");
	put(path, "");
	assert_is(path, "");
}

Test(file, should_fail_what_is_no_regular_file)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", other);
	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "a socket");
	cr_assert(mkfifo(path, 0644) == 0, "a pipe");
	assert_refused(path, 1000, MD_ERR_INVALID, "not a regular file but a pipe");
	assert_refused(other, 1000, MD_ERR_INVALID, "not a regular file but a socket");
	assert_refused(folder, 1000, MD_ERR_INVALID, "not a regular file but a folder");
	assert_refused("/dev/zero", UINT64_MAX, MD_ERR_INVALID, "not a regular file but a device");
	assert_refused("/nonexistent/file", 1000, MD_ERR_NOT_FOUND, "No such file");
	close(fd);
}

/* A writer that waits for a reader goes on waiting: it would get SIGPIPE from one that looks and goes. */
Test(file, a_pipe_is_not_even_opened)
{
	cr_assert(mkfifo(path, 0644) == 0, "a pipe");
	assert_refused(path, 1000, MD_ERR_INVALID, "a pipe");
	int fd = open(path, O_WRONLY | O_NONBLOCK);
	cr_assert(fd < 0 && errno == ENXIO, "nobody has the pipe open");
}

Test(file, a_pipe_that_a_user_names_is_read_to_its_end)
{
	struct md_file_bytes bytes;
	struct md_error err = {0};
	int ends[2];
	char name[32];
	cr_assert(pipe(ends) == 0, "a pipe");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[0]);
	if (fork() == 0) {
		for (int i = 0; i < 3; i++) {
			cr_assert(write(ends[1], "abc", 3) == 3, "write");
			usleep(20000);
		}
		_exit(0);
	}
	close(ends[1]);
	cr_assert(md_file_read_stream(name, 100, &bytes, &err) == MD_OK, "%s", err.message);
	cr_assert_str_eq((char *)bytes.data, "abcabcabc", "all three writes");
	md_file_release(&bytes);
	put(path, "four");
	cr_assert_eq(md_file_read_stream(path, 3, &bytes, &err), MD_ERR_TOO_LARGE, "more than it may have");
}

Test(file, a_file_that_is_cut_off_is_an_error)
{
	struct md_error err = {0};
	struct md_file_source source = {NULL, -1, 0};
	const void *bytes;
	void *owned;
	put(path, "twelve bytes");
	cr_assert(md_file_open(path, 100, &source.fd, &source.size, &err) == MD_OK, "%s", err.message);
	cr_assert(truncate(path, 5) == 0, "cut off behind our back");
	cr_assert_eq(md_file_source_take(&source, 0, 12, &bytes, &owned, &err), MD_ERR_TRUNCATED, "an error");
	cr_assert(strstr(err.message, "ends at offset 5"), "%s", err.message);
	cr_assert_eq(md_file_source_take(&source, 8, 5, &bytes, &owned, &err), MD_ERR_TRUNCATED, "beyond the end");
	cr_assert(md_file_source_take(&source, 0, 5, &bytes, &owned, &err) == MD_OK, "what is there");
	cr_assert(memcmp(bytes, "twelv", 5) == 0, "the bytes");
	free(owned);
	close(source.fd);
}

Test(file, temporary_names_are_new_and_follow_no_link)
{
	struct md_error err = {0};
	char *names[2];
	int fds[2];
	for (int i = 0; i < 2; i++)
		cr_assert(md_file_create_beside(path, &names[i], &fds[i], &err) == MD_OK, "%s", err.message);
	cr_assert(strcmp(names[0], names[1]) != 0, "two names, of one process and one target");
	cr_assert(strncmp(names[0], path, strlen(path)) == 0, "beside it: %s", names[0]);
	cr_assert(md_file_write(fds[1], "new", 3, names[1], &err) == MD_OK, "%s", err.message);
	cr_assert(md_file_publish(fds[1], names[1], path, &err) == MD_OK, "%s", err.message);
	assert_is(path, "new");
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		free(names[i]);
	}
}

Test(file, should_fail_a_name_that_is_taken)
{
	struct md_error err = {0};
	int fd = -1;
	put(other, "precious");
	cr_assert(symlink(other, path) == 0, "a link that somebody has prepared");
	cr_assert_eq(md_file_create(path, 0600, &fd, &err), MD_ERR_INVALID, "taken");
	cr_assert(strstr(err.message, "File exists"), "%s", err.message);
	assert_is(other, "precious");
}

Test(file, appends_without_waiting_for_a_reader)
{
	cr_assert(mkfifo(path, 0644) == 0, "a pipe");
	cr_assert(md_file_open_append(path, false) < 0 && errno == ENXIO, "nobody reads it");
	cr_assert(md_file_open_append("/dev/null", true) < 0 && errno == EINVAL, "no regular file");
	put(other, "one ");
	int fd = md_file_open_append(other, true);
	cr_assert(fd >= 0 && write(fd, "two", 3) == 3, "append");
	close(fd);
	assert_is(other, "one two");
}
