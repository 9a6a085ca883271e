/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/control_ask.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/control/control_place.h"
#include "worker/control/socket.h"

static enum md_status reach(const char *given, int *fd, struct md_error *err)
{
	struct md_http_address address;
	enum md_status status = md_control_place(given, false, &address, err);
	if (status == MD_ERR_NOT_FOUND)
		return md_error_set(err, status, "no medusa-worker listens at the default socket: say --socket PATH");
	MD_FORWARD(status);
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return md_error_set(err, MD_ERR_IO, "a socket: %s", strerror(errno));
	if (!connect(*fd, &address.any, address.size))
		return MD_OK;
	return md_error_set(err, errno == ENOENT || errno == ECONNREFUSED ? MD_ERR_NOT_FOUND : MD_ERR_IO,
			    "no medusa-worker answers at %s: %s", address.local.sun_path, strerror(errno));
}

static bool send_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
		if (sent < 0 && errno != EINTR)
			return false;
		bytes += sent > 0 ? sent : 0;
		size -= sent > 0 ? (size_t)sent : 0;
	}
	return true;
}

static enum md_status send_question(int fd, json_t *question, struct md_error *err)
{
	if (json_object_set_new(question, "version", json_integer(MD_CONTROL_VERSION)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the question");
	MD_AUTO_FREE char *line = md_jansson_print(question, JSON_COMPACT);
	size_t size = line ? strlen(line) : 0;
	if (!line)
		return md_error_set(err, MD_ERR_INVALID, "the question cannot be written: a name is not UTF-8");
	line[size] = '\n'; /* instead of the NUL */
	if (!send_all(fd, line, size + 1))
		return md_error_set(err, MD_ERR_IO, "the daemon does not take the question: %s", strerror(errno));
	return MD_OK;
}

static enum md_status status_of(const char *name)
{
	for (enum md_status status = MD_ERR_INVALID; name && status <= MD_ERR_AMBIGUOUS; status++)
		if (!strcmp(md_status_name(status), name))
			return status;
	return MD_ERR_UNSUPPORTED;
}

/* Takes over the reference to answer; error says why there is none. */
static enum md_status judge(json_t *answer, const json_error_t *error, json_t **result, struct md_error *err)
{
	const char *message = json_string_value(json_object_get(answer, "message"));
	enum md_status status = MD_OK;
	if (json_is_true(json_object_get(answer, "ok")))
		*result = json_incref(json_object_get(answer, "result"));
	else if (!answer && json_error_code(error) == json_error_out_of_memory)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "%s", error->text);
	else if (message)
		status =
		    md_error_set(err, status_of(json_string_value(json_object_get(answer, "status"))), "%s", message);
	else
		status = md_error_set(err, MD_ERR_IO, "the daemon said something that is no answer");
	json_decref(answer);
	return status == MD_OK && !*result ? md_error_set(err, MD_ERR_IO, "the answer has no result") : status;
}

enum md_status md_control_ask(const char *given, json_t *question, json_t **result, struct md_error *err)
{
	int fd = -1;
	enum md_status status = reach(given, &fd, err);
	if (status == MD_OK)
		status = send_question(fd, question, err);
	json_decref(question);
	FILE *from = status == MD_OK ? fdopen(fd, "r") : NULL;
	char *line = NULL;
	size_t room = 0;
	json_error_t error;
	if (from && getline(&line, &room, from) > 0)
		status = judge(md_jansson_parse(line, strlen(line), 0, &error), &error, result, err);
	else if (status == MD_OK)
		status = md_error_set(err, MD_ERR_IO, "the daemon ended, or closed the connection, before it answered");
	free(line);
	if (from)
		fclose(from);
	else if (fd >= 0)
		close(fd);
	return status;
}
