/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the process that asks the driver for checkpoints, tells it what to do, and is that process. */
#include "tools/swap_driver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "driver/process_checkpoint.h"
#include "swap/pulse.h"
#include "tools/swap_child.h"

#define DESCRIPTOR MD_SWAP_CHILD_CONNECTION

/* ---- the process ---- */

struct held {
	pid_t pids[MD_SWAP_CLIENTS];
	size_t count;
};

static size_t read_pids(const char *text, pid_t pids[MD_SWAP_CLIENTS])
{
	size_t count = 0;
	char *end;
	for (long pid; count < MD_SWAP_CLIENTS && (pid = strtol(text, &end, 10)) > 0; text = end)
		pids[count++] = (pid_t)pid;
	return count;
}

static enum md_status plan(const struct md_swap_message *message, struct md_checkpoint_move *move, struct md_error *err)
{
	CUuuid from, to;
	const char *wanted = md_swap_message_text(message, "gpu");
	if (!*wanted)
		return MD_OK;
	MD_FORWARD(md_checkpoint_gpu(wanted, &to, err));
	MD_FORWARD(md_checkpoint_gpu(md_swap_message_text(message, "from"), &from, err));
	return md_checkpoint_plan(&from, &to, move, err);
}

/* Somebody else may have brought the processes back. */
static enum md_status come_in(const struct md_swap_message *message, struct held *held,
			      struct md_checkpoint_times *times, struct md_error *err)
{
	struct md_checkpoint_move move = {.count = 0};
	MD_FORWARD(plan(message, &move, err));
	enum md_status status = md_checkpoint_in(held->pids, held->count, &move, NULL, times, err);
	return status == MD_ERR_BUSY && !move.count ? MD_OK : status;
}

/* Whether the driver holds one of the processes: what could not be brought back after a failure. */
static bool any_held(const struct held *held)
{
	for (size_t i = 0; i < held->count; i++) {
		CUprocessState state;
		struct md_error none;
		bool known;
		if (md_checkpoint_state(held->pids[i], &known, &state, &none) != MD_OK ||
		    (known && state != CU_PROCESS_STATE_RUNNING))
			return true;
	}
	return false;
}

/* *left: processes stay locked or checkpointed that should run. */
static enum md_status obey(const struct md_swap_message *message, struct held *held, struct md_checkpoint_times *times,
			   bool *left, struct md_error *err)
{
	MD_FORWARD(md_checkpoint_open(err));
	bool out = !strcmp(md_swap_message_text(message, "do"), "out");
	held->count = read_pids(md_swap_message_text(message, "pids"), held->pids);
	enum md_status status =
	    out ? md_checkpoint_out(held->pids, held->count, md_swap_message_number(message, "deadline_ms"), NULL,
				    times, err)
		: come_in(message, held, times, err);
	*left = status != MD_OK && any_held(held);
	if (!*left && (!out || status != MD_OK))
		held->count = 0;
	return status;
}

static enum md_status answer(const struct md_swap_message *message, const struct md_descriptor *connection,
			     struct held *held, struct md_error *err)
{
	struct md_checkpoint_times times = {0};
	struct md_error why = {0};
	struct md_swap_letter letter;
	bool left = false;
	md_swap_pulse_begin(connection, md_swap_message_number(message, "id"));
	enum md_status status = obey(message, held, &times, &left, &why);
	md_swap_pulse_end();
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_bool(&letter.json, "left", left);
	md_json_number(&letter.json, "id", md_swap_message_number(message, "id"));
	md_json_bool(&letter.json, "ok", status == MD_OK);
	md_json_number(&letter.json, "status", status);
	md_json_text(&letter.json, "message", status == MD_OK ? "" : why.message);
	md_json_number(&letter.json, "ns_driver_lock", times.ns_lock);
	md_json_number(&letter.json, "ns_checkpoint", times.ns_checkpoint);
	md_json_number(&letter.json, "ns_restore", times.ns_restore);
	md_json_number(&letter.json, "ns_unlock", times.ns_unlock);
	return md_swap_letter_send(&letter, DESCRIPTOR, -1, err);
}

/* Nobody can ask any more: what was taken comes back. */
static void let_go(const struct held *held)
{
	for (size_t i = 0; i < held->count; i++) {
		struct md_checkpoint_times none;
		struct md_error err = {0};
		enum md_status status = md_checkpoint_in(&held->pids[i], 1, NULL, NULL, &none, &err);
		if (status != MD_OK && status != MD_ERR_NOT_FOUND && status != MD_ERR_BUSY)
			fprintf(stderr, "medusa-swap: medusa-swap run has ended: %s\n", err.message);
	}
}

int md_swap_driver_main(void)
{
	static struct md_swap_message message; /* large, like the one below */
	static struct md_swap_wire wire;
	struct held held = {.count = 0};
	struct md_descriptor connection = MD_DESCRIPTOR_NONE;
	struct md_error err = {0};
	md_descriptor_keep(&connection, DESCRIPTOR);
	signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGPIPE, SIG_IGN);
	unsetenv("CUDA_VISIBLE_DEVICES"); /* the engine sees what it sees; here, all GPUs must have a name */
	unsetenv("CUDA_INJECTION64_PATH");
	md_swap_wire_init(&wire, DESCRIPTOR);
	while (md_swap_wire_await(&wire, -1, &message, &err) == MD_OK &&
	       answer(&message, &connection, &held, &err) == MD_OK)
		;
	let_go(&held);
	return 0;
}

/* ---- medusa-swap run ---- */

static void put_pids(const struct md_swap_server *s, struct md_json *json)
{
	char text[MD_SWAP_CLIENTS * 12] = "";
	size_t used = 0;
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i]->role == MD_SWAP_ENGINE && !s->clients[i]->gone && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, " %d", (int)s->clients[i]->seen_as);
	md_json_text(json, "pids", text);
}

/* The GPU that the engine is on. */
static enum md_status find_gpu(const struct md_swap_server *s, const char **gpu, struct md_error *err)
{
	const char *from = "";
	for (size_t i = 0; i < s->client_count; i++) {
		const struct md_swap_client *client = s->clients[i];
		if (client->role != MD_SWAP_ENGINE || client->gone)
			continue;
		if (client->gpus != 1 || (*from && strcmp(from, client->gpu) != 0))
			return md_error_set(
			    err, MD_ERR_UNSUPPORTED,
			    "--gpu: the engine uses several GPUs, and only one that uses one can change "
			    "it");
		from = client->gpu;
	}
	*gpu = from;
	return MD_OK;
}

static enum md_status ask(struct md_swap_server *s, bool out, struct md_error *err)
{
	struct md_swap_letter letter;
	const char *from = "";
	if (*s->now.gpu)
		MD_FORWARD(find_gpu(s, &from, err));
	if (!s->driver || s->driver->gone)
		MD_FORWARD(md_swap_child_start(s, MD_SWAP_DRIVER_WORD, MD_SWAP_DRIVER, -1, &s->driver, err));
	s->driver->task = (struct md_swap_task){
	    .work = out ? MD_SWAP_OUT : MD_SWAP_IN, .awaited = true, .id = ++s->id, .asked_at = md_clock_ns()};
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_text(&letter.json, "do", out ? "out" : "in");
	md_json_text(&letter.json, "gpu", s->now.gpu);
	md_json_text(&letter.json, "from", from);
	md_json_number(&letter.json, "id", s->id);
	md_json_number(&letter.json, "deadline_ms", s->now.deadline_ms);
	put_pids(s, &letter.json);
	return md_swap_letter_send(&letter, s->driver->wire.fd, -1, err);
}

bool md_swap_driver_ask(struct md_swap_server *s, bool out)
{
	struct md_error err = {0};
	enum md_status status = ask(s, out, &err);
	if (status == MD_ERR_TRUNCATED && s->driver && !s->driver->gone) { /* one that has just ended */
		s->driver->gone = true;
		status = ask(s, out, &err);
	}
	if (status == MD_OK)
		return true;
	if (s->driver)
		s->driver->task.awaited = false;
	if (s->why.status == MD_OK)
		s->why = err;
	return false;
}
