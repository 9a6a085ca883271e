/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-restore: becomes the engine, with the restore library preloaded; of a bundle, it starts the launcher. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks/rank_bundle.h"
#include "tools/cache_unpack.h"
#include "tools/engine_device.h"
#include "tools/options.h"
#include "tools/restore_require.h"
#include "tools/run.h"
#include "tools/run_limit.h"
#include "tools/stop.h"
#include "tools/workplace.h"

#define ENV_MOST 8

static const char *resolve_order, *device, *required, *timeout, *report;
static struct md_require require;
static struct md_cache_wish caches;

static const struct md_option options[] = {
    {.name = "resolve",
     .argument = "ORDER",
     .value = &resolve_order,
     .help = "Where kernels may come from: a list of loaded, stored, trigger."},
    {.name = "require",
     .argument = "WHAT",
     .value = &required,
     .help = "End CMD, with exit code 1, unless all of its graphs, or any, are restored: all, any."},
    {.name = "timeout",
     .argument = "SECONDS",
     .value = &timeout,
     .help = "How long --require waits for them (default: 3600; 0: no limit)."},
    {.name = "report", .argument = "FILE", .value = &report, .help = "Have CMD write what was restored, as JSON."},
    MD_CACHE_OPTIONS(caches),
    MD_DEVICE_OPTION(device),
};

static const struct md_command command = {
    .name = "medusa-restore",
    .usage = "X.medusa [OPTION...] -- CMD [ARG...]",
    .summary = "Starts CMD cold, with its CUDA graphs restored from the artifact.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .exit_notes = "Once CMD has been started, the exit code is its own, or 1 with --require. It is started even if the "
		  "artifact is\n"
		  "damaged.\n",
};

/* The first word of the list that is not a source of kernels; 0 when all are. */
static int bad_order(const char *order)
{
	static const char *const places[] = {"loaded", "stored", "trigger"};
	const char *at = order;
	for (;;) {
		size_t size = strcspn(at, ","), i = 0;
		while (i < 3 && (strlen(places[i]) != size || strncmp(at, places[i], size)))
			i++;
		if (i == 3)
			return md_options_usage_error(
			    &command, "--resolve: \"%.*s\" is none of loaded, stored, trigger", (int)size, at);
		if (!at[size])
			return 0;
		at += size + 1;
	}
}

/*
 * A path that names no readable file is an error in the command line. The contents are checked by the restore library
 * alone, inside the engine: a damaged artifact makes a start slow, but does not prevent it.
 */
static int find_artifact(const char *path, char absolute[PATH_MAX], bool *bundle)
{
	struct stat info = {0};
	if (!realpath(path, absolute) || access(absolute, R_OK) || stat(absolute, &info)) {
		md_options_say(&command, "%s: %s", path, strerror(errno));
		return MD_EXIT_INPUT;
	}
	*bundle = md_bundle_is(absolute);
	if (S_ISREG(info.st_mode) || *bundle)
		return 0;
	md_options_say(&command, "%s: not a file%s", path,
		       S_ISDIR(info.st_mode) ? ", and no bundle: it has no file " MD_BUNDLE_MANIFEST : "");
	return MD_EXIT_INPUT;
}

/*
 * The ranks of a bundle meet in a folder that is theirs alone, unless the user has named one; it is removed when they have
 * ended, or a signal ends this process. Nobody else comes there, but the command may start several jobs, which their launchers'
 * variables tell apart; where there are none, any name will do.
 */
static size_t set_meeting(const struct md_workplace *place, const char *env[2])
{
	static char folder[PATH_MAX + 32];
	snprintf(folder, sizeof(folder), "MEDUSA_RANKS_FOLDER=%s", place->folder);
	env[0] = folder;
	env[1] = "MEDUSA_JOB_DEFAULT=bundle";
	return 2;
}

static enum md_status run_in(const struct md_workplace *place, struct md_run *run, bool meets, int *exit_code,
			     struct md_error *err)
{
	const char *env[ENV_MOST];
	memcpy(env, run->env, run->env_count * sizeof(*env));
	if (meets)
		run->env_count += set_meeting(place, env + run->env_count);
	if (require.asked) {
		MD_FORWARD(md_require_begin(&require, place, run, env + run->env_count, err));
		run->env_count += MD_REQUIRE_ENV;
	}
	run->env = env;
	MD_FORWARD(md_run_child(run, exit_code, err));
	if (require.asked && !md_stop_signal())
		*exit_code = md_require_end(&require, *exit_code);
	return MD_OK;
}

/* This process goes on beside the command. */
static enum md_status run_beside(struct md_run *run, bool meets, int *exit_code, struct md_error *err)
{
	static struct md_workplace place; /* large */
	md_stop_watch();
	if (md_workplace_open_temporary(&place, err) != MD_OK)
		return meets ? md_error_prefix(err, "where the ranks meet, unless MEDUSA_RANKS_FOLDER says")
			     : err->status;
	enum md_status status = run_in(&place, run, meets, exit_code, err);
	md_stop_hold();
	md_workplace_close(&place);
	md_stop_release();
	return status;
}

/* Each of them would make a place where nobody else comes. -1 to go on. */
static int check_launched(const char *artifact, bool bundle)
{
	const char *place = secure_getenv("MEDUSA_RANKS_FOLDER");
	struct md_error err = {0};
	if (!bundle || (place && *place) || md_bundle_check_launched(artifact, &err) == MD_OK)
		return -1;
	return md_options_usage_error(&command, "%s; or set MEDUSA_RANKS_FOLDER", err.message);
}

/* ---- the engine ---- */

static int start(const char *artifact, bool bundle, char *const argv[])
{
	static char artifact_setting[PATH_MAX + 32], order_setting[256], report_setting[PATH_MAX + 32];
	const char *env[ENV_MOST] = {artifact_setting};
	const char *place = secure_getenv("MEDUSA_RANKS_FOLDER");
	bool meets = bundle && !(place && *place);
	struct md_run run = {.preload = "libmedusa-restore.so", .env = env, .env_count = 1, .argv = argv};
	struct md_error error = {0};
	int exit_code = MD_EXIT_COMMAND;
	snprintf(artifact_setting, sizeof(artifact_setting), "MEDUSA_ARTIFACT=%s", artifact);
	snprintf(order_setting, sizeof(order_setting), "MEDUSA_RESOLVE=%s", resolve_order ? resolve_order : "");
	snprintf(report_setting, sizeof(report_setting), "MEDUSA_REPORT=%s", report ? report : "");
	if (resolve_order)
		env[run.env_count++] = order_setting;
	if (report)
		env[run.env_count++] = report_setting;
	if (!meets && !require.asked)
		md_run_exec(&run, &error);
	else if (run_beside(&run, meets, &exit_code, &error) == MD_OK)
		return exit_code;
	md_options_say(&command, "%s", error.message);
	return MD_EXIT_COMMAND;
}

/* Removes a report of an earlier start, which would be taken for this one's. */
static enum md_status remove_report(const char *path, const char *artifact, struct md_error *err)
{
	struct stat info, own;
	if (lstat(path, &info))
		return errno == ENOENT ? MD_OK : md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	if (!S_ISREG(info.st_mode))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: not a regular file", path);
	if (!stat(artifact, &own) && own.st_dev == info.st_dev && own.st_ino == info.st_ino)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: is the artifact", path);
	return unlink(path) ? md_error_set(err, MD_ERR_OUTPUT, "%s: cannot be removed: %s", path, strerror(errno))
			    : MD_OK;
}

static enum md_status prepare_report(const char *artifact, bool bundle, struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(md_output_check_report(report, err));
	if (!strstr(report, "%p"))
		MD_FORWARD(remove_report(report, artifact, err));
	for (uint32_t i = 0; bundle && !strstr(report, "%p") && i < MD_RANKS_MOST; i++) {
		snprintf(path, sizeof(path), "%.*s.rank-%u", PATH_MAX - 32, report, i);
		MD_FORWARD(remove_report(path, artifact, err));
	}
	return MD_OK;
}

/* -1 to go on, else an exit code. */
static int check_report(const char *artifact, bool bundle)
{
	struct md_error err = {0};
	if (!report)
		return -1;
	if (!*report || strlen(report) > PATH_MAX - 128)
		return md_options_usage_error(&command, "--report: \"%.100s\" is no path that a report may have",
					      report);
	if (prepare_report(artifact, bundle, &err) == MD_OK)
		return -1;
	md_options_say(&command, "--report: %s", err.message);
	return MD_EXIT_COMMAND;
}

int main(int argc, char *argv[])
{
	char artifact[PATH_MAX], first[PATH_MAX];
	struct md_arguments arguments;
	bool bundle;
	int result = md_options_parse(&command, argc, argv, &arguments);
	if (result >= 0)
		return result;
	if (arguments.file_count != 1)
		return md_options_usage_error(&command, "name one artifact, not %zu", arguments.file_count);
	if (!arguments.command)
		return md_options_usage_error(&command, "put the command that starts the engine after --");
	if (resolve_order && bad_order(resolve_order))
		return MD_EXIT_USAGE;
	result = md_require_take(&command, required, &require);
	if (result < 0)
		result = md_run_limit_take(&command, timeout, &require.limit_ns);
	if (result < 0 && timeout && !required)
		result =
		    md_options_usage_error(&command, "--timeout says how long --require waits, which is not given");
	if (result < 0)
		result = md_cache_wish_check(&command, &caches);
	if (result >= 0)
		return result;
	result = find_artifact(arguments.files[0], artifact, &bundle);
	if (result)
		return result;
	result = check_launched(artifact, bundle);
	if (result < 0)
		result = check_report(artifact, bundle);
	if (result < 0)
		result = md_device_choose(&command, device);
	if (result >= 0)
		return result;
	/* the caches of a bundle travel with its first artifact */
	md_cache_unpack(&command, bundle && md_bundle_artifact(artifact, 0, first) ? first : artifact, &caches);
	return start(artifact, bundle, arguments.command);
}
