/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a trace that is being written: who may read it, whatever the umask and whatever was there before. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/trace/part_file.h"

static char folder[] = "/tmp/medusa-part.XXXXXX", path[64], part[80];

static void setup(void)
{
	cr_assert(mkdtemp(folder) != NULL, "%s", strerror(errno));
	snprintf(path, sizeof(path), "%s/a.mtrace", folder);
	snprintf(part, sizeof(part), "%s.part", path);
	umask(0);
}

static mode_t mode_of(const char *name)
{
	struct stat info;
	cr_assert(stat(name, &info) == 0, "%s: %s", name, strerror(errno));
	return info.st_mode & 0777;
}

static void open_part(int flags)
{
	struct md_trace_part opened = MD_TRACE_PART_NONE;
	struct md_error err = {0};
	cr_assert(md_trace_part_open(path, flags, &opened, &err) == MD_OK, "%s", err.message);
	md_trace_part_close(&opened);
}

static void make(mode_t mode)
{
	int fd = open(part, O_WRONLY | O_CREAT | O_EXCL, 0600);
	cr_assert(fd >= 0 && write(fd, "kept", 4) == 4 && fchmod(fd, mode) == 0, "%s", strerror(errno));
	close(fd);
}

Test(part_file, only_its_owner_may_read_it, .init = setup)
{
	static const mode_t modes[] = {0644, 0640, 0664, 0777, 0601, 0600};
	open_part(O_RDWR | O_CREAT);
	cr_assert_eq(mode_of(part), 0600, "a new one: %o", mode_of(part));
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		cr_assert_eq(unlink(part), 0, "%s", strerror(errno));
		make(modes[i]);
		open_part(O_RDWR | O_CREAT);
		cr_assert(!(mode_of(part) & 0077), "one that was %o is %o", modes[i], mode_of(part));
	}
}

/* With root's rights, medusa-capture makes it for an engine that gives up its own. */
Test(part_file, what_root_has_made_for_everybody_stays_so, .init = setup)
{
	make(0666);
	open_part(O_RDWR | O_CREAT);
	cr_assert_eq(mode_of(part), geteuid() ? 0600 : 0666, "%o", mode_of(part));
}

Test(part_file, should_fail_a_link_is_neither_followed_nor_changed, .init = setup)
{
	char other[80];
	struct md_trace_part opened = MD_TRACE_PART_NONE;
	struct md_error err = {0};
	make(0644);
	snprintf(other, sizeof(other), "%s/other", folder);
	cr_assert(rename(part, other) == 0 && symlink("other", part) == 0, "%s", strerror(errno));
	cr_assert_neq(md_trace_part_open(path, O_RDWR | O_CREAT, &opened, &err), MD_OK, "it is followed");
	cr_assert_eq(mode_of(other), 0644, "%o", mode_of(other));
}
