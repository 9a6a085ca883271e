/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what an engine noted before it broke, and keeps the list of tests that are left out. */
#include "tools/repeat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "tools/capture_ranks.h"
#include "tools/repeat_watch.h"
#include "tools/stop.h"

#define ENV_MOST 16

/* ---- files ---- */

enum md_status md_repeat_init(struct md_repeat *repeat, const struct md_command *command,
			      const struct md_workplace *workplace, struct md_error *err)
{
	*repeat = (struct md_repeat){.command = command, .workplace = workplace, .most = MD_REPEAT_MOST};
	MD_FORWARD(md_workplace_file(workplace, "notes", ".txt", repeat->notes, err));
	MD_FORWARD(md_workplace_file(workplace, "left-out", ".txt", repeat->left_out, err));
	return md_workplace_file(workplace, "told", ".txt", repeat->told, err);
}

void md_repeat_finish(struct md_repeat *repeat)
{
	md_note_list_finish(repeat->left, repeat->count);
	*repeat = (struct md_repeat){0};
}

/* A note can then be added to the file even if the disk is full, because a block of it is taken. */
static bool empty_notes(const char *path)
{
	MD_AUTO_FILE FILE *file = md_file_open_output(path);
	return file && fputc('\n', file) != EOF && !fflush(file);
}

static enum md_status write_left_out(const struct md_repeat *repeat, struct md_error *err)
{
	FILE *out = md_file_open_output(repeat->left_out);
	bool written = out != NULL;
	for (size_t i = 0; written && i < repeat->count; i++)
		written = md_note_write(out, &repeat->left[i]);
	if (out && fclose(out))
		written = false;
	if (written && empty_notes(repeat->notes) && !truncate(repeat->told, 0))
		return MD_OK;
	return md_error_set(err, MD_ERR_IO, "%s: %s", written ? repeat->workplace->folder : repeat->left_out,
			    strerror(errno));
}

/* ---- who broke it ---- */

/* True if no later note of that process says how the test went on. */
static bool stayed_open(const struct md_note *notes, size_t at, size_t count)
{
	for (size_t i = at + 1; i < count; i++)
		if (notes[i].pid == notes[at].pid && notes[i].event != MD_NOTE_STOPPED)
			return false;
	return notes[at].event == MD_NOTE_BEGUN;
}

/* Signals that ask a command to end: no test has broken it. */
static bool was_asked_to_end(int exit_code)
{
	return exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM || exit_code == 128 + SIGHUP;
}

/*
 * The note of a test that reports the break itself, otherwise of a test that was under way when the command failed.
 * NULL: none.
 */
static const struct md_note *find_culprit(const struct md_note *notes, size_t count, int exit_code)
{
	for (size_t i = 0; i < count; i++)
		if (notes[i].event == MD_NOTE_BROKE || notes[i].event == MD_NOTE_HUNG)
			return &notes[i];
	for (size_t i = 0; exit_code && !was_asked_to_end(exit_code) && i < count; i++)
		if (stayed_open(notes, i, count))
			return &notes[i];
	return NULL;
}

/* A trial of an address concerns a parameter of a kernel, and costs no graph. */
static bool is_trial(const struct md_note_of *of)
{
	return !strcmp(of->test, MD_NOTE_BORDER);
}

static void name_graph(const struct md_note_of *of, char text[160])
{
	if (of->label && is_trial(of))
		snprintf(text, 160, "%.158s", of->label);
	else if (of->label)
		snprintf(text, 160, "graph %.100s/%u", of->label, of->batch);
	else
		snprintf(text, 160, "graph number %llu, which has no label", (unsigned long long)of->graph);
}

static bool describe(const struct md_note *culprit, int exit_code, char **text)
{
	const char *between = *culprit->why ? ": " : "";
	int size = culprit->event == MD_NOTE_BROKE
		       ? asprintf(text, "the %s broke the engine: %s", culprit->of.test, culprit->why)
		   : culprit->event == MD_NOTE_HUNG ? asprintf(text, "the %s hung: %s", culprit->of.test, culprit->why)
						    : asprintf(text, "the command ended with %d in the %s%s%s",
							       exit_code, culprit->of.test, between, culprit->why);
	if (size < 0)
		*text = NULL;
	return size >= 0;
}

/* text: owned, whether this succeeds or not. */
static enum md_status leave_out(struct md_repeat *repeat, const struct md_note_of *of, char *text, struct md_error *err)
{
	bool room = MD_ARRAY_EXTEND(repeat->left, repeat->count);
	char *label = of->label ? strdup(of->label) : NULL, *all = NULL;
	MD_AUTO_FREE char *why = text;
	/* one block holds all strings, as in a note that was read */
	if (room && asprintf(&all, "%s%c%s%c%s", of->test, 0, label ? label : "", 0, why) < 0)
		all = NULL;
	if (!all || (of->label && !label)) {
		free(label);
		free(all);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what is left out");
	}
	struct md_note *note = &repeat->left[repeat->count++];
	*note = (struct md_note){.event = MD_NOTE_LEFT_OUT, .of = *of, .text = all};
	note->of.test = all;
	note->of.label = of->label ? all + strlen(all) + 1 : NULL;
	note->why = all + strlen(all) + 1 + (label ? strlen(label) : 0) + 1;
	free(label);
	return MD_OK;
}

static bool is_left_out(const struct md_repeat *repeat, const struct md_note_of *of)
{
	for (size_t i = 0; i < repeat->count; i++)
		if (md_note_same(&repeat->left[i].of, of))
			return true;
	return false;
}

static enum md_status take_culprit(struct md_repeat *repeat, const struct md_note *culprit, int exit_code,
				   enum md_repeat_outcome *outcome, struct md_error *err)
{
	char graph[160], *why;
	name_graph(&culprit->of, graph);
	if (!describe(culprit, exit_code, &why))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what broke the engine");
	*outcome = MD_REPEAT_GIVEN_UP;
	if (is_left_out(repeat, &culprit->of)) {
		md_options_say(repeat->command, "%s: %s, although it was left out", graph, why);
		free(why);
		return MD_OK;
	}
	if (repeat->count >= repeat->most) {
		md_options_say(repeat->command,
			       "%s: %s; %u tests have broken the engine before, which is the most that is tried", graph,
			       why, repeat->most);
		free(why);
		return MD_OK;
	}
	md_options_say(repeat->command, "%s: %s; the run is repeated without it%s", graph, why,
		       is_trial(&culprit->of) ? "" : ", and the graph is refused");
	*outcome = MD_REPEAT_AGAIN;
	return leave_out(repeat, &culprit->of, why, err);
}

/* ---- a run ---- */

bool md_repeat_is_lost(const struct md_repeat *repeat)
{
	return access(repeat->notes, F_OK) && errno == ENOENT;
}

static enum md_status run_watched(struct md_repeat *repeat, const struct md_run *run, int output, int *exit_code,
				  struct md_error *err)
{
	struct md_repeat_watch watch;
	enum md_status status;
	MD_FORWARD(md_repeat_watch_start(&watch, repeat->notes, err));
	status = output < 0 ? md_run_child(run, exit_code, err) : md_run_child_output(run, output, exit_code, err);
	md_repeat_watch_stop(&watch);
	return status;
}

/*
 * Where the ranks of a run meet, unless the user says where, or this command is one of theirs itself: a folder of this run's own,
 * as its processes may have the names of those before.
 */
static enum md_status open_meeting(struct md_repeat *repeat, char setting[PATH_MAX + 32], struct md_error *err)
{
	const char *place = secure_getenv("MEDUSA_RANKS_FOLDER");
	char name[32], path[PATH_MAX];
	*setting = 0;
	if ((place && *place) || md_rank_is_own())
		return MD_OK;
	snprintf(name, sizeof(name), "ranks-%u", ++repeat->runs);
	MD_FORWARD(md_workplace_folder(repeat->workplace, name, path, err));
	snprintf(setting, PATH_MAX + 32, "MEDUSA_RANKS_FOLDER=%s", path);
	return MD_OK;
}

enum md_status md_repeat_run(struct md_repeat *repeat, const struct md_run *run, int output, int *exit_code,
			     enum md_repeat_outcome *outcome, struct md_error *err)
{
	static char notes[PATH_MAX + 32], left_out[PATH_MAX + 32], told[PATH_MAX + 32], meeting[PATH_MAX + 32];
	const char *env[ENV_MOST] = {notes, left_out, told};
	struct md_run noted = *run;
	const struct md_note *culprit;
	struct md_note *list = NULL;
	enum md_status status;
	size_t count = 0;
	if (run->env_count > ENV_MOST - 5)
		return md_error_set(err, MD_ERR_INVALID, "%zu variables for the command, at most %d", run->env_count,
				    ENV_MOST - 5);
	MD_FORWARD(open_meeting(repeat, meeting, err));
	snprintf(notes, sizeof(notes), "MEDUSA_NOTES=%s", repeat->notes);
	snprintf(left_out, sizeof(left_out), "MEDUSA_LEAVE_OUT=%s", repeat->left_out);
	snprintf(told, sizeof(told), "MEDUSA_TELL=%s", repeat->told);
	memcpy(env + 3, run->env, run->env_count * sizeof(*env));
	noted.env = env;
	noted.env_count += 3;
	noted.limit_ns = repeat->limit_ns;
	noted.is_late = &repeat->late;
	repeat->late = false;
	if (*meeting)
		env[noted.env_count++] = meeting;
	if (*meeting)
		env[noted.env_count++] = "MEDUSA_JOB_DEFAULT=bundle";
	*outcome = MD_REPEAT_DONE;
	MD_FORWARD(write_left_out(repeat, err));
	MD_FORWARD(run_watched(repeat, &noted, output, exit_code, err));
	if (md_stop_signal() || repeat->late) /* command and engine were told to end */
		return MD_OK;
	if (md_repeat_is_lost(repeat))
		return md_error_set(err, MD_ERR_IO,
				    "%s: was removed while the command ran, with all that was recorded: find out what "
				    "removes it, and start again",
				    repeat->workplace->folder);
	MD_FORWARD(md_note_list(repeat->notes, &list, &count, err));
	culprit = find_culprit(list, count, *exit_code);
	status = culprit ? take_culprit(repeat, culprit, *exit_code, outcome, err) : MD_OK;
	md_note_list_finish(list, count);
	return status;
}
