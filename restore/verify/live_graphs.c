/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own graphs in verify mode, and the engine's statements about them. */
#define MD_LOG_DOMAIN "verify"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/environment.h"
#include "base/setting.h"
#include "base/log.h"
#include "restore/graph_state.h"
#include "restore/verify/asked.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/inputs.h"
#include "restore/verify/live_graphs.h"
#include "restore/verify/live_parameters.h"
#include "restore/verify/report_lines.h"
#include "restore/verify/unbound_outputs.h"
#include "restore/verify/until.h"
#include "restore/verify/verify.h"

#define DEFAULT_LAUNCHES 3
#define OTHERS_MOST 3 /* comparisons of a graph at launches of other graphs */

pthread_mutex_t md_verify_table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_live_graph *table MD_GUARDED_BY(md_verify_table_lock);
static size_t table_count MD_GUARDED_BY(md_verify_table_lock), table_room MD_GUARDED_BY(md_verify_table_lock);
static _Thread_local CUgraphExec instantiated_last;

/* ---- the table ---- */

static struct md_live_graph *find(CUgraphExec exec) MD_REQUIRES(md_verify_table_lock)
{
	for (size_t i = 0; exec && i < table_count; i++)
		if (table[i].exec == exec)
			return &table[i];
	return NULL;
}

static struct md_live_graph *find_or_add(CUgraphExec exec) MD_REQUIRES(md_verify_table_lock)
{
	struct md_live_graph *found = find(exec);
	if (found)
		return found;
	if (!MD_ARRAY_GROW(table, table_count, table_room))
		return NULL;
	table[table_count] = (struct md_live_graph){.exec = exec, .maker = pthread_self()};
	return &table[table_count++];
}

static void forget_said(struct md_live_graph *live)
{
	md_verify_nodes_finish(&live->nodes);
	free(live->outputs);
	free(live->refused);
	live->outputs = NULL;
	live->output_count = 0;
	live->refused = NULL;
}

/* exec NULL: the graph that this thread has instantiated last, if it still exists. */
static enum md_status resolve(void *exec, struct md_live_graph **out, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock)
{
	struct md_live_graph *live = exec ? find_or_add(exec) : find(instantiated_last);
	if (!exec && (!live || !pthread_equal(live->maker, pthread_self())))
		return md_error_set(err, MD_ERR_NOT_FOUND, "this thread has instantiated no graph that is still there");
	if (!live)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for verifying one more graph");
	*out = live;
	return MD_OK;
}

/* ---- what the driver and the engine do ---- */

const struct md_live_graph *md_verify_live_at(size_t index)
{
	return index < table_count ? &table[index] : NULL;
}

void md_verify_instantiated(CUgraphExec exec, CUgraph graph)
{
	pthread_mutex_lock(&md_verify_table_lock);
	struct md_live_graph *live = find_or_add(exec);
	if (live)
		md_verify_nodes_read(&live->nodes, graph);
	if (!live)
		md_warn("out of memory for verifying one more graph");
	instantiated_last = live ? exec : NULL;
	pthread_mutex_unlock(&md_verify_table_lock);
}

void md_verify_forget(CUgraphExec exec)
{
	pthread_mutex_lock(&md_verify_table_lock);
	struct md_live_graph *live = find(exec);
	if (live) {
		forget_said(live);
		live->exec = NULL;
		if (!live->label) /* the engine cannot ask for a graph without a label */
			*live = table[--table_count];
	}
	pthread_mutex_unlock(&md_verify_table_lock);
}

static enum md_status set_label(struct md_live_graph *live, const char *label, unsigned batch, struct md_error *err)
{
	char *copy = strdup(label);
	if (!copy)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for verifying graph %s/%u", label, batch);
	free(live->label);
	live->label = copy;
	live->batch = batch;
	live->compared = live->launches = live->others = 0;
	live->inputs = (struct md_verify_inputs){0};
	live->varied = false;
	return MD_OK;
}

static void report_refusal(struct md_live_graph *live)
{
	MD_AUTO_FREE char *why = NULL;
	if (asprintf(&why, "refused by the engine: %s", live->refused) < 0)
		why = NULL;
	md_verify_report(live->label, live->batch, MD_VERDICT_FAIL, 0, why ? why : "refused by the engine");
	live->compared++;
}

/* ---- what a graph needs beside comparisons that pass ---- */

/* If a name was captured more than once, any of its graphs will do. */
static bool shows_effects(const struct md_live_graph *live) MD_REQUIRES(md_verify_table_lock)
{
	for (size_t i = 0; i < table_count; i++)
		if (table[i].effects && table[i].batch == live->batch && !strcmp(table[i].label, live->label))
			return true;
	return false;
}

static bool has_varied(const struct md_live_graph *live) MD_REQUIRES(md_verify_table_lock)
{
	for (size_t i = 0; i < table_count; i++)
		if (table[i].varied && table[i].batch == live->batch && !strcmp(table[i].label, live->label))
			return true;
	return false;
}

static const char *what_is_missing(const struct md_live_graph *live) MD_REQUIRES(md_verify_table_lock)
{
	if (!md_verify_unvaried_accepted() && !has_varied(live))
		return "its inputs held the same bytes in every comparison, so nothing is known of other inputs: "
		       "launch it with other inputs while it is verified, or accept it with --accept-unvaried";
	return shows_effects(live) ? NULL : "it writes only unbound memory, or writes the bytes that were there before";
}

static void say_what_is_missing(struct md_live_graph *live) MD_REQUIRES(md_verify_table_lock)
{
	const char *missing = what_is_missing(live);
	if (missing && missing != live->owed)
		md_verify_report(live->label, live->batch, MD_VERDICT_OWED, 0, missing);
	else if (!missing && live->owed)
		md_verify_report(live->label, live->batch, MD_VERDICT_SETTLED, 0, "");
	live->owed = missing;
}

/* Reports missing comparisons before a comparison can pass, because the engine may be killed at any time. */
static bool compare(struct md_live_graph *live, bool own) MD_REQUIRES(md_verify_table_lock)
{
	say_what_is_missing(live);
	bool compared = md_verify_compare(live, own);
	say_what_is_missing(live);
	return compared;
}

/* All graphs that were to be compared have been; later launches are compared as well. */
static void end_if_all_compared(bool due) MD_REQUIRES(md_verify_table_lock)
{
	for (size_t i = 0; due && i < table_count; i++)
		due = !table[i].label || table[i].compared;
	if (due)
		md_verify_until_end();
}

static size_t labelled(void) MD_REQUIRES(md_verify_table_lock)
{
	size_t count = 0;
	for (size_t i = 0; i < table_count; i++)
		count += table[i].label != NULL;
	return count;
}

static void report_uncompared(void) MD_REQUIRES(md_verify_table_lock)
{
	for (size_t i = 0; i < table_count; i++)
		if (table[i].label && !table[i].compared)
			md_verify_report(table[i].label, table[i].batch, MD_VERDICT_SKIPPED, 0,
					 "a stream capture was always in progress");
}

/* An engine that is complete may launch nothing more, so waiting for its launches would not end. */
void md_verify_mark(const char *name)
{
	pthread_mutex_lock(&md_verify_table_lock);
	bool due = md_verify_until_mark(name);
	if (due && !strcmp(name, MD_MARK_COMPLETE)) {
		report_uncompared();
		md_verify_until_end();
	} else {
		end_if_all_compared(due);
	}
	pthread_mutex_unlock(&md_verify_table_lock);
}

enum md_status md_verify_label(void *exec, const char *label, unsigned batch, struct md_error *err)
{
	struct md_live_graph *live = NULL;
	pthread_mutex_lock(&md_verify_table_lock);
	enum md_status status = resolve(exec, &live, err);
	if (status == MD_OK)
		status = set_label(live, label, batch, err);
	if (status == MD_OK)
		md_verify_labelled(&md_restore, label, batch);
	if (status == MD_OK && live->refused)
		report_refusal(live);
	else if (status == MD_OK && !md_verify_until_over() && compare(live, true))
		live->compared++;
	end_if_all_compared(md_verify_until_graphs(labelled()));
	pthread_mutex_unlock(&md_verify_table_lock);
	return status;
}

static enum md_status set_output(struct md_live_graph *live, unsigned index, uint64_t address, uint64_t size,
				 struct md_error *err)
{
	if (index >= live->output_count) {
		struct md_live_output *grown = md_array_resize(live->outputs, index + UINT64_C(1), sizeof(*grown));
		if (!grown)
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for output %u", index);
		memset(grown + live->output_count, 0, (index + 1u - live->output_count) * sizeof(*grown));
		live->outputs = grown;
		live->output_count = index + 1u;
	}
	live->outputs[index] = (struct md_live_output){address, size, MD_ELEMENT_UNKNOWN};
	return MD_OK;
}

enum md_status md_verify_output(void *exec, unsigned index, uint64_t address, uint64_t size, struct md_error *err)
{
	struct md_live_graph *live = NULL;
	pthread_mutex_lock(&md_verify_table_lock);
	enum md_status status = resolve(exec, &live, err);
	if (status == MD_OK)
		status = set_output(live, index, address, size, err);
	pthread_mutex_unlock(&md_verify_table_lock);
	return status;
}

/* The engine may refuse a graph after labelling it, too: what it finds by launching the graph fails it. */
enum md_status md_verify_refuse(void *exec, const char *why, struct md_error *err)
{
	struct md_live_graph *live = NULL;
	pthread_mutex_lock(&md_verify_table_lock);
	enum md_status status = resolve(exec, &live, err);
	char *copy = status == MD_OK ? strdup(why) : NULL;
	if (status == MD_OK && !copy)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a refusal");
	if (status == MD_OK) {
		free(live->refused);
		live->refused = copy;
		if (live->label)
			report_refusal(live);
	}
	pthread_mutex_unlock(&md_verify_table_lock);
	return status;
}

static unsigned launches_wanted(void)
{
	return (unsigned)md_setting_number("MEDUSA_VERIFY_LAUNCHES", 0, UINT32_MAX, DEFAULT_LAUNCHES);
}

/*
 * An engine launches few of its graphs in a verify run, but the other graphs have the same inputs. So they are compared
 * with these inputs, too, until each graph was seen on other inputs than at first. This is left out where state is too
 * large to be saved: the launched graph rewrites what its own replays have written there, but nothing would undo the
 * writes of the others. Nor is a graph that communicates, as the other ranks may not compare it now.
 */
static void compare_others(const struct md_live_graph *launched) MD_REQUIRES(md_verify_table_lock)
{
	for (size_t i = 0; !launched->sampled && i < table_count; i++) {
		struct md_live_graph *other = &table[i];
		if (other == launched || other->communicates || !other->label || other->refused || !other->passed ||
		    other->varied || other->others == OTHERS_MOST)
			continue;
		other->others++;
		other->compared += compare(other, false);
	}
}

/* Every launch counts, including those that are not compared. */
static void note_order(struct md_live_graph *live)
{
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	pthread_mutex_lock(&md_restore_lock);
	struct md_restore_graph *graph =
	    r->phase == MD_PHASE_OPEN ? md_restore_find(r, live->label, live->batch) : NULL;
	bool wrong = graph && md_verify_handed_launched(r, graph, &err) != MD_OK && !live->unfed;
	pthread_mutex_unlock(&md_restore_lock);
	live->unfed |= wrong;
	if (wrong)
		md_verify_report(live->label, live->batch, MD_VERDICT_FAIL, 0, err.message);
}

void md_verify_launch(CUgraphExec exec)
{
	static unsigned wanted;
	static bool known;
	pthread_mutex_lock(&md_verify_table_lock);
	if (!known)
		wanted = launches_wanted();
	known = true;
	struct md_live_graph *live = find(exec);
	if (live && live->label)
		note_order(live);
	if (live && live->label && !live->refused && live->launches < wanted && !md_verify_until_over() &&
	    compare(live, true)) {
		live->launches++;
		live->compared++;
		compare_others(live);
		end_if_all_compared(md_verify_until_graphs(labelled()));
	}
	pthread_mutex_unlock(&md_verify_table_lock);
}

void md_verify_end(void)
{
	pthread_mutex_lock(&md_verify_table_lock);
	report_uncompared();
	md_verify_report_end();
	pthread_mutex_unlock(&md_verify_table_lock);
}
