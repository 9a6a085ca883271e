/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-backbone: creates device memory that several processes share, and hands it out. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backbone/broker.h"
#include "backbone/share_wire.h"
#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/plain.h"
#include "base/unix_socket.h"
#include "swap/wire.h"
#include "tools/engine_device.h"
#include "tools/options.h"

#define ANSWER_MS 10000

static const char *socket_path, *policy_file, *device, *listen_fd, *end_fd;
static bool keep, watched, json;

static const struct md_option options[] = {
    {.name = "socket",
     .argument = "PATH",
     .value = &socket_path,
     .help = "default: $MEDUSA_BACKBONE, or medusa/backbone.sock in the user's runtime folder."},
    {.name = "listen-fd",
     .argument = "N",
     .value = &listen_fd,
     .help = "run: a Unix socket that listens, inherited at this number, in place of --socket."},
    {.name = "end-fd",
     .argument = "N",
     .value = &end_fd,
     .help = "run: a pipe, inherited at this number: end when nobody has its other end."},
    {.name = "keep", .flag = &keep, .help = "run: what nobody has any more stays until its room is needed."},
    {.name = "watched",
     .flag = &watched,
     .help = "run: who watches is asked before a process has memory of its own in the place of what it shares."},
    {.name = "policy",
     .argument = "FILE",
     .value = &policy_file,
     .help = "run: which other users may read or fill which backbones."},
    {.name = "json", .flag = &json, .help = "status: as JSON, a line for each backbone."},
    MD_DEVICE_OPTION(device),
};

static const struct md_command command = {
    .name = "medusa-backbone",
    .usage = "run [OPTION...] | status | drop [NAME]",
    .summary = "Holds constants of models once in device memory, for many processes.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .words = "run status drop",
    .exit_notes = "status, drop: 3 means that no medusa-backbone runs.\n",
};

/* ---- run ---- */

static enum md_status make_folder(const char *path, struct md_error *err)
{
	char above[PATH_MAX], top[PATH_MAX];
	struct stat info;
	snprintf(above, sizeof(above), "%s", path);
	const char *folder = dirname(above);
	snprintf(top, sizeof(top), "%s", folder);
	mkdir(dirname(top), 0700); /* as /tmp/medusa-UID; what is wrong with it shows below */
	if (!mkdir(folder, 0700))
		md_options_say(&command, "made the folder %s for its socket", folder);
	else if (errno != EEXIST)
		return md_error_set(err, MD_ERR_IO, "%s: %s", folder, strerror(errno));
	if (lstat(folder, &info))
		return md_error_set(err, MD_ERR_IO, "%s: %s", folder, strerror(errno));
	if (S_ISDIR(info.st_mode) && (info.st_uid == geteuid() || !info.st_uid) && !(info.st_mode & 022))
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "%s: not a folder that only user %u can write to; correct its rights or give another --socket", folder,
	    geteuid());
}

/* The lock is held as long as the descriptor is open, so that a second broker never takes the socket of one that runs. */
static enum md_status listen_there(const char *path, bool others, int *lock, int *fd, bool *succeeds,
				   struct md_error *err)
{
	char turn[PATH_MAX];
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path) ||
	    snprintf(turn, sizeof(turn), "%s.lock", path) >= (int)sizeof(turn))
		return md_error_set(err, MD_ERR_INVALID, "%s: the path of a socket has at most %zu bytes", path,
				    sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	MD_FORWARD(make_folder(path, err));
	*lock = md_file_open_append(turn, true);
	if (*lock < 0)
		return md_error_set(err, MD_ERR_IO, "%s: %s", turn, strerror(errno));
	if (flock(*lock, LOCK_EX | LOCK_NB))
		return md_error_set(err, errno == EWOULDBLOCK ? MD_ERR_BUSY : MD_ERR_IO,
				    errno == EWOULDBLOCK ? "%s: another medusa-backbone runs there" : "%s: %s", path,
				    strerror(errno));
	struct stat there;
	*succeeds = !lstat(path, &there);
	if (*succeeds && !S_ISSOCK(there.st_mode))
		return md_error_set(err, MD_ERR_BUSY,
				    "%s is there already, and is no socket: remove it, or give another --socket", path);
	return md_unix_socket_listen(path, others ? 0111 : 0177, fd, err);
}

/* Whoever has made it sees to it that one broker serves there, and may have had others before this one. */
static enum md_status take_listening(int inherited, struct md_broker_settings *settings, struct md_error *err)
{
	int value = 0, flags = fcntl(inherited, F_GETFL);
	socklen_t size = sizeof(value);
	struct sockaddr_un address;
	socklen_t length = sizeof(address);
	if (getsockopt(inherited, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) || !value ||
	    getsockname(inherited, (struct sockaddr *)&address, &length) || address.sun_family != AF_UNIX ||
	    fcntl(inherited, F_SETFL, flags | O_NONBLOCK))
		return md_error_set(err, MD_ERR_INVALID, "--listen-fd %s: not a Unix socket that listens", listen_fd);
	settings->listening = inherited;
	settings->succeeds = true;
	return MD_OK;
}

/* Each process has a connection for each piece of memory, and each piece a descriptor of its own. */
static void take_all_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* inherited: descriptors, or -1. */
static enum md_status serve(const char *path, int inherited, int until, struct md_error *err)
{
	struct md_backbone_policy policy = {.count = 0};
	MD_AUTO_FD int lock = -1, listening = -1, stop = -1;
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	take_all_descriptors();
	if (sigprocmask(SIG_BLOCK, &signals, NULL) || (stop = signalfd(-1, &signals, SFD_CLOEXEC)) < 0)
		return md_error_set(err, MD_ERR_IO, "signalfd: %s", strerror(errno));
	if (policy_file)
		MD_FORWARD(md_backbone_policy_read(policy_file, &policy, err));
	struct md_broker_settings settings = {
	    .keep = keep, .watched = watched, .policy = policy_file ? &policy : NULL, .stop = stop, .until = until};
	enum md_status status = inherited >= 0 ? take_listening(inherited, &settings, err)
					       : listen_there(path, policy_file != NULL, &lock, &settings.listening,
							      &settings.succeeds, err);
	if (status == MD_OK) {
		bool left;
		listening = settings.listening;
		md_options_say(&command, "ready: %s", path);
		status = md_broker_run(&settings, &left, err);
		if (!left && inherited < 0)
			unlink(path); /* else the next broker knows by it that processes have memory to bring */
	}
	md_backbone_policy_finish(&policy);
	return status;
}

/* ---- status and drop ---- */

static void print_one(const struct md_swap_message *answer)
{
	if (json) {
		struct md_json out;
		md_json_init_line(&out, stdout);
		md_json_object(&out, NULL);
		for (size_t i = 0; i < answer->count; i++) {
			const struct md_json_field *field = &answer->fields[i];
			if (field->kind == MD_JSON_TEXT)
				md_json_text(&out, field->key, field->text);
			else
				md_json_number(&out, field->key, field->number);
		}
		md_json_end(&out);
		return;
	}
	md_plain_line(stdout, "%s: %s, %.1f MB on %s, %" PRIu64 " readers, %" PRIu64 " wait; layout %s",
		      md_swap_message_text(answer, "name"), md_swap_message_text(answer, "state"),
		      (double)md_swap_message_number(answer, "bytes") / 1e6, md_swap_message_text(answer, "device"),
		      md_swap_message_number(answer, "readers"), md_swap_message_number(answer, "waiting"),
		      md_swap_message_text(answer, "layout"));
}

static enum md_status talk(const char *path, const char *verb, const char *name, struct md_error *err)
{
	struct md_swap_letter letter;
	struct md_swap_wire wire;
	static struct md_swap_message answer;
	int fd;
	MD_FORWARD(md_swap_wire_connect(path, &fd, err));
	md_swap_wire_init(&wire, fd);
	enum md_status status = md_swap_letter_begin(&letter, err);
	if (status == MD_OK) {
		md_json_number(&letter.json, "medusa_backbone", MD_BACKBONE_PROTOCOL);
		md_json_text(&letter.json, "do", verb);
		if (name)
			md_json_text(&letter.json, "name", name);
		status = md_swap_letter_ask(&letter, fd, -1, err);
	}
	while (status == MD_OK && (status = md_swap_wire_await(&wire, ANSWER_MS, &answer, err)) == MD_OK) {
		if (md_swap_message_is_text(&answer, "message"))
			status = md_error_set(err, (enum md_status)md_swap_message_number(&answer, "status"), "%s",
					      md_swap_message_text(&answer, "message"));
		else if (!md_swap_message_number(&answer, "ok"))
			print_one(&answer);
		else
			break;
	}
	if (status == MD_OK && !strcmp(verb, "drop"))
		printf("%" PRIu64 " dropped\n", md_swap_message_number(&answer, "dropped"));
	md_swap_wire_finish(&wire);
	return status;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	struct md_error err = {0};
	char path[PATH_MAX] = "";
	int inherited = -1, until = -1;
	int code = md_options_parse(&command, argc, argv, &arguments);
	if (code >= 0)
		return code;
	const char *verb = arguments.file_count ? arguments.files[0] : "";
	bool runs = !strcmp(verb, "run"), drops = !strcmp(verb, "drop");
	if (!runs && !drops && strcmp(verb, "status"))
		return md_options_usage_error(&command, "say run, status or drop");
	if (arguments.file_count > (drops ? 2 : 1) || arguments.command)
		return md_options_usage_error(&command, "%s takes %s", verb,
					      drops ? "one name at most" : "no more words");
	if ((keep || watched || policy_file || device || listen_fd || end_fd) && !runs)
		return md_options_usage_error(
		    &command, "--keep, --watched, --policy, --device, --listen-fd and --end-fd are for run");
	if (listen_fd && socket_path)
		return md_options_usage_error(&command, "--socket and --listen-fd: choose one");
	if ((code = md_options_take_descriptor(&command, "--listen-fd", listen_fd, &inherited)) >= 0 ||
	    (code = md_options_take_descriptor(&command, "--end-fd", end_fd, &until)) >= 0)
		return code;
	if (json && strcmp(verb, "status"))
		return md_options_usage_error(&command, "--json is for status");
	if (socket_path)
		snprintf(path, sizeof(path), "%s", socket_path);
	else if (listen_fd)
		snprintf(path, sizeof(path), "descriptor %s", listen_fd);
	else if (md_backbone_socket(path, &err) != MD_OK)
		return md_options_report(&command, &err);
	if (runs && (code = md_device_choose_driver(&command, device)) >= 0)
		return code;
	enum md_status status =
	    runs ? serve(path, inherited, until, &err)
		 : talk(path, verb, drops && arguments.file_count > 1 ? arguments.files[1] : NULL, &err);
	if (status != MD_OK)
		return md_options_report(&command, &err);
	return md_options_flush(&command) ? MD_EXIT_COMMAND : MD_EXIT_OK;
}
