/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that reads notes as they come; a process that is broken, and the command it belongs to, get SIGTERM, then
 * SIGKILL. */
#include "tools/repeat_watch.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/note.h"

#define LOOK_MS 20
#define GRACE_MS 3000
#define PROCESSES_MOST 1024

struct process {
	pid_t pid, parent;
	char state;
	unsigned long long started; /* tells it from a later one of its number */
};

/* ---- processes ---- */

static bool read_process(pid_t pid, struct process *out)
{
	char path[64], line[1024];
	MD_AUTO_FILE FILE *file = NULL;
	const char *end;
	int parent;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return false;
	end = strrchr(line, ')'); /* a name may hold anything */
	if (!end || sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			   &out->state, &parent, &out->started) != 3)
		return false;
	out->pid = pid;
	out->parent = (pid_t)parent;
	return true;
}

static size_t list_processes(struct process list[PROCESSES_MOST])
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	size_t count = 0;

	while (folder && count < PROCESSES_MOST && (entry = readdir(folder)))
		if (isdigit((unsigned char)*entry->d_name))
			count += read_process((pid_t)atoi(entry->d_name), &list[count]);
	if (folder)
		closedir(folder);
	return count;
}

/* The command that we started, of which this process is a part; itself, if it has left us. */
static pid_t command_of(pid_t pid)
{
	struct process process;

	for (pid_t at = pid; at > 1 && read_process(at, &process); at = process.parent)
		if (process.parent == getpid())
			return at;
	return pid;
}

/* What a process has started, and what these have, moved to the front. */
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
		i = kept - 1; /* whoever it has started may stand before it */
	}
	return kept;
}

static bool is_alive(const struct process *process)
{
	struct process now;

	return read_process(process->pid, &now) && now.started == process->started && now.state != 'Z';
}

static void wait_ms(long ms)
{
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

static void end_command(pid_t broken)
{
	struct process *list = calloc(PROCESSES_MOST, sizeof(*list));
	pid_t command = command_of(broken);
	bool alive = true;
	size_t count;

	if (!list)
		return;
	count = keep_family(list, list_processes(list), command, broken);
	kill(command, SIGTERM);
	if (command != broken)
		kill(broken, SIGTERM);
	for (int passed = 0; alive && passed < GRACE_MS; passed += LOOK_MS) {
		alive = false;
		for (size_t i = 0; i < count; i++)
			alive |= is_alive(&list[i]);
		if (alive)
			wait_ms(LOOK_MS);
	}
	for (size_t i = 0; i < count; i++)
		if (is_alive(&list[i]))
			kill(list[i].pid, SIGKILL);
	free(list);
}

/* ---- the thread ---- */

static pid_t find_broken(const char *path)
{
	struct md_note *notes = NULL;
	struct md_error err;
	size_t count = 0;
	pid_t broken = 0;

	if (md_note_list(path, &notes, &count, &err) != MD_OK)
		return 0;
	for (size_t i = 0; i < count && !broken; i++)
		if (notes[i].pid > 1 && (notes[i].event == MD_NOTE_BROKE || notes[i].event == MD_NOTE_HUNG))
			broken = (pid_t)notes[i].pid;
	md_note_list_finish(notes, count);
	return broken;
}

static void *watch_main(void *argument)
{
	struct md_repeat_watch *watch = argument;
	pid_t broken = 0;

	while (!broken && !atomic_load(&watch->stop)) {
		broken = find_broken(watch->notes);
		if (!broken)
			wait_ms(LOOK_MS);
	}
	if (broken)
		end_command(broken);
	return NULL;
}

enum md_status md_repeat_watch_start(struct md_repeat_watch *watch, const char *notes, struct md_error *err)
{
	sigset_t all, before;
	int failure;

	watch->notes = notes;
	atomic_init(&watch->stop, false);
	sigfillset(&all); /* signals are the main thread's, which may hold them up */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failure = pthread_create(&watch->thread, NULL, watch_main, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure ? md_error_set(err, MD_ERR_NO_MEMORY, "starting a thread: %s", strerror(failure)) : MD_OK;
}

void md_repeat_watch_stop(struct md_repeat_watch *watch)
{
	atomic_store(&watch->stop, true);
	pthread_join(watch->thread, NULL);
}
