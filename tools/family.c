/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a command, from /proc: who started whom, and how to end them all. */
#include "tools/family.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"

#define LOOK_MS 20
#define GRACE_MS 3000
#define END_TURNS 5
#define ANY_SESSION ((pid_t)-1) /* 0 is a session, too: one whose leader is outside the process's namespace */

struct process {
	pid_t pid, parent, session;
	char state;
	char name[16];
	unsigned long long started; /* distinguishes it from a later process with the same id */
};

/* ---- who is there ---- */

static bool read_process(pid_t pid, struct process *out)
{
	char path[64], line[1024];
	MD_AUTO_FILE FILE *file = NULL;
	const char *end;
	int parent, session;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return false;
	end = strrchr(line, ')'); /* a name may hold anything */
	if (!end || sscanf(end + 1, " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			   &out->state, &parent, &session, &out->started) != 4)
		return false;
	const char *name = strchr(line, '(');
	snprintf(out->name, sizeof(out->name), "%.*s", name ? (int)(end - name - 1) : 0, name ? name + 1 : "");
	out->pid = pid;
	out->parent = (pid_t)parent;
	out->session = (pid_t)session;
	return true;
}

struct processes {
	struct process *list; /* owned */
	size_t count, room;
};

static bool add_process(struct processes *all, const struct process *process)
{
	if (!MD_ARRAY_GROW(all->list, all->count, all->room))
		return false;
	all->list[all->count++] = *process;
	return true;
}

static void list_processes(struct processes *all)
{
	DIR *folder = opendir("/proc");
	struct process process;
	struct dirent *entry;
	bool room = true;
	while (folder && room && (entry = readdir(folder)))
		if (isdigit((unsigned char)*entry->d_name) && read_process((pid_t)atoi(entry->d_name), &process))
			room = add_process(all, &process);
	if (folder)
		closedir(folder);
}

pid_t md_family_command_of(pid_t pid)
{
	struct process process;
	for (pid_t at = pid; at > 1 && read_process(at, &process); at = process.parent)
		if (process.parent == getpid())
			return at;
	return pid;
}

/* Moves the descendants of the process to the front, and returns how many there are. */
static size_t keep_family(struct process *list, size_t count, pid_t first, pid_t other)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++) {
		bool ours = list[i].pid == first || list[i].pid == other;
		for (size_t j = 0; j < kept; j++)
			ours |= list[i].parent == list[j].pid;
		if (!ours)
			continue;
		struct process found = list[i];
		list[i] = list[kept];
		list[kept++] = found;
		i = kept - 1; /* a child may stand before its parent in the list */
	}
	return kept;
}

size_t md_family_tree(pid_t pid, pid_t *pids, size_t room)
{
	struct processes all = {0};
	list_processes(&all);
	size_t count = keep_family(all.list, all.count, pid, pid), at = 1;
	for (size_t i = 0; i < count; i++) {
		if (all.list[i].pid == pid)
			pids[0] = pid;
		else if (at < room)
			pids[at++] = all.list[i].pid;
	}
	free(all.list);
	return count;
}

static const struct process *find_process(const struct processes *all, pid_t pid)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->list[i].pid == pid)
			return &all->list[i];
	return NULL;
}

size_t md_family_named(const char *name, pid_t *pids, size_t room)
{
	struct processes all = {0};
	size_t count = 0;
	list_processes(&all);
	for (size_t i = 0; i < all.count; i++) {
		const struct process *parent = find_process(&all, all.list[i].parent);
		if (strncmp(all.list[i].name, name, sizeof(all.list[i].name) - 1) || all.list[i].state == 'Z' ||
		    all.list[i].pid == getpid() || (parent && !strncmp(parent->name, name, sizeof(parent->name) - 1)))
			continue;
		if (count < room)
			pids[count] = all.list[i].pid;
		count++;
	}
	free(all.list);
	return count;
}

static bool is_alive(const struct process *process)
{
	struct process now;
	return read_process(process->pid, &now) && now.started == process->started && now.state != 'Z';
}

void md_family_wait_ms(long ms)
{
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&time, NULL);
}

/* ---- ending them ---- */

static bool any_alive(const struct process *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_alive(&list[i]))
			return true;
	return false;
}

static void wait_for_all(const struct process *list, size_t count)
{
	for (int passed = 0; passed < GRACE_MS && any_alive(list, count); passed += LOOK_MS)
		md_family_wait_ms(LOOK_MS);
}

static void wait_and_kill(const struct process *list, size_t count)
{
	wait_for_all(list, count);
	for (size_t i = 0; i < count; i++)
		if (is_alive(&list[i]))
			kill(list[i].pid, SIGKILL);
	wait_for_all(list, count); /* a device driver may hold a process up */
}

void md_family_end(pid_t command, pid_t other)
{
	struct processes all = {0};
	list_processes(&all);
	size_t count = keep_family(all.list, all.count, command, other);
	kill(command, SIGTERM);
	if (command != other)
		kill(other, SIGTERM);
	wait_and_kill(all.list, count);
	free(all.list);
}

/* Keeps processes that run, without this one. */
static size_t keep_running(struct process *list, size_t count, pid_t session)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++)
		if (list[i].pid != getpid() && (session == ANY_SESSION || list[i].session == session) &&
		    list[i].state != 'Z')
			list[kept++] = list[i];
	return kept;
}

static size_t end_started(int number, pid_t session)
{
	struct processes all = {0};
	list_processes(&all);
	size_t count = keep_running(all.list, keep_family(all.list, all.count, getpid(), getpid()), session);
	for (size_t i = 0; number && i < count; i++)
		kill(all.list[i].pid, number);
	wait_and_kill(all.list, count);
	free(all.list);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return count;
}

void md_family_end_left(int number)
{
	end_started(number, getsid(0));
}

/* One that is ended may start another one meanwhile. */
void md_family_end_all(int number)
{
	size_t before = SIZE_MAX, now = 0;
	for (int turn = 0; turn < END_TURNS && (now = end_started(number, ANY_SESSION)) && now < before; turn++)
		before = now;
}
