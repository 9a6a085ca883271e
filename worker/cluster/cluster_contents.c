/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_contents.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "worker/cluster/contents_parts.h"
#include "worker/core/metrics_text.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define TICK_MS 200u
#define STORE_MAX 400u /* bytes of its path */
#define SECOND UINT64_C(1000000000)
#define PATIENCE_NS (10 * SECOND) /* until some node has it: nodes that begin at one time hash their files first */
#define FIRST_REST_NS (5 * SECOND)
#define LONGEST_REST_NS (300 * SECOND)
#define FIRST_GUESS 1e8 /* bytes a second, before anything was fetched */

void md_content_let_go(struct md_content *content)
{
	if (!content || --content->holders)
		return;
	md_buf_finish(&content->manifest);
	md_content_tree_finish(&content->tree);
	free(content);
}

/* ---- entries ---- */

static void finish_entry(struct md_contents_entry *entry)
{
	for (uint32_t i = 0; entry->sources && i < entry->source_count; i++)
		free(entry->sources[i]);
	free(entry->sources);
	free(entry->id);
	free(entry->place);
	free(entry->demanded);
	md_content_let_go(entry->content);
	*entry = (struct md_contents_entry){0};
}

static void finish_entries(struct md_contents_entry *entries, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		finish_entry(&entries[i]);
	free(entries);
}

static bool make_entry(struct md_contents *contents, const struct md_config_model *model,
		       struct md_contents_entry *entry)
{
	const struct md_config_own *own = &model->own;
	*entry = (struct md_contents_entry){.number = ++contents->next_number,
					    .id = strdup(model->id),
					    .place = strdup(own->place),
					    .demanded = strdup(own->content ? own->content : ""),
					    .sources = calloc(own->sources.count + 1u, sizeof(char *)),
					    .source_count = own->sources.count};
	bool made = entry->id && entry->place && entry->demanded && entry->sources;
	for (uint32_t i = 0; made && i < own->sources.count; i++)
		made = (entry->sources[i] = strdup(own->sources.items[i]));
	return made;
}

static int compare_entries(const void *id, const void *entry)
{
	return strcmp(id, ((const struct md_contents_entry *)entry)->id);
}

struct md_contents_entry *md_contents_find(const struct md_contents *contents, const char *id)
{
	return contents->count
		   ? bsearch(id, contents->entries, contents->count, sizeof(*contents->entries), compare_entries)
		   : NULL;
}

static bool is_same(const struct md_contents_entry *entry, const struct md_config_own *own)
{
	bool same = !strcmp(entry->place, own->place) && !strcmp(entry->demanded, own->content ? own->content : "") &&
		    entry->source_count == own->sources.count;
	for (uint32_t i = 0; same && i < entry->source_count; i++)
		same = !strcmp(entry->sources[i], own->sources.items[i]);
	return same;
}

/* What is promised of a model that is to stay loaded depends on its files. */
static void promise(struct md_contents *contents, const char *id)
{
	struct md_model *model = md_models_find(contents->worker, id);
	if (model && (model->config->own.min_replicas || model->placed))
		md_model_keep_changed(model);
}

/* Entries of another configuration; what is known of a model that has not changed stays, and is looked at once more. */
static void take_config(struct md_contents *contents, const struct md_worker_config *config)
{
	struct md_contents_entry *entries = calloc(config->model_count + 1u, sizeof(*entries));
	uint32_t count = 0;
	bool made = entries;
	for (uint32_t i = 0; made && i < config->model_count; i++)
		if (config->models[i].own.place)
			made = make_entry(contents, &config->models[i], &entries[count++]);
	if (!made) {
		md_warn("cluster: out of memory for the files of models");
		if (entries)
			finish_entries(entries, count);
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct md_contents_entry *old = md_contents_find(contents, entries[i].id);
		const struct md_config_model *model = md_config_find_model(config, entries[i].id);
		if (!old || !is_same(old, &model->own))
			continue;
		finish_entry(&entries[i]);
		entries[i] = *old;
		*old = (struct md_contents_entry){.id = strdup("")};
		entries[i].state = MD_ENTRY_NEW;
		entries[i].rests = 0;
	}
	finish_entries(contents->entries, contents->count);
	contents->entries = entries;
	contents->count = count;
	contents->config = config;
	contents->changed = true;
	for (uint32_t i = 0; i < count; i++)
		promise(contents, entries[i].id);
	md_jobs_unpark(contents->worker);
	event_active(contents->worker->look, EV_TIMEOUT, 0);
}

struct md_content *md_contents_whole(const struct md_contents *contents, const char *hash)
{
	for (uint32_t i = 0; i < contents->count; i++)
		if (contents->entries[i].content && !strcmp(contents->entries[i].content->hash, hash))
			return contents->entries[i].content;
	return NULL;
}

void md_contents_doubt(struct md_contents *contents, const struct md_content *content, const char *why)
{
	md_warn("content %s: %s: it is no longer offered, and is looked at anew", content->hash, why);
	for (uint32_t i = 0; i < contents->count; i++) {
		struct md_contents_entry *entry = &contents->entries[i];
		if (entry->content != content)
			continue;
		md_content_let_go(entry->content);
		entry->content = NULL;
		entry->state = MD_ENTRY_NEW;
		contents->changed = true;
	}
}

void md_contents_changed(struct md_contents *contents, struct md_contents_entry *entry)
{
	promise(contents, entry->id);
	if (entry->ready)
		entry->wanted = false;
	event_active(contents->worker->look, EV_TIMEOUT, 0);
	md_jobs_unpark(contents->worker);
}

/* ---- fetching ---- */

/* Why nothing can be fetched at all; NULL: it can. */
static const char *never(const struct md_contents *contents, const struct md_contents_entry *entry)
{
	const struct md_cluster *cluster = contents->worker->cluster;
	if (!cluster)
		return "this node is in no cluster";
	if (!cluster->key && !cluster->settings.tls.given)
		return "nodes give contents only to those who prove that they are of the cluster (medusa.cluster.tls "
		       "or key_file), and this one can't";
	if (contents->settings->fetch == MD_CONFIG_FETCH_OFF)
		return "medusa.cluster.fetch is off";
	if (!*entry->demanded && contents->settings->fetch == MD_CONFIG_FETCH_DEMANDED)
		return "medusa.content does not say which files are meant, and medusa.cluster.fetch is demanded";
	return NULL;
}

static void fail_entry(struct md_contents *contents, struct md_contents_entry *entry, const char *why)
{
	uint64_t rest = entry->failures < 8 ? FIRST_REST_NS << entry->failures : LONGEST_REST_NS;
	rest = rest < LONGEST_REST_NS ? rest : LONGEST_REST_NS;
	entry->failures++;
	entry->rests = md_clock_ns() + rest;
	entry->wanted = false;
	entry->lonely_since = 0;
	snprintf(entry->why, sizeof(entry->why), "%.390s", why);
	md_error_log("model %s: %s; it is tried again after %u s, when it is wanted", entry->id, entry->why,
		     (unsigned)(rest / SECOND));
	md_contents_changed(contents, entry);
}

static bool is_fetched_for(const struct md_contents *contents, const struct md_contents_entry *entry, const char *hash)
{
	return !entry->ready && entry->wanted && entry->state == MD_ENTRY_MISSING &&
	       !strcmp(*entry->demanded ? entry->demanded : contents->fetched, hash);
}

static void free_needed(struct md_contents *contents)
{
	for (char **at = contents->needed; at && *at; at++)
		free(*at);
	free(contents->needed);
	contents->needed = NULL;
}

static void on_fetched(void *context, const struct md_error *why)
{
	struct md_contents *contents = context;
	contents->fetch = NULL;
	free_needed(contents);
	for (uint32_t i = 0; i < contents->count; i++) {
		struct md_contents_entry *entry = &contents->entries[i];
		bool same = !why && entry->state == MD_ENTRY_MISSING && !strcmp(entry->demanded, contents->fetched);
		if (!same && !is_fetched_for(contents, entry, contents->fetched))
			continue;
		if (why) {
			fail_entry(contents, entry, why->message);
			continue;
		}
		entry->failures = 0;
		entry->state = MD_ENTRY_NEW; /* it is found in the store */
		entry->fresh = true;
		*entry->why = '\0';
		snprintf(entry->hint, sizeof(entry->hint), "%s", contents->fetched);
	}
	if (!why)
		md_info("content %s is here", contents->fetched);
	*contents->fetched = '\0';
	md_contents_look_next(contents);
}

/* Contents that models of this node have, or are to have, stay in the store. */
static bool list_needed(struct md_contents *contents)
{
	uint32_t used = 0;
	contents->needed = calloc(2 * (size_t)contents->count + 1, sizeof(char *));
	for (uint32_t i = 0; contents->needed && i < contents->count; i++) {
		const struct md_contents_entry *entry = &contents->entries[i];
		if (entry->content && (contents->needed[used] = strdup(entry->content->hash)))
			used++;
		if (*entry->demanded && (contents->needed[used] = strdup(entry->demanded)))
			used++;
	}
	return contents->needed;
}

static void begin_fetch(struct md_contents *contents, const char *hash)
{
	const struct md_config_cluster *settings = contents->settings;
	if (!list_needed(contents))
		return;
	struct md_content_fetch_options options = {.base = contents->worker->base,
						   .store = settings->store,
						   .hash = hash,
						   .signed_by = settings->signed_by,
						   .room = {.limit = settings->store_bytes, .needed = contents->needed},
						   .streams = settings->fetch_streams,
						   .rate = settings->fetch_rate,
						   .counts = &contents->counts,
						   .sources = md_contents_sources,
						   .ended = on_fetched,
						   .context = contents};
	snprintf(contents->fetched, sizeof(contents->fetched), "%s", hash);
	contents->fetch = md_content_fetch_begin(&options);
	if (!contents->fetch)
		free_needed(contents);
}

/* Which content the entry is to get. False: nobody has one yet, or nobody knows which. */
static bool choose_content(struct md_contents *contents, struct md_contents_entry *entry,
			   char hash[MD_CONTENT_HASH_TEXT])
{
	char why[300];
	uint64_t now = md_clock_ns();
	if (*entry->demanded) {
		snprintf(hash, MD_CONTENT_HASH_TEXT, "%s", entry->demanded);
		return true;
	}
	if (md_contents_agreed(contents, entry->id, hash, why, sizeof(why))) {
		entry->lonely_since = 0;
		return true;
	}
	entry->lonely_since = entry->lonely_since ? entry->lonely_since : now;
	if (now - entry->lonely_since >= PATIENCE_NS || *why)
		fail_entry(contents, entry, *why ? why : "no node that can be reached has files for it");
	return false;
}

static void fetch_next(struct md_contents *contents)
{
	char hash[MD_CONTENT_HASH_TEXT];
	bool used = false;
	for (uint32_t i = 0; contents->fetch && i < contents->count; i++)
		used = used || is_fetched_for(contents, &contents->entries[i], contents->fetched);
	if (contents->fetch && !used) /* the configuration is another one now */
		md_content_fetch_give_up(contents->fetch);
	for (uint32_t i = 0; !contents->fetch && i < contents->count; i++) {
		struct md_contents_entry *entry = &contents->entries[i];
		if (entry->wanted && !entry->ready && entry->state == MD_ENTRY_MISSING &&
		    entry->rests <= md_clock_ns() && !never(contents, entry) && choose_content(contents, entry, hash))
			begin_fetch(contents, hash);
	}
}

/* ---- how long it takes ---- */

static void learn(struct md_contents *contents)
{
	struct md_content_progress progress = md_content_fetch_progress(contents->fetch);
	if (progress.came >= MD_CONTENT_BLOCK && progress.ns)
		contents->bytes_s = (double)progress.came * 1e9 / (double)progress.ns;
}

static double missing_s(const struct md_contents *contents, const struct md_contents_entry *entry)
{
	char hash[MD_CONTENT_HASH_TEXT], why[300];
	uint64_t bytes = 0;
	if (entry->ready || entry->state != MD_ENTRY_MISSING)
		return entry->ready || entry->state != MD_ENTRY_BROKEN ? 0 : MD_STANDING_NEVER;
	if (never(contents, entry))
		return MD_STANDING_NEVER;
	bool known = *entry->demanded || md_contents_agreed(contents, entry->id, hash, why, sizeof(why));
	const char *wanted = *entry->demanded ? entry->demanded : hash;
	if (known)
		bytes = md_contents_bytes_of(contents, wanted);
	if (known && contents->fetch && !strcmp(contents->fetched, wanted)) {
		struct md_content_progress progress = md_content_fetch_progress(contents->fetch);
		if (progress.of)
			bytes = progress.of - progress.done + 1;
	}
	return bytes ? (double)bytes / contents->bytes_s : MD_STANDING_NEVER;
}

double md_contents_missing_s(const struct md_model *model)
{
	const struct md_contents *contents = model->worker->contents;
	const struct md_contents_entry *entry =
	    contents && model->config->own.place ? md_contents_find(contents, model->id) : NULL;
	return entry ? entry->missing_s : 0;
}

/* A model that is to stay loaded wants its files again and again; of those that are placed, obey.c does. */
static void want_kept(struct md_contents *contents, const struct md_contents_entry *entry)
{
	struct md_model *model = entry->ready ? NULL : md_models_find(contents->worker, entry->id);
	if (model && model->config->own.min_replicas && !model->unwanted)
		md_contents_want(model);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_contents *contents = context;
	(void)fd, (void)what;
	if (contents->config != contents->worker->config && !md_reload_changes(contents->worker->reload))
		take_config(contents, contents->worker->config);
	md_contents_look_next(contents);
	fetch_next(contents);
	if (contents->fetch)
		learn(contents);
	for (uint32_t i = 0; i < contents->count; i++) {
		contents->entries[i].missing_s = missing_s(contents, &contents->entries[i]);
		want_kept(contents, &contents->entries[i]);
	}
	md_contents_tell(contents);
}

/* ---- for whoever loads models ---- */

/* Whether the entry's files can't be had now: entry->why says so. */
static bool lacks(const struct md_contents *contents, struct md_contents_entry *entry)
{
	const char *why = entry->state == MD_ENTRY_MISSING ? never(contents, entry) : NULL;
	if (why)
		snprintf(entry->why, sizeof(entry->why), "%s%s%.190s", entry->missing, *entry->missing ? ", and " : "",
			 why);
	return why || entry->state == MD_ENTRY_BROKEN ||
	       (entry->state == MD_ENTRY_MISSING && entry->rests > md_clock_ns());
}

enum md_contents_state md_contents_want(struct md_model *model)
{
	struct md_contents *contents = model->worker->contents;
	const struct md_config_own *own = &model->config->own;
	if (!contents || !own->place)
		return MD_CONTENTS_HERE;
	struct md_contents_entry *entry = md_contents_find(contents, model->id);
	if (!entry || !is_same(entry, own)) /* another configuration comes, or has come */
		return model->retired ? MD_CONTENTS_LACKS : MD_CONTENTS_COMES;
	if (entry->ready)
		return MD_CONTENTS_HERE;
	if (lacks(contents, entry)) {
		if (md_clock_ns() < entry->look_rests)
			return MD_CONTENTS_LACKS;
		entry->state = MD_ENTRY_NEW; /* somebody may have put them there */
	}
	entry->wanted = true;
	return MD_CONTENTS_COMES;
}

const char *md_contents_why(const struct md_model *model)
{
	const struct md_contents *contents = model->worker->contents;
	const struct md_contents_entry *entry = contents ? md_contents_find(contents, model->id) : NULL;
	return entry && *entry->why ? entry->why : "its configuration has changed";
}

/* ---- all of it ---- */

enum md_status md_contents_create(struct md_worker *worker, const char *state, struct md_contents **made,
				  struct md_error *err)
{
	const struct md_config_cluster *settings = &worker->config->node.cluster;
	*made = NULL;
	if (!*settings->store)
		return MD_OK;
	if (strlen(settings->store) > STORE_MAX)
		return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: %.100s...: at most %u bytes are wanted",
				    settings->store, STORE_MAX);
	struct md_contents *contents = calloc(1, sizeof(*contents));
	if (!contents)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the files of models");
	*contents = (struct md_contents){
	    .worker = worker, .settings = settings, .lock = -1, .changed = true, .bytes_s = FIRST_GUESS};
	contents->state = strdup(state);
	contents->tick = event_new(worker->base, -1, EV_PERSIST, on_tick, contents);
	enum md_status status = contents->state && contents->tick
				    ? md_content_store_begin(settings->store, &contents->lock, err)
				    : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the files of models");
	if (status == MD_OK)
		status = md_contents_peers_begin(contents, err);
	if (status != MD_OK) {
		md_contents_destroy(contents);
		return status;
	}
	md_contents_look_begin(state);
	event_add(contents->tick, &(struct timeval){.tv_usec = TICK_MS * 1000});
	event_active(contents->tick, EV_TIMEOUT, 0);
	*made = contents;
	return MD_OK;
}

void md_contents_destroy(struct md_contents *contents)
{
	if (!contents)
		return;
	atomic_store(&contents->ends, true);
	if (contents->tick)
		event_free(contents->tick);
	md_content_fetch_end(contents->fetch);
	md_contents_look_end(contents);
	md_contents_serve_end(contents);
	md_contents_peers_finish(contents);
	finish_entries(contents->entries, contents->count);
	free_needed(contents);
	if (contents->lock >= 0)
		close(contents->lock);
	free(contents->state);
	free(contents);
}

/* ---- what is shown ---- */

static const char *name_state(const struct md_contents *contents, const struct md_contents_entry *entry)
{
	if (entry->ready && entry->content)
		return "here";
	if (contents->fetch && is_fetched_for(contents, entry, contents->fetched))
		return "fetching";
	switch (entry->state) {
	case MD_ENTRY_NEW:
	case MD_ENTRY_UNREAD:
		return "hashing";
	case MD_ENTRY_HERE:
		return "here";
	case MD_ENTRY_MISSING:
		return entry->wanted ? "waiting" : "missing";
	case MD_ENTRY_BROKEN:
		break;
	}
	return "broken";
}

struct md_contents_row md_contents_row_of(const struct md_contents *contents, const char *model)
{
	const struct md_contents_entry *entry = contents ? md_contents_find(contents, model) : NULL;
	if (!entry)
		return (struct md_contents_row){0};
	struct md_contents_row row = {.state = name_state(contents, entry),
				      .why = *entry->why ? entry->why : entry->missing,
				      .hash = entry->demanded};
	if (entry->content) {
		row.hash = entry->content->hash;
		row.done = row.of = entry->content->tree.bytes;
	} else if (!strcmp(row.state, "fetching")) {
		struct md_content_progress progress = md_content_fetch_progress(contents->fetch);
		row.hash = contents->fetched;
		row.done = progress.done;
		row.of = progress.of;
	}
	return row;
}

static void put(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	md_metrics_text_begin(out, "medusa_worker_", name, type, help);
	fprintf(out, "medusa_worker_%s %" PRIu64 "\n", name, value);
}

void md_contents_print_metrics(const struct md_contents *contents, FILE *out)
{
	if (!contents)
		return;
	const struct md_content_counts *counts = &contents->counts;
	struct md_content_progress progress =
	    contents->fetch ? md_content_fetch_progress(contents->fetch) : (struct md_content_progress){0};
	uint32_t here = 0;
	for (uint32_t i = 0; i < contents->count; i++)
		here += contents->entries[i].ready;
	put(out, "content_models", "gauge", "Models with files that travel between nodes.", contents->count);
	put(out, "content_models_here", "gauge", "Of them, those whose files are here.", here);
	put(out, "content_fetch_bytes", "gauge",
	    "Bytes of the content that is being fetched; 0: none is, or its manifest has not come.", progress.of);
	put(out, "content_fetch_done_bytes", "gauge", "Of them, those that are here.", progress.done);
	put(out, "content_fetched_bytes_total", "counter",
	    "Bytes of blocks that came from other nodes, and were right.", counts->bytes);
	put(out, "content_fetched_blocks_total", "counter", "Blocks that came from other nodes, and were right.",
	    counts->blocks);
	put(out, "content_wrong_blocks_total", "counter",
	    "Blocks and manifests that came, and were not what their hashes say.", counts->wrong);
	put(out, "content_failed_calls_total", "counter",
	    "Questions to other nodes for blocks that had no whole answer.", counts->failed_calls);
	put(out, "content_fetches_total", "counter", "Contents that were fetched whole.", counts->whole);
	put(out, "content_fetches_failed_total", "counter", "Fetches that were given up.", counts->failed);
	put(out, "content_served_bytes_total", "counter", "Bytes of contents that were sent to other nodes.",
	    counts->served);
	put(out, "content_refused_total", "counter", "Questions for contents without the key of the nodes.",
	    counts->refused);
}
