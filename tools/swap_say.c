/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of medusa-swap run to engines and commands. */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/swap_carrier.h"
#include "tools/swap_server.h"

const char *const md_swap_number_names[MD_SWAP_NUMBERS] = {
    "bytes",           "copied",         "hashed_equal",   "zero",
    "discarded",       "resident",       "coming_at_open", "copied_by_neighbours",
    "copied_by_peers", "peers_differed", "spilled",        "ns_quiesce",
    "ns_hash",         "ns_lock",        "ns_copy",        "ns_unmap",
    "ns_map",          "ns_spill",       "ns_driver_lock", "ns_checkpoint",
    "ns_restore",      "ns_unlock",      "ns_total",
};

const char *const md_swap_arrival_names[MD_SWAP_ARRIVAL_NUMBERS] = {
    "coming", "unknown", "there_at_first_launch", "launches_free", "launches_some", "launches_all",
};

static const char *const work_names[] = {"", "out", "in", "release", "end", "there"};

static const char *state_of(const struct md_swap_server *s)
{
	unsigned out, engines = md_swap_serve_engines(s, 0, &out);
	if (s->now.work == MD_SWAP_OUT)
		return "going out";
	if (s->now.work == MD_SWAP_IN)
		return "coming in";
	if (s->released)
		return "released";
	if (!engines)
		return "no GPU in use";
	return !out ? "in" : out == engines ? "out" : "partly out";
}

static void put_state(struct md_swap_server *s, struct md_json *json)
{
	struct md_swap_pool_counts pool = md_swap_pool_count(s->pool);
	uint64_t swappable = 0, away = 0, stays = 0, constant = 0, shared = 0, in_file = 0, silent = 0;
	unsigned out, engines = md_swap_serve_engines(s, 0, &out);
	for (size_t i = 0; i < s->client_count; i++) {
		swappable += s->clients[i]->swappable;
		away += s->clients[i]->away;
		stays += s->clients[i]->stays;
		constant += s->clients[i]->constant;
		shared += s->clients[i]->shared;
		in_file += s->clients[i]->in_file;
		silent += s->clients[i]->owed > 0;
	}
	md_json_text(json, "name", s->name);
	md_json_text(json, "state", state_of(s));
	md_json_bool(json, "full", s->full);
	md_json_number(json, "engines", engines);
	md_json_number(json, "engines_out", out);
	md_json_number(json, "engines_silent", silent);
	md_json_number(json, "pid", (uint64_t)getpid());
	md_json_number(json, "engine_pid", (uint64_t)atomic_load(&s->engine));
	md_json_number(json, "swappable", swappable);
	md_json_number(json, "out", away);
	md_json_number(json, "stays", s->full ? 0 : stays);
	md_json_number(json, "constant", constant);
	md_json_number(json, "shared", shared);
	md_json_number(json, "in_file", in_file);
	for (size_t n = 0; n < MD_SWAP_ARRIVAL_NUMBERS; n++) {
		uint64_t sum = 0;
		for (size_t i = 0; i < s->client_count; i++)
			sum += s->clients[i]->arrival[n];
		md_json_number(json, md_swap_arrival_names[n], sum);
	}
	const char *because = "";
	for (size_t i = 0; i < s->client_count && !*because; i++)
		because = s->clients[i]->because;
	md_json_text(json, "launches_all_because", because);
	md_json_number(json, "pool_bytes", pool.blocks * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "pool_held", pool.held * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "pool_cached", pool.cached * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "pool_free", pool.free * (uint64_t)MD_SWAP_BLOCK);
	md_json_bool(json, "pool_shared", s->shares);
	md_json_number(json, "neighbours", s->carrier_links);
	md_json_text(json, "neighbour_gpus", s->carrier_gpus);
	md_json_number(json, "neighbours_locked", s->carrier_locked);
	md_json_bool(json, "lends", s->lends);
	md_json_text(json, "peers_because", s->peers_because);
	md_json_text(json, "peers_carried_because", s->carried_because);
	md_json_number(json, "spill_bytes", pool.spill.blocks * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "spill_held", pool.spill.held * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "spill_cached", pool.spill.cached * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "spill_free", pool.spill.free * (uint64_t)MD_SWAP_BLOCK);
	md_json_number(json, "outs", s->outs);
	md_json_number(json, "ins", s->ins);
}

static void send_last(struct md_swap_client *client, struct md_swap_letter *letter)
{
	struct md_error none;
	md_swap_letter_send(letter, client->wire.fd, -1, &none); /* fails if the client has gone, which is no error */
	client->gone = true;
}

void md_swap_say_failure(struct md_swap_client *client, const struct md_error *why)
{
	struct md_swap_letter letter;
	struct md_error none;
	client->gone = true;
	if (md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_bool(&letter.json, "ok", false);
	md_json_number(&letter.json, "status", why->status);
	md_json_text(&letter.json, "message", why->message);
	send_last(client, &letter);
}

void md_swap_say_already(struct md_swap_server *s, struct md_swap_client *client, const char *what)
{
	struct md_swap_letter letter;
	struct md_error none;
	if (md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_bool(&letter.json, "ok", true);
	md_json_number(&letter.json, "status", MD_OK);
	md_json_text(&letter.json, "message", what);
	md_json_bool(&letter.json, "already", true);
	put_state(s, &letter.json);
	for (size_t i = 0; i < MD_SWAP_NUMBERS; i++)
		md_json_number(&letter.json, md_swap_number_names[i], 0);
	for (size_t i = 0; i < MD_PEER_TIMES; i++)
		md_json_number(&letter.json, md_swap_peer_time_names[i], 0);
	md_json_text(&letter.json, "links", "");
	md_json_text(&letter.json, "neighbours_because", "");
	send_last(client, &letter);
}

void md_swap_say_pulse(struct md_swap_client *client)
{
	struct pollfd ready = {.fd = client->wire.fd, .events = POLLOUT};
	struct md_swap_letter letter;
	struct md_error none;
	/* one that does not read must hold up nobody */
	if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT) || md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_bool(&letter.json, "pulse", true);
	if (md_swap_letter_send(&letter, client->wire.fd, -1, &none) != MD_OK)
		client->gone = true;
}

void md_swap_say_result(struct md_swap_server *s, struct md_swap_client *client)
{
	struct md_swap_letter letter;
	struct md_error none;
	if (md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_bool(&letter.json, "ok", s->why.status == MD_OK);
	md_json_number(&letter.json, "status", s->why.status);
	md_json_text(&letter.json, "message", s->why.status == MD_OK ? "" : s->why.message);
	put_state(s, &letter.json);
	for (size_t i = MD_SWAP_N_DRIVER_LOCK; i <= MD_SWAP_N_UNLOCK; i++)
		s->numbers[MD_SWAP_N_TOTAL] += s->numbers[i]; /* before, or after, what engines do */
	md_json_bool(&letter.json, "already", false);
	for (size_t i = 0; i < MD_SWAP_NUMBERS && s->why.status == MD_OK; i++)
		md_json_number(&letter.json, md_swap_number_names[i], s->numbers[i]);
	for (size_t i = 0; i < MD_PEER_TIMES && s->why.status == MD_OK; i++)
		md_json_number(&letter.json, md_swap_peer_time_names[i], s->peer_times[i]);
	if (s->why.status == MD_OK) {
		md_json_text(&letter.json, "links", s->links);
		md_json_text(&letter.json, "neighbours_because", s->because);
	}
	send_last(client, &letter);
}

void md_swap_say_status(struct md_swap_server *s, struct md_swap_client *client)
{
	struct md_swap_letter letter;
	struct md_error none;
	if (md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_bool(&letter.json, "ok", true);
	md_json_number(&letter.json, "status", MD_OK);
	put_state(s, &letter.json);
	send_last(client, &letter);
}

enum md_status md_swap_say_welcome(struct md_swap_server *s, struct md_swap_client *client, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_swap", MD_SWAP_PROTOCOL);
	md_json_bool(&letter.json, "ok", true);
	md_json_bool(&letter.json, "stays_out", s->stays_out);
	md_json_bool(&letter.json, "share_constant", s->share_constant);
	return md_swap_letter_send_both(&letter, client->wire.fd, s->pool_fd, s->spill_fd, err);
}

enum md_status md_swap_say_work(struct md_swap_server *s, struct md_swap_client *client, enum md_swap_work work,
				uint64_t id, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	MD_AUTO_FD int lenders = -1;
	MD_AUTO_FD int carrier = work == MD_SWAP_IN ? md_swap_carrier_give(s, client, &lenders) : -1;
	md_json_text(&letter.json, "do", work_names[work]);
	md_json_number(&letter.json, "id", id);
	md_json_number(&letter.json, "deadline_ms", s->now.deadline_ms);
	md_json_bool(&letter.json, "verify", s->now.verify);
	md_json_bool(&letter.json, "overlap", s->now.overlap);
	md_json_bool(&letter.json, "own", s->now.process != 0);
	md_json_bool(&letter.json, "full", s->now.full);
	md_json_bool(&letter.json, "lost", s->full);
	md_json_bool(&letter.json, "neighbours", s->now.neighbours);
	md_json_bool(&letter.json, "peers", s->now.peers);
	md_json_bool(&letter.json, "carrier", carrier >= 0);
	return md_swap_letter_send_both(&letter, client->wire.fd, carrier, lenders, err);
}

enum md_status md_swap_say_lend(const struct md_swap_client *client, int borrower, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_text(&letter.json, "do", "lend");
	return md_swap_letter_send(&letter, client->wire.fd, borrower, err);
}
