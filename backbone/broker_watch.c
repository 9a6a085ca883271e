/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/broker_watch.h"

static void put_memory(struct md_swap_letter *letter, const struct md_shared_backbone *one)
{
	md_json_text(&letter->json, "id", one->id);
	md_json_text(&letter->json, "name", one->name);
	md_json_number(&letter->json, "bytes", one->bytes);
}

static void say_one(struct md_broker_client *watcher, pid_t process, const struct md_broker_lease *lease, bool has)
{
	struct md_swap_letter letter;
	if (!lease->asks || !md_broker_begin(watcher, &letter))
		return;
	md_json_number(&letter.json, has ? "has" : "left", (uint64_t)process);
	put_memory(&letter, lease->has);
	md_broker_post(watcher, &letter, -1);
}

void md_broker_watch(const struct md_broker *b, struct md_broker_client *client)
{
	struct md_swap_letter letter;
	client->watches = true;
	for (size_t i = 0; i < b->count; i++) {
		const struct md_broker_client *other = b->clients[i];
		for (size_t k = 0; k < other->kept_count; k++)
			say_one(client, other->process, &other->kept[k], true);
	}
	if (!md_broker_begin(client, &letter))
		return;
	md_json_bool(&letter.json, "ok", true);
	md_broker_post(client, &letter, -1);
}

void md_broker_say_has(const struct md_broker *b, pid_t process, const struct md_broker_lease *lease, bool has)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->clients[i]->watches)
			say_one(b->clients[i], process, lease, has);
}

/* ---- memory of one's own ---- */

/* Whose memory nobody else has needs no other: from now on nobody gets it. */
static void grant(struct md_broker_client *client, struct md_broker_lease *lease)
{
	struct md_swap_letter letter;
	bool alone = lease->has->readers == 1 && !lease->has->fills;
	lease->ask = 0;
	lease->has->given |= alone;
	if (!md_broker_begin(client, &letter))
		return;
	md_json_bool(&letter.json, "ok", true);
	md_json_number(&letter.json, "lease", lease->number);
	md_json_bool(&letter.json, "alone", alone);
	md_broker_post(client, &letter, -1);
}

static void refuse(struct md_broker_client *client, struct md_broker_lease *lease, const char *why)
{
	struct md_error err = {0};
	lease->ask = 0;
	md_error_set(&err, MD_ERR_BUSY, "there is no room for %llu bytes of the engine's own: %s",
		     (unsigned long long)lease->has->bytes, why);
	md_broker_refuse(client, &err, lease->number);
}

static struct md_broker_client *find_watcher(const struct md_broker *b)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->clients[i]->watches && !b->clients[i]->gone)
			return b->clients[i];
	return NULL;
}

void md_broker_own(struct md_broker *b, struct md_broker_client *client, struct md_broker_lease *lease)
{
	struct md_swap_letter letter;
	struct md_broker_client *watcher = find_watcher(b);
	if (!watcher && !b->settings->watched) {
		grant(client, lease);
		return;
	}
	if (!watcher || !md_broker_begin(watcher, &letter)) {
		refuse(client, lease, "nobody can be asked for it (--watched)");
		return;
	}
	lease->ask = ++b->asks;
	md_json_number(&letter.json, "wants", lease->ask);
	md_json_number(&letter.json, "process", (uint64_t)client->process);
	put_memory(&letter, lease->has);
	md_broker_post(watcher, &letter, -1);
}

void md_broker_let(struct md_broker *b, uint64_t ask, bool may)
{
	for (size_t i = 0; ask && i < b->count; i++) {
		struct md_broker_client *client = b->clients[i];
		for (size_t k = 0; k < client->kept_count; k++)
			if (client->kept[k].ask == ask && may)
				grant(client, &client->kept[k]);
			else if (client->kept[k].ask == ask)
				refuse(client, &client->kept[k], "who counts memory here has said no");
	}
}

void md_broker_watcher_left(struct md_broker *b)
{
	if (find_watcher(b))
		return;
	for (size_t i = 0; i < b->count; i++)
		for (size_t k = 0; k < b->clients[i]->kept_count; k++)
			if (b->clients[i]->kept[k].ask)
				refuse(b->clients[i], &b->clients[i]->kept[k], "who was asked for it has gone");
}
