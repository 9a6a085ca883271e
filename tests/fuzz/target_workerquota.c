/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: a line as the ledger of a tenant's quota in etcd, and then bytes that say what becomes of some nodes. Behind a ledger that can be read, nodes say
 * anything: no step raises what is held beyond the limit. Behind an empty line the ledger is new and nodes are honest, however late they are: what
 * they have never exceeds the limit. After each step the ledger is printed and read again, the same.
 */
#include <string.h>

#include "json/tree_text.h"
#include "tests/fuzz/fuzz.h"
#include "worker/cluster/quota_ledger.h"

#define NODES 5u
#define STEPS_MAX 64u

bool fuzz_accepted;

/* What is left of the bytes; behind them all are 0. */
struct bytes {
	const uint8_t *at;
	size_t left;
};

static uint8_t take(struct bytes *bytes)
{
	if (!bytes->left)
		return 0;
	bytes->left--;
	return *bytes->at++;
}

static uint64_t take_number(struct bytes *bytes)
{
	uint64_t number = 0;
	for (unsigned i = 0; i < 8; i++)
		number = number << 8 | take(bytes);
	return number;
}

/* Small ones, and those at the bounds. */
static uint32_t take_count(struct bytes *bytes)
{
	uint8_t byte = take(bytes);
	return byte < 0xfc ? byte : byte == 0xfc ? MD_QUOTA_ANY : byte == 0xfd ? INT32_MAX : (uint32_t)byte << 22;
}

static enum md_status read_text(const char *text, size_t size, struct md_quota_ledger *ledger, struct md_error *err)
{
	json_error_t error;
	json_t *value = md_jansson_parse(text, size, 0, &error);
	enum md_status status =
	    value ? md_quota_ledger_read(value, ledger, err) : md_error_set(err, MD_ERR_CORRUPT, "%s", error.text);
	json_decref(value);
	return status;
}

static void check_entries(const struct md_quota_ledger *ledger)
{
	for (uint32_t i = 0; i < ledger->count; i++) {
		const struct md_quota_entry *entry = &ledger->entries[i];
		FUZZ_REQUIRE(!i || strcmp(entry[-1].node, entry->node) < 0, "entry %u is out of order", i);
		FUZZ_REQUIRE(md_quota_ledger_find(ledger, entry->node) == entry, "entry %u is not found", i);
		for (unsigned r = 0; r < MD_QUOTAS; r++)
			FUZZ_REQUIRE(entry->share[r] <= entry->held[r], "%s may have %u, and %u are held", entry->node,
				     entry->share[r], entry->held[r]);
	}
}

/* Printed and read, the ledger is the same; hold_s has 9 digits there. */
static void check_text(const struct md_quota_ledger *ledger)
{
	struct md_quota_ledger read;
	struct md_error err = {0};
	char *text = md_quota_ledger_print(ledger);
	FUZZ_REQUIRE(text, "memory");
	FUZZ_REQUIRE(read_text(text, strlen(text), &read, &err) == MD_OK, "%s: %s", text, err.message);
	FUZZ_REQUIRE(read.count == ledger->count && !memcmp(read.limits, ledger->limits, sizeof(read.limits)),
		     "%s: %u nodes were %u", text, read.count, ledger->count);
	for (uint32_t i = 0; i < read.count; i++) {
		const struct md_quota_entry *a = &ledger->entries[i], *b = &read.entries[i];
		FUZZ_REQUIRE(!strcmp(a->node, b->node) && !strcmp(a->identity, b->identity) &&
				 a->session == b->session && a->serial == b->serial,
			     "%s: entry %u is another one", text, i);
		FUZZ_REQUIRE(!memcmp(a->share, b->share, sizeof(a->share)) &&
				 !memcmp(a->held, b->held, sizeof(a->held)) &&
				 !memcmp(a->turns, b->turns, sizeof(a->turns)),
			     "%s: entry %u has other numbers", text, i);
		FUZZ_REQUIRE(b->hold_s > a->hold_s * (1 - 1e-8) && b->hold_s < a->hold_s * (1 + 1e-8), "%s: hold_s",
			     text);
	}
	md_quota_ledger_finish(&read);
	free(text);
}

static bool step(struct md_quota_ledger *ledger, const uint32_t *limits, const struct md_quota_said *said,
		 uint32_t count, uint8_t over)
{
	struct md_quota_turns turns = {.over = {over & 1, over & 2}};
	bool changed;
	FUZZ_REQUIRE(md_quota_ledger_step(ledger, limits, said, count, &turns, &changed), "memory");
	check_entries(ledger);
	check_text(ledger);
	return changed;
}

/* ---- nodes that say anything ---- */

/* As worker/cluster/tenants_view.c lets it through. */
static void say_anything(struct bytes *bytes, struct md_quota_said *said)
{
	uint8_t flags = take(bytes), more = take(bytes);
	uint64_t serial = more & 1 ? MD_QUOTA_SERIAL_MOST - take(bytes) % 4 : take(bytes);
	double hold_s = more & 2 ? (double)take_number(bytes) * 1e-9 : take(bytes);
	said->there = flags & 1;
	said->told = flags & 2;
	said->left = flags & 4;
	said->spare = flags & 8;
	said->gone_s = flags & 16 ? 1e9 : flags >> 5;
	said->session = more & 4 ? (int64_t)take_number(bytes) : take(bytes) % 4;
	said->obeys = more & 8 ? said->session : take(bytes) % 4;
	said->serial = serial <= MD_QUOTA_SERIAL_MOST ? serial : 0;
	said->hold_s = hold_s >= MD_QUOTA_HOLD_LEAST_S && hold_s <= MD_QUOTA_HOLD_MOST_S ? hold_s : 60;
	snprintf(said->identity, sizeof(said->identity), "%s", more & 16 ? "one" : more & 32 ? "other" : "");
	for (unsigned r = 0; r < MD_QUOTAS; r++) {
		said->most[r] = take_count(bytes);
		said->wants[r] = take_count(bytes) % (INT32_MAX + 1u);
	}
}

/* What a node may have at most, whatever the ledger makes of what it says. */
static uint64_t sum_bounds(const struct md_quota_ledger *ledger, const struct md_quota_said *said, uint32_t count,
			   enum md_quota r)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct md_quota_entry *known = md_quota_ledger_find(ledger, said[i].node);
		uint32_t held = known ? known->held[r] : 0, most = said[i].told ? said[i].most[r] : 0;
		sum += most > held ? most : held;
	}
	return sum;
}

static uint64_t sum_held(const struct md_quota_ledger *ledger, enum md_quota r)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < ledger->count; i++)
		sum += ledger->entries[i].held[r];
	return sum;
}

/* Nodes of the ledger and some others, by name, each once. */
static uint32_t list_nodes(const struct md_quota_ledger *ledger, struct md_quota_said *said)
{
	uint32_t count = 0;
	for (uint32_t i = 0, n = 0; i < ledger->count || n < NODES;) {
		const char name[] = {(char)('a' + n), '\0'};
		int order = i == ledger->count ? 1 : n == NODES ? -1 : strcmp(ledger->entries[i].node, name);
		snprintf(said[count].node, sizeof(said[count].node), "%s", order <= 0 ? ledger->entries[i].node : name);
		count++;
		i += order <= 0;
		n += order >= 0;
	}
	return count;
}

static void play_anything(struct md_quota_ledger *ledger, struct bytes bytes)
{
	for (unsigned steps = 0; bytes.left && steps < STEPS_MAX; steps++) {
		struct md_quota_said *said = calloc(ledger->count + NODES, sizeof(*said));
		FUZZ_REQUIRE(said, "memory");
		uint32_t limits[MD_QUOTAS], count = list_nodes(ledger, said);
		uint64_t bounds[MD_QUOTAS];
		uint8_t over = take(&bytes);
		for (unsigned r = 0; r < MD_QUOTAS; r++) {
			limits[r] = take_count(&bytes);
			limits[r] = !limits[r] ? ledger->limits[r] : limits[r];
			if (limits[r] > MD_QUOTA_LIMIT_MOST)
				limits[r] = MD_QUOTA_ANY;
		}
		for (uint32_t i = 0; i < count; i++)
			say_anything(&bytes, &said[i]);
		for (unsigned r = 0; r < MD_QUOTAS; r++)
			bounds[r] = sum_bounds(ledger, said, count, r);
		step(ledger, limits, said, count, over);
		for (unsigned r = 0; r < MD_QUOTAS; r++) {
			uint64_t held = sum_held(ledger, r), most = bounds[r] > limits[r] ? bounds[r] : limits[r];
			FUZZ_REQUIRE(limits[r] == MD_QUOTA_ANY || held <= most, "%llu are held of %u",
				     (unsigned long long)held, limits[r]);
		}
		free(said);
	}
}

/* ---- honest nodes ---- */

struct node {
	struct md_quota_said now, told; /* told: what the leader knows of it */
	uint32_t has[MD_QUOTAS], may[MD_QUOTAS];
};

/* What the node has and may begin. */
static void note(struct node *node)
{
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		node->now.most[r] = node->has[r] > node->may[r] ? node->has[r] : node->may[r];
}

static void obey(struct node *node, const struct md_quota_ledger *ledger)
{
	const struct md_quota_entry *entry = md_quota_ledger_find(ledger, node->now.node);
	if (!entry || entry->session != node->now.session || entry->serial <= node->now.serial)
		return;
	node->now.serial = entry->serial;
	node->now.obeys = entry->session;
	memcpy(node->may, entry->share, sizeof(node->may));
}

/* The node's lease has run out, and it has a new one: what runs goes on, and nothing begins. */
static void join_anew(struct node *node)
{
	node->now.session++;
	node->now.serial = 0;
	node->now.obeys = 0;
	memset(node->may, 0, sizeof(node->may));
}

static void play_node(struct node *node, const struct md_quota_ledger *ledger, uint8_t what, uint8_t count)
{
	unsigned r = what & 1;
	switch (what >> 1 & 7) {
	case 0:
		node->now.wants[r] = count;
		break;
	case 1:
		node->now.spare = count & 1;
		break;
	case 2:
		obey(node, ledger);
		break;
	case 3:
		if (node->has[r] < node->may[r]) /* as many as it may, or fewer */
			node->has[r] += 1 + count % (node->may[r] - node->has[r]);
		break;
	case 4:
		node->has[r] -= node->has[r] ? 1 + count % node->has[r] : 0;
		break;
	case 5:
		join_anew(node);
		break;
	default:
		break;
	}
	note(node);
	if (what & 16) {
		node->told = node->now;
		node->told.there = node->told.told = true;
	}
}

static void play_honest(struct bytes bytes)
{
	uint32_t limits[MD_QUOTAS] = {1 + take_count(&bytes) % 1000, 1 + take_count(&bytes) % 1000};
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	struct node nodes[NODES];
	memset(nodes, 0, sizeof(nodes));
	for (unsigned n = 0; n < NODES; n++) {
		struct md_quota_said said = {.node = {(char)('a' + n)}, .identity = "one", .session = 1, .hold_s = 60};
		nodes[n].now = nodes[n].told = said;
	}
	for (unsigned steps = 0; bytes.left && steps < STEPS_MAX; steps++) {
		uint8_t what = take(&bytes), which = take(&bytes);
		play_node(&nodes[which % NODES], &ledger, what, take(&bytes));
		for (unsigned r = 0; r < MD_QUOTAS; r++) {
			uint64_t sum = 0;
			for (unsigned n = 0; n < NODES; n++)
				sum += nodes[n].now.most[r];
			FUZZ_REQUIRE(sum <= limits[r], "nodes may have %llu of %u", (unsigned long long)sum, limits[r]);
		}
		struct md_quota_said said[NODES];
		for (unsigned n = 0; n < NODES; n++)
			said[n] = nodes[n].told;
		if (what & 32)
			step(&ledger, limits, said, NODES, what >> 6);
		for (unsigned r = 0; ledger.count && r < MD_QUOTAS; r++)
			FUZZ_REQUIRE(sum_held(&ledger, r) <= limits[r], "%llu are held of %u",
				     (unsigned long long)sum_held(&ledger, r), limits[r]);
	}
	md_quota_ledger_finish(&ledger);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *stop = size ? memchr(data, '\n', size) : NULL;
	size_t line = stop ? (size_t)(stop - data) : size;
	struct bytes rest = {stop ? stop + 1 : data + size, size - line - (stop ? 1 : 0)};
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	struct md_error err = {0};
	fuzz_accepted = !line;
	if (!line) {
		play_honest(rest);
		return 0;
	}
	char *text = malloc(line); /* memory of its own, whose end the sanitizer watches */
	FUZZ_REQUIRE(text, "memory");
	memcpy(text, data, line);
	enum md_status status = read_text(text, line, &ledger, &err);
	free(text);
	fuzz_accepted = status == MD_OK;
	if (status != MD_OK) {
		FUZZ_REQUIRE(status == MD_ERR_CORRUPT && *err.message, "refused with status %d: %s", status,
			     err.message);
		FUZZ_REQUIRE(!ledger.count && !ledger.entries, "refused, and not empty");
		return 0;
	}
	check_entries(&ledger);
	check_text(&ledger);
	play_anything(&ledger, rest);
	md_quota_ledger_finish(&ledger);
	return 0;
}
