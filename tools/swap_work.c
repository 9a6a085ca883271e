/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out one command after the other, with all processes of the engine or with none. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/swap_carrier.h"
#include "tools/swap_child.h"
#include "tools/swap_driver.h"
#include "tools/swap_server.h"

unsigned md_swap_serve_engines(const struct md_swap_server *s, pid_t process, unsigned *out)
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

/* ---- asking engines ---- */

static bool concerns(const struct md_swap_server *s, const struct md_swap_client *client, enum md_swap_work work)
{
	if (client->role != MD_SWAP_ENGINE || client->gone || (s->now.process && client->pid != s->now.process))
		return false;
	if (work == MD_SWAP_OUT)
		return !client->out || s->now.full; /* what is out already has to get ready */
	if (work == MD_SWAP_THERE)
		return !client->stuck; /* one that waits in the driver waits for its restore */
	return work == MD_SWAP_IN ? client->out : true;
}

static void undo(struct md_swap_server *s)
{
	enum md_swap_work back = md_swap_task_opposite(s->now.work);
	s->undoing = true;
	s->step = MD_SWAP_STEP_ENGINES;
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		if (client->did && client->was_out == (s->now.work == MD_SWAP_IN) && concerns(s, client, back))
			md_swap_task_give(s, client, back);
	}
}

static bool any_did(const struct md_swap_server *s)
{
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i]->did)
			return true;
	return false;
}

/* ---- one command ---- */

/* Whether the memory is where it is to be already. */
static const char *find_already(const struct md_swap_server *s, const struct md_swap_wish *wish)
{
	unsigned out, engines = md_swap_serve_engines(s, wish->process, &out);
	if (s->released || !engines || (wish->full && wish->process))
		return NULL;
	if (wish->work == MD_SWAP_OUT && out == engines && (s->full || !wish->full))
		return "the engine's memory is out already";
	if (wish->work == MD_SWAP_IN && !out && !*wish->gpu)
		return "the engine's memory is in already";
	return NULL;
}

static enum md_status check(const struct md_swap_server *s, const struct md_swap_wish *wish, struct md_error *err)
{
	unsigned engines = md_swap_serve_engines(s, wish->process, NULL);
	if (s->released)
		return md_error_set(err, MD_ERR_INVALID, "the engine was released, and keeps its memory");
	if (wish->work == MD_SWAP_RELEASE)
		return MD_OK;
	if (wish->full && wish->process)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "full is for all processes of an engine, not for one");
	if (!engines && wish->process)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process %d uses no GPU yet, or is not managed",
				    (int)wish->process);
	if (!engines)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no process of the engine uses a GPU yet");
	if (wish->work == MD_SWAP_OUT && s->full)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "the engine is fully out: bring it in first");
	if (wish->work == MD_SWAP_IN && wish->overlap && (wish->neighbours || wish->peers))
		return md_error_set(err, MD_ERR_INVALID,
				    "overlap and %s: %s cannot fill memory while the engine uses it; choose one",
				    wish->peers ? "peers" : "neighbours", wish->peers ? "peers" : "neighbours");
	if (wish->work == MD_SWAP_IN && *wish->gpu && !s->full)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "--gpu: only an engine that is out with --full can come back on another GPU");
	return MD_OK;
}

static void ask_engines(struct md_swap_server *s, enum md_swap_step step, enum md_swap_work work)
{
	s->step = step;
	for (size_t i = 0; i < s->client_count; i++)
		if (concerns(s, s->clients[i], work))
			md_swap_task_give(s, s->clients[i], work);
}

static void ask_driver(struct md_swap_server *s, enum md_swap_step step)
{
	s->step = step;
	s->driver_begun = s->driver_did = s->driver_left = false;
	s->driver_asked = md_swap_driver_ask(s, step == MD_SWAP_STEP_CHECKPOINT);
}

/* Whoever was told to end, or killed, while the command waited does not want it any more. */
static bool has_hung_up(const struct md_swap_client *asker)
{
	char first;
	return asker && recv(asker->wire.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* False: there is nothing to do, and the asker knows. */
static bool may_start(struct md_swap_server *s, struct md_swap_client *asker, const struct md_swap_wish *wish)
{
	struct md_error why = {0};
	const char *already = find_already(s, wish);
	if (wish->work == MD_SWAP_END)
		return true;
	if (has_hung_up(asker)) {
		asker->gone = true;
		return false;
	}
	if (already) {
		md_swap_say_already(s, asker, already);
		return false;
	}
	if (check(s, wish, &why) == MD_OK)
		return true;
	md_swap_say_failure(asker, &why);
	return false;
}

static void start(struct md_swap_server *s, struct md_swap_client *asker, const struct md_swap_wish *wish)
{
	if (!may_start(s, asker, wish))
		return;
	s->now = *wish;
	s->asker = asker;
	s->undoing = s->restored = s->retried = false;
	s->why = (struct md_error){0};
	memset(s->numbers, 0, sizeof(s->numbers));
	memset(s->peer_times, 0, sizeof(s->peer_times));
	*s->links = *s->because = '\0';
	if (wish->peers)
		*s->peers_because = *s->carried_because = '\0';
	for (size_t i = 0; i < s->client_count; i++) {
		s->clients[i]->did = s->clients[i]->task.awaited = false;
		s->clients[i]->was_out = s->clients[i]->out;
	}
	if (s->full && !(s->stays_out && wish->work == MD_SWAP_END)) /* that comes back by nothing but "in" */
		ask_engines(s, MD_SWAP_STEP_CALL, MD_SWAP_THERE);
	else
		ask_engines(s, MD_SWAP_STEP_ENGINES, wish->work);
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
	if (s->released) {
		atomic_store(&s->useless, true);
		md_swap_carrier_end(s);
	}
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

/* ---- steps: each says whether there is another one ---- */

static void add_to_message(struct md_swap_server *s, const char *text)
{
	size_t used = strlen(s->why.message);
	snprintf(s->why.message + used, sizeof(s->why.message) - used, "%s", text);
}

static bool end_of_call(struct md_swap_server *s)
{
	bool good = s->why.status == MD_OK;
	if (!good && s->now.work != MD_SWAP_END)
		return false;
	if (good) {
		ask_driver(s, MD_SWAP_STEP_RESTORE);
		return true;
	}
	s->why.status = MD_OK; /* nobody waits for ever for a process that is stopped */
	ask_engines(s, MD_SWAP_STEP_ENGINES, s->now.work);
	return true;
}

static bool driver_died(struct md_swap_server *s)
{
	return s->driver_asked && !s->driver_did && s->why.status == MD_OK;
}

static bool ask_another(struct md_swap_server *s)
{
	s->retried = true;
	ask_driver(s, s->step);
	return true;
}

static bool end_of_restore(struct md_swap_server *s)
{
	if (driver_died(s) && !s->retried)
		return ask_another(s); /* what is restored already does no harm */
	if (driver_died(s))
		md_error_set(&s->why, MD_ERR_IO, "the process that asks the driver ended twice before it answered");
	bool good = s->why.status == MD_OK;
	if (!good && s->now.work != MD_SWAP_END)
		return false;
	s->full = !good;
	s->restored = good;
	s->why.status = MD_OK;
	ask_engines(s, MD_SWAP_STEP_ENGINES, s->now.work);
	return true;
}

static void may_be_fully_out(struct md_swap_server *s)
{
	s->full = true;
	add_to_message(s, "; the engine is out, and the driver may hold its processes: \"medusa-swap in\" goes on from "
			  "there");
}

static bool end_of_checkpoint(struct md_swap_server *s)
{
	bool good = s->why.status == MD_OK && s->driver_did;
	if (good) {
		s->full = true;
		return false;
	}
	if (driver_died(s) && !s->driver_begun && !s->retried)
		return ask_another(s);
	if (driver_died(s)) {
		md_error_set(&s->why, MD_ERR_IO, "the process that asks the driver ended before it answered");
		ask_driver(s, MD_SWAP_STEP_BACK);
		return true;
	}
	if (s->driver_asked && (!s->driver_did || s->driver_left)) {
		may_be_fully_out(s);
		return false;
	}
	undo(s);
	return true;
}

static bool end_of_back(struct md_swap_server *s)
{
	if (!s->driver_did || s->driver_left) {
		may_be_fully_out(s);
		return false;
	}
	undo(s);
	return true;
}

/* What the driver has restored and the engines could not use stays on the GPU. */
static void say_restored(struct md_swap_server *s)
{
	bool stuck = false;
	for (size_t i = 0; i < s->client_count; i++)
		stuck = stuck || s->clients[i]->stuck;
	s->full = stuck; /* perhaps the driver holds it still: the next command asks again */
	if (!stuck)
		add_to_message(s, "; the driver has restored the engine already: its memory is out, and its context is "
				  "not (out --full takes that, too)");
	s->restored = false;
}

static bool end_of_engines(struct md_swap_server *s)
{
	bool good = s->why.status == MD_OK;
	if (good && s->now.work == MD_SWAP_OUT && s->now.full) {
		ask_driver(s, MD_SWAP_STEP_CHECKPOINT);
		return true;
	}
	if (!good && !s->undoing && any_did(s)) {
		undo(s);
		return true;
	}
	if (!good && s->restored)
		say_restored(s);
	return false;
}

static bool take_step(struct md_swap_server *s)
{
	switch (s->step) {
	case MD_SWAP_STEP_CALL:
		return end_of_call(s);
	case MD_SWAP_STEP_RESTORE:
		return end_of_restore(s);
	case MD_SWAP_STEP_CHECKPOINT:
		return end_of_checkpoint(s);
	case MD_SWAP_STEP_BACK:
		return end_of_back(s);
	case MD_SWAP_STEP_ENGINES:
	default:
		return end_of_engines(s);
	}
}

void md_swap_serve_advance(struct md_swap_server *s)
{
	md_swap_task_watch(s);
	while (s->now.work && !md_swap_task_any(s)) {
		if (!take_step(s))
			finish(s);
	}
	if (!s->now.work)
		start_next(s);
}

/* ---- the end ---- */

void md_swap_serve_lost(struct md_swap_server *s, struct md_swap_client *client)
{
	int other = 0;
	if (s->asker == client)
		s->asker = NULL;
	if (s->driver == client)
		s->driver = NULL;
	if (s->carrier == client) {
		md_swap_carrier_end(s);
		s->carrier = NULL;
	}
	if (client->role == MD_SWAP_DRIVER || client->role == MD_SWAP_CARRIER)
		md_swap_child_reap(s, client->pid);
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
