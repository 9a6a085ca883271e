/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations at the nodes of a simulated cluster, routed with and without what nodes know of prefixes, by the code that the worker routes
 * with. Engines are simulated: prefills one after the other, a bounded prefix cache, and a place for each request until its answer ends. No GPU is
 * used. The second part of bench/results/cluster-prefixes.md.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"
#include "scheduler/cluster/first_token.h"
#include "scheduler/cluster/prefix_choice.h"
#include "scheduler/cluster/prefix_table.h"

#define NODES 8u
#define PLACES 16u     /* requests in an engine at one time */
#define BYTE_S 1.25e-5 /* 20,000 tokens of 4 bytes a second */
#define REST_S 0.03    /* of a first token, without a prompt */
#define TOKEN_S 0.012  /* from one token of an answer to the next */
#define TELL_S 0.2     /* how often nodes tell how they stand */
#define HOP_S 0.0005   /* what a request that is passed on takes longer */
#define CACHE 20000u   /* blocks of an engine: 5 million tokens */
#define BLOCK 1024u
#define BLOCKS 256u /* of a prompt that are looked at: those of the worker reach as far */
#define PROMPTS 40u /* system prompts, asked for as 1 / rank */
#define TALKS 6000u
#define DISCARD_S 120.0 /* caches fill meanwhile */
#define NS 1e9

struct talk {
	uint32_t system, turns, turn, system_blocks;
	double bytes, begun, told; /* of its next prompt; as in struct md_prefix_prompt */
	uint64_t id;
};

struct asked {
	struct talk *talk;
	uint32_t node, from, next;
	double at, bytes, answer_s;
	struct md_prefix_prompt prompt;
	uint64_t chain[BLOCKS];
	uint32_t count;
};

struct node {
	struct md_prefix_table *cache, *known; /* of its engine; by which it routes */
	uint32_t first, last;                  /* requests that wait; 0: none */
	uint32_t waiting, running, served;
	uint32_t prefill_first, prefill_last, open[NODES];
	bool prefills;
	double busy_s;
	struct md_standing told;
};

enum kind { ASK, TELL, FIRST, DONE };

struct event {
	double at;
	uint64_t order;
	enum kind kind;
	uint32_t which;
};

struct run {
	bool prefixes;
	uint64_t random, order;
	struct node nodes[NODES];
	struct talk *talks;
	struct asked *asked; /* by numbers from 1 on; one that has ended is used again */
	uint32_t asked_count, free;
	struct event *heap;
	uint32_t heap_count;
	uint32_t open;     /* conversations that have not ended */
	double *ttft, now; /* of requests that count */
	uint32_t ttft_count, passed;
	double bytes, cached, expected;
};

static void *must(void *memory)
{
	if (!memory) {
		fprintf(stderr, "prefix_routing: out of memory\n");
		exit(1);
	}
	return memory;
}

/* ---- events ---- */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at < b->at || (!(a->at > b->at) && a->order < b->order);
}

static void post(struct run *run, double at, enum kind kind, uint32_t which)
{
	struct event event = {at, run->order++, kind, which};
	uint32_t i = run->heap_count++;
	for (; i && is_before(&event, &run->heap[(i - 1) / 2]); i = (i - 1) / 2)
		run->heap[i] = run->heap[(i - 1) / 2];
	run->heap[i] = event;
}

static struct event take(struct run *run)
{
	struct event first = run->heap[0], last = run->heap[--run->heap_count];
	uint32_t i = 0;
	for (uint32_t child; (child = 2 * i + 1) < run->heap_count; i = child) {
		child += child + 1 < run->heap_count && is_before(&run->heap[child + 1], &run->heap[child]);
		if (is_before(&last, &run->heap[child]))
			break;
		run->heap[i] = run->heap[child];
	}
	run->heap[i] = last;
	return first;
}

/* ---- draws ---- */

static double part(struct run *run)
{
	return (double)(md_random_next(&run->random) >> 11) * 0x1p-53;
}

static double draw_exponential(struct run *run, double mean)
{
	return -mean * log(1 - part(run));
}

static double between(struct run *run, double low, double high)
{
	return low + (high - low) * part(run);
}

/* ---- conversations ---- */

/* hot: all have one system prompt. */
static void begin_talk(struct run *run, struct talk *talk, uint64_t id, bool hot)
{
	double sum = 0, at;
	*talk = (struct talk){.id = id, .turns = 1};
	for (uint32_t i = 0; i < PROMPTS; i++)
		sum += 1.0 / (i + 1);
	at = part(run) * sum;
	while (!hot && talk->system + 1 < PROMPTS && (at -= 1.0 / (talk->system + 1)) > 0)
		talk->system++;
	talk->system_blocks = hot ? 12 : 1 + talk->system * 7 % 16; /* 1 to 16 KB */
	talk->bytes = talk->begun = talk->system_blocks * BLOCK + between(run, 200, 4000);
	while (talk->turns < 20 && part(run) < 0.8)
		talk->turns++;
}

/* Hashes as the worker's: the system prompt's are those of all who have it. */
static void make_chain(struct asked *asked)
{
	const struct talk *talk = asked->talk;
	asked->count = (uint32_t)(asked->bytes / BLOCK);
	asked->count = asked->count < BLOCKS ? asked->count : BLOCKS;
	for (uint32_t i = 0; i < asked->count; i++) {
		uint64_t seed = (i < talk->system_blocks ? talk->system : (talk->id + 1) << 20) * 1000003 + i;
		asked->chain[i] = md_random_next(&seed);
	}
}

/* ---- routing: as worker/cluster/route.c and prefixes.c do it ---- */

static struct md_standing stand(const struct node *node)
{
	return (struct md_standing){.place = MD_PLACE_GPU,
				    .first_s = {REST_S + 12000 * BYTE_S, 5, 30},
				    .waiting = node->waiting,
				    .running = node->running,
				    .prefill_s = BYTE_S,
				    .rest_s = REST_S,
				    .life = 1};
}

static uint32_t choose_plain(const struct run *run, uint32_t from)
{
	struct md_offer_best best = {.found = false};
	struct md_standing own = stand(&run->nodes[from]);
	for (uint32_t k = 0; k < NODES; k++) {
		uint32_t i = (from + k) % NODES;
		const struct md_offer offer = {
		    .standing = &run->nodes[i].told, .closed = i == from, .open = run->nodes[from].open[i]};
		md_offer_consider(&best, i, &offer);
	}
	return md_offer_is_better(&best, md_offer_here_s(&own, false)) ? best.index : from;
}

static double cached_of(const struct md_prefix_hit *hits, uint32_t count, uint32_t node)
{
	for (uint32_t i = 0; i < count; i++)
		if (hits[i].holder == node + 1)
			return (double)hits[i].blocks * BLOCK;
	return 0;
}

static uint32_t choose(struct run *run, const struct asked *asked, double *expected)
{
	struct md_prefix_candidate list[NODES];
	struct md_prefix_hit hits[MD_PREFIX_HITS];
	struct md_standing own = stand(&run->nodes[asked->from]);
	const struct node *from = &run->nodes[asked->from];
	uint32_t count = md_prefix_table_look(from->known, asked->chain, asked->count, (uint64_t)(run->now * NS), hits);
	for (uint32_t i = 0; i < NODES; i++) {
		const struct md_standing *told = i == asked->from ? &own : &run->nodes[i].told;
		const struct md_offer offer = {.standing = told};
		uint64_t rank =
		    (asked->talk->id + 1) * UINT64_C(0x5851f42d4c957f2d) ^ (i + 1) * UINT64_C(0x2545f4914f6cdd1d);
		list[i] = (struct md_prefix_candidate){.index = i,
						       .seconds = md_offer_expected_s(&offer),
						       .first_s = told->first_s[MD_START_GPU],
						       .rest_s = told->rest_s,
						       .prefill_s = told->prefill_s,
						       .cached = cached_of(hits, count, i),
						       .load = told->waiting + told->running,
						       .rank = md_random_next(&rank)};
		if (from->open[i] > list[i].load)
			list[i].load = from->open[i];
	}
	uint32_t at = asked->count ? md_prefix_choose(list, NODES, &asked->prompt) : MD_PREFIX_NOBODY;
	if (at == MD_PREFIX_NOBODY)
		return choose_plain(run, asked->from);
	*expected = list[at].cached;
	return at;
}

/* ---- engines ---- */

static void go_on_prefills(struct run *run, struct node *node)
{
	struct md_prefix_hit hits[MD_PREFIX_HITS];
	if (node->prefills || !node->prefill_first)
		return;
	struct asked *asked = &run->asked[node->prefill_first];
	uint64_t now = (uint64_t)(run->now * NS);
	uint32_t count = md_prefix_table_look(node->cache, asked->chain, asked->count, now, hits);
	double cached = count ? (double)hits[0].blocks * BLOCK : 0;
	double took = REST_S + BYTE_S * (asked->bytes - cached);
	node->prefills = true;
	node->busy_s += took;
	if (asked->at >= DISCARD_S) {
		run->bytes += asked->bytes;
		run->cached += cached;
	}
	post(run, run->now + took, FIRST, node->prefill_first);
}

static void append(struct run *run, uint32_t *first, uint32_t *last, uint32_t which)
{
	run->asked[which].next = 0;
	if (*first)
		run->asked[*last].next = which;
	else
		*first = which;
	*last = which;
}

static uint32_t take_first(const struct run *run, uint32_t *first)
{
	uint32_t which = *first;
	*first = run->asked[which].next;
	return which;
}

static void admit(struct run *run, struct node *node)
{
	while (node->first && node->running < PLACES) {
		uint32_t which = take_first(run, &node->first);
		node->waiting--;
		node->running++;
		append(run, &node->prefill_first, &node->prefill_last, which);
	}
	go_on_prefills(run, node);
}

/* ---- what happens ---- */

static uint32_t obtain(struct run *run)
{
	uint32_t which = run->free;
	if (which)
		run->free = run->asked[which].next;
	return which ? which : ++run->asked_count;
}

static void ask(struct run *run, struct talk *talk)
{
	uint32_t which = obtain(run);
	struct asked *asked = &run->asked[which];
	double expected = 0;
	*asked = (struct asked){.talk = talk,
				.from = (uint32_t)(md_random_next(&run->random) % NODES),
				.at = run->now,
				.bytes = talk->bytes,
				.answer_s = TOKEN_S * between(run, 50, 450)};
	asked->prompt = (struct md_prefix_prompt){talk->bytes, talk->begun, talk->told};
	make_chain(asked);
	asked->node = run->prefixes ? choose(run, asked, &expected) : choose_plain(run, asked->from);
	struct node *node = &run->nodes[asked->node];
	if (run->now >= DISCARD_S) {
		run->passed += asked->node != asked->from;
		run->expected += expected;
		node->served++;
	}
	run->nodes[asked->from].open[asked->node] += asked->node != asked->from;
	node->waiting++;
	append(run, &node->first, &node->last, which);
	admit(run, node);
}

static void first_token(struct run *run, uint32_t which)
{
	struct asked *asked = &run->asked[which];
	struct node *node = &run->nodes[asked->node];
	uint64_t now = (uint64_t)(run->now * NS);
	take_first(run, &node->prefill_first);
	node->prefills = false;
	md_prefix_table_note(node->cache, asked->chain, asked->count, 1, now);
	md_prefix_table_note(node->known, asked->chain, asked->count, asked->node + 1, now);
	md_prefix_table_note(run->nodes[asked->from].known, asked->chain, asked->count, asked->node + 1, now);
	if (asked->at >= DISCARD_S)
		run->ttft[run->ttft_count++] = run->now - asked->at + (asked->node == asked->from ? 0 : HOP_S);
	post(run, run->now + asked->answer_s, DONE, which);
	go_on_prefills(run, node);
}

static void end(struct run *run, uint32_t which)
{
	struct asked *asked = &run->asked[which];
	struct talk *talk = asked->talk;
	struct node *node = &run->nodes[asked->node];
	node->running--;
	run->nodes[asked->from].open[asked->node] -= asked->node != asked->from;
	talk->told = talk->bytes;
	talk->bytes += asked->answer_s / TOKEN_S * 4 + between(run, 100, 3000);
	if (++talk->turn < talk->turns)
		post(run, run->now + draw_exponential(run, 20), ASK, (uint32_t)(talk - run->talks));
	else
		run->open--;
	asked->next = run->free;
	run->free = which;
	admit(run, node);
}

static void tell(struct run *run)
{
	for (uint32_t i = 0; i < NODES; i++) {
		run->nodes[i].told = stand(&run->nodes[i]);
		md_standing_round(&run->nodes[i].told);
	}
	if (run->open)
		post(run, run->now + TELL_S, TELL, 0);
}

/* ---- a run ---- */

static void play(struct run *run, double talks_per_s, bool hot)
{
	double at = 0;
	run->talks = must(calloc(TALKS, sizeof(*run->talks)));
	run->asked = must(calloc(TALKS + 1, sizeof(*run->asked)));
	run->heap = must(calloc(4 * TALKS, sizeof(*run->heap)));
	run->ttft = must(calloc(TALKS * 20, sizeof(*run->ttft)));
	run->open = TALKS;
	for (uint32_t i = 0; i < NODES; i++) {
		run->nodes[i].cache = must(md_prefix_table_create(CACHE, UINT64_C(1000000000000000)));
		run->nodes[i].known = must(md_prefix_table_create(65536, UINT64_C(600000000000)));
	}
	for (uint32_t i = 0; i < TALKS; i++) {
		begin_talk(run, &run->talks[i], i, hot);
		at += draw_exponential(run, 1 / talks_per_s);
		post(run, at, ASK, i);
	}
	tell(run);
	while (run->heap_count) {
		struct event event = take(run);
		run->now = event.at;
		if (event.kind == ASK)
			ask(run, &run->talks[event.which]);
		else if (event.kind == TELL)
			tell(run);
		else if (event.kind == FIRST)
			first_token(run, event.which);
		else
			end(run, event.which);
	}
}

static void finish(struct run *run)
{
	for (uint32_t i = 0; i < NODES; i++) {
		md_prefix_table_destroy(run->nodes[i].cache);
		md_prefix_table_destroy(run->nodes[i].known);
	}
	free(run->talks);
	free(run->asked);
	free(run->heap);
	free(run->ttft);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print_run(double talks_per_s, bool hot, bool prefixes)
{
	struct run run = {.prefixes = prefixes, .random = 1};
	double busy = 0, most = 0;
	play(&run, talks_per_s, hot);
	qsort(run.ttft, run.ttft_count, sizeof(*run.ttft), compare);
	for (uint32_t i = 0; i < NODES; i++) {
		busy += run.nodes[i].busy_s / run.now / NODES;
		most = fmax(most, run.nodes[i].served);
	}
	printf("| %g | %s | %s | %u | %.2f / %.2f / %.2f | %.1f %% | %.1f %% | %.1f %% | %.2f | %.0f %% |\n",
	       talks_per_s, hot ? "one, 12 KB" : "40, 1 to 16 KB", prefixes ? "auto" : "off", run.ttft_count,
	       run.ttft[run.ttft_count / 2], run.ttft[run.ttft_count * 9 / 10], run.ttft[run.ttft_count * 99 / 100],
	       100 * run.cached / run.bytes, 100 * run.expected / run.bytes, 100.0 * run.passed / run.ttft_count,
	       most * NODES / run.ttft_count, 100 * busy);
	finish(&run);
}

int main(void)
{
	static const double rates[] = {2, 5, 8, 10};
	printf("\n## Conversations, simulated\n\nMade by `bench/prefix_routing`; no GPU was used. %u nodes, each with "
	       "the model on its GPU; %u conversations "
	       "that begin at random (Poisson), of 1 to 20 turns (4.9 in the mean), which come in at any\nnode, 20 s "
	       "(exponential) after the last "
	       "answer; a turn adds 100 to 3,000 bytes and an answer of 50 to 450 tokens. System prompts are asked for "
	       "as 1 / rank. Assumed of an engine: "
	       "%.0f tokens of 4 bytes a\nsecond for prompts, one after the other, and %.0f ms; %u requests at one "
	       "time; %.0f ms for a token of an answer; a prefix "
	       "cache of %.0f million tokens. Nodes tell each other how they stand every 200 ms.\nRequests of the "
	       "first 120 s are not counted. `off`: as without prompts.\n\n",
	       NODES, TALKS, 1 / BYTE_S / 4, REST_S * 1e3, PLACES, TOKEN_S * 1e3, CACHE * (BLOCK / 4.0) / 1e6);
	printf("| conversations that begin, a second | system prompts | prefixes | requests | first token, s: 50 / 90 "
	       "/ 99 %% | of all prompts, cached | expected so | passed on | busiest node, of the mean | prefilling |\n"
	       "|---|---|---|---|---|---|---|---|---|---|\n");
	for (int hot = 0; hot < 2; hot++)
		for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
			for (int prefixes = 0; prefixes < 2; prefixes++)
				print_run(rates[i], hot, prefixes);
	return 0;
}
