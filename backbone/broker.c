/* SPDX-License-Identifier: Apache-2.0 */
#define MD_LOG_DOMAIN "medusa-backbone"

#include "backbone/broker.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backbone/broker_state.h"
#include "backbone/broker_watch.h"
#include "backbone/holdings.h"
#include "backbone/share_wire.h"
#include "base/acceptor.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "driver/cuda_load.h"
#include "swap/wire.h"

#define TICK_MS 200
#define FIRST_CLIENT 3             /* of what is polled */
#define HELLO_NS 5000000000ull     /* for the first line of a connection */
#define TAKE_BACK_NS 1000000000ull /* they try again at least each half second (share_watch.c) */
#define PULSE_NS 1000000000ull
#define SILENT_NS 10000000000ull /* between two messages about the same */
#define SEND_S 2                 /* for a client to take a line; it has room for a hundred of ours */

/* ---- saying ---- */

void md_broker_post(struct md_broker_client *client, struct md_swap_letter *letter, int passed)
{
	struct md_error none = {0};
	if (md_swap_letter_send(letter, client->wire.fd, passed, &none) != MD_OK)
		client->gone = true;
}

bool md_broker_begin(struct md_broker_client *client, struct md_swap_letter *letter)
{
	struct md_error none = {0};
	if (!client->gone && md_swap_letter_begin(letter, &none) == MD_OK)
		return true;
	client->gone = true;
	return false;
}

void md_broker_refuse(struct md_broker_client *client, const struct md_error *why, uint64_t lease)
{
	struct md_swap_letter letter;
	if (!md_broker_begin(client, &letter))
		return;
	md_json_bool(&letter.json, "ok", false);
	if (lease)
		md_json_number(&letter.json, "lease", lease);
	md_json_number(&letter.json, "status", (uint64_t)why->status);
	md_json_text(&letter.json, "message", why->message);
	md_broker_post(client, &letter, -1);
}

static void say_failure(struct md_broker_client *client, const struct md_error *why)
{
	md_broker_refuse(client, why, 0);
	shutdown(client->wire.fd, SHUT_WR);
	client->gone = true;
}

static void say_word(struct md_broker_client *client, const char *word)
{
	struct md_swap_letter letter;
	if (!md_broker_begin(client, &letter))
		return;
	md_json_bool(&letter.json, word, true);
	md_broker_post(client, &letter, -1);
}

static void say_lease(struct md_broker_client *client, uint64_t number)
{
	struct md_swap_letter letter;
	if (!md_broker_begin(client, &letter))
		return;
	md_json_bool(&letter.json, "ok", true);
	md_json_number(&letter.json, "lease", number);
	md_broker_post(client, &letter, -1);
}

static void say_attached(struct md_broker_client *client, bool watched)
{
	struct md_swap_letter letter;
	char hash[MD_HASH_TEXT_BYTES];
	if (!md_broker_begin(client, &letter))
		return;
	md_hash_format(&client->has->hash, hash);
	md_json_bool(&letter.json, "ok", true);
	md_json_bool(&letter.json, "fill", client->has->fills == client);
	md_json_number(&letter.json, "bytes", client->has->bytes);
	md_json_text(&letter.json, "hash", hash);
	md_json_text(&letter.json, "id", client->has->id);
	md_json_bool(&letter.json, "watched", watched && client->process > 0);
	md_broker_post(client, &letter, client->has->fd);
}

static void say_backbone(struct md_broker_client *client, const struct md_broker *b,
			 const struct md_shared_backbone *one)
{
	struct md_swap_letter letter;
	unsigned waiting = 0;
	if (!md_broker_begin(client, &letter))
		return;
	for (size_t i = 0; i < b->count; i++) {
		const struct md_broker_client *other = b->clients[i];
		waiting += other->waits && !strcmp(other->name, one->name) && !strcmp(other->layout, one->layout) &&
			   !strcmp(other->device, one->device);
	}
	md_json_text(&letter.json, "name", one->name);
	md_json_text(&letter.json, "layout", one->layout);
	md_json_text(&letter.json, "device", one->device);
	md_json_number(&letter.json, "bytes", one->bytes);
	md_json_text(&letter.json, "state", one->fills ? "filling" : one->readers ? "read" : "kept");
	md_json_number(&letter.json, "readers", one->readers);
	md_json_number(&letter.json, "waiting", waiting);
	if (one->fills)
		md_json_number(&letter.json, "filler",
			       (uint64_t)((const struct md_broker_client *)one->fills)->process);
	md_broker_post(client, &letter, -1);
}

/* ---- attaching ---- */

static enum md_status try_attach(struct md_broker *b, struct md_broker_client *client, struct md_error *err)
{
	struct md_shared_backbone *one = md_backbones_find(&b->all, client->name, client->layout, client->device);
	if (one && one->asked != client->bytes)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "backbone %s has %llu bytes in this layout, and %llu were asked for: tell them apart "
		    "by the layout",
		    client->name, (unsigned long long)one->asked, (unsigned long long)client->bytes);
	client->waits = one ? one->fills != NULL : md_clock_ns() < b->taking_back_until;
	if (client->waits && client->now) {
		client->waits = false;
		return md_error_set(err, MD_ERR_BUSY, "backbone %s %s", client->name,
				    one ? "is being filled by another process"
					: "may still come back from a process that has it");
	}
	if (client->waits)
		return MD_OK;
	if (!md_backbone_policy_allows(b->settings->policy, client->user, client->name, !one))
		return md_error_set(err, MD_ERR_NOT_FOUND, "user %u may not %s backbone %s here (--policy)",
				    client->user, one ? "read" : "fill", client->name);
	if (one)
		one->readers++;
	else
		MD_FORWARD(md_backbones_make(&b->all, client->name, client->layout, client->device, client->bytes,
					     client, &one, err));
	client->has = one;
	say_attached(client, b->settings->watched);
	return MD_OK;
}

/* Processes that wait are looked at again, in the order in which they came: a backbone is filled, or was abandoned. */
static void wake(struct md_broker *b)
{
	for (size_t i = 0; i < b->count; i++) {
		struct md_error err = {0};
		struct md_broker_client *client = b->clients[i];
		if (client->waits && !client->gone && try_attach(b, client, &err) != MD_OK)
			say_failure(client, &err);
	}
}

static enum md_status read_names(struct md_broker_client *client, const struct md_swap_message *message,
				 struct md_error *err)
{
	const char *name = md_swap_message_text(message, "name"), *layout = md_swap_message_text(message, "layout");
	MD_FORWARD(md_backbone_check_name(name, err));
	if (strlen(layout) > MD_BACKBONE_LAYOUT_MOST)
		return md_error_set(err, MD_ERR_INVALID, "the layout of backbone %s has %zu bytes, at most %u", name,
				    strlen(layout), MD_BACKBONE_LAYOUT_MOST);
	client->bytes = md_swap_message_number(message, "bytes");
	if (!client->bytes)
		return md_error_set(err, MD_ERR_INVALID, "backbone %s: \"bytes\" is missing or 0", name);
	snprintf(client->device, sizeof(client->device), "%s", md_swap_message_text(message, "device"));
	client->name = strdup(name);
	client->layout = strdup(layout);
	if (!client->name || !client->layout)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", name);
	return MD_OK;
}

static enum md_status attach(struct md_broker *b, struct md_broker_client *client,
			     const struct md_swap_message *message, struct md_error *err)
{
	MD_FORWARD(read_names(client, message, err));
	client->now = md_swap_message_number(message, "now") != 0;
	return try_attach(b, client, err);
}

static enum md_status read_held(const struct md_broker_client *client, const struct md_swap_message *message,
				struct md_shared_backbone *like, struct md_error *err)
{
	const char *id = md_swap_message_text(message, "id");
	*like = (struct md_shared_backbone){.name = client->name,
					    .layout = client->layout,
					    .device = (char *)client->device,
					    .asked = client->bytes,
					    .bytes = md_swap_message_number(message, "whole")};
	if (strlen(id) != MD_BACKBONE_ID_BYTES - 1 || strspn(id, "0123456789abcdef") != MD_BACKBONE_ID_BYTES - 1)
		return md_error_set(err, MD_ERR_INVALID, "backbone %s: \"id\" is not of 32 hexadecimal digits",
				    client->name);
	memcpy(like->id, id, sizeof(like->id));
	if (like->bytes < like->asked)
		return md_error_set(err, MD_ERR_INVALID, "backbone %s: \"whole\" is less than \"bytes\"", client->name);
	if (!md_hash_parse(md_swap_message_text(message, "hash"), &like->hash))
		return md_error_set(err, MD_ERR_INVALID, "backbone %s: \"hash\" is no hash", client->name);
	return MD_OK;
}

/* Who may not fill a backbone might bring any memory in its place. */
static enum md_status hold(struct md_broker *b, struct md_broker_client *client, const struct md_swap_message *message,
			   struct md_error *err)
{
	struct md_shared_backbone like;
	int memory = client->wire.passed;
	MD_FORWARD(read_names(client, message, err));
	MD_FORWARD(read_held(client, message, &like, err));
	if (!md_backbone_policy_allows(b->settings->policy, client->user, client->name, true))
		return md_error_set(err, MD_ERR_INVALID, "user %u may not bring backbone %s back here (--policy)",
				    client->user, client->name);
	if (memory < 0)
		return md_error_set(err, MD_ERR_INVALID, "backbone %s came back without its memory", client->name);
	client->wire.passed = -1;
	MD_FORWARD(md_backbones_hold(&b->all, &like, memory, &client->has, err));
	say_word(client, "ok");
	wake(b);
	return MD_OK;
}

/* ---- leases of one process on one connection ---- */

static struct md_broker_lease *find_lease(const struct md_broker_client *client, uint64_t number)
{
	for (size_t i = 0; i < client->kept_count; i++)
		if (client->kept[i].number == number)
			return &client->kept[i];
	return NULL;
}

/* Another connection of the same process that has this memory. */
static struct md_broker_client *find_owner(const struct md_broker *b, const struct md_broker_client *client,
					   const char *id)
{
	for (size_t i = 0; i < b->count; i++) {
		struct md_broker_client *other = b->clients[i];
		if (other != client && !other->gone && other->has && other->process == client->process &&
		    other->user == client->user && !strcmp(other->has->id, id))
			return other;
	}
	return NULL;
}

static enum md_status make_room(struct md_broker_client *client, struct md_error *err)
{
	if (client->kept_count == MD_BROKER_LEASES)
		return md_error_set(err, MD_ERR_BUSY, "process %d has %u leases on one connection, and no more can be",
				    (int)client->process, MD_BROKER_LEASES);
	if (!MD_ARRAY_GROW(client->kept, client->kept_count, client->kept_room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for lease %zu", client->kept_count + 1);
	return MD_OK;
}

/* A process in a container that this one does not see has no number (0), so that whose memory it is cannot be told. */
static enum md_status keep(const struct md_broker *b, struct md_broker_client *client,
			   const struct md_swap_message *message, struct md_error *err)
{
	uint64_t number = md_swap_message_number(message, "lease");
	if (client->has || client->waits)
		return md_error_set(err, MD_ERR_INVALID, "this connection has a backbone of its own");
	if (!number || find_lease(client, number))
		return md_error_set(err, MD_ERR_INVALID, "\"lease\" is %s",
				    number ? "that of one which is kept already" : "missing or 0");
	struct md_broker_client *owner =
	    client->process > 0 ? find_owner(b, client, md_swap_message_text(message, "id")) : NULL;
	if (!owner)
		return md_error_set(err, MD_ERR_NOT_FOUND, "process %d has no other connection with this backbone",
				    (int)client->process);
	MD_FORWARD(make_room(client, err));
	client->kept[client->kept_count++] = (struct md_broker_lease){
	    .number = number, .has = owner->has, .asks = md_swap_message_number(message, "asks") != 0};
	md_broker_say_has(b, client->process, &client->kept[client->kept_count - 1], true);
	if (owner->has->fills == owner)
		owner->has->fills = client;
	owner->has = NULL;
	say_lease(client, number);
	return MD_OK;
}

static void give_up(struct md_broker *b, const struct md_broker_client *client, struct md_shared_backbone *has)
{
	if (has && has->fills == client)
		md_backbones_abandon(&b->all, has);
	else if (has)
		md_backbones_leave(&b->all, has);
}

static void leave(struct md_broker *b, struct md_broker_client *client, const struct md_swap_message *message)
{
	struct md_broker_lease *lease = find_lease(client, md_swap_message_number(message, "lease"));
	if (!lease)
		return;
	md_broker_say_has(b, client->process, lease, false);
	give_up(b, client, lease->has);
	*lease = client->kept[--client->kept_count];
	wake(b);
}

static enum md_status commit(struct md_broker *b, struct md_broker_client *client,
			     const struct md_swap_message *message, struct md_error *err)
{
	struct md_hash hash;
	uint64_t number = md_swap_message_number(message, "lease");
	const struct md_broker_lease *lease = number ? find_lease(client, number) : NULL;
	struct md_shared_backbone *has = number ? lease ? lease->has : NULL : client->has;
	if (!has || has->fills != client)
		return md_error_set(err, MD_ERR_NOT_FOUND, "this process fills no backbone");
	if (!md_hash_parse(md_swap_message_text(message, "hash"), &hash))
		return md_error_set(err, MD_ERR_INVALID, "backbone %s: \"hash\" is no hash", has->name);
	md_backbones_filled(has, &hash);
	if (number)
		say_lease(client, number);
	else
		say_word(client, "ok");
	wake(b);
	return MD_OK;
}

static enum md_status say_status(const struct md_broker *b, struct md_broker_client *client, struct md_error *err)
{
	if (client->user && client->user != geteuid())
		return md_error_set(err, MD_ERR_INVALID, "user %u may not ask what there is", client->user);
	for (const struct md_shared_backbone *one = b->all.first; one; one = one->next)
		say_backbone(client, b, one);
	say_word(client, "ok");
	return MD_OK;
}

static enum md_status watch(const struct md_broker *b, struct md_broker_client *client, struct md_error *err)
{
	if (client->user && client->user != geteuid())
		return md_error_set(err, MD_ERR_INVALID, "user %u may not watch who has what", client->user);
	md_broker_watch(b, client);
	return MD_OK;
}

static enum md_status drop(struct md_broker *b, struct md_broker_client *client, const struct md_swap_message *message,
			   struct md_error *err)
{
	struct md_swap_letter letter;
	const char *name = md_swap_message_has(message, "name") ? md_swap_message_text(message, "name") : NULL;
	if (name) /* an empty one is a mistake, and not all */
		MD_FORWARD(md_backbone_check_name(name, err));
	if (client->user && client->user != geteuid())
		return md_error_set(err, MD_ERR_INVALID, "user %u may not drop backbones", client->user);
	unsigned dropped = md_backbones_drop(&b->all, name);
	if (!md_broker_begin(client, &letter))
		return MD_OK;
	md_json_bool(&letter.json, "ok", true);
	md_json_number(&letter.json, "dropped", dropped);
	md_broker_post(client, &letter, -1);
	return MD_OK;
}

static enum md_status own(struct md_broker *b, struct md_broker_client *client, const struct md_swap_message *message,
			  struct md_error *err)
{
	struct md_broker_lease *lease = find_lease(client, md_swap_message_number(message, "lease"));
	if (!lease)
		return md_error_set(err, MD_ERR_NOT_FOUND, "this connection keeps no such lease");
	md_broker_own(b, client, lease);
	return MD_OK;
}

/* What is said about one lease of several does not end the others. */
static enum md_status obey_about(struct md_broker *b, struct md_broker_client *client,
				 const struct md_swap_message *message, const char *what)
{
	struct md_error err = {0};
	enum md_status status = MD_OK;
	if (!strcmp(what, "own"))
		status = own(b, client, message, &err);
	else if (!strcmp(what, "leave"))
		leave(b, client, message);
	else
		status = strcmp(what, "keep") ? commit(b, client, message, &err) : keep(b, client, message, &err);
	if (status != MD_OK)
		md_broker_refuse(client, &err, md_swap_message_number(message, "lease"));
	return MD_OK;
}

static enum md_status obey(struct md_broker *b, struct md_broker_client *client, const struct md_swap_message *message,
			   struct md_error *err)
{
	static const char *const numbers[] = {
	    "medusa_backbone", "bytes", "whole", "now", "lease", "ask", "may", "asks", NULL};
	static const char *const texts[] = {"do", "name", "layout", "device", "hash", "id", NULL};
	const char *what = md_swap_message_text(message, "do");
	MD_FORWARD(md_swap_message_check(message, numbers, texts, err));
	if (!client->spoken && md_swap_message_number(message, "medusa_backbone") != MD_BACKBONE_PROTOCOL)
		return md_error_set(
		    err, MD_ERR_VERSION,
		    "the first line is no {\"medusa_backbone\": %u, ...}: medusa-backbone and the libraries of "
		    "Medusa must be of one release",
		    MD_BACKBONE_PROTOCOL);
	bool first = !client->spoken;
	client->spoken = true;
	if (!strcmp(what, "attach") && first)
		return attach(b, client, message, err);
	if (!strcmp(what, "hold") && first)
		return hold(b, client, message, err);
	if (md_swap_message_number(message, "lease") &&
	    (!strcmp(what, "own") || !strcmp(what, "keep") || !strcmp(what, "leave") || !strcmp(what, "commit")))
		return obey_about(b, client, message, what);
	if (!strcmp(what, "commit"))
		return commit(b, client, message, err);
	if (!strcmp(what, "status") && first)
		return say_status(b, client, err);
	if (!strcmp(what, "drop") && first)
		return drop(b, client, message, err);
	if (!strcmp(what, "watch") && first)
		return watch(b, client, err);
	if (!strcmp(what, "let") && client->watches) {
		md_broker_let(b, md_swap_message_number(message, "ask"), md_swap_message_number(message, "may") != 0);
		return MD_OK;
	}
	return md_error_set(err, MD_ERR_INVALID, "\"do\": \"%.40s\" is not known here", what);
}

/* ---- connections ---- */

/* Takes fd. */
static void refuse(struct md_broker *b, int fd, const struct md_error *why)
{
	struct md_broker_client refused = {.has = NULL};
	md_swap_wire_init(&refused.wire, fd);
	say_failure(&refused, why);
	md_swap_wire_finish(&refused.wire);
	if (md_clock_ns() < b->silent_until)
		return;
	b->silent_until = md_clock_ns() + SILENT_NS;
	md_warn("processes are refused, and have memory of their own instead: %s", why->message);
}

static void say_what_lacks(const struct md_broker *b, bool last, struct md_error *why)
{
	if (last)
		md_error_set(why, MD_ERR_BUSY,
			     "no descriptor is left after those of %zu connections: start medusa-backbone with a "
			     "larger limit (ulimit -n)",
			     b->count);
	else if (b->count >= MD_BROKER_CONNECTIONS)
		md_error_set(why, MD_ERR_BUSY, "%u connections of processes are there, and no more can be",
			     MD_BROKER_CONNECTIONS);
	else
		md_error_set(why, MD_ERR_NO_MEMORY, "out of memory for connection %zu", b->count + 1);
}

static void accept_one(struct md_broker *b)
{
	struct timeval most = {.tv_sec = SEND_S};
	struct ucred peer;
	socklen_t size = sizeof(peer);
	bool last;
	int fd = md_acceptor_next(&b->acceptor, &last);
	if (fd < 0)
		return;
	struct md_broker_client *client = !last && b->count < MD_BROKER_CONNECTIONS ? calloc(1, sizeof(*client)) : NULL;
	if (!client || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
		struct md_error why = {0};
		say_what_lacks(b, last, &why);
		refuse(b, fd, &why);
		free(client);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	md_swap_wire_init(&client->wire, fd);
	client->user = peer.uid;
	client->process = peer.pid;
	client->since = client->pulsed_at = md_clock_ns();
	b->clients[b->count++] = client;
}

static enum md_status hear_all(struct md_broker *b, struct md_broker_client *client, struct md_error *err)
{
	static struct md_swap_message message; /* large; there is one thread */
	bool there = true;
	MD_FORWARD(md_swap_wire_take(&client->wire, err));
	while (there && !client->gone) {
		MD_FORWARD(md_swap_wire_next(&client->wire, &message, &there, err));
		if (there)
			MD_FORWARD(obey(b, client, &message, err));
	}
	return MD_OK;
}

static void hear(struct md_broker *b, struct md_broker_client *client)
{
	struct md_error err = {0};
	enum md_status status = hear_all(b, client, &err);
	if (status == MD_ERR_TRUNCATED)
		client->gone = true;
	else if (status != MD_OK)
		say_failure(client, &err);
}

static void look_after(struct md_broker_client *client)
{
	uint64_t now = md_clock_ns();
	if (!client->spoken && now > client->since + HELLO_NS)
		client->gone = true;
	if (!client->waits || client->gone || now <= client->pulsed_at + PULSE_NS)
		return;
	client->pulsed_at = now;
	say_word(client, "wait");
}

static void let_go(struct md_broker *b, struct md_broker_client *client)
{
	give_up(b, client, client->has);
	for (size_t i = 0; i < client->kept_count; i++) {
		md_broker_say_has(b, client->process, &client->kept[i], false);
		give_up(b, client, client->kept[i].has);
	}
	free(client->kept);
	md_swap_wire_finish(&client->wire);
	free(client->name);
	free(client->layout);
	free(client);
}

/* The others keep their order, which is that in which they came. */
static size_t take_gone(struct md_broker *b, struct md_broker_client **gone)
{
	size_t kept = 0, count = 0;
	for (size_t i = 0; i < b->count; i++)
		if (b->clients[i]->gone)
			gone[count++] = b->clients[i];
		else
			b->clients[kept++] = b->clients[i];
	b->count = kept;
	return count;
}

static void remove_gone(struct md_broker *b)
{
	struct md_broker_client *gone[MD_BROKER_CONNECTIONS];
	size_t count;
	while ((count = take_gone(b, gone))) {
		for (size_t i = 0; i < count; i++)
			let_go(b, gone[i]);
		md_broker_watcher_left(b);
		wake(b); /* which may find more that have gone */
	}
}

static void serve(struct md_broker *b)
{
	struct pollfd polled[MD_BROKER_CONNECTIONS + FIRST_CLIENT];
	for (;;) {
		size_t count = b->count;
		polled[0] = (struct pollfd){.fd = b->settings->stop, .events = POLLIN};
		polled[1] = (struct pollfd){.fd = b->settings->listening, .events = md_acceptor_events(&b->acceptor)};
		polled[2] = (struct pollfd){.fd = b->settings->until};
		for (size_t i = 0; i < count; i++)
			polled[i + FIRST_CLIENT] = (struct pollfd){.fd = b->clients[i]->wire.fd, .events = POLLIN};
		if (poll(polled, count + FIRST_CLIENT, TICK_MS) > 0 && (polled[0].revents || polled[2].revents))
			return;
		for (size_t i = 0; i < count; i++)
			if (polled[i + FIRST_CLIENT].revents)
				hear(b, b->clients[i]);
		for (size_t i = 0; i < b->count; i++)
			look_after(b->clients[i]);
		remove_gone(b);
		if (b->taking_back_until && md_clock_ns() >= b->taking_back_until) {
			b->taking_back_until = 0;
			wake(b);
		}
		if (polled[1].revents & POLLIN)
			accept_one(b);
	}
}

/* Has what it can bring to the next broker. */
static bool is_reader(const struct md_broker_client *client)
{
	bool reads = client->has && client->has->fills != client;
	for (size_t i = 0; i < client->kept_count && !reads; i++)
		reads = client->kept[i].has->fills != client;
	return reads;
}

enum md_status md_broker_run(const struct md_broker_settings *settings, bool *left, struct md_error *err)
{
	*left = false;
	struct md_broker *b = calloc(1, sizeof(*b));
	if (!b)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for connections");
	b->settings = settings;
	b->all.keep = settings->keep;
	md_acceptor_init(&b->acceptor, settings->listening, true);
	b->taking_back_until = settings->succeeds ? md_clock_ns() + TAKE_BACK_NS : 0;
	enum md_status status = md_cuda_load(err);
	if (status == MD_OK)
		status = md_cuda_call(err, cuInit, 0);
	if (status == MD_OK)
		serve(b);
	size_t count = b->count;
	b->count = 0; /* nobody is told */
	for (size_t i = 0; i < count; i++) {
		*left |= is_reader(b->clients[i]);
		let_go(b, b->clients[i]);
	}
	md_backbones_finish(&b->all);
	md_acceptor_finish(&b->acceptor);
	free(b);
	return status;
}
