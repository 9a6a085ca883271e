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
#include "base/clock.h"

#define LOOK_MS 20
#define GRACE_MS 3000
#define END_MOST_NS 15000000000u
#define EMPTY_LOOKS 3
#define EMPTY_MS 5
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

/*
 * Processes start others while they are ended, and one that is read from /proc just as its parent ends seems to belong to nobody.
 * So it is looked again until all have ended, and all that are found then are ended, too.
 */
struct ending {
	struct processes found; /* in all looks, the ended ones among them */
	struct processes first; /* all processes as it began; nothing is left out of them for `all` */
	pid_t session;          /* of those that are ended; ANY_SESSION */
	bool all;               /* whatever this program has started; otherwise what those in `found` have started */
	int number;             /* the signal that each one gets as it is found; 0: none */
};

static bool holds(const struct processes *all, const struct process *process)
{
	const struct process *found = find_process(all, process->pid);
	return found && found->started == process->started;
}

static bool has_session(const struct processes *all, pid_t session)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->list[i].session == session)
			return true;
	return false;
}

/* Orphans become this program's children, and are known by their session. */
static bool is_of_found(const struct ending *ending, const struct processes *now, const struct process *process)
{
	const struct process *parent = find_process(now, process->parent);
	if (parent && parent->pid != getpid() && holds(&ending->found, parent))
		return true;
	return process->parent == getpid() && !holds(&ending->first, process) &&
	       has_session(&ending->found, process->session);
}

/* False: there is nothing new. */
static bool take_new(struct ending *ending, const struct process *process)
{
	if (process->pid == getpid() || process->state == 'Z' || holds(&ending->found, process) ||
	    (ending->session != ANY_SESSION && process->session != ending->session) ||
	    !add_process(&ending->found, process))
		return false;
	if (ending->number)
		kill(process->pid, ending->number);
	return true;
}

/* Returns how many new ones there are. */
static size_t look_again(struct ending *ending)
{
	struct processes now = {0};
	size_t added = 0, before;
	list_processes(&now);
	size_t count = ending->all ? keep_family(now.list, now.count, getpid(), getpid()) : now.count;
	do {
		before = added;
		for (size_t i = 0; i < count; i++)
			if (ending->all || is_of_found(ending, &now, &now.list[i]))
				added += take_new(ending, &now.list[i]);
	} while (added > before);
	free(now.list);
	return added;
}

static bool any_alive(const struct processes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (is_alive(&all->list[i]))
			return true;
	return false;
}

static void kill_all(const struct processes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (is_alive(&all->list[i]))
			kill(all->list[i].pid, SIGKILL);
}

/* Waits until all have ended, those that are found meanwhile, too. True: they have. */
static bool wait_for_found(struct ending *ending, bool kills)
{
	for (int passed = 0; passed < GRACE_MS; passed += LOOK_MS) {
		size_t added = look_again(ending);
		if (!added && !any_alive(&ending->found))
			return true;
		if (kills)
			kill_all(&ending->found);
		md_family_wait_ms(LOOK_MS);
	}
	return false;
}

/* A device driver may hold one up. True: all have ended. */
static bool end_found(struct ending *ending)
{
	return wait_for_found(ending, false) || wait_for_found(ending, true);
}

bool md_family_end(pid_t command, pid_t other)
{
	struct ending ending = {.session = ANY_SESSION};
	list_processes(&ending.first);
	struct processes copy = {0};
	for (size_t i = 0; i < ending.first.count; i++)
		add_process(&copy, &ending.first.list[i]);
	size_t count = keep_family(copy.list, copy.count, command, other);
	for (size_t i = 0; i < count; i++)
		take_new(&ending, &copy.list[i]);
	kill(command, SIGTERM);
	if (command != other)
		kill(other, SIGTERM);
	bool ended = end_found(&ending);
	free(copy.list);
	free(ending.first.list);
	free(ending.found.list);
	return ended;
}

/* Reaps those that have ended. False: there is no child, and so nobody whom this program has started, if it takes in orphans. */
static bool has_children(void)
{
	pid_t ended;
	while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
		;
	return ended == 0;
}

static void say_left(const struct processes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (is_alive(&all->list[i]))
			fprintf(stderr,
				"process %d (%s), which the command has started, does not end, although it was told "
				"to and killed: end it by hand\n",
				(int)all->list[i].pid, all->list[i].name);
}

/* A look at /proc that finds nobody is no proof: a parent may have ended during it. */
static void end_started(int number, pid_t session)
{
	struct ending ending = {.session = session, .all = true, .number = number};
	uint64_t until = md_clock_ns() + END_MOST_NS;
	for (int empty = 0; empty < EMPTY_LOOKS && has_children() && md_clock_ns() < until;) {
		empty = look_again(&ending) ? 0 : empty + 1;
		if (!empty)
			end_found(&ending);
		else
			md_family_wait_ms(EMPTY_MS);
	}
	say_left(&ending.found);
	free(ending.found.list);
}

void md_family_end_left(int number)
{
	end_started(number, getsid(0));
}

void md_family_end_all(int number)
{
	end_started(number, ANY_SESSION);
}
