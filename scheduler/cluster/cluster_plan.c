/* SPDX-License-Identifier: Apache-2.0 */
/* Which models lie on which nodes of a cluster: the most seconds of waiting saved by a byte, spread over failure domains. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "medusa/scheduler_cluster.h"
#include "scheduler/core/registry.h"

#define FILLED 0.9    /* of a node, by what is placed for its worth: requests for others need room */
#define BUSY_MOST 0.7 /* of a copy's time */
#define STAYS 1.25    /* a newcomer is worth so much more than what is there */
#define COPIES_MOST 1024u
#define GPUS_MOST 1024u /* of a node */
#define COUNT_MOST 1000000u

enum { LOADED = 1, PLANNED = 2, FIXED = 4, LACKS = 8 };

/* A place of the caller, sorted by model and node. */
struct spot {
	uint32_t model, node;
	unsigned is;
};

/* The next copy of a model. */
struct wish {
	double worth; /* seconds of waiting that a byte saves, a second */
	uint32_t model;
};

/* Of a node, while a copy of a model is placed; what another number of the search has left there does not count. */
struct note {
	uint64_t search;
	unsigned is;
	bool chosen; /* it has a copy already */
};

struct domain_note {
	uint64_t search;
	uint32_t copies;
};

struct plan {
	const struct medusa_sched_cluster *given;
	struct spot *spots;
	uint32_t *first;                  /* of a model in spots; one more than there are models */
	double *used;                     /* bytes, by node */
	double *free;                     /* bytes, by GPU; those of a node stand together; below 0: not known */
	uint32_t *first_gpu;              /* of a node in `free`; one more than there are nodes */
	double *largest;                  /* by node: what its emptiest GPU has left */
	bool *unknown;                    /* by node: the memory of one of its GPUs is not known */
	uint32_t *domain;                 /* of a node, as an index */
	struct note *notes;               /* by node */
	struct domain_note *domain_notes; /* by domain */
	uint64_t search;
	uint32_t *copies, *last; /* by model: chosen so far, and the last of them in `choices`, plus 1 */
	bool *fixed;             /* by model */
	struct medusa_sched_cluster_choice *choices;
	uint32_t *before; /* of a choice: the one of the same model before it, plus 1 */
	uint32_t count, room, before_room;
	struct wish *wishes; /* a heap, the greatest first */
	uint32_t wish_count;
};

/* ---- what was given ---- */

static bool is_amount(double value)
{
	return isfinite(value) && value >= 0;
}

static int check_models(const struct medusa_sched_cluster *c)
{
	for (uint32_t i = 0; i < c->model_count; i++) {
		const struct medusa_sched_cluster_model *m = &c->models[i];
		if (!is_amount(m->rate) || !is_amount(m->load_s) || !is_amount(m->busy_s))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "models[%u]: rate, load_s and busy_s are finite numbers from 0 on", i);
		if (m->max_copies && m->max_copies < m->min_copies)
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "models[%u].max_copies: %u is less than min_copies, %u", i, m->max_copies,
				       m->min_copies);
	}
	return MEDUSA_SCHED_OK;
}

static int check_nodes(const struct medusa_sched_cluster *c)
{
	for (uint32_t i = 0; i < c->node_count; i++)
		if (c->nodes[i].gpu_count > GPUS_MOST || (c->nodes[i].gpu_count && !c->nodes[i].gpu_bytes))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "nodes[%u]: gpu_count is at most %u, and gpu_bytes is not NULL then", i,
				       GPUS_MOST);
	return MEDUSA_SCHED_OK;
}

static int check(const struct medusa_sched_cluster *given, struct medusa_sched_cluster *c)
{
	if (!given || !md_take_struct(given, sizeof(*c), c))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "cluster: it is NULL, or its size is not that of struct medusa_sched_cluster");
	if (c->node_count > COUNT_MOST || c->model_count > COUNT_MOST)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "node_count, model_count: at most %u of each",
			       COUNT_MOST);
	if ((c->node_count && !c->nodes) || (c->model_count && !c->models) || (c->place_count && !c->places))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "nodes, models or places is NULL, and its count is not 0");
	for (uint32_t i = 0; i < c->place_count; i++)
		if (c->places[i].model >= c->model_count || c->places[i].node >= c->node_count)
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "places[%u]: there is no model %u, or no node %u", i, c->places[i].model,
				       c->places[i].node);
	int result = check_nodes(c);
	return result ? result : check_models(c);
}

static int compare_spots(const void *a, const void *b)
{
	const struct spot *one = a, *other = b;
	if (one->model != other->model)
		return one->model < other->model ? -1 : 1;
	return one->node < other->node ? -1 : one->node > other->node;
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
	return one < other ? -1 : one > other;
}

static int index_spots(struct plan *p)
{
	const struct medusa_sched_cluster *c = p->given;
	for (uint32_t i = 0; i < c->place_count; i++) {
		const struct medusa_sched_cluster_place *from = &c->places[i];
		p->spots[i] = (struct spot){.model = from->model,
					    .node = from->node,
					    .is = (from->loaded ? LOADED : 0u) | (from->planned ? PLANNED : 0u) |
						  (from->fixed ? FIXED : 0u) | (from->lacks ? LACKS : 0u)};
		p->fixed[from->model] |= from->fixed != 0;
	}
	if (c->place_count)
		qsort(p->spots, c->place_count, sizeof(*p->spots), compare_spots);
	for (uint32_t i = 1; i < c->place_count; i++)
		if (!compare_spots(&p->spots[i - 1], &p->spots[i]))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "places: model %u at node %u is there twice",
				       p->spots[i].model, p->spots[i].node);
	for (uint32_t i = 0, model = 0; model <= c->model_count; model++) {
		while (i < c->place_count && p->spots[i].model < model)
			i++;
		p->first[model] = i;
	}
	return MEDUSA_SCHED_OK;
}

/* Numbers of domains may be any: they are made indices. */
static bool index_domains(struct plan *p)
{
	const struct medusa_sched_cluster *c = p->given;
	MD_AUTO_FREE uint32_t *sorted = malloc((c->node_count + 1) * sizeof(*sorted));
	uint32_t count = 0;
	if (!sorted)
		return false;
	for (uint32_t i = 0; i < c->node_count; i++)
		sorted[i] = c->nodes[i].domain;
	qsort(sorted, c->node_count, sizeof(*sorted), compare_numbers);
	for (uint32_t i = 0; i < c->node_count; i++)
		if (!count || sorted[count - 1] != sorted[i])
			sorted[count++] = sorted[i];
	for (uint32_t i = 0; i < c->node_count; i++) {
		const uint32_t *found = bsearch(&c->nodes[i].domain, sorted, count, sizeof(*sorted), compare_numbers);
		p->domain[i] = (uint32_t)(found - sorted);
	}
	return true;
}

static void find_largest(struct plan *p, uint32_t node)
{
	p->largest[node] = 0;
	for (uint32_t i = p->first_gpu[node]; i < p->first_gpu[node + 1]; i++)
		p->largest[node] = fmax(p->largest[node], p->free[i]);
}

/* False: out of memory. */
static bool list_gpus(struct plan *p)
{
	const struct medusa_sched_cluster *c = p->given;
	uint32_t count = 0;
	for (uint32_t node = 0; node < c->node_count; node++) {
		p->first_gpu[node] = count;
		count += c->nodes[node].gpu_count ? c->nodes[node].gpu_count : 1;
	}
	p->first_gpu[c->node_count] = count;
	p->free = calloc((size_t)count + 1, sizeof(*p->free));
	for (uint32_t node = 0; p->free && node < c->node_count; node++) {
		const struct medusa_sched_cluster_node *from = &c->nodes[node];
		for (uint32_t i = p->first_gpu[node]; i < p->first_gpu[node + 1]; i++) {
			uint64_t bytes = from->gpu_count ? from->gpu_bytes[i - p->first_gpu[node]] : from->memory_bytes;
			p->free[i] = bytes ? (double)bytes : -1;
			p->unknown[node] |= !bytes;
		}
		find_largest(p, node);
	}
	return p->free != NULL;
}

static int begin(struct plan *p)
{
	const struct medusa_sched_cluster *c = p->given;
	size_t models = (size_t)c->model_count + 1, nodes = (size_t)c->node_count + 1;
	p->spots = calloc((size_t)c->place_count + 1, sizeof(*p->spots));
	p->first = calloc(models, sizeof(*p->first));
	p->copies = calloc(models, sizeof(*p->copies));
	p->last = calloc(models, sizeof(*p->last));
	p->fixed = calloc(models, sizeof(*p->fixed));
	p->wishes = calloc(models, sizeof(*p->wishes));
	p->used = calloc(nodes, sizeof(*p->used));
	p->first_gpu = calloc(nodes, sizeof(*p->first_gpu));
	p->largest = calloc(nodes, sizeof(*p->largest));
	p->unknown = calloc(nodes, sizeof(*p->unknown));
	p->domain = calloc(nodes, sizeof(*p->domain));
	p->notes = calloc(nodes, sizeof(*p->notes));
	p->domain_notes = calloc(nodes, sizeof(*p->domain_notes));
	if (!p->spots || !p->first || !p->copies || !p->last || !p->fixed || !p->wishes || !p->used || !p->domain ||
	    !p->notes || !p->domain_notes || !p->first_gpu || !p->largest || !p->unknown || !index_domains(p) ||
	    !list_gpus(p))
		return md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a plan");
	return index_spots(p);
}

static void finish(struct plan *p)
{
	free(p->spots);
	free(p->first);
	free(p->copies);
	free(p->last);
	free(p->fixed);
	free(p->wishes);
	free(p->used);
	free(p->free);
	free(p->first_gpu);
	free(p->largest);
	free(p->unknown);
	free(p->domain);
	free(p->notes);
	free(p->domain_notes);
	free(p->choices);
	free(p->before);
}

/* ---- one copy ---- */

/* The fullest GPU on which it fits, so that larger ones find room; else one of which nothing is known. */
static void take_gpu(struct plan *p, uint32_t node, double bytes)
{
	uint32_t found = MEDUSA_SCHED_NONE;
	for (uint32_t i = p->first_gpu[node]; i < p->first_gpu[node + 1]; i++)
		if (p->free[i] >= bytes && (found == MEDUSA_SCHED_NONE || p->free[i] < p->free[found]))
			found = i;
	if (found == MEDUSA_SCHED_NONE)
		return;
	p->free[found] -= bytes;
	find_largest(p, node);
}

/* False: out of memory. */
static bool choose(struct plan *p, uint32_t model, uint32_t node, bool kept)
{
	if (!MD_ARRAY_GROW(p->choices, p->count, p->room) || !MD_ARRAY_GROW(p->before, p->count, p->before_room))
		return false;
	p->choices[p->count] = (struct medusa_sched_cluster_choice){.model = model, .node = node, .kept = kept};
	p->before[p->count] = p->last[model];
	p->last[model] = ++p->count;
	p->copies[model]++;
	p->used[node] += (double)p->given->models[model].bytes;
	take_gpu(p, node, (double)p->given->models[model].bytes);
	return true;
}

static struct note *note_of(struct plan *p, uint32_t node)
{
	struct note *note = &p->notes[node];
	if (note->search != p->search)
		*note = (struct note){.search = p->search};
	return note;
}

static struct domain_note *domain_note_of(struct plan *p, uint32_t node)
{
	struct domain_note *note = &p->domain_notes[p->domain[node]];
	if (note->search != p->search)
		*note = (struct domain_note){.search = p->search};
	return note;
}

static void note_all(struct plan *p, uint32_t model)
{
	p->search++;
	for (uint32_t i = p->first[model]; i < p->first[model + 1]; i++)
		note_of(p, p->spots[i].node)->is = p->spots[i].is;
	for (uint32_t at = p->last[model]; at; at = p->before[at - 1]) {
		uint32_t node = p->choices[at - 1].node;
		note_of(p, node)->chosen = true;
		domain_note_of(p, node)->copies++;
	}
}

static bool has_room(const struct plan *p, uint32_t model, uint32_t node, bool kept)
{
	double bytes = (double)p->given->models[model].bytes, memory = (double)p->given->nodes[node].memory_bytes;
	if (!memory || !bytes)
		return kept;
	if (kept)
		return bytes <= p->largest[node] || p->unknown[node];
	return bytes <= p->largest[node] && p->used[node] + bytes <= FILLED * memory;
}

struct rank {
	uint32_t in_domain;
	bool moves, loads, lacks;
	double filled;
};

static bool is_better(const struct rank *a, const struct rank *b)
{
	if (a->in_domain != b->in_domain)
		return a->in_domain < b->in_domain;
	if (a->moves != b->moves)
		return b->moves;
	if (a->loads != b->loads)
		return b->loads;
	if (a->lacks != b->lacks)
		return b->lacks;
	return a->filled < b->filled;
}

static void consider(struct plan *p, uint32_t model, uint32_t node, bool kept, struct rank *best, uint32_t *found)
{
	const struct note *note = note_of(p, node);
	const struct medusa_sched_cluster_node *at = &p->given->nodes[node];
	if (at->closed || note->chosen || !has_room(p, model, node, kept))
		return;
	struct rank rank = {.in_domain = domain_note_of(p, node)->copies,
			    .moves = !(note->is & PLANNED),
			    .loads = !(note->is & LOADED),
			    .lacks = note->is & LACKS,
			    .filled = at->memory_bytes ? p->used[node] / (double)at->memory_bytes : 1};
	if (*found != MEDUSA_SCHED_NONE && !is_better(&rank, best))
		return;
	*best = rank;
	*found = node;
}

/* The node for one more copy; MEDUSA_SCHED_NONE: none can take it. */
static uint32_t find_node(struct plan *p, uint32_t model, bool kept)
{
	struct rank best = {0};
	uint32_t found = MEDUSA_SCHED_NONE;
	note_all(p, model);
	if (p->given->models[model].anywhere)
		for (uint32_t node = 0; node < p->given->node_count; node++)
			consider(p, model, node, kept, &best, &found);
	else
		for (uint32_t i = p->first[model]; i < p->first[model + 1]; i++)
			consider(p, model, p->spots[i].node, kept, &best, &found);
	return found;
}

/* ---- what is wanted whatever the rates are ---- */

static bool choose_fixed(struct plan *p)
{
	for (uint32_t i = 0; i < p->given->place_count; i++) {
		const struct spot *spot = &p->spots[i];
		bool fits = spot->is & FIXED && !p->given->nodes[spot->node].closed &&
			    has_room(p, spot->model, spot->node, true);
		if (fits && !choose(p, spot->model, spot->node, true))
			return false;
	}
	return true;
}

struct size {
	uint64_t bytes;
	uint32_t model;
};

static int compare_sizes(const void *a, const void *b)
{
	const struct size *one = a, *other = b;
	if (one->bytes != other->bytes)
		return one->bytes > other->bytes ? -1 : 1;
	return one->model < other->model ? -1 : one->model > other->model;
}

static bool choose_copies(struct plan *p, uint32_t model)
{
	uint32_t node;
	while (p->copies[model] < p->given->models[model].min_copies &&
	       (node = find_node(p, model, true)) != MEDUSA_SCHED_NONE)
		if (!choose(p, model, node, true))
			return false;
	return true;
}

/* The largest first: small ones fit beside them. */
static bool choose_kept(struct plan *p)
{
	const struct medusa_sched_cluster *c = p->given;
	MD_AUTO_FREE struct size *sizes = malloc(((size_t)c->model_count + 1) * sizeof(*sizes));
	uint32_t count = 0;
	if (!sizes)
		return false;
	for (uint32_t i = 0; i < c->model_count; i++)
		if (c->models[i].min_copies)
			sizes[count++] = (struct size){.bytes = c->models[i].bytes, .model = i};
	qsort(sizes, count, sizeof(*sizes), compare_sizes);
	for (uint32_t i = 0; i < count; i++)
		if (!choose_copies(p, sizes[i].model))
			return false;
	return true;
}

/* ---- what is worth it ---- */

static uint32_t copies_wanted(const struct medusa_sched_cluster_model *m)
{
	double busy = ceil(m->rate * m->busy_s / BUSY_MOST);
	uint32_t wanted = busy < 1 ? 1 : busy > COPIES_MOST ? COPIES_MOST : (uint32_t)busy;
	return m->max_copies && wanted > m->max_copies ? m->max_copies : wanted;
}

/* Nodes where a copy is, or is to be, already. */
static uint32_t count_there(const struct plan *p, uint32_t model)
{
	uint32_t count = 0;
	for (uint32_t i = p->first[model]; i < p->first[model + 1]; i++)
		count += p->spots[i].is & (LOADED | PLANNED) && !p->given->nodes[p->spots[i].node].closed;
	return count;
}

/* Of the model's next copy; 0: none is wanted. */
static double worth_of(const struct plan *p, uint32_t model)
{
	const struct medusa_sched_cluster_model *m = &p->given->models[model];
	uint32_t copy = p->copies[model] + 1;
	if (!m->bytes || p->fixed[model] || copy > copies_wanted(m))
		return 0;
	return m->rate * m->load_s / copy / (double)m->bytes * (copy <= count_there(p, model) ? STAYS : 1);
}

static bool is_before(const struct wish *a, const struct wish *b)
{
	return a->worth > b->worth || (!(a->worth < b->worth) && a->model < b->model);
}

static void sink(struct plan *p, uint32_t at)
{
	for (;;) {
		uint32_t best = at;
		for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < p->wish_count; child++)
			if (is_before(&p->wishes[child], &p->wishes[best]))
				best = child;
		if (best == at)
			return;
		struct wish moved = p->wishes[at];
		p->wishes[at] = p->wishes[best];
		p->wishes[best] = moved;
		at = best;
	}
}

static bool choose_worthy(struct plan *p)
{
	for (uint32_t model = 0; model < p->given->model_count; model++) {
		struct wish wish = {.worth = worth_of(p, model), .model = model};
		if (wish.worth > 0)
			p->wishes[p->wish_count++] = wish;
	}
	for (uint32_t at = p->wish_count / 2; at-- > 0;)
		sink(p, at);
	while (p->wish_count) {
		uint32_t model = p->wishes[0].model, node = find_node(p, model, false);
		if (node != MEDUSA_SCHED_NONE && !choose(p, model, node, false))
			return false;
		p->wishes[0].worth = node == MEDUSA_SCHED_NONE ? 0 : worth_of(p, model);
		if (!(p->wishes[0].worth > 0))
			p->wishes[0] = p->wishes[--p->wish_count];
		sink(p, 0);
	}
	return true;
}

/* ---- the whole ---- */

static int compare_choices(const void *a, const void *b)
{
	const struct medusa_sched_cluster_choice *one = a, *other = b;
	if (one->model != other->model)
		return one->model < other->model ? -1 : 1;
	return one->node < other->node ? -1 : one->node > other->node;
}

MD_EXPORT int medusa_sched_cluster_plan(const struct medusa_sched_cluster *cluster,
					struct medusa_sched_cluster_choice **choices, uint32_t *count)
{
	struct medusa_sched_cluster c;
	struct plan plan = {.given = &c};
	if (!choices || !count)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "choices or count is NULL");
	int result = check(cluster, &c);
	if (result)
		return result;
	result = begin(&plan);
	if (!result && (!choose_fixed(&plan) || !choose_kept(&plan) || !choose_worthy(&plan)))
		result = md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a plan");
	if (!result) {
		if (plan.count)
			qsort(plan.choices, plan.count, sizeof(*plan.choices), compare_choices);
		*choices = md_steal_ptr(&plan.choices);
		*count = plan.count;
	}
	finish(&plan);
	return result;
}

MD_EXPORT void medusa_sched_cluster_free(struct medusa_sched_cluster_choice *choices)
{
	free(choices);
}
