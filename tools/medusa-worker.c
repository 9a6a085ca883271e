/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-worker: serves many models on this machine's GPUs behind one address. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "http/address.h"
#include "tools/options.h"
#include "worker/core/service.h"

static const char *config_path, *config_folder, *listen_text, *state_path, *control_path;
static const char *cluster, *node, *advertise;
static bool check;

static const struct md_option options[] = {
    {.name = "config", .argument = "FILE", .help = "Models and how they are started (YAML).", .value = &config_path},
    {.name = "config-dir", .argument = "DIR", .help = "More of the same: *.yml and *.yaml.", .value = &config_folder},
    {.name = "listen",
     .argument = "ADDRESS:PORT",
     .help = "Where to serve: also :PORT, unix:PATH (127.0.0.1:8080).",
     .value = &listen_text},
    {.name = "state",
     .argument = "DIR",
     .help = "Where to keep what engines print ($XDG_STATE_HOME/medusa-worker).",
     .value = &state_path},
    {.name = "control",
     .argument = "PATH",
     .help = "Unix socket for medusa-workerctl ($XDG_RUNTIME_DIR/medusa/worker.sock).",
     .value = &control_path},
    {.name = "cluster",
     .argument = "URL[,URL...]",
     .help = "Endpoints of etcd: the node is one of a cluster.",
     .value = &cluster},
    {.name = "node", .argument = "NAME", .help = "Its name there (the machine's).", .value = &node},
    {.name = "advertise",
     .argument = "URL",
     .help = "Where other nodes reach it (where it listens).",
     .value = &advertise},
    {.name = "check", .help = "Only read the configuration, and say what has no effect.", .flag = &check},
};

static const struct md_command command = {
    .name = "medusa-worker",
    .usage = "--config FILE [--listen ADDRESS:PORT]",
    .summary = "Serves many models on this machine's GPUs behind one address that speaks OpenAI's API.",
    .exit_codes = "  0  all good, or ended by a signal\n"
		  "  2  usage\n"
		  "  3  the configuration is bad or cannot be read\n"
		  "  4  it cannot serve: the address is taken, a folder cannot be written to\n",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

static void say_notes(const struct md_worker_config *config)
{
	for (uint32_t i = 0; i < config->note_count; i++) {
		const struct md_config_note *note = &config->notes[i];
		md_options_say(&command, "%s:%u: %s: %s", note->file, note->line, note->path, note->text);
	}
}

/* Makes the folder and what leads to it. */
static bool make_folder(char *path)
{
	for (char *at = path + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	return !mkdir(path, 0700) || errno == EEXIST;
}

static enum md_status find_state(char path[PATH_MAX], struct md_error *err)
{
	const char *home = secure_getenv("HOME"), *base = secure_getenv("XDG_STATE_HOME");
	if (state_path)
		snprintf(path, PATH_MAX, "%s", state_path);
	else if (base && *base == '/')
		snprintf(path, PATH_MAX, "%s/medusa-worker", base);
	else if (home && *home == '/')
		snprintf(path, PATH_MAX, "%s/.local/state/medusa-worker", home);
	else
		return md_error_set(err, MD_ERR_INVALID, "neither XDG_STATE_HOME nor HOME is set: say --state DIR");
	if (!make_folder(path))
		return md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", path, strerror(errno));
	return MD_OK;
}

static int serve(const struct md_worker_config *config)
{
	char state[PATH_MAX];
	struct md_error err = {0};
	struct md_service_options service = {.config_file = config_path,
					     .config_folder = config_folder,
					     .listen = listen_text            ? listen_text
						       : *config->node.listen ? config->node.listen
									      : "127.0.0.1:8080",
					     .state = state,
					     .cluster = cluster,
					     .node = node,
					     .advertise = advertise,
					     .control = control_path};
	if (find_state(state, &err) != MD_OK || md_service_run(config, &service, &err) != MD_OK)
		return md_options_report(&command, &err);
	return MD_EXIT_OK;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	struct md_error err = {0};
	int code = md_options_parse(&command, argc, argv, &arguments);
	if (code >= 0)
		return code;
	if (arguments.file_count || arguments.command)
		return md_options_usage_error(&command, "there are no arguments, only options");
	if (!config_path && !config_folder)
		return md_options_usage_error(&command, "--config FILE is missing");
	struct md_http_address address;
	if (listen_text && md_http_address_parse(listen_text, &address, &err) != MD_OK)
		return md_options_usage_error(&command, "--listen: %s", err.message);
	const struct md_worker_config *config = md_worker_config_create(config_path, config_folder, &err);
	if (!config)
		return md_options_report(&command, &err);
	say_notes(config);
	if (md_service_check(config, &err) != MD_OK)
		code = md_options_report(&command, &err);
	else
		code = check ? MD_EXIT_OK : serve(config);
	md_worker_config_destroy(config);
	return code;
}
