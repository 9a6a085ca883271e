/* SPDX-License-Identifier: Apache-2.0 */
/* What engines, commands and the process that asks the driver say to medusa-swap run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "swap/ask.h"
#include "tools/swap_borrow.h"
#include "tools/swap_carrier.h"
#include "tools/swap_server.h"

static void note_state(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message)
{
	if (md_swap_message_number(message, "placed"))
		atomic_store(&s->placed, true);
	client->out = !strcmp(md_swap_message_text(message, "state"), "out");
	client->swappable = md_swap_message_number(message, "swappable");
	client->away = md_swap_message_number(message, "out");
	client->stays = md_swap_message_number(message, "stays");
	client->kept = md_swap_message_number(message, "kept");
	client->shared = md_swap_message_number(message, "shared");
	client->constant = md_swap_message_number(message, "constant");
	client->in_file = md_swap_message_number(message, "in_file");
	client->gpus = md_swap_message_number(message, "gpus");
	snprintf(client->gpu, sizeof(client->gpu), "%s", md_swap_message_text(message, "gpu"));
	snprintf(client->because, sizeof(client->because), "%s", md_swap_message_text(message, "launches_all_because"));
	for (size_t n = 0; n < MD_SWAP_ARRIVAL_NUMBERS; n++)
		client->arrival[n] = md_swap_message_number(message, md_swap_arrival_names[n]);
}

/* The carrier gets ready as soon as it is known which GPU the engine is on, so that the first time finds it so. */
static void prepare_carrier(struct md_swap_server *s, const struct md_swap_client *client)
{
	if (!s->prepares_carrier || s->prepared || s->released || !client->gpus)
		return;
	s->prepared = true;
	md_swap_carrier_prepare(s, client->gpu);
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
	for (size_t i = 0; i < MD_PEER_TIMES; i++) {
		uint64_t one = md_swap_message_number(message, md_swap_peer_time_names[i]);
		s->peer_times[i] = s->peer_times[i] < one ? one : s->peer_times[i];
	}
}

/* One process of the engine has had the carrier. */
static void note_links(struct md_swap_server *s, const struct md_swap_message *message)
{
	const char *links = md_swap_message_text(message, "links"), *because;
	because = md_swap_message_text(message, "neighbours_because");
	if (*links)
		snprintf(s->links, sizeof(s->links), "%s", links);
	if (*because)
		snprintf(s->because, sizeof(s->because), "%s", because);
	because = md_swap_message_text(message, "peers_because");
	if (*because)
		snprintf(s->peers_because, sizeof(s->peers_because), "%s", because);
	because = md_swap_message_text(message, "peers_carried_because");
	if (*because)
		snprintf(s->carried_because, sizeof(s->carried_because), "%s", because);
}

static void note_failure(struct md_swap_server *s, const struct md_swap_client *client,
			 const struct md_swap_message *message)
{
	uint64_t status = md_swap_message_number(message, "status");
	if (s->why.status == MD_OK)
		md_error_set(&s->why, status && status < 100 ? (enum md_status)status : MD_ERR_IO,
			     "engine %s, process %d: %s", s->name, client->pid,
			     md_swap_message_text(message, "message"));
}

static void hear_engine(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message)
{
	if (md_swap_message_number(message, "end_carrier"))
		md_swap_carrier_end(s);
	if (md_swap_message_is_text(message, "state")) {
		note_state(s, client, message);
		prepare_carrier(s, client);
	}
	if (!md_swap_task_hear(s, client, message) || s->undoing)
		return;
	if (!md_swap_message_number(message, "ok")) {
		note_failure(s, client, message);
		return;
	}
	client->did = client->task.work == s->now.work;
	note_numbers(s, message);
	note_links(s, message);
}

static void hear_driver(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message)
{
	uint64_t status = md_swap_message_number(message, "status");
	bool answered = md_swap_task_hear(s, client, message);
	s->driver_begun = s->driver_begun || client->task.begun;
	if (!answered)
		return;
	s->driver_did = true;
	s->driver_left = md_swap_message_number(message, "left") != 0;
	note_numbers(s, message);
	if (!md_swap_message_number(message, "ok") && s->why.status == MD_OK)
		md_error_set(&s->why, status && status < 100 ? (enum md_status)status : MD_ERR_IO, "%s",
			     md_swap_message_text(message, "message"));
}

static pid_t process_of(const struct md_swap_client *client)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	return getsockopt(client->wire.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || !peer.pid ? client->pid : peer.pid;
}

static bool is_engine(const struct md_swap_server *s, pid_t process)
{
	for (size_t i = 0; i < s->client_count; i++)
		if (s->clients[i]->role == MD_SWAP_ENGINE && !s->clients[i]->gone && s->clients[i]->seen_as == process)
			return true;
	return false;
}

static enum md_status hear_command(struct md_swap_server *s, struct md_swap_client *client,
				   const struct md_swap_message *message, struct md_error *err)
{
	static const char *const numbers[] = {"deadline_ms", "process",    "verify", "overlap", "full",
					      "pulse",       "neighbours", "peers",  NULL};
	static const char *const texts[] = {"do", "gpu", NULL};
	const char *wish = md_swap_message_text(message, "do");
	MD_FORWARD(md_swap_message_check(message, numbers, texts, err));
	if (md_swap_message_number(message, "process") > INT32_MAX)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process: there is no process %" PRIu64,
				    md_swap_message_number(message, "process"));
	client->wish = (struct md_swap_wish){.deadline_ms = md_swap_message_number(message, "deadline_ms"),
					     .verify = md_swap_message_number(message, "verify") != 0,
					     .overlap = md_swap_message_number(message, "overlap") != 0,
					     .neighbours = md_swap_message_number(message, "neighbours") != 0,
					     .peers = md_swap_message_number(message, "peers") != 0,
					     .full = md_swap_message_number(message, "full") != 0};
	client->wish.process = (pid_t)md_swap_message_number(message, "process");
	snprintf(client->wish.gpu, sizeof(client->wish.gpu), "%s", md_swap_message_text(message, "gpu"));
	if (client->wish.deadline_ms > MD_SWAP_DEADLINE_MOST_MS)
		client->wish.deadline_ms = MD_SWAP_DEADLINE_MOST_MS;
	client->wish.full = client->wish.full && !strcmp(wish, "out");
	if (strcmp(wish, "in") != 0)
		*client->wish.gpu = '\0';
	if (client->wish.full && is_engine(s, process_of(client)))
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED,
		    "full: process %d is part of the engine, and cannot wait for a checkpoint of itself: "
		    "let another process ask",
		    (int)process_of(client));
	client->wants_pulses = md_swap_message_number(message, "pulse") != 0;
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
	static const char *const numbers[] = {"medusa_swap", "pid", NULL}, *const texts[] = {"role", NULL};
	const char *role = md_swap_message_text(message, "role");
	MD_FORWARD(md_swap_message_check(message, numbers, texts, err));
	uint64_t version = md_swap_message_number(message, "medusa_swap");
	if (version != MD_SWAP_PROTOCOL)
		return md_error_set(err, MD_ERR_VERSION,
				    "medusa_swap is %u, but this medusa-swap speaks version %u of the protocol",
				    (unsigned)version, MD_SWAP_PROTOCOL);
	if (!strcmp(role, "command")) {
		client->role = MD_SWAP_COMMAND;
		return hear_command(s, client, message, err);
	}
	if (!strcmp(role, "borrower")) {
		md_swap_borrow_lend(s, client);
		return MD_OK;
	}
	if (strcmp(role, "engine"))
		return md_error_set(err, MD_ERR_INVALID, "role is \"%.40s\", not engine, command or borrower", role);
	if (s->released)
		return md_error_set(err, MD_ERR_INVALID, "engine %s was released", s->name);
	if (md_swap_serve_engines(s, 0, NULL) == MD_SWAP_ENGINE_PROCESSES)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%u processes of engine %s are managed, and no more can be",
				    MD_SWAP_ENGINE_PROCESSES, s->name);
	md_swap_pool_sweep(s->pool); /* the process may hold blocks of a program that it was before */
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
	else if (client->role == MD_SWAP_CARRIER)
		md_swap_carrier_hear(s, message);
	else
		hear_engine(s, client, message);
	return MD_OK;
}
