/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a tenant's quota is divided among nodes: parts of it, its text, and that nodes never have more than it together, in a cluster that is played through
 * with nodes that die, hang, lose their lease and come back, and two leaders that both write by what they knew some time ago.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"
#include "json/tree_text.h"
#include "worker/cluster/quota_ledger.h"

/* ---- parts ---- */

static void assert_parts(uint32_t limit, const uint32_t wants[4], const uint32_t expected[4])
{
	static const bool spare[4] = {true, true, true, false};
	uint32_t parts[4], level;
	md_quota_divide(limit, wants, spare, 4, NULL, parts, &level);
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(parts[i], expected[i], "of %u, part %u is %u and not %u", limit, i, parts[i], expected[i]);
}

Test(worker_quota_ledger, parts_are_as_equal_as_wants_allow)
{
	assert_parts(10, (uint32_t[]){0, 0, 0, 0}, (uint32_t[]){4, 3, 3, 0});
	assert_parts(10, (uint32_t[]){20, 20, 0, 0}, (uint32_t[]){5, 5, 0, 0});
	assert_parts(10, (uint32_t[]){20, 2, 20, 0}, (uint32_t[]){4, 2, 4, 0});
	assert_parts(10, (uint32_t[]){5, 0, 0, 2}, (uint32_t[]){6, 1, 1, 2});
	assert_parts(2, (uint32_t[]){9, 9, 9, 9}, (uint32_t[]){1, 1, 0, 0});
	assert_parts(0, (uint32_t[]){9, 9, 9, 9}, (uint32_t[]){0, 0, 0, 0});
	assert_parts(4000000000u, (uint32_t[]){1, 0, 0, UINT32_MAX}, (uint32_t[]){1, 0, 0, 3999999999u});
	uint64_t seed = 5;
	for (unsigned draw = 0; draw < 2000; draw++) {
		uint32_t wants[9], parts[9], level, limit = (uint32_t)(md_random_next(&seed) % 60);
		bool spare[9];
		uint64_t sum = 0, wanted = 0;
		for (unsigned i = 0; i < 9; i++) {
			wants[i] = (uint32_t)(md_random_next(&seed) % 12);
			spare[i] = md_random_next(&seed) % 2;
			wanted += wants[i];
		}
		md_quota_divide(limit, wants, spare, 9, NULL, parts, &level);
		for (unsigned i = 0; i < 9; i++) {
			sum += parts[i];
			for (unsigned j = 0; j < 9; j++)
				cr_assert(parts[i] >= wants[i] || parts[j] <= parts[i] + 1,
					  "who lacks something has no less than others");
		}
		cr_assert(sum <= limit && sum >= (wanted < limit ? wanted : limit), "all of it that is wanted");
	}
}

Test(worker_quota_ledger, the_odd_ones_go_to_the_first_by_their_order)
{
	static const bool spare[4] = {true, true, true, true};
	const uint32_t wants[4] = {9, 9, 1, 9}, order[4] = {3, 2, 1, 0};
	uint32_t parts[4], level;
	cr_assert_eq(md_quota_divide(9, wants, spare, 4, order, parts, &level), 2);
	cr_assert_arr_eq(parts, ((uint32_t[]){2, 3, 1, 3}), sizeof(parts));
	cr_assert_eq(level, 2);
	cr_assert_eq(md_quota_divide(28, wants, spare, 4, order, parts, &level), 0, "all have what they want");
}

/* ---- its text ---- */

static void assert_unread(const char *text)
{
	struct md_quota_ledger ledger;
	struct md_error err = {0};
	json_error_t error;
	json_t *value = md_jansson_parse(text, strlen(text), 0, &error);
	cr_assert(value, "%s: %s", text, error.text);
	cr_assert_eq(md_quota_ledger_read(value, &ledger, &err), MD_ERR_CORRUPT, "%s", text);
	cr_assert(*err.message && !ledger.count && !ledger.entries, "%s", text);
	json_decref(value);
}

Test(worker_quota_ledger, a_text_is_read_as_it_was_written)
{
	const uint32_t limits[] = {7, MD_QUOTA_ANY};
	const struct md_quota_said said[] = {
	    {"a", "first", .there = true, .told = true, .spare = true, .session = -5, .hold_s = 60, .wants = {9, 0}},
	    {"b.c", "second", .there = true, .told = true, .session = 77, .hold_s = 4.5, .wants = {1, 1},
	     .most = {3, 2}}};
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}}, read;
	struct md_error err = {0};
	json_error_t error;
	bool changed;
	struct md_quota_turns turns = {.over = {false}};
	cr_assert(md_quota_ledger_step(&ledger, limits, said, 2, &turns, &changed) && changed);
	ledger.entries[0].turns[MD_QUOTA_WAITING] = 3;
	char *text = md_quota_ledger_print(&ledger);
	json_t *value = md_jansson_parse(text, strlen(text), 0, &error);
	cr_assert_eq(md_quota_ledger_read(value, &read, &err), MD_OK, "%s: %s", text, err.message);
	cr_assert_eq(read.count, 2);
	cr_assert_arr_eq(read.entries, ledger.entries, 2 * sizeof(*ledger.entries), "%s", text);
	cr_assert_eq(md_quota_ledger_find(&read, "b.c")->held[MD_QUOTA_RUNNING], 3, "what runs there already");
	cr_assert_eq(md_quota_ledger_find(&read, "a")->share[MD_QUOTA_RUNNING], 4);
	cr_assert_eq(md_quota_ledger_find(&read, "a")->share[MD_QUOTA_WAITING], MD_QUOTA_ANY);
	cr_assert_null(md_quota_ledger_find(&read, "c"));
	free(text);
	json_decref(value);
	md_quota_ledger_finish(&read);
	md_quota_ledger_finish(&ledger);
}

Test(worker_quota_ledger, other_texts_are_refused)
{
	assert_unread("{}");
	assert_unread("{\"limits\":{}}");
	assert_unread("{\"limits\":[],\"nodes\":{}}");
	assert_unread("{\"limits\":{\"running\":-1},\"nodes\":{}}");
	assert_unread("{\"limits\":{\"running\":4294967295},\"nodes\":{}}");
	assert_unread("{\"limits\":{\"running\":1.5},\"nodes\":{}}");
	assert_unread("{\"limits\":{\"running\":0},\"nodes\":{}}");
	assert_unread("{\"limits\":{\"waiting\":1000000001},\"nodes\":{}}");
	assert_unread(
	    "{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":1,\"hold_s\":3.9}}}");
	assert_unread("{\"limits\":{},\"nodes\":{\"a\":1}}");
	assert_unread("{\"limits\":{},\"nodes\":{\"a\":{\"session\":\"1\",\"serial\":1,\"hold_s\":4}}}");
	assert_unread(
	    "{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":0,\"hold_s\":4}}}");
	assert_unread("{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":"
		      "9223372036854775807,\"hold_s\":4}}}");
	assert_unread(
	    "{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"z\",\"serial\":1,\"hold_s\":4}}}");
	assert_unread(
	    "{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":1,\"hold_s\":-1}}}");
	assert_unread(
	    "{\"limits\":{},\"nodes\":{\"a/b\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":1,\"hold_s\":4}}}");
	assert_unread("{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":1,\"hold_s\":4,"
		      "\"running\":2,"
		      "\"running_held\":1}}}");
	assert_unread("{\"limits\":{},\"nodes\":{\"a\":{\"identity\":\"i\",\"session\":\"1\",\"serial\":1,\"hold_s\":4,"
		      "\"running_turns\":1000000001}}}");
}

/* ---- a cluster that is played through ---- */

#define NODES 4u
#define LEADERS 2u
#define QUOTA 12u
#define HOLD 40u /* moments; one is a tenth of a second */
#define LEASE 30u
#define PAST 64u /* moments of etcd that somebody may still look at */
#define MOMENTS 6000u
#define CLUSTERS 200u
#define TURN 30u /* moments */

/* A node: the process, and what etcd has of it. */
struct player {
	bool runs, cut, hangs;
	int64_t lease;          /* 0: none */
	uint64_t kept, contact; /* when etcd kept it last, and when the question was sent, as the node knows */
	uint64_t serial, share_contact;
	int64_t session;
	uint32_t share, running, wants;
	uint64_t saw; /* the moment of etcd that it knows */
};

struct moment {
	struct md_quota_ledger ledger;
	uint64_t revision;
	struct md_quota_said said[NODES];
};

struct chief {
	uint64_t saw;
	uint64_t gone[NODES]; /* since; 0: it is there */
	uint64_t turn;        /* since when one goes on; 0: none does */
	bool idle;
};

struct game {
	uint64_t seed, now;
	int64_t leases;
	struct player players[NODES];
	struct moment past[PAST];
	struct chief chiefs[LEADERS];
	uint32_t most, breaks, quota, served[NODES]; /* served: moments in which the node ran something */
	bool calm;                                   /* nothing fails, and everybody wants what he wants */
};

static uint64_t draw(struct game *game, uint64_t below)
{
	return md_random_next(&game->seed) % below;
}

static struct moment *moment_of(struct game *game, uint64_t at)
{
	return &game->past[at % PAST];
}

static void copy_ledger(const struct md_quota_ledger *from, struct md_quota_ledger *to)
{
	md_quota_ledger_finish(to);
	*to = *from;
	to->room = from->count;
	to->entries = from->count ? malloc(from->count * sizeof(*from->entries)) : NULL;
	if (from->count)
		memcpy(to->entries, from->entries, from->count * sizeof(*from->entries));
}

static void go_on(struct game *game)
{
	struct moment *is = moment_of(game, game->now), *next = moment_of(game, game->now + 1);
	copy_ledger(&is->ledger, &next->ledger);
	next->revision = is->revision;
	memcpy(next->said, is->said, sizeof(next->said));
	game->now++;
}

/* Somebody sees what he has not seen yet, up to now, but not always. */
static void see(struct game *game, uint64_t *saw, bool lags)
{
	uint64_t oldest = game->now > PAST - 2 ? game->now - (PAST - 2) : 0;
	uint64_t least = *saw > oldest ? *saw : oldest;
	*saw = lags ? least + draw(game, game->now - least + 1) : game->now;
}

static uint32_t share_of(const struct player *player, uint64_t now)
{
	return player->serial && now < player->share_contact + HOLD ? player->share : 0;
}

static void play_process(struct game *game, struct player *player)
{
	uint32_t share = share_of(player, game->now);
	if (player->serial && game->now >= player->share_contact + 2 * HOLD && player->running) {
		player->running = 0;
		game->breaks++;
	}
	for (unsigned i = 0; i < 3; i++)
		if (player->running < share && player->running < player->wants && draw(game, 2))
			player->running++;
	if (player->running && !draw(game, 6))
		player->running--;
	if (!game->calm && !draw(game, 50))
		player->wants = (uint32_t)draw(game, 20);
}

/* What etcd hears, and what the node hears of that. */
static void play_etcd(struct game *game, unsigned index)
{
	struct player *player = &game->players[index];
	struct moment *is = moment_of(game, game->now);
	struct md_quota_said *said = &is->said[index];
	if (player->lease && game->now > player->kept + LEASE) {
		said->there = false;
		player->lease = 0;
	}
	if (player->cut || !player->runs || player->hangs)
		return;
	if (!player->lease) {
		player->lease = ++game->leases;
		player->kept = player->contact = game->now;
	} else if (!draw(game, 5)) {
		player->kept = game->now;
		if (draw(game, 4)) /* else the answer was lost */
			player->contact = game->now;
	}
	if (player->serial && player->session == player->lease)
		player->share_contact = player->contact;
	see(game, &player->saw, true);
	const struct md_quota_entry *entry = md_quota_ledger_find(&moment_of(game, player->saw)->ledger, said->node);
	if (entry && entry->session == player->lease && entry->serial > player->serial) {
		player->serial = entry->serial;
		player->session = entry->session;
		player->share = entry->share[MD_QUOTA_RUNNING];
		player->share_contact = player->contact;
	}
	if (said->there && said->session == player->lease && draw(game, 3))
		return;
	uint32_t share = share_of(player, game->now), most = share > player->running ? share : player->running;
	said->there = said->told = said->spare = true;
	said->session = player->lease;
	said->serial = player->serial;
	said->obeys = player->session;
	said->most[MD_QUOTA_RUNNING] = most;
	said->most[MD_QUOTA_WAITING] = MD_QUOTA_ANY;
	said->wants[MD_QUOTA_RUNNING] = player->wants;
	said->hold_s = HOLD / 10.0;
}

static void play_faults(struct game *game, struct player *player)
{
	if (!draw(game, 400))
		player->cut = !player->cut;
	if (!draw(game, 600) && player->runs) { /* it dies, and what it ran with it */
		player->runs = player->cut = player->hangs = false;
		player->serial = 0;
		player->running = player->share = 0;
	} else if (!draw(game, 60)) {
		player->runs = true;
	}
}

/* A leader, which may be none any more, and knows what was some time ago. Etcd compares the revision of what it writes. */
static void play_chief(struct game *game, struct chief *chief)
{
	const uint32_t limits[] = {game->quota, MD_QUOTA_ANY};
	if (!game->calm && !draw(game, 200)) {
		chief->idle = !chief->idle;
		memset(chief->gone, 0, sizeof(chief->gone)); /* it was elected anew */
	}
	if (chief->idle || draw(game, 3))
		return;
	see(game, &chief->saw, draw(game, 2));
	const struct moment *known = moment_of(game, chief->saw);
	struct moment *is = moment_of(game, game->now);
	struct md_quota_said said[NODES];
	for (unsigned i = 0; i < NODES; i++) {
		said[i] = known->said[i];
		chief->gone[i] = said[i].there ? 0 : chief->gone[i] ? chief->gone[i] : game->now;
		said[i].gone_s = said[i].there ? 0 : (double)(game->now - chief->gone[i]) / 10;
	}
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	bool changed;
	struct md_quota_turns turns = {.over = {chief->turn && game->now - chief->turn >= TURN}};
	copy_ledger(&known->ledger, &ledger);
	cr_assert(md_quota_ledger_step(&ledger, limits, said, NODES, &turns, &changed));
	if (!turns.runs[MD_QUOTA_RUNNING])
		chief->turn = 0;
	else if (turns.over[MD_QUOTA_RUNNING] || !chief->turn)
		chief->turn = game->now;
	if (changed && known->revision == is->revision) {
		copy_ledger(&ledger, &is->ledger);
		is->revision++;
	}
	md_quota_ledger_finish(&ledger);
}

static void begin_game(struct game *game, uint64_t seed)
{
	static const char *const names[NODES] = {"a", "b", "c", "d"};
	*game = (struct game){.seed = seed, .now = 1, .quota = QUOTA};
	for (unsigned i = 0; i < NODES; i++) {
		game->players[i] = (struct player){.runs = true, .wants = 8, .saw = 1};
		for (unsigned at = 0; at < PAST; at++)
			snprintf(game->past[at].said[i].node, sizeof(game->past[at].said[i].node), "%s", names[i]);
	}
	for (unsigned at = 0; at < PAST; at++)
		game->past[at].ledger = (struct md_quota_ledger){.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
}

static uint32_t all_running(const struct game *game)
{
	uint32_t running = 0;
	for (unsigned i = 0; i < NODES; i++)
		running += game->players[i].running;
	return running;
}

static void play_moment(struct game *game)
{
	go_on(game);
	for (unsigned i = 0; i < NODES; i++) {
		if (!game->calm)
			play_faults(game, &game->players[i]);
		play_etcd(game, i);
		if (game->players[i].runs)
			play_process(game, &game->players[i]);
		game->served[i] += game->players[i].running > 0;
	}
	for (unsigned i = 0; i < LEADERS; i++)
		play_chief(game, &game->chiefs[i]);
	uint32_t running = all_running(game);
	cr_assert_leq(running, game->quota, "moment %llu: %u run of %u", (unsigned long long)game->now, running,
		      game->quota);
	game->most = running > game->most ? running : game->most;
}

static void assert_nobody_lacks(const struct game *game, const struct md_quota_ledger *ledger)
{
	static const bool spare[NODES] = {true, true, true, true};
	uint32_t wants[NODES], parts[NODES], level;
	for (unsigned i = 0; i < NODES; i++)
		wants[i] = game->players[i].wants;
	md_quota_divide(QUOTA, wants, spare, NODES, NULL, parts, &level);
	for (unsigned i = 0; i < NODES; i++) {
		uint32_t due = wants[i] < level ? wants[i] : level;
		cr_assert(ledger->entries[i].share[MD_QUOTA_RUNNING] >= due, "node %u has %u, and %u are due", i,
			  ledger->entries[i].share[MD_QUOTA_RUNNING], due);
	}
}

static uint32_t sum_given(const struct md_quota_ledger *ledger)
{
	uint32_t given = 0;
	for (uint32_t i = 0; i < ledger->count; i++)
		given += ledger->entries[i].share[MD_QUOTA_RUNNING];
	return given;
}

Test(worker_quota_ledger, nodes_never_have_more_than_the_quota)
{
	static struct game game;
	uint32_t breaks = 0;
	for (uint64_t seed = 1; seed <= CLUSTERS; seed++) {
		begin_game(&game, seed * 7919);
		for (unsigned i = 0; i < MOMENTS; i++)
			play_moment(&game);
		cr_assert_eq(game.most, QUOTA, "it is used");
		breaks += game.breaks;
		/* All is well again: nothing of the quota lies idle. */
		for (unsigned i = 0; i < NODES; i++) {
			game.players[i].runs = true;
			game.players[i].cut = false;
		}
		game.chiefs[0].idle = false;
		game.calm = true;
		for (unsigned i = 0; i < 20 * HOLD; i++)
			play_moment(&game);
		const struct md_quota_ledger *ledger = &moment_of(&game, game.now)->ledger;
		uint32_t given = sum_given(ledger);
		for (unsigned i = 0; i < 2 * HOLD && given != QUOTA; i++) { /* somebody's turn may be beginning */
			play_moment(&game);
			ledger = &moment_of(&game, game.now)->ledger;
			given = sum_given(ledger);
		}
		cr_assert(ledger->count == NODES && given == QUOTA, "%u of %u are given, to %u nodes", given, QUOTA,
			  ledger->count);
		assert_nobody_lacks(&game, ledger);
		for (unsigned at = 0; at < PAST; at++)
			md_quota_ledger_finish(&game.past[at].ledger);
	}
	cr_assert_gt(breaks, 0, "some was broken off");
}

/* All want all of it, all the time: each has its turns, also while nodes and leaders fail. What runs may run long. */
/* Two nodes, and a quota of 1 by turns: a number of turns that nobody can have had is not waited out. */
Test(worker_quota_ledger, nobody_waits_for_turns_that_etcd_makes_up)
{
	const uint32_t limits[MD_QUOTAS] = {1, MD_QUOTA_ANY};
	struct md_quota_ledger ledger = {.limits = {1, MD_QUOTA_ANY}};
	struct md_quota_said said[2] = {{.node = "a"}, {.node = "b"}};
	unsigned had = 0;
	bool changed;
	for (unsigned i = 0; i < 2; i++) {
		said[i].there = said[i].told = said[i].spare = true;
		said[i].session = i + 1;
		said[i].wants[MD_QUOTA_RUNNING] = 3;
		said[i].hold_s = 60;
	}
	for (unsigned turn = 0; turn < 40; turn++) {
		struct md_quota_turns turns = {.over = {true, false}};
		cr_assert(md_quota_ledger_step(&ledger, limits, said, 2, &turns, &changed));
		if (!turn)
			ledger.entries[0].turns[MD_QUOTA_RUNNING] = 1000000000;
		for (unsigned i = 0; i < 2; i++) {
			said[i].serial = ledger.entries[i].serial;
			said[i].obeys = ledger.entries[i].session;
			memcpy(said[i].most, ledger.entries[i].share, sizeof(said[i].most));
		}
		had += turn && ledger.entries[0].share[MD_QUOTA_RUNNING];
	}
	cr_assert_gt(had, 5, "the node has had the share after %u of 39 steps", had);
	md_quota_ledger_finish(&ledger);
}

Test(worker_quota_ledger, nodes_have_a_small_quota_by_turns)
{
	static struct game game;
	for (uint32_t quota = 1; quota < NODES; quota++)
		for (uint64_t seed = 1; seed <= 20; seed++) {
			begin_game(&game, seed * 104729 + quota);
			game.quota = quota;
			for (unsigned i = 0; i < 1000; i++)
				play_moment(&game);
			for (unsigned i = 0; i < NODES; i++) {
				game.players[i].runs = true;
				game.players[i].cut = false;
				game.players[i].wants = 8;
				game.served[i] = 0;
			}
			game.chiefs[0].idle = false;
			game.calm = true;
			for (unsigned i = 0; i < MOMENTS; i++)
				play_moment(&game);
			for (unsigned i = 0; i < NODES; i++)
				cr_assert_gt(game.served[i], MOMENTS * quota / NODES / 3,
					     "of %u, node %u has run for %u of %u moments", quota, i, game.served[i],
					     MOMENTS);
			for (unsigned at = 0; at < PAST; at++)
				md_quota_ledger_finish(&game.past[at].ledger);
		}
}
