/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_placement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "medusa/scheduler_cluster.h"

#define PART 4096u /* models that are copied in one turn of the loop, and those of one node more */

/* A node that takes models, or took them until its lease ended, as it was when it was copied. */
struct copied_node {
	char *name;
	json_t *root;          /* of its record: the texts that are used are in it */
	json_t *had;           /* its placement; NULL: none */
	const char *domain;    /* NULL: its own */
	uint64_t memory_bytes; /* of its GPUs */
	uint64_t *gpu_bytes;   /* of each, owned; 0: not known */
	uint32_t gpu_count;
	bool closed, absent; /* absent: its lease has ended, and what was asked of it is asked of others now */
};

/* A model of a node's record; adapters go where their model is. */
struct entry {
	const char *id;
	uint32_t node; /* of the problem */
	uint64_t bytes;
	uint32_t min_nodes, max_nodes;
	double load_s, rate, running; /* running: the part of the time that its copy there is busy */
	bool loaded, planned, fixed;
	bool lacks;  /* its files are not there */
	bool failed; /* its engine does not start there, or its files can't be had */
};

struct md_placement {
	json_t *pins;
	struct copied_node *nodes; /* that can get models, by name */
	uint32_t node_count, node_room;
	char *last;            /* the name of the node that was looked at last; NULL: none */
	struct entry *entries; /* by their models' IDs, when it is solved */
	uint32_t entry_count, entry_room;
	struct medusa_sched_cluster_node *places;
	const char **ids;
	struct medusa_sched_cluster_model *models;
	struct medusa_sched_cluster_place *copies;
	uint32_t model_count, copy_count;
	json_t *plan;
	char why[300];
};

struct md_placement *md_placement_create(const struct md_wanted *wanted)
{
	struct md_placement *made = calloc(1, sizeof(*made));
	if (made && (made->pins = json_deep_copy(md_wanted_pins(wanted))))
		return made;
	free(made);
	return NULL;
}

void md_placement_free(struct md_placement *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->node_count; i++) {
		free(p->nodes[i].name);
		free(p->nodes[i].gpu_bytes);
		json_decref(p->nodes[i].root);
		json_decref(p->nodes[i].had);
	}
	json_decref(p->pins);
	json_decref(p->plan);
	free(p->nodes);
	free(p->last);
	free(p->entries);
	free(p->places);
	free(p->ids);
	free(p->models);
	free(p->copies);
	free(p);
}

/* ---- copying ---- */

bool md_placement_takes_models(const struct md_view_node *node)
{
	return md_view_has_lease(node) && node->record->placed;
}

static bool is_closed(const struct md_view_node *node)
{
	return node->ended || node->cordoned || node->draining || node->wish != MD_WISH_NONE;
}

static struct entry describe(const struct md_placement *p, const struct md_record_model *from, uint32_t node)
{
	const struct md_standing *standing = &from->standing;
	const char *pin = json_string_value(json_object_get(p->pins, from->id));
	return (struct entry){
	    .id = from->id,
	    .node = node,
	    .bytes = from->bytes,
	    .min_nodes = from->min_nodes,
	    .max_nodes = from->max_nodes,
	    .load_s = standing->first_s[MD_START_DISK] - standing->first_s[MD_START_GPU],
	    .rate = standing->rate,
	    .running = standing->busy / (from->parallel ? from->parallel : 1),
	    .loaded = standing->place == MD_PLACE_GPU || standing->place == MD_PLACE_LOADING,
	    .planned = json_object_get(p->nodes[node].had, from->id) != NULL,
	    .fixed = pin && !strcmp(pin, p->nodes[node].name),
	    .lacks = standing->lacks,
	    .failed = standing->place == MD_PLACE_NOWHERE,
	};
}

static bool add_node(struct md_placement *p, const struct md_view_node *node, const struct md_wanted *wanted)
{
	uint32_t index = p->node_count;
	uint32_t gpus = node->record->gpu_count;
	char *name = strdup(node->name);
	uint64_t *gpu_bytes = calloc((size_t)gpus + 1, sizeof(*gpu_bytes));
	if (!name || !gpu_bytes || !MD_ARRAY_GROW(p->nodes, p->node_count, p->node_room)) {
		free(name);
		free(gpu_bytes);
		return false;
	}
	memcpy(gpu_bytes, node->record->each_gpu_bytes, gpus * sizeof(*gpu_bytes));
	p->nodes[p->node_count++] =
	    (struct copied_node){.name = name,
				 .root = json_incref(node->record->root),
				 .had = json_incref((json_t *)md_wanted_placement(wanted, node->name)),
				 .domain = node->record->domain,
				 .memory_bytes = node->record->gpu_bytes,
				 .gpu_bytes = gpu_bytes,
				 .gpu_count = gpus,
				 .closed = is_closed(node),
				 .absent = !md_view_has_lease(node)};
	for (uint32_t i = 0; i < node->record->count; i++) {
		const struct md_record_model *model = &node->record->models[i];
		if (model->base)
			continue;
		if (!MD_ARRAY_GROW(p->entries, p->entry_count, p->entry_room))
			return false;
		p->entries[p->entry_count++] = describe(p, model, index);
	}
	return true;
}

/* Nodes are sorted by name, so those behind the last one are left, whoever came or went meanwhile. */
static uint32_t find_next(const struct md_placement *p, struct md_view_node *const *nodes, uint32_t count)
{
	uint32_t low = 0, high = p->last ? count : 0;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (strcmp(nodes[middle]->name, p->last) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

enum md_placement_step md_placement_copy(struct md_placement *p, const struct md_view *view,
					 const struct md_wanted *wanted)
{
	uint32_t count, had = p->entry_count;
	struct md_view_node *const *nodes = md_view_nodes(view, &count);
	uint32_t at = find_next(p, nodes, count);
	for (; at < count && p->entry_count - had < PART; at++)
		if (nodes[at]->record && nodes[at]->record->placed && !add_node(p, nodes[at], wanted))
			return MD_PLACEMENT_NO_MEMORY;
	if (at == count)
		return MD_PLACEMENT_COPIED;
	free(p->last);
	p->last = strdup(nodes[at - 1]->name);
	return p->last ? MD_PLACEMENT_MORE : MD_PLACEMENT_NO_MEMORY;
}

/* ---- whether it still stands ---- */

bool md_placement_pins_stand(const struct md_placement *p, const struct md_wanted *wanted)
{
	return json_equal(p->pins, (json_t *)md_wanted_pins(wanted));
}

static int compare_names(const void *name, const void *node)
{
	return strcmp(name, ((const struct copied_node *)node)->name);
}

bool md_placement_stands(const struct md_placement *p, const char *name, const struct md_view *view,
			 const struct md_wanted *wanted)
{
	const struct copied_node *was =
	    p->node_count ? bsearch(name, p->nodes, p->node_count, sizeof(*p->nodes), compare_names) : NULL;
	const struct md_view_node *is = md_view_find(view, name);
	json_t *has = (json_t *)md_wanted_placement(wanted, name);
	return was && is && md_placement_takes_models(is) && is->record->root == was->root &&
	       is_closed(is) == was->closed && (has == was->had || (has && was->had && json_equal(has, was->had)));
}

/* ---- on the thread: the problem ---- */

static int compare_entries(const void *a, const void *b)
{
	const struct entry *one = a, *other = b;
	int order = strcmp(one->id, other->id);
	return order ? order : one->node < other->node ? -1 : one->node > other->node;
}

/* Nodes of one domain have one number; those that name none are each their own. */
static uint32_t domain_of(const struct md_placement *p, uint32_t node)
{
	const char *domain = p->nodes[node].domain;
	for (uint32_t i = 0; domain && i < node; i++)
		if (p->nodes[i].domain && !strcmp(p->nodes[i].domain, domain))
			return i;
	return node;
}

/* Of all nodes that have the model. */
struct sums {
	double running;
	double load_s, fetch_s; /* at most; fetch_s: of nodes that lack its files */
};

/* Nodes may state different things: the greatest size and minimum, the least limit. */
static void add_entry(const struct entry *from, struct medusa_sched_cluster_model *model, struct sums *sums)
{
	model->bytes = from->bytes > model->bytes ? from->bytes : model->bytes;
	model->min_copies = from->min_nodes > model->min_copies ? from->min_nodes : model->min_copies;
	if (from->max_nodes && (!model->max_copies || from->max_nodes < model->max_copies))
		model->max_copies = from->max_nodes;
	model->rate += from->rate;
	sums->running += from->running;
	if (from->lacks)
		sums->fetch_s = fmax(sums->fetch_s, from->load_s);
	else
		sums->load_s = fmax(sums->load_s, from->load_s);
}

/* By Little's law: the mean of requests that are there is their rate times the time that each of them takes. */
static void end_model(struct medusa_sched_cluster_model *model, const struct sums *sums)
{
	model->busy_s = model->rate > 0 ? sums->running / model->rate : 0;
	model->load_s = sums->load_s > 0 ? sums->load_s : sums->fetch_s;
	if (model->max_copies && model->max_copies < model->min_copies)
		model->max_copies = model->min_copies;
}

/* A node where the model fails gets it only if users want it there. */
static void add_models(struct md_placement *p)
{
	struct sums sums = {0};
	for (uint32_t i = 0; i < p->entry_count; i++) {
		const struct entry *entry = &p->entries[i];
		if (!i || strcmp(p->entries[i - 1].id, entry->id) != 0) {
			if (p->model_count)
				end_model(&p->models[p->model_count - 1], &sums);
			sums = (struct sums){0};
			p->ids[p->model_count++] = entry->id;
		}
		add_entry(entry, &p->models[p->model_count - 1], &sums);
		if (entry->failed && !entry->fixed)
			continue;
		p->copies[p->copy_count++] = (struct medusa_sched_cluster_place){.model = p->model_count - 1,
										 .node = entry->node,
										 .loaded = entry->loaded,
										 .planned = entry->planned,
										 .fixed = entry->fixed,
										 .lacks = entry->lacks};
	}
	if (p->model_count)
		end_model(&p->models[p->model_count - 1], &sums);
}

static bool state_problem(struct md_placement *p)
{
	size_t room = (size_t)p->entry_count + 1;
	p->places = calloc((size_t)p->node_count + 1, sizeof(*p->places));
	p->ids = calloc(room, sizeof(*p->ids));
	p->models = calloc(room, sizeof(*p->models));
	p->copies = calloc(room, sizeof(*p->copies));
	if (!p->places || !p->ids || !p->models || !p->copies)
		return false;
	for (uint32_t i = 0; i < p->node_count; i++)
		p->places[i] = (struct medusa_sched_cluster_node){.memory_bytes = p->nodes[i].memory_bytes,
								  .domain = domain_of(p, i),
								  .closed = p->nodes[i].closed,
								  .gpu_bytes = p->nodes[i].gpu_bytes,
								  .gpu_count = p->nodes[i].gpu_count};
	if (p->entry_count)
		qsort(p->entries, p->entry_count, sizeof(*p->entries), compare_entries);
	add_models(p);
	return true;
}

/* ---- the plan ---- */

static json_t *name_choices(const struct md_placement *p, const struct medusa_sched_cluster_choice *choices,
			    uint32_t count)
{
	json_t *plan = json_object();
	for (uint32_t i = 0; i < p->node_count; i++)
		if (!p->nodes[i].absent)
			json_object_set_new(plan, p->nodes[i].name, json_object());
	for (uint32_t i = 0; i < count; i++)
		json_object_set_new(json_object_get(plan, p->nodes[choices[i].node].name), p->ids[choices[i].model],
				    json_string(choices[i].kept ? "kept" : "wanted"));
	return plan;
}

void md_placement_solve(struct md_placement *p)
{
	struct medusa_sched_cluster_choice *choices = NULL;
	uint32_t count = 0;
	if (!state_problem(p)) {
		snprintf(p->why, sizeof(p->why), "out of memory for a plan");
		return;
	}
	struct medusa_sched_cluster cluster = {.size = sizeof(cluster),
					       .nodes = p->places,
					       .models = p->models,
					       .places = p->copies,
					       .node_count = p->node_count,
					       .model_count = p->model_count,
					       .place_count = p->copy_count};
	if (medusa_sched_cluster_plan(&cluster, &choices, &count))
		snprintf(p->why, sizeof(p->why), "%.290s", medusa_sched_error(NULL));
	else if (!(p->plan = name_choices(p, choices, count)))
		snprintf(p->why, sizeof(p->why), "out of memory for a plan");
	medusa_sched_cluster_free(choices);
}

const json_t *md_placement_plan(const struct md_placement *p, const char **why)
{
	*why = p->why;
	return p->plan;
}
