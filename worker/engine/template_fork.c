/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/template_fork.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/engine/process_spawn.h"

#define ANSWER_S 10
#define ANSWER_MAX 4096u
#define FIRST_MAX 65536u /* of the question, with the descriptors */

struct md_template_fork {
	struct md_engine_template *template;
	struct bufferevent *wire;
	const struct md_template_fork_events *events;
	void *context;
};

void md_template_fork_cancel(struct md_template_fork *fork)
{
	if (!fork)
		return;
	if (fork->wire)
		bufferevent_free(fork->wire);
	free(fork);
}

/* ---- the answer ---- */

static void fail(struct md_template_fork *fork, const char *why)
{
	const struct md_template_fork_events *events = fork->events;
	void *context = fork->context;
	char copy[512];
	snprintf(copy, sizeof(copy), "%s", why);
	md_template_fork_cancel(fork);
	events->failed(context, copy);
}

static void take_line(struct md_template_fork *fork, const char *line)
{
	json_error_t error;
	json_t *answer = md_jansson_parse(line, strlen(line), JSON_REJECT_DUPLICATES, &error);
	json_int_t pid = json_integer_value(json_object_get(answer, "pid"));
	const char *refused = json_string_value(json_object_get(answer, "refused"));
	if (pid > 1 && pid <= INT32_MAX && !refused)
		fork->events->forked(fork->context, (pid_t)pid);
	else if (!answer && json_error_code(&error) == json_error_out_of_memory)
		fail(fork, error.text);
	else
		fail(fork, refused ? refused : "its answer is neither a process nor a refusal");
	json_decref(answer);
}

static void on_read(struct bufferevent *wire, void *context)
{
	struct md_template_fork *fork = context;
	char *line = evbuffer_readln(bufferevent_get_input(wire), NULL, EVBUFFER_EOL_LF);
	if (line) {
		bufferevent_disable(wire, EV_READ); /* there is one answer */
		take_line(fork, line);
	} else if (evbuffer_get_length(bufferevent_get_input(wire)) >= ANSWER_MAX) {
		fail(fork, "its answer is too long");
	}
	free(line);
}

static void on_event(struct bufferevent *wire, short what, void *context)
{
	(void)wire;
	fail(context, what & BEV_EVENT_TIMEOUT ? "it does not answer" : "it has closed the connection");
}

bool md_template_fork_go(struct md_template_fork *fork)
{
	bool sent = send(bufferevent_getfd(fork->wire), "go\n", 3, MSG_NOSIGNAL) == 3;
	if (sent)
		md_engine_template_served(fork->template);
	md_template_fork_cancel(fork);
	return sent;
}

/* ---- the question ---- */

static json_t *list_words(char *const *argv)
{
	json_t *made = json_array();
	for (; made && *argv; argv++)
		if (json_array_append_new(made, json_string(*argv))) {
			json_decref(made);
			return NULL;
		}
	return made;
}

static json_t *list_variables(const char *const *extra)
{
	MD_AUTO_FREE const char **all = md_process_environment(extra);
	json_t *made = all ? json_object() : NULL;
	for (const char *const *at = all; made && *at; at++) {
		size_t size = strcspn(*at, "=");
		MD_AUTO_FREE char *name = strndup(*at, size);
		if (!(*at)[size] || !size)
			continue; /* what has no name or value is no variable */
		if (!name || json_object_set_new(made, name, json_string(*at + size + 1))) {
			json_decref(made);
			return NULL;
		}
	}
	return made;
}

/* A line; NULL: out of memory, or something is not UTF-8. */
static char *make_question(const struct md_engine_command *command)
{
	MD_AUTO_FREE char *folder = get_current_dir_name();
	json_t *question =
	    json_pack("{s:i, s:o, s:o, s:s}", "version", MD_ENGINE_TEMPLATE_VERSION, "argv", list_words(command->argv),
		      "env", list_variables(command->extra), "cwd", folder ? folder : "/");
	char *text = question ? md_jansson_print(question, JSON_COMPACT) : NULL, *line = NULL;
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	json_decref(question);
	return line;
}

/* Bytes that were sent; -1 and errno: none. */
static ssize_t send_first(int fd, const char *line, size_t size, const int descriptors[3])
{
	struct iovec bytes = {.iov_base = (void *)line, .iov_len = size < FIRST_MAX ? size : FIRST_MAX};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(3 * sizeof(int))];
	} control = {
	    .head = {.cmsg_len = CMSG_LEN(3 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {
	    .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	memcpy(CMSG_DATA(&control.head), descriptors, 3 * sizeof(int));
	return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	MD_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	return md_steal_fd(&fd);
}

/* Sends what the socket takes, and leaves the rest to the wire. False: errno says why. */
static bool ask(struct md_template_fork *fork, const struct md_engine_command *command, const char *line)
{
	MD_AUTO_FD int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const int descriptors[3] = {null, command->output < 0 ? null : command->output,
				    command->output < 0 ? null : command->output};
	size_t size = strlen(line);
	ssize_t sent = null < 0 ? -1 : send_first(bufferevent_getfd(fork->wire), line, size, descriptors);
	return sent >= 0 && !bufferevent_write(fork->wire, line + sent, size - (size_t)sent);
}

struct md_template_fork *md_template_fork_begin(struct event_base *base, struct md_engine_template *template,
						const struct md_engine_command *command,
						const struct md_template_fork_events *events, void *context, char *why,
						size_t size)
{
	struct timeval most = {.tv_sec = ANSWER_S};
	MD_AUTO_FREE char *line = make_question(command);
	int fd = line ? connect_to(md_engine_template_settings(template)->socket) : -1;
	struct md_template_fork *made = fd >= 0 ? calloc(1, sizeof(*made)) : NULL;
	if (!line)
		snprintf(why, size, "out of memory for the question, or the command or a variable is not UTF-8");
	else if (fd < 0)
		snprintf(why, size, "%s",
			 errno == ENOENT || errno == ECONNREFUSED ? "it is not there yet" : strerror(errno));
	if (made)
		made->wire = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!made || !made->wire) {
		if (fd >= 0) {
			snprintf(why, size, "out of memory for a connection");
			close(fd);
		}
		free(made);
		return NULL;
	}
	made->template = template;
	made->events = events;
	made->context = context;
	bufferevent_setcb(made->wire, on_read, NULL, on_event, made);
	bufferevent_setwatermark(made->wire, EV_READ, 0, ANSWER_MAX);
	bufferevent_set_timeouts(made->wire, &most, &most);
	if (ask(made, command, line) && !bufferevent_enable(made->wire, EV_READ | EV_WRITE))
		return made;
	snprintf(why, size, "%s", strerror(errno));
	md_template_fork_cancel(made);
	return NULL;
}
