/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out one command after the other, with all processes of the engine or with none. */
#include <string.h>

#include "base/clock.h"
#include "tools/swap_server.h"

#define ANSWER_NS 600000000000u /* after the deadline, for copies */
#define DEADLINE_MOST_MS 3600000u

unsigned md_swap_serve_engines(const struct md_swap_server *s, unsigned *out)
{
	unsigned engines = 0, away = 0;
	for (size_t i = 0; i < s->client_count; i++) {
		const struct md_swap_client *client = s->clients[i];
		if (client->role != MD_SWAP_ENGINE || client->gone)
			continue;
		engines++;
		away += client->out;
	}
	if (out)
		*out = away;
	return engines;
}

/* ---- asking engines ---- */

static bool concerns(const struct md_swap_client *client, enum md_swap_work work)
{
	if (client->role != MD_SWAP_ENGINE || client->gone)
		return false;
	return work == MD_SWAP_OUT ? !client->out : work == MD_SWAP_IN ? client->out : true;
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
		if (client->did && concerns(client, opposite(s->now.work)))
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

static enum md_status check(const struct md_swap_server *s, enum md_swap_work work, struct md_error *err)
{
	unsigned out, engines = md_swap_serve_engines(s, &out);
	if (s->released)
		return md_error_set(err, MD_ERR_INVALID, "the engine was released, and keeps its memory");
	if (work == MD_SWAP_RELEASE)
		return MD_OK;
	if (!engines)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no process of the engine uses a GPU yet");
	if (work == MD_SWAP_OUT && out == engines)
		return md_error_set(err, MD_ERR_BUSY, "the engine's memory is out already");
	if (work == MD_SWAP_IN && !out)
		return md_error_set(err, MD_ERR_BUSY, "the engine's memory is in already");
	return MD_OK;
}

static void start(struct md_swap_server *s, struct md_swap_client *asker, const struct md_swap_wish *wish)
{
	struct md_error why = {0};
	if (wish->work != MD_SWAP_END && check(s, wish->work, &why) != MD_OK) {
		md_swap_say_failure(asker, &why);
		return;
	}
	s->now = *wish;
	s->id++;
	s->began = md_clock_ns();
	s->asker = asker;
	s->undoing = false;
	s->why = (struct md_error){0};
	memset(s->numbers, 0, sizeof(s->numbers));
	for (size_t i = 0; i < s->client_count; i++) {
		s->clients[i]->did = s->clients[i]->asked = false;
		if (concerns(s->clients[i], wish->work))
			ask(s, s->clients[i], wish->work);
	}
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

void md_swap_serve_advance(struct md_swap_server *s)
{
	if (s->now.work && md_clock_ns() - s->began > ANSWER_NS + s->now.deadline_ms * 1000000u)
		give_up(s);
	if (s->now.work && !is_awaited(s)) {
		if (s->why.status != MD_OK && !s->undoing && any_did(s))
			undo(s);
		if (!is_awaited(s))
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

static enum md_status hear_command(struct md_swap_server *s, struct md_swap_client *client,
				   const struct md_swap_message *message, struct md_error *err)
{
	const char *wish = md_swap_message_text(message, "do");
	client->wish = (struct md_swap_wish){.deadline_ms = md_swap_message_number(message, "deadline_ms"),
					     .verify = md_swap_message_number(message, "verify") != 0,
					     .overlap = md_swap_message_number(message, "overlap") != 0};
	if (client->wish.deadline_ms > DEADLINE_MOST_MS)
		client->wish.deadline_ms = DEADLINE_MOST_MS;
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
	hear_engine(s, client, message);
	return MD_OK;
}

void md_swap_serve_lost(struct md_swap_server *s, struct md_swap_client *client)
{
	int other = 0;
	if (s->asker == client)
		s->asker = NULL;
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i] != client && s->clients[i]->role == MD_SWAP_ENGINE)
			other = s->clients[i]->pid;
	if (client->role == MD_SWAP_ENGINE)
		atomic_store(&s->engine, other);
}

void md_swap_serve_end(struct md_swap_server *s)
{
	struct md_swap_wish wish = {.work = MD_SWAP_END};
	if (s->now.work || s->ending)
		return;
	s->ending = true;
	start(s, NULL, &wish);
}
