/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out one command after the other, with all processes of the engine or with none. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "swap/ask.h"
#include "tools/swap_driver.h"
#include "tools/swap_server.h"

#define ANSWER_NS 600000000000u /* after the deadline, for copies */

/* process: this one alone; 0: all. */
static unsigned count_engines(const struct md_swap_server *s, pid_t process, unsigned *out)
{
	unsigned engines = 0, away = 0;
	for (size_t i = 0; i < s->client_count; i++) {
		const struct md_swap_client *client = s->clients[i];
		if (client->role != MD_SWAP_ENGINE || client->gone || (process && client->pid != process))
			continue;
		engines++;
		away += client->out;
	}
	if (out)
		*out = away;
	return engines;
}

unsigned md_swap_serve_engines(const struct md_swap_server *s, unsigned *out)
{
	return count_engines(s, 0, out);
}

/* ---- asking engines ---- */

static bool concerns(const struct md_swap_server *s, const struct md_swap_client *client, enum md_swap_work work)
{
	if (client->role != MD_SWAP_ENGINE || client->gone || (s->now.process && client->pid != s->now.process))
		return false;
	if (work == MD_SWAP_OUT)
		return !client->out || s->now.full; /* what is out already has to get ready */
	return work == MD_SWAP_IN ? client->out : true;
}

static void ask(struct md_swap_server *s, struct md_swap_client *client, enum md_swap_work work)
{
	struct md_error err = {0};
	if (md_swap_say_work(s, client, work, &err) == MD_OK)
		client->asked = true;
	else
		client->gone = true;
}

static enum md_swap_work opposite(enum md_swap_work work)
{
	return work == MD_SWAP_OUT ? MD_SWAP_IN : work == MD_SWAP_IN ? MD_SWAP_OUT : MD_SWAP_NOTHING;
}

static void undo(struct md_swap_server *s)
{
	s->undoing = true;
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		if (client->did && client->was_out == (s->now.work == MD_SWAP_IN) &&
		    concerns(s, client, opposite(s->now.work)))
			ask(s, client, opposite(s->now.work));
	}
}

static bool is_awaited(const struct md_swap_server *s)
{
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i]->asked && !s->clients[i]->gone)
			return true;
	return false;
}

static bool any_did(const struct md_swap_server *s)
{
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i]->did)
			return true;
	return false;
}

/* ---- one command ---- */

static enum md_status check(const struct md_swap_server *s, const struct md_swap_wish *wish, struct md_error *err)
{
	unsigned out, engines = count_engines(s, wish->process, &out);
	enum md_swap_work work = wish->work;
	if (s->released)
		return md_error_set(err, MD_ERR_INVALID, "the engine was released, and keeps its memory");
	if (work == MD_SWAP_RELEASE)
		return MD_OK;
	if (wish->full && wish->process)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "full is for all processes of an engine, not for one");
	if (!engines && wish->process)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process %d uses no GPU yet, or is not managed",
				    (int)wish->process);
	if (!engines)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no process of the engine uses a GPU yet");
	if (work == MD_SWAP_OUT && out == engines && (s->full || !wish->full))
		return md_error_set(err, MD_ERR_BUSY, "the engine's memory is out already");
	if (work == MD_SWAP_OUT && s->full)
		return md_error_set(err, MD_ERR_BUSY, "the engine is fully out: bring it in first");
	if (work == MD_SWAP_IN && !out)
		return md_error_set(err, MD_ERR_BUSY, "the engine's memory is in already");
	if (work == MD_SWAP_IN && *wish->gpu && !s->full)
		return md_error_set(err, MD_ERR_BUSY,
				    "--gpu: only an engine that is out with --full can come back on another GPU");
	return MD_OK;
}

static void ask_engines(struct md_swap_server *s)
{
	s->step = MD_SWAP_STEP_ENGINES;
	for (size_t i = 0; i < s->client_count; i++)
		if (concerns(s, s->clients[i], s->now.work))
			ask(s, s->clients[i], s->now.work);
}

static void ask_driver(struct md_swap_server *s, enum md_swap_step step)
{
	s->step = step;
	s->driver_did = false;
	md_swap_driver_ask(s, step == MD_SWAP_STEP_CHECKPOINT);
}

static void start(struct md_swap_server *s, struct md_swap_client *asker, const struct md_swap_wish *wish)
{
	struct md_error why = {0};
	if (wish->work != MD_SWAP_END && check(s, wish, &why) != MD_OK) {
		md_swap_say_failure(asker, &why);
		return;
	}
	s->now = *wish;
	s->id++;
	s->began = md_clock_ns();
	s->asker = asker;
	s->undoing = s->restored = false;
	s->why = (struct md_error){0};
	memset(s->numbers, 0, sizeof(s->numbers));
	for (size_t i = 0; i < s->client_count; i++) {
		s->clients[i]->did = s->clients[i]->asked = false;
		s->clients[i]->was_out = s->clients[i]->out;
	}
	if (s->full)
		ask_driver(s, MD_SWAP_STEP_RESTORE);
	else
		ask_engines(s);
}

static void finish(struct md_swap_server *s)
{
	enum md_swap_work work = s->now.work;
	struct md_swap_client *asker = s->asker;
	bool done = s->why.status == MD_OK;
	s->now.work = MD_SWAP_NOTHING;
	s->asker = NULL;
	s->outs += done && work == MD_SWAP_OUT;
	s->ins += done && work == MD_SWAP_IN;
	s->released = s->released || (done && work == MD_SWAP_RELEASE);
	if (asker)
		md_swap_say_result(s, asker);
}

static void start_next(struct md_swap_server *s)
{
	struct md_swap_client *next = NULL;
	struct md_swap_wish wish;
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		if (client->wish.work && !client->gone && (!next || client->turn < next->turn))
			next = client;
	}
	if (!next)
		return;
	wish = next->wish;
	next->wish.work = MD_SWAP_NOTHING;
	start(s, next, &wish);
}

/* Gives up waiting for engines that do not answer, such as stopped ones (SIGSTOP, the freezer). */
static void give_up(struct md_swap_server *s)
{
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		if (!client->asked)
			continue;
		client->asked = false;
		if (s->why.status == MD_OK)
			md_error_set(&s->why, MD_ERR_TIMEOUT,
				     "process %d does not answer: continue it if it is stopped (SIGSTOP, the freezer)",
				     client->pid);
	}
}

/* What the driver has restored and the engines could not use stays on the GPU. */
static void say_restored(struct md_swap_server *s)
{
	size_t used = strlen(s->why.message);
	snprintf(s->why.message + used, sizeof(s->why.message) - used,
		 "; the driver has restored the engine already: its memory is out, and its context is not (out --full "
		 "takes that, too)");
	s->restored = false;
}

/* The next step of the work; false: there is none. */
static bool take_step(struct md_swap_server *s)
{
	enum md_swap_step step = s->step;
	if (step != MD_SWAP_STEP_ENGINES && !s->driver_did && s->why.status == MD_OK)
		md_error_set(&s->why, MD_ERR_IO, "the process that asks the driver ended before it answered");
	bool good = s->why.status == MD_OK;
	if (step == MD_SWAP_STEP_RESTORE && (good || s->now.work == MD_SWAP_END)) {
		s->full = !good;
		s->restored = good;
		s->why.status = MD_OK;
		ask_engines(s);
		return true;
	}
	if (good && step == MD_SWAP_STEP_ENGINES && s->now.work == MD_SWAP_OUT && s->now.full) {
		ask_driver(s, MD_SWAP_STEP_CHECKPOINT);
		return true;
	}
	s->full = s->full || (good && step == MD_SWAP_STEP_CHECKPOINT);
	if (good || s->undoing || !any_did(s)) {
		if (!good && s->restored)
			say_restored(s);
		return false;
	}
	s->step = MD_SWAP_STEP_ENGINES;
	undo(s);
	return true;
}

void md_swap_serve_advance(struct md_swap_server *s)
{
	if (s->now.work && md_clock_ns() - s->began > ANSWER_NS + s->now.deadline_ms * 1000000u)
		give_up(s);
	while (s->now.work && !is_awaited(s)) {
		if (!take_step(s))
			finish(s);
	}
	if (!s->now.work)
		start_next(s);
}

/* ---- what comes ---- */

static void note_state(struct md_swap_client *client, const struct md_swap_message *message)
{
	client->out = !strcmp(md_swap_message_text(message, "state"), "out");
	client->swappable = md_swap_message_number(message, "swappable");
	client->away = md_swap_message_number(message, "out");
	client->stays = md_swap_message_number(message, "stays");
	client->kept = md_swap_message_number(message, "kept");
	client->gpus = md_swap_message_number(message, "gpus");
	snprintf(client->gpu, sizeof(client->gpu), "%s", md_swap_message_text(message, "gpu"));
	for (size_t n = 0; n < MD_SWAP_ARRIVAL_NUMBERS; n++)
		client->arrival[n] = md_swap_message_number(message, md_swap_arrival_names[n]);
}

static void note_numbers(struct md_swap_server *s, const struct md_swap_message *message)
{
	for (size_t i = 0; i < MD_SWAP_NUMBERS; i++) {
		uint64_t more = md_swap_message_number(message, md_swap_number_names[i]);
		if (i < MD_SWAP_N_NS)
			s->numbers[i] += more;
		else if (s->numbers[i] < more)
			s->numbers[i] = more;
	}
}

static void note_failure(struct md_swap_server *s, const struct md_swap_client *client,
			 const struct md_swap_message *message)
{
	uint64_t status = md_swap_message_number(message, "status");
	if (s->why.status == MD_OK)
		md_error_set(&s->why, status && status < 100 ? (enum md_status)status : MD_ERR_IO, "process %d: %s",
			     client->pid, md_swap_message_text(message, "message"));
}

static void hear_engine(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message)
{
	uint64_t id = md_swap_message_number(message, "id");
	note_state(client, message);
	if (!id || id != s->id || !client->asked)
		return;
	client->asked = false;
	if (s->undoing)
		return;
	if (!md_swap_message_number(message, "ok")) {
		note_failure(s, client, message);
		return;
	}
	client->did = true;
	note_numbers(s, message);
}

static void hear_driver(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message)
{
	uint64_t status = md_swap_message_number(message, "status");
	if (!client->asked || md_swap_message_number(message, "id") != s->id)
		return;
	client->asked = false;
	s->driver_did = true;
	note_numbers(s, message);
	if (!md_swap_message_number(message, "ok") && s->why.status == MD_OK)
		md_error_set(&s->why, status && status < 100 ? (enum md_status)status : MD_ERR_IO, "%s",
			     md_swap_message_text(message, "message"));
}

static enum md_status hear_command(struct md_swap_server *s, struct md_swap_client *client,
				   const struct md_swap_message *message, struct md_error *err)
{
	static const char *const numbers[] = {"deadline_ms", "process", "verify", "overlap", "full"};
	const char *wish = md_swap_message_text(message, "do");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (md_swap_message_is_text(message, numbers[i]))
			return md_error_set(err, MD_ERR_INVALID, "%s is a text: a number or a truth is wanted",
					    numbers[i]);
	if (md_swap_message_number(message, "process") > INT32_MAX)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process: there is no process %" PRIu64,
				    md_swap_message_number(message, "process"));
	client->wish = (struct md_swap_wish){.deadline_ms = md_swap_message_number(message, "deadline_ms"),
					     .verify = md_swap_message_number(message, "verify") != 0,
					     .overlap = md_swap_message_number(message, "overlap") != 0,
					     .full = md_swap_message_number(message, "full") != 0};
	client->wish.process = (pid_t)md_swap_message_number(message, "process");
	snprintf(client->wish.gpu, sizeof(client->wish.gpu), "%s", md_swap_message_text(message, "gpu"));
	if (client->wish.deadline_ms > MD_SWAP_DEADLINE_MOST_MS)
		client->wish.deadline_ms = MD_SWAP_DEADLINE_MOST_MS;
	client->turn = ++s->turns;
	if (!strcmp(wish, "status"))
		md_swap_say_status(s, client);
	else if (!strcmp(wish, "out"))
		client->wish.work = MD_SWAP_OUT;
	else if (!strcmp(wish, "in"))
		client->wish.work = MD_SWAP_IN;
	else if (!strcmp(wish, "release"))
		client->wish.work = MD_SWAP_RELEASE;
	else
		return md_error_set(err, MD_ERR_UNSUPPORTED, "do is \"%.40s\", not out, in, status or release", wish);
	return MD_OK;
}

static pid_t process_of(const struct md_swap_client *client)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	return getsockopt(client->wire.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || !peer.pid ? client->pid : peer.pid;
}

static enum md_status hear_hello(struct md_swap_server *s, struct md_swap_client *client,
				 const struct md_swap_message *message, struct md_error *err)
{
	const char *role = md_swap_message_text(message, "role");
	uint64_t version = md_swap_message_number(message, "medusa_swap");
	if (version != MD_SWAP_PROTOCOL)
		return md_error_set(err, MD_ERR_VERSION,
				    "medusa_swap is %u, but this medusa-swap speaks version %u of the protocol",
				    (unsigned)version, MD_SWAP_PROTOCOL);
	if (!strcmp(role, "command")) {
		client->role = MD_SWAP_COMMAND;
		return hear_command(s, client, message, err);
	}
	if (strcmp(role, "engine"))
		return md_error_set(err, MD_ERR_INVALID, "role is \"%.40s\", not engine or command", role);
	if (s->released)
		return md_error_set(err, MD_ERR_INVALID, "engine %s was released", s->name);
	client->role = MD_SWAP_ENGINE;
	client->pid = (pid_t)(md_swap_message_number(message, "pid") & 0x7fffffff);
	client->seen_as = process_of(client);
	atomic_store(&s->engine, client->pid);
	return md_swap_say_welcome(s, client, err);
}

enum md_status md_swap_serve_message(struct md_swap_server *s, struct md_swap_client *client,
				     const struct md_swap_message *message, struct md_error *err)
{
	if (client->role == MD_SWAP_NEW)
		return hear_hello(s, client, message, err);
	if (client->role == MD_SWAP_COMMAND)
		return md_error_set(err, MD_ERR_INVALID, "a connection takes one command: open another one");
	if (client->role == MD_SWAP_DRIVER)
		hear_driver(s, client, message);
	else
		hear_engine(s, client, message);
	return MD_OK;
}

void md_swap_serve_lost(struct md_swap_server *s, struct md_swap_client *client)
{
	int other = 0;
	if (s->asker == client)
		s->asker = NULL;
	if (s->driver == client)
		s->driver = NULL;
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i] != client && s->clients[i]->role == MD_SWAP_ENGINE)
			other = s->clients[i]->pid;
	if (client->role == MD_SWAP_ENGINE) {
		atomic_store(&s->engine, other);
		s->full = s->full && other;
	}
}

void md_swap_serve_end(struct md_swap_server *s)
{
	struct md_swap_wish wish = {.work = MD_SWAP_END};
	if (s->now.work || s->ending)
		return;
	s->ending = true;
	start(s, NULL, &wish);
}
