/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_placement.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "medusa/scheduler.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

/* A model of a node's record; adapters go where their model is. */
struct entry {
	const struct md_record_model *model;
	uint32_t node; /* of the problem */
};

struct problem {
	const struct md_view_node **nodes; /* that can get models */
	struct medusa_sched_cluster_node *places;
	uint32_t node_count;
	struct entry *entries; /* by their models' IDs */
	uint32_t entry_count, entry_room;
	const char **ids;
	struct medusa_sched_cluster_model *models;
	struct medusa_sched_cluster_place *copies;
	uint32_t model_count;
};

static void finish(struct problem *p)
{
	free(p->nodes);
	free(p->places);
	free(p->entries);
	free(p->ids);
	free(p->models);
	free(p->copies);
}

static bool takes_models(const struct md_view_node *node)
{
	return md_view_has_lease(node) && node->record->placed;
}

static bool is_closed(const struct md_view_node *node)
{
	return node->cordoned || node->draining || node->wish != MD_WISH_NONE;
}

/* Nodes of one domain have one number; those that name none are each their own. */
static uint32_t domain_of(const struct problem *p, uint32_t node)
{
	const char *domain = p->nodes[node]->record->domain;
	for (uint32_t i = 0; domain && i < node; i++)
		if (p->nodes[i]->record->domain && !strcmp(p->nodes[i]->record->domain, domain))
			return i;
	return node;
}

static bool add_node(struct problem *p, const struct md_view_node *node)
{
	uint32_t index = p->node_count++;
	p->nodes[index] = node;
	p->places[index] = (struct medusa_sched_cluster_node){
	    .memory_bytes = node->record->gpu_bytes, .domain = domain_of(p, index), .closed = is_closed(node)};
	for (uint32_t i = 0; i < node->record->count; i++) {
		const struct md_record_model *model = &node->record->models[i];
		if (model->base)
			continue;
		if (!MD_ARRAY_GROW(p->entries, p->entry_count, p->entry_room))
			return false;
		p->entries[p->entry_count++] = (struct entry){.model = model, .node = index};
	}
	return true;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *one = a, *other = b;
	int order = strcmp(one->model->id, other->model->id);
	return order ? order : one->node < other->node ? -1 : one->node > other->node;
}

/* ---- a model, as all its nodes know it ---- */

/* Nodes may state different things: the greatest size and minimum, the least limit. */
static void add_entry(const struct entry *entry, struct medusa_sched_cluster_model *model, double *running)
{
	const struct md_record_model *from = entry->model;
	double load_s = from->standing.first_s[MD_START_DISK] - from->standing.first_s[MD_START_GPU];
	model->bytes = from->bytes > model->bytes ? from->bytes : model->bytes;
	model->min_copies = from->min_nodes > model->min_copies ? from->min_nodes : model->min_copies;
	if (from->max_nodes && (!model->max_copies || from->max_nodes < model->max_copies))
		model->max_copies = from->max_nodes;
	model->load_s = fmax(model->load_s, load_s);
	model->rate += from->standing.rate;
	*running += from->standing.busy / (from->parallel ? from->parallel : 1);
}

static void add_copy(const struct problem *p, const struct md_wanted *wanted, const struct entry *entry, uint32_t model,
		     struct medusa_sched_cluster_place *copy)
{
	const char *id = entry->model->id, *node = p->nodes[entry->node]->name;
	const char *pin = json_string_value(json_object_get(md_wanted_pins(wanted), id));
	enum md_place place = entry->model->standing.place;
	*copy = (struct medusa_sched_cluster_place){
	    .model = model,
	    .node = entry->node,
	    .loaded = place == MD_PLACE_GPU || place == MD_PLACE_LOADING,
	    .planned = json_object_get(md_wanted_placement(wanted, node), id) != NULL,
	    .fixed = pin && !strcmp(pin, node),
	};
}

/* By Little's law: the mean of requests that are there is their rate times the time that each of them takes. */
static void end_model(struct medusa_sched_cluster_model *model, double running)
{
	model->busy_s = model->rate > 0 ? running / model->rate : 0;
	if (model->max_copies && model->max_copies < model->min_copies)
		model->max_copies = model->min_copies;
}

static void add_models(struct problem *p, const struct md_wanted *wanted)
{
	double running = 0;
	for (uint32_t i = 0; i < p->entry_count; i++) {
		const struct entry *entry = &p->entries[i];
		if (!i || strcmp(p->entries[i - 1].model->id, entry->model->id) != 0) {
			if (p->model_count)
				end_model(&p->models[p->model_count - 1], running);
			running = 0;
			p->ids[p->model_count++] = entry->model->id;
		}
		add_entry(entry, &p->models[p->model_count - 1], &running);
		add_copy(p, wanted, entry, p->model_count - 1, &p->copies[i]);
	}
	if (p->model_count)
		end_model(&p->models[p->model_count - 1], running);
}

/* ---- the whole ---- */

static bool state_problem(struct problem *p, const struct md_view *view, const struct md_wanted *wanted)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(view, &count);
	p->nodes = calloc((size_t)count + 1, sizeof(*p->nodes));
	p->places = calloc((size_t)count + 1, sizeof(*p->places));
	if (!p->nodes || !p->places)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (takes_models(nodes[i]) && !add_node(p, nodes[i]))
			return false;
	if (p->entry_count)
		qsort(p->entries, p->entry_count, sizeof(*p->entries), compare_entries);
	p->ids = calloc((size_t)p->entry_count + 1, sizeof(*p->ids));
	p->models = calloc((size_t)p->entry_count + 1, sizeof(*p->models));
	p->copies = calloc((size_t)p->entry_count + 1, sizeof(*p->copies));
	if (!p->ids || !p->models || !p->copies)
		return false;
	add_models(p, wanted);
	return true;
}

static json_t *name_choices(const struct problem *p, const struct medusa_sched_cluster_choice *choices, uint32_t count)
{
	json_t *plan = json_object();
	for (uint32_t i = 0; i < p->node_count; i++)
		json_object_set_new(plan, p->nodes[i]->name, json_object());
	for (uint32_t i = 0; i < count; i++)
		json_object_set_new(json_object_get(plan, p->nodes[choices[i].node]->name), p->ids[choices[i].model],
				    json_string(choices[i].kept ? "kept" : "wanted"));
	return plan;
}

json_t *md_placement_plan(const struct md_view *view, const struct md_wanted *wanted)
{
	struct problem p = {0};
	struct medusa_sched_cluster_choice *choices = NULL;
	uint32_t count = 0;
	json_t *plan = NULL;
	if (state_problem(&p, view, wanted)) {
		struct medusa_sched_cluster cluster = {.size = sizeof(cluster),
						       .nodes = p.places,
						       .models = p.models,
						       .places = p.copies,
						       .node_count = p.node_count,
						       .model_count = p.model_count,
						       .place_count = p.entry_count};
		if (medusa_sched_cluster_plan(&cluster, &choices, &count))
			md_warn("cluster: nothing is placed: %s", medusa_sched_error(NULL));
		else
			plan = name_choices(&p, choices, count);
	}
	medusa_sched_cluster_free(choices);
	finish(&p);
	return plan;
}
