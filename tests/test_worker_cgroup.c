/* SPDX-License-Identifier: Apache-2.0 */
/* Cgroups of engines: where the process's own lies by the kernel's texts, what folders are called, and what files in them say. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/engine/cgroup.h"
#include "worker/engine/cgroup_folder.h"
#include "worker/engine/cgroup_place.h"

#define V1 "33 32 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define TMPFS "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
#define HYBRID TMPFS V1 "41 32 0:38 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define UNIFIED "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"
#define READ_ONLY "30 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev - cgroup2 cgroup rw\n"

/* ---- where it is ---- */

static void assert_place(const char *wanted, const char *cgroups, const char *mounts)
{
	char path[PATH_MAX] = "";
	struct md_error err = {0};
	cr_assert_eq(md_cgroup_place(cgroups, mounts, path, &err), MD_OK, "%s: %s", cgroups, err.message);
	cr_assert_str_eq(path, wanted);
}

static void assert_refused(const char *why, const char *cgroups, const char *mounts)
{
	char path[PATH_MAX] = "untouched";
	struct md_error err = {0};
	cr_assert_neq(md_cgroup_place(cgroups, mounts, path, &err), MD_OK, "%s became %s", cgroups, path);
	cr_assert(strstr(err.message, why), "%s", err.message);
	cr_assert_str_eq(path, "untouched");
}

Test(worker_cgroup, the_place_is_found)
{
	assert_place("/sys/fs/cgroup/system.slice/medusa-worker.service", "0::/system.slice/medusa-worker.service\n",
		     UNIFIED);
	assert_place("/sys/fs/cgroup", "0::/\n", UNIFIED);
	assert_place("/sys/fs/cgroup/unified/a", "9:name=systemd:/x\n4:memory:/process/1\n0::/a\n", HYBRID);
	assert_place("/sys/fs/cgroup/a:b/..c", "0::/a:b/..c", UNIFIED);
	cr_log_info("a mount of a part has the rest of the path below it");
	assert_place("/mnt/c", "0::/a/b/c\n", "1 2 0:26 /a/b /mnt rw - cgroup2 none rw\n");
	assert_place("/mnt", "0::/a/b\n", "1 2 0:26 /a/b /mnt rw - cgroup2 none rw\n");
	assert_place("/sys/fs/cgroup/a/bc", "0::/a/bc\n", "1 2 0:26 /a/b /mnt rw - cgroup2 none rw\n" UNIFIED);
	cr_log_info("one that cannot be written to is passed over");
	assert_place("/other/a", "0::/a\n", READ_ONLY "1 2 0:26 / /other rw - cgroup2 none rw\n");
}

Test(worker_cgroup, mount_points_may_have_any_characters)
{
	assert_place("/a b\tc\nd\\e/f", "0::/f\n", "1 2 0:26 / /a\\040b\\011c\\012d\\134e rw - cgroup2 none rw\n");
	assert_place("/a\\04", "0::/\n", "1 2 0:26 / /a\\04 rw - cgroup2 none rw\n");
	assert_place("/x/b", "0::/a b/b\n", "1 2 0:26 /a\\040b /x rw - cgroup2 none rw\n");
	assert_place("/y/b", "0::/b\n",
		     "1 2 0:26 / /y rw - shared:1 - cgroup2 none rw\n1 2 0:26 / /y rw - cgroup2 n rw\n");
}

Test(worker_cgroup, what_is_unusual_is_refused)
{
	char deep[2 * PATH_MAX];
	assert_refused("no cgroups of version 2", "", UNIFIED);
	assert_refused("no cgroups of version 2", "4:memory:/a\n10::/b\n", UNIFIED);
	assert_refused("no path", "0::\n", UNIFIED);
	assert_refused("no path", "0::a\n", UNIFIED);
	assert_refused("outside of its namespace", "0::/..\n", UNIFIED);
	assert_refused("outside of its namespace", "0::/../../x\n", UNIFIED);
	assert_refused("outside of its namespace", "0::/a/../b\n", UNIFIED);
	assert_refused("was removed", "0::/a (deleted)\n", UNIFIED);
	assert_refused("no mount", "0::/a\n", "");
	assert_refused("no mount", "0::/a\n", TMPFS V1);
	assert_refused("no mount", "0::/a\n", "1 2 0:26 /b /mnt rw - cgroup2 none rw\n");
	assert_refused("no mount", "0::/a\n", "1 2 0:26 /../.. /mnt rw - cgroup2 none rw\n");
	assert_refused("read-only at /sys/fs/cgroup/a", "0::/a\n", READ_ONLY);
	assert_refused("read-only", "0::/a\n", "1 2 0:26 / /mnt rw - cgroup2 none ro,nsdelegate\n");
	cr_log_info("lines that break off, or have no sense");
	assert_refused("no mount", "0::/a\n",
		       "1 2 0:26 / /mnt rw - cgroup2\n1 2 0:26 /\n\n - - -\n1 2 3 / mnt rw - cgroup2 a b");
	memset(deep, 'x', sizeof(deep) - 1);
	memcpy(deep, "0::/", 4);
	deep[sizeof(deep) - 1] = '\0';
	assert_refused("a long one", deep, UNIFIED);
	memset(deep, ' ', sizeof(deep) - 1);
	assert_refused("no mount", "0::/a\n", deep);
}

/* ---- names ---- */

static void assert_name(const char *wanted, const char *model)
{
	char name[MD_CGROUP_NAME_BYTES];
	md_cgroup_name("0123456789abcdef", model, 0x1f, name);
	cr_assert_str_eq(name, wanted);
}

Test(worker_cgroup, names_are_safe)
{
	char name[MD_CGROUP_NAME_BYTES], prefix[MD_CGROUP_NAME_BYTES], *long_one = malloc(4097);
	assert_name("medusa-0123456789abcdef-qwen-1f", "qwen");
	assert_name("medusa-0123456789abcdef-org_model_v1_q4-1f", "org/model.v1:q4");
	assert_name("medusa-0123456789abcdef-______etc_passwd-1f", "../../etc/passwd");
	assert_name("medusa-0123456789abcdef-_-1f", "\n");
	assert_name("medusa-0123456789abcdef-__-1f", "\xc3\xa4");
	assert_name("medusa-0123456789abcdef--1f", "");
	memset(long_one, 'a', 4096);
	long_one[4096] = '\0';
	md_cgroup_name("0123456789abcdef", long_one, ~0ull, name);
	cr_assert_str_eq(name, "medusa-0123456789abcdef-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-ffffffffffffffff");
	size_t size = md_cgroup_name_prefix("0123456789abcdef", prefix);
	cr_assert(size == strlen(prefix) && !strncmp(name, prefix, size));
	cr_assert(prefix[size - 1] == '-', "a tag that begins with this one would have the same prefix");
	free(long_one);
}

/* ---- files ---- */

static char folder[] = "/tmp/medusa-cgroup.XXXXXX";
static int opened = -1;

static void make_folder(void)
{
	cr_assert_not_null(mkdtemp(folder));
	opened = open(folder, O_RDONLY | O_DIRECTORY);
	cr_assert_geq(opened, 0);
}

static void remove_folder(void)
{
	unlinkat(opened, "memory.current", 0);
	unlinkat(opened, "cgroup.events", 0);
	close(opened);
	rmdir(folder);
}

static void write_as(const char *name, const char *text)
{
	int fd = openat(opened, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

Test(worker_cgroup, memory_is_a_number, .init = make_folder, .fini = remove_folder)
{
	static const char *const others[] = {"",   "\n",    "max\n", "-1\n",
					     "12", "12 \n", " 12\n", "99999999999999999999\n"};
	uint64_t bytes = 7;
	cr_assert(!md_cgroup_folder_memory(opened, &bytes), "there is no such file");
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		write_as("memory.current", others[i]);
		cr_assert(!md_cgroup_folder_memory(opened, &bytes), "'%s'", others[i]);
	}
	cr_assert_eq(bytes, 7);
	write_as("memory.current", "8589934592\n");
	cr_assert(md_cgroup_folder_memory(opened, &bytes) && bytes == UINT64_C(8589934592));
}

Test(worker_cgroup, populated_is_a_line, .init = make_folder, .fini = remove_folder)
{
	cr_assert(!md_cgroup_folder_is_populated(opened), "one that was removed has no processes");
	write_as("cgroup.events", "populated 0\nfrozen 1\n");
	cr_assert(!md_cgroup_folder_is_populated(opened));
	write_as("cgroup.events", "frozen 0\npopulated 1\n");
	cr_assert(md_cgroup_folder_is_populated(opened));
}

enum { REMOVERS = 4, ROUNDS = 5, LEVELS = 60 };

static void make_levels(const char *path)
{
	char deep[PATH_MAX + LEVELS * 2];
	int size = snprintf(deep, sizeof(deep), "%s", path);
	for (int level = 0; level < LEVELS; level++) {
		size += snprintf(deep + size, sizeof(deep) - (size_t)size, "/f");
		cr_assert_eq(mkdir(deep, 0755), 0, "%s", deep);
	}
}

/* Exits with 0 if the folder is gone when it is told so. */
static pid_t start_remover(const char *path, const int begin[2])
{
	char byte;
	pid_t pid = fork();
	if (pid)
		return pid;
	close(begin[1]);
	_exit(read(begin[0], &byte, 1) != 0 || !md_cgroup_folder_remove(path) || !access(path, F_OK));
}

Test(worker_cgroup, several_processes_remove_one_folder)
{
	struct md_cgroups *cgroups;
	struct md_error err = {0};
	cr_assert_eq(md_cgroups_create("auto", NULL, &cgroups, &err), MD_OK);
	if (!cgroups)
		cr_skip("no cgroup can be made here");
	for (int round = 0; round < ROUNDS; round++) {
		struct md_cgroup *made = md_cgroup_create(cgroups, "levels", &err);
		pid_t removers[REMOVERS];
		int begin[2], ended;
		cr_assert(made && !pipe(begin), "%s", err.message);
		make_levels(md_cgroup_path(made));
		for (int i = 0; i < REMOVERS; i++)
			removers[i] = start_remover(md_cgroup_path(made), begin);
		close(begin[0]);
		close(begin[1]);
		for (int i = 0; i < REMOVERS; i++) {
			cr_assert_eq(waitpid(removers[i], &ended, 0), removers[i]);
			cr_expect_eq(ended, 0, "round %d, process %d: the folder was there, or said to be", round, i);
		}
		md_cgroup_remove(made);
	}
	md_cgroups_destroy(cgroups);
}

Test(worker_cgroup, folders_of_other_file_systems_are_none, .init = make_folder, .fini = remove_folder)
{
	struct md_error err = {0};
	cr_assert_eq(md_cgroup_folder_open(folder), -1);
	cr_assert_eq(md_cgroups_check(folder, true, &err), MD_ERR_INVALID);
	cr_assert(strstr(err.message, folder) && strstr(err.message, "no cgroup of version 2"), "%s", err.message);
	cr_assert_eq(md_cgroups_check("/no/such/folder", true, &err), MD_ERR_INVALID);
	cr_assert(strstr(err.message, "medusa.cgroup is /no/such/folder") && strstr(err.message, "No such file"), "%s",
		  err.message);
	cr_assert(md_cgroups_check("auto", true, &err) == MD_OK && md_cgroups_check("off", true, &err) == MD_OK);
	cr_assert_null(md_cgroup_open(folder, getpid(), &err));
	cr_assert(strstr(err.message, "not a cgroup of an engine") || strstr(err.message, "is in"), "%s", err.message);
}
