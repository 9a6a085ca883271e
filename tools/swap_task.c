/* SPDX-License-Identifier: Apache-2.0 */
/* What engines are told to do, and those that do not answer: stopped processes must not hold up commands. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tools/swap_server.h"

#define SECOND_NS 1000000000u
#define PATIENCE_NS (5ull * SECOND_NS) /* for a process that says nothing; one that works says so each second */
#define LATE_NS (2ull * SECOND_NS)     /* between two turns: this process itself did not run */
/* For a call of the driver that does not return: at least this, and more for each byte that may have to be copied. */
#define STUCK_NS (30ull * SECOND_NS)
#define STUCK_NS_PER_BYTE 10u /* 100 MB a second */

/* ---- telling ---- */

enum md_swap_work md_swap_task_opposite(enum md_swap_work work)
{
	return work == MD_SWAP_OUT ? MD_SWAP_IN : work == MD_SWAP_IN ? MD_SWAP_OUT : MD_SWAP_NOTHING;
}

static void send_task(struct md_swap_server *s, struct md_swap_client *client)
{
	struct md_error none = {0};
	struct md_swap_task *task = &client->task;
	task->unsent = false;
	task->id = ++s->id;
	task->asked_at = md_clock_ns();
	if (md_swap_say_work(s, client, task->work, task->id, &none) != MD_OK)
		client->gone = true;
}

void md_swap_task_give(struct md_swap_server *s, struct md_swap_client *client, enum md_swap_work work)
{
	client->task = (struct md_swap_task){.work = work, .awaited = true, .unsent = true, .asked_at = md_clock_ns()};
	if (!client->owed)
		send_task(s, client);
}

bool md_swap_task_any(const struct md_swap_server *s)
{
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i]->task.awaited && !s->clients[i]->gone)
			return true;
	return false;
}

/* ---- hearing ---- */

static void hear_pulse(struct md_swap_task *task, const struct md_swap_message *message)
{
	uint64_t steps = md_swap_message_number(message, "steps");
	task->heard_at = md_clock_ns();
	if (!task->begun || steps != task->steps)
		task->step_at = task->heard_at;
	task->begun = true;
	task->steps = steps;
}

bool md_swap_task_hear(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message)
{
	struct md_swap_task *task = &client->task;
	uint64_t id = md_swap_message_number(message, "id");
	bool mine = task->awaited && !task->unsent && id == task->id;
	if (!id)
		return false;
	if (md_swap_message_number(message, "pulse")) {
		if (mine)
			hear_pulse(task, message);
		return false;
	}
	if (mine) {
		task->awaited = false;
		return true;
	}
	if (id == client->ping_id) {
		client->ping_id = 0;
		return false;
	}
	client->owed -= client->owed > 0;
	client->stuck = client->stuck && client->owed;
	if (!client->owed && task->awaited && task->unsent)
		send_task(s, client);
	return false;
}

/* ---- giving up ---- */

static uint64_t latest(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* Until then nobody expects an answer. */
static uint64_t due(const struct md_swap_server *s, const struct md_swap_task *task)
{
	bool takes_time = task->work == MD_SWAP_OUT || task->work == MD_SWAP_RELEASE;
	return latest(task->asked_at + (takes_time ? s->now.deadline_ms * 1000000u : 0), s->resumed_at);
}

static bool is_silent(const struct md_swap_server *s, const struct md_swap_client *client, uint64_t now)
{
	return now > latest(due(s, &client->task), client->task.heard_at) + PATIENCE_NS;
}

static bool is_stuck(const struct md_swap_server *s, const struct md_swap_client *client, uint64_t now)
{
	const struct md_swap_task *task = &client->task;
	return client->role == MD_SWAP_ENGINE && task->begun &&
	       now > latest(due(s, task), task->step_at) + STUCK_NS + client->swappable * STUCK_NS_PER_BYTE;
}

static void say_silent(struct md_swap_server *s, const struct md_swap_client *client, bool stuck)
{
	char what[MD_ERROR_MESSAGE_BYTES / 2];
	size_t used = strlen(s->why.message);
	if (stuck)
		snprintf(what, sizeof(what),
			 "process %d waits in a call of the driver that does not return: another program may have "
			 "locked it; \"medusa-swap in --method checkpoint %d\" lets it run",
			 (int)client->seen_as, (int)client->seen_as);
	else
		snprintf(
		    what, sizeof(what),
		    "process %d %s: continue it if it is stopped (SIGSTOP, a debugger, the freezer), let it run if "
		    "another program has locked it (medusa-swap in --method checkpoint %d), or end it",
		    (int)client->seen_as,
		    client->task.begun ? "has begun and does not go on" : "does not take the message",
		    (int)client->seen_as);
	if (s->why.status == MD_OK)
		md_error_set(&s->why, MD_ERR_TIMEOUT, "%s", what);
	else
		snprintf(s->why.message + used, sizeof(s->why.message) - used, "; %s", what);
}

/* Has what the engine may do later undone behind it, since the command is refused. */
static void give_up_engine(struct md_swap_server *s, struct md_swap_client *client, bool stuck)
{
	struct md_error none = {0};
	struct md_swap_task *task = &client->task;
	enum md_swap_work back = s->undoing ? MD_SWAP_NOTHING : md_swap_task_opposite(task->work);
	say_silent(s, client, stuck);
	task->awaited = false;
	if (task->unsent)
		return;
	client->owed++;
	client->stuck = stuck;
	if (!back || client->was_out == (task->work == MD_SWAP_OUT))
		return;
	if (md_swap_say_work(s, client, back, ++s->id, &none) == MD_OK)
		client->owed++;
	else
		client->gone = true;
}

/* If it went on later, it would take away, or bring back, processes that nobody expects it to touch. */
static void end_driver(struct md_swap_client *driver)
{
	kill(driver->pid, SIGKILL);
	driver->gone = true;
}

/* ---- while the driver is at work ---- */

static void ping(struct md_swap_server *s, struct md_swap_client *client, uint64_t now)
{
	struct md_error none = {0};
	client->ping_id = ++s->id;
	client->pinged_at = now;
	if (md_swap_say_work(s, client, MD_SWAP_THERE, client->ping_id, &none) != MD_OK)
		client->gone = true;
}

/* The driver waits for processes that are stopped, so they are asked all the time; their threads answer without it. */
static void watch_engine(struct md_swap_server *s, struct md_swap_client *client, uint64_t now)
{
	if (client->role != MD_SWAP_ENGINE || client->gone || client->owed)
		return;
	if (!client->ping_id) {
		if (now > client->pinged_at + SECOND_NS)
			ping(s, client, now);
		return;
	}
	if (now <= latest(client->pinged_at, due(s, &s->driver->task)) + PATIENCE_NS)
		return;
	client->task.begun = false;
	say_silent(s, client, false);
	client->ping_id = 0;
	client->owed++;
	end_driver(s->driver);
}

void md_swap_task_watch(struct md_swap_server *s)
{
	uint64_t now = md_clock_ns();
	if (now > s->turned_at + LATE_NS)
		s->resumed_at = now;
	s->turned_at = now;
	for (size_t i = 0; s->now.work && i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		bool awaited = client->task.awaited && !client->gone;
		if (awaited && client->role == MD_SWAP_DRIVER && is_silent(s, client, now))
			end_driver(client);
		else if (awaited && client->role == MD_SWAP_ENGINE && is_silent(s, client, now))
			give_up_engine(s, client, false);
		else if (awaited && is_stuck(s, client, now))
			give_up_engine(s, client, true);
		if (s->driver && s->driver->task.awaited && !s->driver->gone)
			watch_engine(s, client, now);
	}
}
