/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/quota_ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/cluster/record.h"
#include "worker/config/config.h"

#define NODES_MAX 100000u
#define TURNS_MOST 1000000000u
#define TURNS_AHEAD 2u /* of the fewest: whatever etcd says, nobody waits for more turns of others */
#define CLOCKS 1.05    /* two clocks that run may differ by so much */
#define MARGIN_S 2.0   /* for what the node does at the end of its time */

static const char *const share_keys[MD_QUOTAS] = {"running", "waiting"};
static const char *const held_keys[MD_QUOTAS] = {"running_held", "waiting_held"};
static const char *const turns_keys[MD_QUOTAS] = {"running_turns", "waiting_turns"};

/* How long after a node is known to be gone its part is held: it breaks off what runs after twice hold_s by its own clock. */
static double gone_after_s(double hold_s)
{
	return 2 * hold_s * CLOCKS + MARGIN_S;
}

/* ---- the value in etcd ---- */

/* A key that is not there is no limit. */
static bool read_count(const json_t *object, const char *key, uint32_t *count)
{
	const json_t *value = json_object_get(object, key);
	json_int_t read = json_integer_value(value);
	*count = value ? (uint32_t)read : MD_QUOTA_ANY;
	return !value || (json_is_integer(value) && read >= 0 && read < MD_QUOTA_ANY);
}

/* A key that is not there is 0. */
static bool read_turns(const json_t *object, const char *key, uint32_t *turns)
{
	bool right = read_count(object, key, turns) && (*turns <= TURNS_MOST || *turns == MD_QUOTA_ANY);
	*turns = *turns == MD_QUOTA_ANY ? 0 : *turns;
	return right;
}

static void put_count(json_t *object, const char *key, uint32_t count)
{
	if (count != MD_QUOTA_ANY)
		json_object_set_new(object, key, json_integer(count));
}

/* 0 is none that a configuration can state: there it stands for no limit, of which nothing is written. */
static bool read_limit(const json_t *object, const char *key, uint32_t *limit)
{
	return json_is_object(object) && read_count(object, key, limit) && *limit &&
	       (*limit <= MD_QUOTA_LIMIT_MOST || *limit == MD_QUOTA_ANY);
}

static bool read_entry(const char *node, const json_t *from, struct md_quota_entry *entry)
{
	const char *session = json_string_value(json_object_get(from, "session"));
	json_int_t serial = json_integer_value(json_object_get(from, "serial"));
	const char *identity = json_string_value(json_object_get(from, "identity"));
	double hold_s = json_number_value(json_object_get(from, "hold_s"));
	bool right = identity && strlen(identity) < sizeof(entry->identity) && md_config_is_node_name(node) &&
		     session && serial > 0 && serial <= MD_QUOTA_SERIAL_MOST && hold_s >= MD_QUOTA_HOLD_LEAST_S &&
		     hold_s <= MD_QUOTA_HOLD_MOST_S;
	*entry = (struct md_quota_entry){.serial = right ? (uint64_t)serial : 0, .hold_s = hold_s};
	if (!right || sscanf(session, "%" SCNx64, (uint64_t *)&entry->session) != 1)
		return false;
	snprintf(entry->node, sizeof(entry->node), "%s", node);
	snprintf(entry->identity, sizeof(entry->identity), "%s", identity);
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		right = right && read_count(from, share_keys[r], &entry->share[r]) &&
			read_count(from, held_keys[r], &entry->held[r]) && entry->held[r] >= entry->share[r] &&
			read_turns(from, turns_keys[r], &entry->turns[r]);
	return right;
}

static int compare_entries(const void *a, const void *b)
{
	return strcmp(((const struct md_quota_entry *)a)->node, ((const struct md_quota_entry *)b)->node);
}

static enum md_status read_entries(const json_t *nodes, struct md_quota_ledger *ledger, struct md_error *err)
{
	const char *node;
	json_t *from;
	if (!json_is_object(nodes) || json_object_size(nodes) > NODES_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "nodes: an object of at most %u is wanted", NODES_MAX);
	json_object_foreach((json_t *)nodes, node, from)
	{
		if (!MD_ARRAY_GROW(ledger->entries, ledger->count, ledger->room))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a quota");
		if (!read_entry(node, from, &ledger->entries[ledger->count]))
			return md_error_set(
			    err, MD_ERR_CORRUPT,
			    "nodes.%.63s: an identity, a session, a serial, hold_s, shares and what is held are wanted",
			    node);
		ledger->count++;
	}
	if (ledger->count)
		qsort(ledger->entries, ledger->count, sizeof(*ledger->entries), compare_entries);
	return MD_OK;
}

enum md_status md_quota_ledger_read(const json_t *value, struct md_quota_ledger *ledger, struct md_error *err)
{
	const json_t *limits = json_object_get(value, "limits");
	*ledger = (struct md_quota_ledger){.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		if (!read_limit(limits, share_keys[r], &ledger->limits[r]))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "limits: integers from 1 to %u in running and waiting are wanted",
					    MD_QUOTA_LIMIT_MOST);
	enum md_status status = read_entries(json_object_get(value, "nodes"), ledger, err);
	if (status != MD_OK)
		md_quota_ledger_finish(ledger);
	return status;
}

static json_t *describe_entry(const struct md_quota_entry *entry)
{
	char session[20];
	snprintf(session, sizeof(session), "%" PRIx64, (uint64_t)entry->session);
	json_t *made = json_pack("{s:s, s:s, s:I, s:f}", "identity", entry->identity, "session", session, "serial",
				 (json_int_t)entry->serial, "hold_s", entry->hold_s);
	for (unsigned r = 0; r < MD_QUOTAS; r++) {
		put_count(made, share_keys[r], entry->share[r]);
		put_count(made, held_keys[r], entry->held[r]);
		if (entry->turns[r])
			put_count(made, turns_keys[r], entry->turns[r]);
	}
	return made;
}

char *md_quota_ledger_print(const struct md_quota_ledger *ledger)
{
	json_t *limits = json_object(), *nodes = json_object();
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		put_count(limits, share_keys[r], ledger->limits[r]);
	for (uint32_t i = 0; i < ledger->count; i++)
		json_object_set_new(nodes, ledger->entries[i].node, describe_entry(&ledger->entries[i]));
	json_t *made = json_pack("{s:i, s:o, s:o}", "format", MD_RECORD_FORMAT, "limits", limits, "nodes", nodes);
	char *text = made ? md_jansson_print(made, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9)) : NULL;
	json_decref(made);
	return text;
}

void md_quota_ledger_finish(struct md_quota_ledger *ledger)
{
	free(ledger->entries);
	*ledger = (struct md_quota_ledger){.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
}

const struct md_quota_entry *md_quota_ledger_find(const struct md_quota_ledger *ledger, const char *node)
{
	struct md_quota_entry key;
	snprintf(key.node, sizeof(key.node), "%s", node);
	return ledger->count ? bsearch(&key, ledger->entries, ledger->count, sizeof(key), compare_entries) : NULL;
}

/* ---- parts ---- */

/* The greatest level up to which everybody's wants can be filled. */
static uint32_t find_level(uint32_t limit, const uint32_t *wants, uint32_t count)
{
	uint32_t low = 0, high = limit;
	while (low < high) {
		uint32_t middle = high - (high - low) / 2;
		uint64_t sum = 0;
		for (uint32_t i = 0; i < count; i++)
			sum += wants[i] < middle ? wants[i] : middle;
		if (sum <= limit)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

uint32_t md_quota_divide(uint32_t limit, const uint32_t *wants, const bool *spare, uint32_t count,
			 const uint32_t *order, uint32_t *parts, uint32_t *level)
{
	uint32_t left = limit, takers = 0, more = 0;
	*level = find_level(limit, wants, count);
	for (uint32_t i = 0; i < count; i++) {
		parts[i] = wants[i] < *level ? wants[i] : *level;
		left -= parts[i];
		takers += spare[i];
	}
	for (uint32_t n = 0; n < count && left; n++) { /* less than one for each who wants more */
		uint32_t i = order ? order[n] : n;
		if (wants[i] <= *level)
			continue;
		parts[i]++;
		left--;
		more++;
	}
	uint32_t each = takers ? left / takers : 0, odd = takers ? left % takers : 0;
	for (uint32_t i = 0; i < count; i++)
		if (spare[i]) {
			parts[i] += each + (odd > 0);
			odd -= odd > 0;
		}
	return more;
}

/* ---- a step ---- */

bool md_quota_is_other(const struct md_quota_entry *entry, const struct md_quota_said *said)
{
	return said->told && strcmp(entry->identity, said->identity) != 0;
}

/* A node in the ledger, or that gets into it. */
struct row {
	struct md_quota_entry entry;
	const struct md_quota_said *said;
	bool known; /* it was in the ledger */
};

/*
 * What the node may have now. It takes only entries of its own session with a greater serial, so what it says to have taken bounds it, unless there is one
 * that it may take yet.
 */
static uint32_t bound_of(const struct row *row, enum md_quota r)
{
	const struct md_quota_entry *entry = &row->entry;
	const struct md_quota_said *said = row->said;
	if (!row->known)
		return said->told ? said->most[r] : 0;
	if (!said->told)
		return entry->held[r];
	if (said->serial > entry->serial) /* etcd has lost what was written */
		return said->most[r] > entry->held[r] ? said->most[r] : entry->held[r];
	if (said->session != entry->session)
		return said->most[r];
	if (said->serial == entry->serial && said->obeys == entry->session)
		return said->most[r] > entry->share[r] ? said->most[r] : entry->share[r];
	return said->most[r] > entry->held[r] ? said->most[r] : entry->held[r];
}

static bool is_over(const struct row *row)
{
	const struct md_quota_said *said = row->said;
	if (said->there)
		return false;
	return said->gone_s >= gone_after_s(row->entry.hold_s) ||
	       (said->left && said->told && !said->most[MD_QUOTA_RUNNING] && !said->most[MD_QUOTA_WAITING]);
}

/*
 * The greatest serial stays, or nobody could read the ledger again, and the tenant's quota would stand still on all nodes. The node of that entry takes no other
 * one in its session, and what it says to have bounds it as before.
 */
static void count_change(struct md_quota_entry *entry)
{
	entry->serial += entry->serial < MD_QUOTA_SERIAL_MOST;
}

/* Session and bounds are as the node says; shares are not more than those. */
static void take_note(struct row *row)
{
	struct md_quota_entry *entry = &row->entry;
	const struct md_quota_said *said = row->said;
	bool anew = said->there && said->told && (!row->known || entry->session != said->session);
	bool later = said->there && said->told && said->serial > entry->serial;
	for (unsigned r = 0; r < MD_QUOTAS; r++) {
		entry->held[r] = bound_of(row, r);
		if (!row->known)
			entry->share[r] = 0;
		if (entry->share[r] > entry->held[r])
			entry->share[r] = entry->held[r];
	}
	if (said->there && said->told)
		entry->hold_s = said->hold_s;
	if (anew) {
		entry->session = said->session;
		memcpy(entry->identity, said->identity, sizeof(entry->identity));
	}
	if (later)
		entry->serial = said->serial;
	if (anew || later)
		count_change(entry);
}

static uint64_t sum_held(const struct row *rows, uint32_t count, enum md_quota r, bool there)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!there || !rows[i].said->there)
			sum += rows[i].entry.held[r];
	return sum;
}

/* What is wanted of one quota, and what follows from it: an item for each row. */
struct dues {
	uint32_t count, level, *wants, *parts, *order;
	bool *spare;
};

/* What it could have, if it is given all that it is due. */
static uint32_t due_of(const struct dues *dues, uint32_t i)
{
	return dues->wants[i] < dues->parts[i] ? dues->wants[i] : dues->parts[i];
}

/* Whether shares should move: somebody lacks what he could have, too much is given, or something lies idle. */
static bool should_move(const struct row *rows, const struct dues *dues, enum md_quota r, uint32_t room)
{
	uint64_t given = 0;
	for (uint32_t i = 0; i < dues->count; i++) {
		if (!rows[i].said->there)
			continue;
		if (rows[i].entry.share[r] < due_of(dues, i))
			return true;
		given += rows[i].entry.share[r];
	}
	return given != room;
}

/* More only out of what is free, those first who want it. */
static void raise_shares(struct row *rows, const uint32_t *parts, uint32_t count, enum md_quota r, uint64_t free)
{
	for (int all = 0; all < 2; all++)
		for (uint32_t i = 0; i < count; i++) {
			struct md_quota_entry *entry = &rows[i].entry;
			uint32_t wants = rows[i].said->wants[r];
			uint32_t most = all || wants > parts[i] ? parts[i] : wants;
			if (!rows[i].said->there || !rows[i].said->told || most <= entry->share[r])
				continue;
			uint64_t may = entry->held[r] + free;
			uint32_t share = most < may ? most : (uint32_t)may;
			if (share > entry->held[r]) {
				free -= share - entry->held[r];
				entry->held[r] = share;
			}
			entry->share[r] = share > entry->share[r] ? share : entry->share[r];
		}
}

/* Turns: what is one more than all can have. */
static bool has_turn(const struct row *rows, const struct dues *dues, enum md_quota r, uint32_t i)
{
	return dues->wants[i] > dues->level && dues->parts[i] > dues->level && rows[i].entry.share[r] >= dues->parts[i];
}

/* Rows with fewer turns first, and of as many by name. */
static void put_in_order(const struct row *rows, const struct dues *dues, enum md_quota r)
{
	for (uint32_t i = 0; i < dues->count; i++) {
		uint32_t at = i;
		for (; at && rows[dues->order[at - 1]].entry.turns[r] > rows[i].entry.turns[r]; at--)
			dues->order[at] = dues->order[at - 1];
		dues->order[at] = i;
	}
}

/* Whoever wants nothing more for a while has no turns in hand when he does. */
static void count_turns(struct row *rows, const struct dues *dues, enum md_quota r)
{
	uint32_t least = UINT32_MAX;
	for (uint32_t i = 0; i < dues->count; i++) {
		rows[i].entry.turns[r] += has_turn(rows, dues, r, i) && rows[i].entry.turns[r] < TURNS_MOST;
		if (dues->wants[i] > dues->level && rows[i].entry.turns[r] < least)
			least = rows[i].entry.turns[r];
	}
	for (uint32_t i = 0; i < dues->count; i++) {
		uint32_t *turns = &rows[i].entry.turns[r];
		*turns -= *turns < least ? *turns : least;
		*turns = *turns > TURNS_AHEAD ? TURNS_AHEAD : *turns;
	}
}

static uint32_t divide(struct row *rows, struct dues *dues, enum md_quota r, uint32_t room)
{
	put_in_order(rows, dues, r);
	return md_quota_divide(room, dues->wants, dues->spare, dues->count, dues->order, dues->parts, &dues->level);
}

static uint32_t count_with_turn(const struct row *rows, const struct dues *dues, enum md_quota r)
{
	uint32_t with = 0;
	for (uint32_t i = 0; i < dues->count; i++)
		with += has_turn(rows, dues, r, i);
	return with;
}

static void move(struct row *rows, struct dues *dues, enum md_quota r, uint32_t limit, struct md_quota_turns *turns)
{
	uint64_t gone = sum_held(rows, dues->count, r, true);
	uint32_t room = gone < limit ? limit - (uint32_t)gone : 0;
	if (divide(rows, dues, r, room) && turns->over[r]) {
		count_turns(rows, dues, r);
		divide(rows, dues, r, room);
	}
	uint32_t with = count_with_turn(rows, dues, r);
	if (should_move(rows, dues, r, room)) {
		for (uint32_t i = 0; i < dues->count; i++)
			if (rows[i].said->there && rows[i].entry.share[r] > dues->parts[i])
				rows[i].entry.share[r] = dues->parts[i];
		uint64_t held = sum_held(rows, dues->count, r, false);
		raise_shares(rows, dues->parts, dues->count, r, held < limit ? limit - held : 0);
	}
	turns->runs[r] = with && count_with_turn(rows, dues, r) == with;
}

/* False: out of memory. */
static bool move_shares(struct row *rows, uint32_t count, enum md_quota r, uint32_t limit, struct md_quota_turns *turns)
{
	MD_AUTO_FREE uint32_t *wants = calloc((size_t)count + 1, sizeof(*wants));
	MD_AUTO_FREE uint32_t *parts = calloc((size_t)count + 1, sizeof(*parts));
	MD_AUTO_FREE uint32_t *order = calloc((size_t)count + 1, sizeof(*order));
	MD_AUTO_FREE bool *spare = calloc((size_t)count + 1, sizeof(*spare));
	if (!wants || !parts || !order || !spare)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		wants[i] = rows[i].said->there ? rows[i].said->wants[r] : 0;
		spare[i] = rows[i].said->there && rows[i].said->spare;
	}
	struct dues dues = {.count = count, .wants = wants, .parts = parts, .order = order, .spare = spare};
	move(rows, &dues, r, limit, turns);
	return true;
}

static void lift(struct row *rows, uint32_t count, enum md_quota r)
{
	for (uint32_t i = 0; i < count; i++) {
		rows[i].entry.share[r] = rows[i].entry.held[r] = MD_QUOTA_ANY;
		rows[i].entry.turns[r] = 0;
	}
}

/* Who is in the ledger, who is there, and who is both. NULL: out of memory. */
static struct row *list_rows(const struct md_quota_ledger *ledger, const struct md_quota_said *said, uint32_t count,
			     uint32_t *listed)
{
	struct row *rows = calloc((size_t)count + 1, sizeof(*rows));
	*listed = 0;
	for (uint32_t i = 0; rows && i < count; i++) {
		const struct md_quota_entry *known = md_quota_ledger_find(ledger, said[i].node);
		struct row row = {.said = &said[i], .known = known};
		if (!known && (!said[i].there || !said[i].told))
			continue;
		if (known)
			row.entry = *known;
		else
			memcpy(row.entry.node, said[i].node, sizeof(row.entry.node));
		if (!is_over(&row))
			rows[(*listed)++] = row;
	}
	return rows;
}

static bool is_same(const struct md_quota_entry *a, const struct md_quota_entry *b)
{
	return !strcmp(a->node, b->node) && !strcmp(a->identity, b->identity) && a->session == b->session &&
	       a->serial == b->serial && a->hold_s >= b->hold_s && a->hold_s <= b->hold_s &&
	       !memcmp(a->share, b->share, sizeof(a->share)) && !memcmp(a->held, b->held, sizeof(a->held)) &&
	       !memcmp(a->turns, b->turns, sizeof(a->turns));
}

bool md_quota_ledger_step(struct md_quota_ledger *ledger, const uint32_t limits[MD_QUOTAS],
			  const struct md_quota_said *said, uint32_t count, struct md_quota_turns *turns, bool *changed)
{
	uint32_t listed;
	MD_AUTO_FREE struct row *rows = list_rows(ledger, said, count, &listed);
	*changed = false;
	memset(turns->runs, 0, sizeof(turns->runs));
	if (!rows)
		return false;
	for (uint32_t i = 0; i < listed; i++)
		take_note(&rows[i]);
	for (unsigned r = 0; r < MD_QUOTAS; r++) {
		if (limits[r] == MD_QUOTA_ANY)
			lift(rows, listed, r);
		else if (!move_shares(rows, listed, r, limits[r], turns))
			return false;
	}
	*changed = listed != ledger->count || memcmp(limits, ledger->limits, sizeof(ledger->limits)) != 0;
	for (uint32_t i = 0; i < listed; i++) {
		const struct md_quota_entry *was = md_quota_ledger_find(ledger, rows[i].entry.node);
		if (was && rows[i].entry.serial == was->serial &&
		    memcmp(was->share, rows[i].entry.share, sizeof(was->share)) != 0)
			count_change(&rows[i].entry);
		*changed |= !was || !is_same(was, &rows[i].entry);
	}
	while (ledger->room < listed)
		if (!MD_ARRAY_RESERVE(ledger->entries, listed, ledger->room))
			return false;
	for (uint32_t i = 0; i < listed; i++)
		ledger->entries[i] = rows[i].entry;
	ledger->count = listed;
	memcpy(ledger->limits, limits, sizeof(ledger->limits));
	return true;
}
