/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank says of a graph to the others, and what it does when one of them cannot restore it. */
#define MD_LOG_DOMAIN "restore"
#include "restore/agree.h"

#include "ranks/meeting.h"
#include "ranks/rank.h"
#include "restore/graph_queue.h"
#include "restore/graph_state.h"
#include "restore/restore_facts.h"

/* DENIED: it was handed out, and denied when the engine asked again: the engine may still have it, or have captured it live since. */
enum { ASKED = 1, HANDED_OUT, DENIED };

static struct md_rank rank;
static struct md_error rank_unknown;                       /* why this process does not know the other ranks */
static struct md_map names MD_GUARDED_BY(md_restore_lock); /* of graphs that ranks have voted on */

static bool names_lost MD_GUARDED_BY(md_restore_lock); /* a graph that was asked for may not be among them */

void md_restore_agree_init(void)
{
	md_rank_read(&rank, &rank_unknown);
	md_map_init(&names);
}

const struct md_rank *md_restore_together(void)
{
	return rank.meets && !rank_unknown.status ? &rank : NULL;
}

static bool is_alone(const struct md_restore *r)
{
	return r->verify || (!rank.meets && !rank_unknown.status);
}

static uint64_t not_zero(uint64_t number)
{
	return number ? number : 1;
}

/* The graphs that will be handed out once this one is: the same number in ranks that have the same ones. */
static uint64_t group_of(const struct md_restore *r, const char *label, unsigned batch) MD_RESTORE_HELD
{
	const struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	uint64_t sum = 0;
	for (uint32_t i = 0; graph && graph->stored->group && i < r->artifact.graph_count; i++)
		if (r->artifact.graphs[i].group == graph->stored->group)
			sum += md_graph_name_key(r->artifact.graphs[i].label, r->artifact.graphs[i].batch);
	return not_zero(sum);
}

/* refuses: this graph alone; otherwise all graphs are refused next. */
static void take_back(struct md_restore *r, const char *label, unsigned batch, bool refuses,
		      const struct md_error *why) MD_RESTORE_HELD
{
	struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	uint64_t before = ASKED;
	uint64_t name = not_zero(md_graph_name_key(label, batch));
	md_map_get(&names, name, &before);
	if (before != ASKED) /* the engine has it from an earlier call */
		md_map_put(&names, name, DENIED);
	if (!graph || before != ASKED)
		return;
	graph->handed_out = false;
	if (refuses)
		md_restore_refuse(r, graph, why);
	pthread_cond_broadcast(&r->changed);
}

static enum md_status ask(const struct md_question *question, bool *over, struct md_error *err)
{
	if (!rank_unknown.status)
		return md_ranks_ask(&rank, question, over, err);
	*over = true;
	return md_error_set(err, rank_unknown.status, "%s", rank_unknown.message);
}

/*
 * Before it is asked for, so that what becomes of it can be noted in any case: otherwise a later "no" would take a graph
 * back that the engine already has.
 */
static bool note_name(uint64_t name) MD_RESTORE_HELD
{
	return md_map_get(&names, name, NULL) || md_map_put(&names, name, ASKED);
}

bool md_restore_is_promised(const struct md_restore *r, const struct md_restore_graph *graph)
{
	uint64_t state;
	for (uint32_t i = 0; graph->stored->group && i < r->artifact.graph_count; i++) {
		const struct md_artifact_graph *other = &r->artifact.graphs[i];
		if (other != graph->stored && other->group == graph->stored->group &&
		    md_map_get(&names, not_zero(md_graph_name_key(other->label, other->batch)), &state) &&
		    state == HANDED_OUT)
			return true;
	}
	return false;
}

/* Others may be gone or late. A rank that has said no has lost what the group hands on, and so have the others then. */
static bool is_kept(const struct md_restore *r, const char *label, unsigned batch, enum md_status status,
		    bool over) MD_RESTORE_HELD
{
	const struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	return graph && (over || status == MD_ERR_TIMEOUT) && md_restore_is_promised(r, graph);
}

enum md_status md_restore_agree(struct md_restore *r, const char *label, unsigned batch, enum md_status own,
				uint64_t deadline_ns, struct md_error *err)
{
	struct md_error theirs = {0};
	bool over = false, ready = own == MD_OK;
	if (is_alone(r))
		return own;
	struct md_question question = {.name = not_zero(md_graph_name_key(label, batch)), .deadline_ns = deadline_ns};
	pthread_mutex_lock(&md_restore_lock);
	question.with = group_of(r, label, batch);
	question.bundle = r->bundle;
	bool noted = note_name(question.name);
	pthread_mutex_unlock(&md_restore_lock);
	if (!noted && ready)
		own = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the names of graphs that ranks vote on");
	question.why_not = own == MD_OK ? NULL : err->message;
	enum md_status status = ask(&question, &over, &theirs);
	if (!noted) { /* this rank has said no, and does so from here on */
		over = true;
		theirs = *err;
	}
	pthread_mutex_lock(&md_restore_lock);
	names_lost |= !noted;
	if (own == MD_OK && status != MD_OK && is_kept(r, label, batch, status, over))
		status = MD_OK;
	if (own == MD_OK && status != MD_OK)
		*err = theirs;
	if (ready && status != MD_OK)
		take_back(r, label, batch, !over, err);
	if (status == MD_OK && noted)
		md_map_put(&names, question.name, HANDED_OUT); /* there is room, as it has been noted */
	pthread_mutex_unlock(&md_restore_lock);
	if (over)
		md_restore_part(r, &theirs);
	return own == MD_OK ? status : own;
}

enum md_status md_restore_agree_capacity(struct md_restore *r, enum md_status own, struct md_error *err)
{
	static const char name[] = "KV capacity"; /* keys of graphs are hashes of other bytes */
	struct md_error theirs = {0};
	bool over = false;
	struct md_question question = {.name = md_hash_checksum(name, sizeof(name)),
				       .with = 1,
				       .why_not = own == MD_OK ? NULL : err->message,
				       .deadline_ns = UINT64_MAX};
	if (atomic_load(&r->off) || (!rank.meets && !rank_unknown.status))
		return own;
	pthread_mutex_lock(&md_restore_lock);
	question.bundle = r->bundle;
	pthread_mutex_unlock(&md_restore_lock);
	enum md_status status = ask(&question, &over, &theirs);
	if (over)
		md_restore_part(r, &theirs);
	if (own == MD_OK && status != MD_OK)
		*err = theirs;
	return own == MD_OK ? status : own;
}

void md_restore_agree_captured(struct md_restore *r, const char *label, unsigned batch)
{
	struct md_error live = {.status = MD_ERR_NOT_FOUND, .message = "its engine has captured it without asking"};
	if (is_alone(r))
		return;
	pthread_mutex_lock(&md_restore_lock);
	bool known = names_lost || md_map_get(&names, not_zero(md_graph_name_key(label, batch)), NULL);
	pthread_mutex_unlock(&md_restore_lock);
	if (!known)
		md_restore_agree(r, label, batch, live.status, 0, &live);
}
