/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/prefixes.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "scheduler/cluster/prefix_choice.h"
#include "scheduler/cluster/prefix_table.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/prefix_text.h"
#include "worker/cluster/route.h"
#include "worker/core/api_keys.h"
#include "worker/core/metrics_text.h"
#include "worker/core/prefill.h"
#include "worker/core/worker.h"

#define PAIRS_MAX 65536u /* of nodes and models; with one more, all are forgotten */
#define LIFE_MASK 0x7fffffffu

/* A model on a node that has computed prompts. */
struct pair {
	uint32_t holder; /* by which the table knows it; another one when its cache is gone */
	uint32_t life;   /* of its engine, as it was told last; 0: not known */
	bool away;       /* its engine was seen to be gone since then, and the holder is the next engine */
};

/* How a model of this node computes prompts. */
struct engine {
	uint32_t life;
	struct md_prefill prefill;
};

struct md_prefix_request {
	uint64_t model;
	double bytes, cached; /* of the prompt; cached: of them, what this node's engine was expected to have */
	double seconds;       /* to its first byte; 0: not known */
	bool noted;
	uint32_t count;
	uint64_t blocks[];
};

struct md_prefixes {
	const struct md_cluster *cluster;
	unsigned char key[MD_PREFIX_KEY_BYTES];
	struct md_prefix_table *table;
	struct md_map pairs; /* from a hash of node and model to its index */
	struct pair *pair_list;
	uint32_t pair_count, pair_room;
	uint32_t holders;      /* the last one that was given */
	struct md_map engines; /* by the scheduler's numbers of models; pointers */
	struct md_prefix_candidate *candidates;
	uint32_t candidate_room;
	/* The request that is being routed. */
	char path[32];
	const struct md_rewrite_body *body; /* NULL: it has no prompt */
	bool known;                         /* all of these: */
	struct md_prefix_chain chain;
	uint64_t model;
	double cached; /* bytes, here */
	struct md_prefix_hit hits[MD_PREFIX_HITS];
	uint32_t hit_count;
	/* counted */
	uint64_t requests, followed, left, bytes, told_tokens, told_of, forgotten;
};

static struct md_prefixes *prefixes_of(const struct md_worker *worker)
{
	return worker->cluster ? worker->cluster->prefixes : NULL;
}

struct md_prefixes *md_prefixes_create(const struct md_cluster *cluster)
{
	struct md_prefixes *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->cluster = cluster;
	randombytes_buf(made->key, sizeof(made->key));
	md_map_init(&made->pairs);
	md_map_init(&made->engines);
	made->table = md_prefix_table_create(cluster->settings.prefix_blocks, cluster->settings.prefix_age_ns);
	if (!made->table) {
		free(made);
		return NULL;
	}
	return made;
}

void md_prefixes_destroy(struct md_prefixes *prefixes)
{
	size_t cursor = 0;
	uint64_t id, at;
	if (!prefixes)
		return;
	while (md_map_next(&prefixes->engines, &cursor, &id, &at))
		free((struct engine *)(uintptr_t)at);
	md_map_finish(&prefixes->engines);
	md_map_finish(&prefixes->pairs);
	free(prefixes->pair_list);
	free(prefixes->candidates);
	md_prefix_table_destroy(prefixes->table);
	sodium_memzero(prefixes->key, sizeof(prefixes->key));
	free(prefixes);
}

/* ---- who has what ---- */

static uint64_t hash(const unsigned char *key, uint64_t before, const char *text)
{
	unsigned char out[crypto_shorthash_BYTES];
	struct {
		uint64_t before, text;
	} both = {.before = before};
	crypto_shorthash(out, (const unsigned char *)text, strlen(text), key);
	memcpy(&both.text, out, sizeof(both.text));
	crypto_shorthash(out, (const unsigned char *)&both, sizeof(both), key);
	memcpy(&both.text, out, sizeof(both.text));
	return both.text;
}

static bool keeps_cache(const struct md_standing *standing)
{
	return standing->place == MD_PLACE_GPU || standing->place == MD_PLACE_HOST;
}

/* What it had is gone. */
static void lose(struct md_prefixes *prefixes, struct pair *pair)
{
	pair->holder = ++prefixes->holders;
	prefixes->forgotten++;
}

/*
 * An engine that was seen to be gone has lost what it had then. What was noted since then is the next one's, whose life is told a little
 * later than it answers.
 */
static void look_at(struct md_prefixes *prefixes, struct pair *pair, const struct md_standing *standing)
{
	bool there = keeps_cache(standing);
	if (there ? pair->life && pair->life != standing->life && !pair->away : !pair->away)
		lose(prefixes, pair);
	if (there)
		pair->life = standing->life;
	pair->away = !there;
}

/* NULL: nothing was ever noted of it. */
static struct pair *find_pair(const struct md_prefixes *prefixes, const char *node, uint64_t model)
{
	uint64_t at;
	return md_map_get(&prefixes->pairs, hash(prefixes->key, model, node), &at) ? &prefixes->pair_list[at] : NULL;
}

static struct pair *obtain_pair(struct md_prefixes *prefixes, const char *node, uint64_t model,
				const struct md_standing *standing)
{
	struct pair *pair = find_pair(prefixes, node, model);
	if (pair)
		return pair;
	if (prefixes->pair_count == PAIRS_MAX) {
		md_map_finish(&prefixes->pairs);
		md_map_init(&prefixes->pairs);
		prefixes->pair_count = 0;
	}
	if (!MD_ARRAY_GROW(prefixes->pair_list, prefixes->pair_count, prefixes->pair_room) ||
	    !md_map_put(&prefixes->pairs, hash(prefixes->key, model, node), prefixes->pair_count))
		return NULL;
	bool there = standing && keeps_cache(standing);
	pair = &prefixes->pair_list[prefixes->pair_count++];
	*pair = (struct pair){.holder = ++prefixes->holders, .life = there ? standing->life : 0, .away = !there};
	return pair;
}

static void note(struct md_prefixes *prefixes, struct md_prefix_request *request, const char *node,
		 const struct md_standing *standing)
{
	const struct pair *pair = obtain_pair(prefixes, node, request->model, standing);
	if (pair)
		md_prefix_table_note(prefixes->table, request->blocks, request->count, pair->holder, md_clock_ns());
	request->noted = true;
}

/* Bytes of the prompt that is being routed. */
static double cached_at(struct md_prefixes *prefixes, const char *node, const struct md_standing *standing)
{
	struct pair *pair = find_pair(prefixes, node, prefixes->model);
	if (!pair)
		return 0;
	look_at(prefixes, pair, standing);
	for (uint32_t i = 0; i < prefixes->hit_count && keeps_cache(standing); i++)
		if (prefixes->hits[i].holder == pair->holder)
			return (double)md_prefix_text_bytes(prefixes->hits[i].blocks);
	return 0;
}

/* ---- a request that comes ---- */

void md_prefixes_begin(struct md_worker *worker, const char *target, const struct md_rewrite_body *read)
{
	struct md_prefixes *prefixes = prefixes_of(worker);
	if (!prefixes)
		return;
	const char *local = md_target_local(target);
	snprintf(prefixes->path, sizeof(prefixes->path), "%.*s", (int)strcspn(local, "?"), local);
	prefixes->known = false;
	prefixes->body = md_prefix_text_has_prompt(prefixes->path) ? read : NULL;
}

void md_prefixes_end(struct md_worker *worker)
{
	struct md_prefixes *prefixes = prefixes_of(worker);
	if (!prefixes)
		return;
	prefixes->body = NULL;
	prefixes->known = false;
}

/* The model's ID, by which all nodes mean the same; NULL: nobody has it. */
static const char *identify(const struct md_prefixes *prefixes, const char *name, const struct md_model *local)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(prefixes->cluster->view, &count);
	if (local)
		return local->id;
	for (uint32_t i = 0; i < count; i++) {
		const struct md_record_model *model = nodes[i]->record ? md_record_find(nodes[i]->record, name) : NULL;
		if (model)
			return model->id;
	}
	return NULL;
}

void md_prefixes_find(struct md_prefixes *prefixes, const struct md_http_head *head, const char *name,
		      const struct md_model *local)
{
	char client[MD_USAGE_KEY_BYTES] = "";
	struct md_standing own;
	if (!prefixes || !prefixes->body)
		return;
	const struct md_worker_config *config = prefixes->cluster->worker->config;
	const char *id = identify(prefixes, name, local);
	if (config->node.tenant_count)
		md_keys_name(config, head, client, sizeof(client));
	const struct md_prefix_seed seed = {.key = prefixes->key, .model = id, .client = client};
	prefixes->known = id && md_prefix_text_read(prefixes->path, prefixes->body->text, &prefixes->body->object,
						    &seed, &prefixes->chain);
	if (!prefixes->known)
		return;
	prefixes->model = hash(prefixes->key, 0, id);
	prefixes->hit_count = md_prefix_table_look(prefixes->table, prefixes->chain.blocks, prefixes->chain.count,
						   md_clock_ns(), prefixes->hits);
	prefixes->cached = 0;
	if (local) {
		md_standing_of(local, &own);
		prefixes->cached = cached_at(prefixes, prefixes->cluster->name, &own);
	}
}

struct md_prefix_request *md_prefixes_take(const struct md_worker *worker)
{
	const struct md_prefixes *prefixes = prefixes_of(worker);
	if (!prefixes || !prefixes->known)
		return NULL;
	const struct md_prefix_chain *chain = &prefixes->chain;
	struct md_prefix_request *made = malloc(sizeof(*made) + chain->count * sizeof(*made->blocks));
	if (!made)
		return NULL;
	*made = (struct md_prefix_request){
	    .model = prefixes->model, .bytes = (double)chain->bytes, .cached = prefixes->cached, .count = chain->count};
	memcpy(made->blocks, chain->blocks, chain->count * sizeof(*made->blocks));
	return made;
}

/* ---- which node ---- */

/* The same on all nodes. */
static uint64_t rank_of(const struct md_prefixes *prefixes, const char *node)
{
	static const unsigned char shared[MD_PREFIX_KEY_BYTES] = "medusa-nodes";
	return hash(shared, prefixes->chain.first, node);
}

static struct md_prefix_candidate describe(struct md_prefixes *prefixes, const char *node,
					   const struct md_standing *standing)
{
	return (struct md_prefix_candidate){.first_s =
						standing->place == MD_PLACE_GPU ? standing->first_s[MD_START_GPU] : 0,
					    .rest_s = standing->rest_s,
					    .prefill_s = standing->prefill_s,
					    .uncached = standing->uncached,
					    .away = !keeps_cache(standing),
					    .cached = cached_at(prefixes, node, standing),
					    .load = standing->waiting + standing->running,
					    .rank = rank_of(prefixes, node)};
}

static uint32_t list_candidates(struct md_prefixes *prefixes, struct md_view_node *const *nodes, uint32_t count,
				const char *name, const struct md_model *local)
{
	const struct md_cluster *cluster = prefixes->cluster;
	struct md_prefix_candidate *list = prefixes->candidates;
	uint64_t now = md_clock_ns();
	uint32_t made = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct md_offer offer = md_route_offer(cluster, nodes[i], name, now);
		double seconds = md_offer_expected_s(&offer);
		if (seconds < 0)
			continue;
		list[made] = describe(prefixes, nodes[i]->name, offer.standing);
		list[made].index = i;
		list[made].seconds = seconds;
		list[made].load = offer.open > list[made].load ? offer.open : list[made].load;
		made++;
	}
	if (local && !md_drain_is_on(cluster->worker->drain)) {
		struct md_standing own;
		md_standing_of(local, &own);
		list[made] = describe(prefixes, cluster->name, &own);
		list[made].index = count;
		list[made].seconds =
		    md_offer_here_s(&own, md_crowd_now(cluster->worker), cluster->wish != MD_WISH_NONE);
		made++;
	}
	return made;
}

static void count_choice(struct md_prefixes *prefixes, uint32_t made, uint32_t at)
{
	const struct md_prefix_candidate *list = prefixes->candidates;
	bool somewhere = false;
	for (uint32_t i = 0; i < made; i++)
		somewhere = somewhere || list[i].cached > 0;
	prefixes->requests++;
	prefixes->followed += list[at].cached > 0;
	prefixes->left += somewhere && !(list[at].cached > 0);
	prefixes->bytes += (uint64_t)list[at].cached;
}

bool md_prefixes_choose(struct md_prefixes *prefixes, struct md_view_node *const *nodes, uint32_t count,
			const char *name, const struct md_model *local, struct md_view_node **chosen)
{
	if (!prefixes || !prefixes->known ||
	    !MD_ARRAY_RESERVE(prefixes->candidates, count + 1, prefixes->candidate_room))
		return false;
	const struct md_prefix_chain *chain = &prefixes->chain;
	const struct md_prefix_prompt prompt = {(double)chain->bytes, (double)chain->begun, (double)chain->told};
	uint32_t made = list_candidates(prefixes, nodes, count, name, local);
	uint32_t at = md_prefix_choose(prefixes->candidates, made, &prompt);
	if (at == MD_PREFIX_NOBODY)
		return false;
	count_choice(prefixes, made, at);
	uint32_t index = prefixes->candidates[at].index;
	*chosen = index < count ? nodes[index] : NULL;
	return true;
}

/* ---- and is answered ---- */

static struct engine *find_engine(const struct md_prefixes *prefixes, const struct md_model *model)
{
	uint64_t at;
	return md_map_get(&prefixes->engines, model->function, &at) ? (struct engine *)(uintptr_t)at : NULL;
}

static uint32_t life_of(const struct md_prefixes *prefixes, const struct md_model *model)
{
	const struct md_model *host = model->base ? model->base : model;
	char text[32];
	if (!host->lives)
		return 0;
	snprintf(text, sizeof(text), "%" PRIu32 " %" PRIu32, host->function, host->lives);
	return ((uint32_t)hash(prefixes->key, 0, text) & LIFE_MASK) | 1;
}

static struct engine *obtain_engine(struct md_prefixes *prefixes, const struct md_model *model)
{
	struct engine *engine = find_engine(prefixes, model);
	uint32_t life = life_of(prefixes, model);
	if (!engine) {
		engine = calloc(1, sizeof(*engine));
		if (!engine || !md_map_put(&prefixes->engines, model->function, (uintptr_t)engine)) {
			free(engine);
			return NULL;
		}
		engine->life = life;
	}
	if (engine->life != life)
		md_prefill_begin_life(&engine->prefill);
	engine->life = life;
	return engine;
}

/* A first token says how long the prompt takes if no load and no other request was before it. */
static double time_first(const struct md_worker_job *job)
{
	struct md_model *host = md_model_with_engine(job->model);
	bool waits = md_model_all_unfinished(host) > host->sharing;
	return job->relay.stream && !job->load_ns && !waits ? (double)(md_clock_ns() - job->sent) * 1e-9 : 0;
}

void md_prefixes_job_answers(struct md_worker_job *job)
{
	struct md_prefixes *prefixes = prefixes_of(job->model->worker);
	struct md_standing standing;
	if (!prefixes || !job->prefix || job->scan.kind == MD_ANSWER_OPAQUE)
		return;
	job->prefix->seconds = time_first(job);
	md_standing_of(job->model, &standing);
	note(prefixes, job->prefix, prefixes->cluster->name, &standing);
}

static void learn(struct md_prefixes *prefixes, const struct md_worker_job *job)
{
	const struct md_prefix_request *prefix = job->prefix;
	const struct md_usage_scan *scan = &job->scan;
	struct engine *engine = obtain_engine(prefixes, job->model);
	bool told = scan->told_cached && scan->of;
	if (!engine)
		return;
	md_prefill_note(&engine->prefill,
			&(struct md_prefill_request){.bytes = prefix->bytes,
						     .cached = job->load_ns || job->tries ? 0 : prefix->cached,
						     .seconds = prefix->seconds,
						     .told = told,
						     .told_part = told && scan->cached < scan->of
								      ? (double)scan->cached / (double)scan->of
								      : told});
	prefixes->told_tokens += told ? scan->cached : 0;
	prefixes->told_of += told ? scan->of : 0;
}

static void forget(struct md_prefixes *prefixes, const char *node, const struct md_prefix_request *request)
{
	struct pair *pair = request->noted ? find_pair(prefixes, node, request->model) : NULL;
	if (pair)
		lose(prefixes, pair);
}

void md_prefixes_job_end(struct md_worker_job *job)
{
	struct md_prefixes *prefixes = prefixes_of(job->model->worker);
	if (prefixes && job->prefix && job->failed)
		forget(prefixes, prefixes->cluster->name, job->prefix);
	else if (prefixes && job->prefix && job->prefix->noted && job->usage.of[MD_USAGE_REQUESTS])
		learn(prefixes, job);
	free(job->prefix);
	job->prefix = NULL;
}

void md_prefixes_passed_answers(const struct md_worker *worker, struct md_prefix_request *request,
				const struct md_pass_target *target)
{
	struct md_prefixes *prefixes = prefixes_of(worker);
	if (!prefixes || !request || request->noted)
		return;
	note(prefixes, request, target->id, NULL);
}

void md_prefixes_passed_failed(const struct md_worker *worker, struct md_prefix_request *request,
			       const struct md_pass_target *target)
{
	struct md_prefixes *prefixes = prefixes_of(worker);
	if (prefixes && request)
		forget(prefixes, target->id, request);
}

/* ---- what is told of it ---- */

void md_prefixes_standing(const struct md_model *model, struct md_standing *standing)
{
	const struct md_prefixes *prefixes = prefixes_of(model->worker);
	const struct md_model *host = model->base ? model->base : model;
	if (!prefixes || !host->lives)
		return;
	standing->life = life_of(prefixes, model);
	const struct engine *engine = find_engine(prefixes, model);
	if (!engine)
		return;
	standing->prefill_s = engine->prefill.byte_s;
	standing->rest_s = engine->prefill.rest_s;
	standing->uncached = engine->prefill.uncached && engine->life == standing->life;
}

json_t *md_prefixes_report(const struct md_prefixes *prefixes)
{
	if (!prefixes)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)prefixes->requests,
			 "followed", (json_int_t)prefixes->followed, "left", (json_int_t)prefixes->left, "bytes",
			 (json_int_t)prefixes->bytes, "told_tokens", (json_int_t)prefixes->told_tokens, "told_of",
			 (json_int_t)prefixes->told_of, "forgotten", (json_int_t)prefixes->forgotten, "blocks",
			 (json_int_t)md_prefix_table_used(prefixes->table));
}

static void put(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	md_metrics_text_begin(out, "medusa_worker_", name, type, help);
	fprintf(out, "medusa_worker_%s %" PRIu64 "\n", name, value);
}

void md_prefixes_print_metrics(const struct md_prefixes *prefixes, FILE *out)
{
	if (!prefixes)
		return;
	put(out, "cluster_prefix_requests_total", "counter",
	    "Requests of this node's clients whose prompt had a part in the choice of their node.", prefixes->requests);
	put(out, "cluster_prefix_followed_total", "counter",
	    "Of them, those that went where a prefix of their prompt is expected to be cached.", prefixes->followed);
	put(out, "cluster_prefix_left_total", "counter",
	    "Of them, those that went elsewhere although some node was expected to have a prefix cached.",
	    prefixes->left);
	put(out, "cluster_prefix_bytes_total", "counter", "Bytes of prompts that were expected to be cached there.",
	    prefixes->bytes);
	put(out, "cluster_prefix_told_tokens_total", "counter",
	    "Tokens of prompts that this node's engines said to have had cached.", prefixes->told_tokens);
	put(out, "cluster_prefix_told_of_tokens_total", "counter", "Tokens of all prompts of which they said that.",
	    prefixes->told_of);
	put(out, "cluster_prefix_forgotten_total", "counter",
	    "Caches that were forgotten: an engine was started anew or has left, or a request failed.",
	    prefixes->forgotten);
	put(out, "cluster_prefix_blocks", "gauge", "Blocks of prompts that this node remembers.",
	    md_prefix_table_used(prefixes->table));
}
