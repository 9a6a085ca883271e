/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/broker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/unix_socket.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define WAIT_LOG_MAX 6u /* 64 s */
#define LONG_NS 5000000000ull

struct md_engine_broker {
	struct md_engine_processes *processes;
	const struct md_engine_broker_settings *settings;
	struct md_engine_process *process; /* NULL: it is to be started */
	struct event *again;
	int listening;
	int lifeline[2]; /* a pipe: the process ends when nobody has the second end any more */
	uint64_t began;  /* md_clock_ns */
	unsigned starts, failures;
};

/* ---- the socket ---- */

static enum md_status listen_there(struct md_engine_broker *broker, struct md_error *err)
{
	int made = -1;
	enum md_status status = md_unix_socket_listen(broker->settings->socket, 0177, &made, err);
	if (status == MD_ERR_INVALID)
		md_error_set(err, status, "%.200s is too long for a socket: say --control PATH to have a shorter path",
			     broker->settings->socket);
	broker->listening = status == MD_OK ? md_descriptor_raise(made) : -1;
	return status;
}

static void stop_listening(struct md_engine_broker *broker)
{
	if (broker->listening < 0)
		return;
	unlink(broker->settings->socket);
	close(broker->listening);
	broker->listening = -1;
}

/* ---- the process ---- */

/* Nobody is left to wait for more than a second: whoever finds no socket takes memory of its own at once. */
static void start_later(struct md_engine_broker *broker, const char *why)
{
	bool lasted = md_clock_ns() - broker->began >= LONG_NS;
	unsigned log = broker->failures < WAIT_LOG_MAX ? broker->failures : WAIT_LOG_MAX;
	struct timeval wait = {.tv_sec = lasted ? 0 : 1u << log};
	if (wait.tv_sec > 1)
		stop_listening(broker);
	broker->failures = lasted ? 0 : broker->failures + 1;
	md_warn("medusa-backbone %s; it is started again in %u s, and engines keep what they have of it", why,
		(unsigned)wait.tv_sec);
	event_add(broker->again, &wait);
}

static void on_ended(void *context, int status)
{
	struct md_engine_broker *broker = context;
	char what[160];
	broker->process = NULL;
	md_engine_process_describe(status, what, sizeof(what));
	start_later(broker, what);
}

static void start(evutil_socket_t fd, short what, void *context)
{
	struct md_engine_broker *broker = context;
	const char *const words[] = {
	    broker->settings->command, "run",       "--listen-fd", MD_ENGINE_INHERITED, "--end-fd",
	    MD_ENGINE_INHERITED_TOO,   "--watched", NULL};
	int inherits[] = {-1, broker->lifeline[0]};
	/* a helper: the daemon's end is the end of it, whatever the next daemon adopts */
	struct md_engine_command command = {
	    .argv = (char *const *)words, .output = broker->settings->output, .helper = true, .inherits = inherits};
	struct md_error err = {0};
	(void)fd, (void)what;
	broker->began = md_clock_ns();
	if (broker->listening < 0)
		listen_there(broker, &err);
	inherits[0] = broker->listening;
	if (broker->listening >= 0 &&
	    md_engine_process_start(broker->processes, &command, on_ended, broker, &broker->process, &err) == MD_OK)
		broker->starts++;
	else
		start_later(broker, err.message);
}

/* ---- beginning and end ---- */

static enum md_status begin(struct md_engine_broker *broker, struct event_base *base, struct md_error *err)
{
	broker->again = evtimer_new(base, start, broker);
	if (!broker->again)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for medusa-backbone");
	if (pipe2(broker->lifeline, O_CLOEXEC))
		return md_error_set(err, MD_ERR_IO, "medusa-backbone: a pipe: %s", strerror(errno));
	for (unsigned i = 0; i < 2; i++)
		broker->lifeline[i] = md_descriptor_raise(broker->lifeline[i]);
	if (listen_there(broker, err) != MD_OK)
		return md_error_prefix(err, "medusa-backbone");
	start(-1, 0, broker);
	return MD_OK;
}

enum md_status md_engine_broker_create(struct event_base *base, struct md_engine_processes *processes,
				       const struct md_engine_broker_settings *settings,
				       struct md_engine_broker **broker, struct md_error *err)
{
	struct md_engine_broker *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for medusa-backbone");
	*made = (struct md_engine_broker){
	    .processes = processes, .settings = settings, .listening = -1, .lifeline = {-1, -1}};
	enum md_status status = begin(made, base, err);
	if (status == MD_OK)
		*broker = made;
	else
		md_engine_broker_destroy(made);
	return status;
}

static void close_one(int fd)
{
	if (fd >= 0)
		close(fd);
}

void md_engine_broker_destroy(struct md_engine_broker *broker)
{
	if (!broker)
		return;
	if (broker->process)
		md_engine_process_kill(broker->process);
	stop_listening(broker);
	close_one(broker->lifeline[0]);
	close_one(broker->lifeline[1]);
	if (broker->again)
		event_free(broker->again);
	free(broker);
}

unsigned md_engine_broker_starts(const struct md_engine_broker *broker)
{
	return broker->starts;
}
