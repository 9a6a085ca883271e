/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/process_facts.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define ENVIRONMENT_MAX (256u << 10)

/* What the file holds, with a NUL behind it; bytes that were read. */
static size_t read_text(const char *path, char *text, size_t size)
{
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	size_t used = file ? fread(text, 1, size - 1, file) : 0;
	text[used] = '\0';
	return used;
}

#define STAT_BYTES 1024u
#define IS_EXITING 4u /* PF_EXITING, of the flags in proc_pid_stat(5) */

/* A field of /proc/PID/stat by its number in proc_pid_stat(5), from 3 on; NULL: there is no such process. */
static const char *find_stat(pid_t pid, unsigned wanted, char text[STAT_BYTES])
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	read_text(path, text, STAT_BYTES);
	const char *at = strrchr(text, ')'); /* a command's name may have spaces */
	for (unsigned field = 2; at && field < wanted; field++)
		at = strchr(at + 1, ' ');
	return at ? at + 1 : NULL;
}

uint64_t md_process_began(pid_t pid)
{
	char text[STAT_BYTES];
	const char *at = find_stat(pid, 22, text);
	return at ? strtoull(at, NULL, 10) : 0;
}

/* A process is said to end before its files are closed, and long before all of its memory is free. */
bool md_process_is_ending(pid_t pid)
{
	char text[STAT_BYTES];
	const char *state = find_stat(pid, 3, text), *flags = state ? find_stat(pid, 9, text) : NULL;
	return !flags || *state == 'Z' || *state == 'X' || (strtoul(flags, NULL, 10) & IS_EXITING);
}

/* The first thread may have ended before the others, which still have all that the process had. */
static bool is_over(const char *text)
{
	const char *at = strrchr(text, ')');
	unsigned threads = 0;
	char state = 0;
	return at &&
	       sscanf(at, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u", &state,
		      &threads) == 2 &&
	       (state == 'Z' || state == 'X') && threads < 2;
}

static bool lives_in(pid_t pid, pid_t group)
{
	char text[STAT_BYTES];
	const char *at = find_stat(pid, 5, text);
	return at && strtol(at, NULL, 10) == group && !is_over(text);
}

bool md_process_group_lives(pid_t group)
{
	if (kill(-group, 0) && errno == ESRCH)
		return false;
	DIR *processes = opendir("/proc");
	bool lives = !processes;
	for (const struct dirent *entry; !lives && (entry = readdir(processes));)
		lives = *entry->d_name >= '0' && *entry->d_name <= '9' && lives_in((pid_t)atoi(entry->d_name), group);
	if (processes)
		closedir(processes);
	return lives;
}

bool md_process_is_own(pid_t pid)
{
	char path[64], text[2048];
	unsigned effective;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	read_text(path, text, sizeof(text));
	const char *line = strstr(text, "\nUid:");
	return line && sscanf(line, "\nUid: %*u %u", &effective) == 1 && effective == geteuid();
}

bool md_process_is_child(pid_t pid)
{
	siginfo_t ignored;
	return !waitid(P_PID, (id_t)pid, &ignored, WEXITED | WNOHANG | WNOWAIT);
}

void md_process_variable(pid_t pid, const char *name, char *value, size_t size)
{
	char path[64];
	MD_AUTO_FREE char *text = malloc(ENVIRONMENT_MAX + 1);
	size_t length = strlen(name);
	*value = '\0';
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	size_t used = text ? read_text(path, text, ENVIRONMENT_MAX + 1) : 0;
	for (const char *at = text; at && at < text + used; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			snprintf(value, size, "%s", at + length + 1);
}

/* C libraries before glibc 2.36 have no function for it. */
int md_process_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

void md_process_boot(char *id, size_t size)
{
	read_text("/proc/sys/kernel/random/boot_id", id, size);
	id[strcspn(id, "\n")] = '\0';
}
