/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-restore --require: judges whether graphs were restored by what each process of the engine says, and ends the engine if not. */
#include "tools/restore_require.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "format/outcome_line.h"
#include "tools/family.h"
#include "tools/told.h"

#define LINE_MOST 65536u
#define PACE_MS 200

int md_require_take(const struct md_command *command, const char *text, struct md_require *out)
{
	*out = (struct md_require){.command = command, .asked = text != NULL, .all = text && !strcmp(text, "all")};
	if (!text || out->all || !strcmp(text, "any"))
		return -1;
	return md_options_usage_error(command, "--require: \"%s\" is none of all, any", text);
}

/* ---- one process ---- */

/* LIKELY: nothing speaks against it, but the engine may still ask for graphs. */
enum verdict { UNKNOWN, LIKELY, MET, MISSED };

static enum verdict judge(const struct md_require *require, const struct md_outcome *outcome)
{
	if (outcome->reason)
		return MISSED;
	if (!require->all)
		return outcome->handed_out                   ? MET
		       : outcome->denied                     ? UNKNOWN /* the engine may ask for others, too */
		       : outcome->restored || outcome->whole ? LIKELY
		       : outcome->settled                    ? MISSED
							     : UNKNOWN;
	if ((outcome->refused && !outcome->whole) || outcome->denied || (outcome->settled && !outcome->total))
		return MISSED;
	if (!outcome->whole)
		return UNKNOWN;
	return outcome->complete || outcome->handed_out >= outcome->total ? MET : LIKELY;
}

static void say_missed(const struct md_require *require, const struct md_outcome *outcome)
{
	const char *wanted = require->all ? "all" : "any";
	if (outcome->reason)
		md_options_say(require->command, "--require %s: nothing is restored in process %u: %s", wanted,
			       outcome->process, outcome->reason);
	else if (outcome->graph)
		md_options_say(
		    require->command,
		    "--require %s: graph %s is not restored in process %u: %s (of %u graphs %u are restored and %u "
		    "refused; %u that the engine asked for were not given)",
		    wanted, outcome->graph, outcome->process, outcome->why ? outcome->why : "no reason", outcome->total,
		    outcome->restored, outcome->refused, outcome->denied);
	else
		md_options_say(require->command, "--require %s: %u of %u graphs are restored in process %u", wanted,
			       outcome->restored, outcome->total, outcome->process);
}

/* ---- all of them ---- */

static bool is_number(const char *name)
{
	return *name && strspn(name, "0123456789") == strlen(name);
}

/* False: it cannot be read, as it is not what the library writes. */
static bool read_outcome(const struct md_require *require, const char *name, struct md_file_bytes *bytes,
			 struct md_outcome *out)
{
	char path[PATH_MAX + 300];
	struct md_error err = {0};
	snprintf(path, sizeof(path), "%s/%s", require->folder, name);
	if (md_file_read(path, LINE_MOST, bytes, &err) != MD_OK)
		return false;
	size_t size = bytes->size && bytes->data[bytes->size - 1] == '\n' ? bytes->size - 1 : bytes->size;
	bytes->data[size] = 0;
	if (md_outcome_line_read((char *)bytes->data, size, out, &err) == MD_OK)
		return true;
	md_file_release(bytes);
	return false;
}

/* One process that misses it is enough to fail, and one that meets it is enough if none does. say: the first one that misses it. */
static enum verdict judge_all(const struct md_require *require, bool say)
{
	enum verdict all = UNKNOWN;
	struct dirent *entry;
	DIR *folder = opendir(require->folder);
	while (folder && all != MISSED && (entry = readdir(folder))) {
		struct md_file_bytes bytes = {0};
		struct md_outcome outcome;
		if (!is_number(entry->d_name) || !read_outcome(require, entry->d_name, &bytes, &outcome))
			continue;
		enum verdict one = judge(require, &outcome);
		if (one == MISSED && say)
			say_missed(require, &outcome);
		all = one > all ? one : all;
		md_file_release(&bytes);
	}
	if (folder)
		closedir(folder);
	return all;
}

static void say_told(const struct md_require *require)
{
	static struct md_told told; /* large */
	md_told_read(require->told, &told);
	for (unsigned i = 0; i < told.count; i++)
		md_options_say(require->command, "plug-in %s", told.lines[i]);
}

static void say_unknown(const struct md_require *require)
{
	const char *wanted = require->all ? "all" : "any";
	struct md_outcome outcome;
	bool any = false;
	struct dirent *entry;
	DIR *folder = opendir(require->folder);
	while (folder && (entry = readdir(folder))) {
		struct md_file_bytes bytes = {0};
		if (!is_number(entry->d_name) || !read_outcome(require, entry->d_name, &bytes, &outcome))
			continue;
		any = true;
		say_missed(require, &outcome);
		md_file_release(&bytes);
	}
	if (folder)
		closedir(folder);
	if (!any)
		md_options_say(require->command,
			       "--require %s: nothing is restored: no process of the command has bound a buffer or "
			       "asked for a graph "
			       "while the restore library was preloaded",
			       wanted);
	say_told(require);
}

/* ---- while the engine runs ---- */

static bool is_over(const struct md_require *require)
{
	return require->limit_ns && md_clock_ns() - require->started >= require->limit_ns;
}

/* True: the engine is to be ended. */
static bool is_missed(void *user)
{
	struct md_require *require = user;
	if (require->met || require->failed)
		return require->failed;
	enum verdict verdict = judge_all(require, true);
	bool over = is_over(require);
	require->met = verdict == MET || (verdict == LIKELY && over);
	require->failed = verdict == MISSED || (verdict == UNKNOWN && over);
	if (verdict == MISSED)
		say_told(require);
	if (verdict == UNKNOWN && over) {
		md_options_say(require->command, "%g s have passed (--timeout)", (double)require->limit_ns / 1e9);
		say_unknown(require);
	}
	if (require->failed)
		md_options_say(require->command, "the command is ended");
	return require->failed;
}

/* A daemon is waited for until it is known whether it restores. */
static enum md_run_left daemon_left(void *user, pid_t *pid)
{
	const struct md_require *require = user;
	*pid = 0;
	if (require->met || require->failed || judge_all(require, false) != UNKNOWN)
		return MD_RUN_OVER;
	struct dirent *entry;
	DIR *folder = opendir(require->folder);
	while (folder && !*pid && (entry = readdir(folder))) {
		pid_t process = is_number(entry->d_name) ? (pid_t)atoi(entry->d_name) : 0;
		if (process > 1 && !kill(process, 0))
			*pid = process;
	}
	if (folder)
		closedir(folder);
	return *pid ? MD_RUN_AT_WORK : MD_RUN_UNKNOWN;
}

enum md_status md_require_begin(struct md_require *require, const struct md_workplace *workplace, struct md_run *run,
				const char *env[MD_REQUIRE_ENV], struct md_error *err)
{
	MD_FORWARD(md_workplace_folder(workplace, "outcomes", require->folder, err));
	MD_FORWARD(md_workplace_file(workplace, "told", ".txt", require->told, err));
	if (!geteuid() && chmod(require->folder, 01733)) /* an engine may give up its rights */
		return md_error_set(err, MD_ERR_OUTPUT, "%s: its permissions cannot be changed", require->folder);
	snprintf(require->outcomes, sizeof(require->outcomes), "MEDUSA_OUTCOMES=%s", require->folder);
	snprintf(require->tell, sizeof(require->tell), "MEDUSA_TELL=%s", require->told);
	env[0] = require->outcomes;
	env[1] = require->tell;
	require->started = md_clock_ns();
	run->done = is_missed;
	run->left = daemon_left;
	run->user = require;
	run->pace_ms = PACE_MS;
	return MD_OK;
}

int md_require_end(struct md_require *require, int exit_code)
{
	enum verdict verdict = require->met ? MET : require->failed ? MISSED : judge_all(require, true);
	if (verdict == MET || verdict == LIKELY)
		return exit_code;
	if (verdict == UNKNOWN)
		say_unknown(require);
	else if (!require->failed)
		say_told(require);
	md_family_end_all(SIGTERM);
	return require->failed || !exit_code ? MD_EXIT_FAILED : exit_code;
}
