/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that reads notes as they come. A process that is broken, and the command it belongs to, get SIGTERM, then
 * SIGKILL.
 */
#include "tools/repeat_watch.h"

#include <string.h>

#include "base/note.h"
#include "base/thread.h"
#include "tools/family.h"

#define LOOK_MS 20

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
			md_family_wait_ms(LOOK_MS);
	}
	if (broken)
		md_family_end(md_family_command_of(broken), broken);
	return NULL;
}

enum md_status md_repeat_watch_start(struct md_repeat_watch *watch, const char *notes, struct md_error *err)
{
	int failure;
	watch->notes = notes;
	atomic_init(&watch->stop, false);
	failure = md_thread_start(&watch->thread, watch_main, watch);
	return failure ? md_error_set(err, MD_ERR_NO_MEMORY, "starting a thread: %s", strerror(failure)) : MD_OK;
}

void md_repeat_watch_stop(struct md_repeat_watch *watch)
{
	atomic_store(&watch->stop, true);
	pthread_join(watch->thread, NULL);
}
