/* SPDX-License-Identifier: Apache-2.0 */
/* Which models lie on which nodes of a cluster: medusa_sched_cluster_plan. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"
#include "medusa/scheduler_cluster.h"

#define GB UINT64_C(1000000000)
#define GPUS 4 /* of a node, at most */

struct answer {
	struct medusa_sched_cluster_choice *choices;
	uint32_t count;
};

static struct answer plan(const struct medusa_sched_cluster *cluster)
{
	struct answer answer = {0};
	cr_assert_eq(medusa_sched_cluster_plan(cluster, &answer.choices, &answer.count), 0, "%s",
		     medusa_sched_error(NULL));
	return answer;
}

static void drop(struct answer *answer)
{
	medusa_sched_cluster_free(answer->choices);
}

static const struct medusa_sched_cluster_choice *find(const struct answer *answer, uint32_t model, uint32_t node)
{
	for (uint32_t i = 0; i < answer->count; i++)
		if (answer->choices[i].model == model && answer->choices[i].node == node)
			return &answer->choices[i];
	return NULL;
}

static uint32_t copies(const struct answer *answer, uint32_t model)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < answer->count; i++)
		count += answer->choices[i].model == model;
	return count;
}

#define NODE(bytes, domain_, closed_)                                                                                  \
	{                                                                                                              \
		.memory_bytes = (bytes), .domain = (domain_), .closed = (closed_)                                      \
	}
#define CLUSTER(...) ((struct medusa_sched_cluster){.size = sizeof(struct medusa_sched_cluster), __VA_ARGS__})

/* ---- what is wanted whatever the rates are ---- */

Test(scheduler_cluster, copies_lie_in_different_domains)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(80 * GB, 7, 0), NODE(80 * GB, 7, 0), NODE(80 * GB, 9, 0),
						    NODE(80 * GB, 3, 1)};
	struct medusa_sched_cluster_model models[] = {{.bytes = 20 * GB, .min_copies = 2, .anywhere = 1},
						      {.bytes = 20 * GB, .min_copies = 3, .anywhere = 1},
						      {.bytes = 20 * GB, .min_copies = 9, .anywhere = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 4, .models = models, .model_count = 3));
	for (uint32_t model = 0; model < 3; model++) {
		cr_assert(find(&answer, model, 2), "model %u is in the other domain, too", model);
		cr_assert_null(find(&answer, model, 3), "a closed node gets nothing");
	}
	cr_assert_eq(copies(&answer, 0), 2);
	cr_assert_eq(copies(&answer, 1), 3);
	cr_assert_eq(copies(&answer, 2), 3, "as many as can");
	for (uint32_t i = 0; i < answer.count; i++)
		cr_assert(answer.choices[i].kept);
	drop(&answer);
}

Test(scheduler_cluster, what_a_user_fixes_is_there_and_nowhere_else)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(80 * GB, 0, 0), NODE(80 * GB, 1, 0)};
	struct medusa_sched_cluster_model models[] = {
	    {.bytes = 10 * GB, .rate = 1000, .load_s = 10, .busy_s = 1, .anywhere = 1}};
	struct medusa_sched_cluster_place places[] = {{.loaded = 1, .planned = 1}, {.node = 1, .fixed = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 2, .models = models, .model_count = 1,
					     .places = places, .place_count = 2));
	cr_assert_eq(answer.count, 1);
	cr_assert_eq(answer.choices[0].node, 1);
	cr_assert(answer.choices[0].kept);
	drop(&answer);
	models[0].min_copies = 2;
	answer = plan(&CLUSTER(.nodes = nodes, .node_count = 2, .models = models, .model_count = 1, .places = places,
			       .place_count = 2));
	cr_assert_eq(answer.count, 2, "min_copies hold beyond that");
	drop(&answer);
}

Test(scheduler_cluster, unknown_sizes_are_placed_for_what_is_wanted_alone)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(0, 0, 0), NODE(80 * GB, 1, 0)};
	struct medusa_sched_cluster_model models[] = {{.bytes = 0, .rate = 5, .load_s = 5, .anywhere = 1},
						      {.bytes = 0, .min_copies = 1, .anywhere = 1},
						      {.bytes = GB, .min_copies = 2, .anywhere = 1},
						      {.bytes = GB, .rate = 5, .load_s = 5, .anywhere = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 2, .models = models, .model_count = 4));
	cr_assert_eq(copies(&answer, 0), 0);
	cr_assert_eq(copies(&answer, 1), 1);
	cr_assert_eq(copies(&answer, 2), 2);
	cr_assert_eq(copies(&answer, 3), 1);
	cr_assert(find(&answer, 3, 1), "the node whose memory is known");
	drop(&answer);
}

/* ---- GPUs, and files ---- */

Test(scheduler_cluster, a_copy_lies_on_one_gpu)
{
	const uint64_t four[] = {80 * GB, 80 * GB, 80 * GB, 80 * GB}, two[] = {140 * GB, 0};
	struct medusa_sched_cluster_node nodes[] = {
	    {.memory_bytes = 320 * GB, .domain = 0, .gpu_bytes = four, .gpu_count = 4},
	    {.memory_bytes = 140 * GB, .domain = 1, .gpu_bytes = two, .gpu_count = 2}};
	struct medusa_sched_cluster_model models[] = {
	    {.bytes = 130 * GB, .min_copies = 1, .anywhere = 1}, /* fits the sum of the first node, and no GPU of it */
	    {.bytes = 50 * GB, .min_copies = 2, .anywhere = 1},
	    {.bytes = 30 * GB, .min_copies = 1, .anywhere = 1}, /* goes beside one of 50 */
	    {.bytes = 65 * GB, .min_copies = 1, .anywhere = 1},
	    {.bytes = 60 * GB, .rate = 5, .load_s = 5, .anywhere = 1},
	    {.bytes = 60 * GB, .rate = 1, .load_s = 5, .anywhere = 1},
	    {.bytes = 22 * GB, .rate = 0.1, .load_s = 5, .anywhere = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 2, .models = models, .model_count = 7));
	cr_assert(find(&answer, 0, 1) && !find(&answer, 0, 0));
	cr_assert_eq(copies(&answer, 1), 2, "the second one lies on the GPU of which nothing is known");
	for (uint32_t model = 2; model < 6; model++)
		cr_assert(find(&answer, model, 0), "model %u", model);
	cr_assert_eq(copies(&answer, 6), 0, "55 GB are left in all, and 22 on no GPU");
	drop(&answer);
}

Test(scheduler_cluster, a_node_that_has_the_files_is_chosen_before_one_that_lacks_them)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(80 * GB, 0, 0), NODE(80 * GB, 0, 0), NODE(80 * GB, 1, 0)};
	struct medusa_sched_cluster_model models[] = {{.bytes = 10 * GB, .rate = 1, .load_s = 5}};
	struct medusa_sched_cluster_place places[] = {{.lacks = 1}, {.node = 1}, {.node = 2, .lacks = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 3, .models = models, .model_count = 1,
					     .places = places, .place_count = 3));
	cr_assert_eq(answer.count, 1);
	cr_assert_eq(answer.choices[0].node, 1);
	drop(&answer);
	models[0].min_copies = 2;
	answer = plan(&CLUSTER(.nodes = nodes, .node_count = 3, .models = models, .model_count = 1, .places = places,
			       .place_count = 3));
	cr_assert(find(&answer, 0, 1) && find(&answer, 0, 2), "the other domain, although it has to fetch them");
	drop(&answer);
}

/* ---- by worth ---- */

Test(scheduler_cluster, what_is_asked_for_most_is_loaded_and_spread)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(50 * GB, 0, 0), NODE(50 * GB, 1, 0), NODE(50 * GB, 2, 0)};
	struct medusa_sched_cluster_model models[] = {
	    {.bytes = 20 * GB,
	     .rate = 10,
	     .load_s = 5,
	     .busy_s = 0.2,
	     .anywhere = 1}, /* busy for 2 copies: 3 are needed */
	    {.bytes = 20 * GB, .rate = 1, .load_s = 5, .busy_s = 0.2, .anywhere = 1},
	    {.bytes = 20 * GB, .rate = 0.5, .load_s = 5, .busy_s = 0.2, .anywhere = 1},
	    {.bytes = 20 * GB, .rate = 0.25, .load_s = 5, .busy_s = 0.2, .anywhere = 1},
	    {.bytes = 20 * GB, .rate = 0.125, .load_s = 5, .busy_s = 0.2, .anywhere = 1}, /* has no room left */
	    {.bytes = 20 * GB, .anywhere = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 3, .models = models, .model_count = 6));
	static const uint32_t expected[] = {3, 1, 1, 1, 0, 0};
	for (uint32_t model = 0; model < 6; model++)
		cr_assert_eq(copies(&answer, model), expected[model], "model %u: %u", model, copies(&answer, model));
	drop(&answer);
	models[0].max_copies = 2;
	answer = plan(&CLUSTER(.nodes = nodes, .node_count = 3, .models = models, .model_count = 6));
	cr_assert_eq(copies(&answer, 0), 2);
	cr_assert_eq(copies(&answer, 4), 1, "the room is for others then");
	drop(&answer);
}

Test(scheduler_cluster, a_tenth_of_a_node_is_left_to_requests)
{
	struct medusa_sched_cluster_node node = NODE(100 * GB, 0, 0);
	struct medusa_sched_cluster_model models[] = {{.bytes = 91 * GB, .rate = 1, .load_s = 5, .anywhere = 1},
						      {.bytes = 90 * GB, .rate = 0.1, .load_s = 5, .anywhere = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = &node, .node_count = 1, .models = models, .model_count = 2));
	cr_assert_eq(answer.count, 1);
	cr_assert_eq(answer.choices[0].model, 1);
	drop(&answer);
}

Test(scheduler_cluster, what_is_there_stays_unless_another_is_worth_a_quarter_more)
{
	struct medusa_sched_cluster_node node = NODE(100 * GB, 0, 0);
	struct medusa_sched_cluster_model models[] = {{.bytes = 60 * GB, .rate = 1, .load_s = 5, .anywhere = 1},
						      {.bytes = 60 * GB, .rate = 1.2, .load_s = 5, .anywhere = 1}};
	struct medusa_sched_cluster_place place = {.planned = 1};
	struct medusa_sched_cluster cluster = CLUSTER(.nodes = &node, .node_count = 1, .models = models,
						      .model_count = 2, .places = &place, .place_count = 1);
	struct answer answer = plan(&cluster);
	cr_assert_eq(answer.choices[0].model, 0);
	drop(&answer);
	models[1].rate = 1.3;
	answer = plan(&cluster);
	cr_assert_eq(answer.choices[0].model, 1);
	drop(&answer);
}

Test(scheduler_cluster, a_copy_comes_where_it_is_loaded_and_else_where_most_is_free)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(100 * GB, 0, 0), NODE(100 * GB, 1, 0), NODE(100 * GB, 2, 0)};
	struct medusa_sched_cluster_model models[] = {{.bytes = 40 * GB, .min_copies = 1, .anywhere = 1},
						      {.bytes = 30 * GB, .min_copies = 1, .anywhere = 1},
						      {.bytes = 20 * GB, .min_copies = 1, .anywhere = 1},
						      {.bytes = 10 * GB, .rate = 1, .load_s = 1, .anywhere = 1}};
	struct medusa_sched_cluster_place places[] = {{.node = 1, .loaded = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 3, .models = models, .model_count = 4,
					     .places = places, .place_count = 1));
	cr_assert(find(&answer, 0, 1), "it is loaded there");
	cr_assert(find(&answer, 1, 0));
	cr_assert(find(&answer, 2, 2));
	cr_assert(find(&answer, 3, 2), "20 GB are less than 30 and 40");
	drop(&answer);
}

Test(scheduler_cluster, first_copies_come_before_further_ones)
{
	struct medusa_sched_cluster_node nodes[] = {NODE(50 * GB, 0, 0), NODE(50 * GB, 1, 0)};
	struct medusa_sched_cluster_model models[] = {
	    {.bytes = 40 * GB, .rate = 10, .load_s = 5, .busy_s = 0.2, .anywhere = 1},
	    {.bytes = 40 * GB, .rate = 6, .load_s = 5, .busy_s = 0.01, .anywhere = 1}};
	struct answer answer = plan(&CLUSTER(.nodes = nodes, .node_count = 2, .models = models, .model_count = 2));
	cr_assert_eq(copies(&answer, 0), 1);
	cr_assert_eq(copies(&answer, 1), 1);
	drop(&answer);
}

/* ---- any cluster ---- */

enum { NODES = 12, MODELS = 40 };

struct any {
	struct medusa_sched_cluster_node nodes[NODES];
	uint64_t gpus[NODES][GPUS];
	struct medusa_sched_cluster_model models[MODELS];
	struct medusa_sched_cluster_place places[NODES * MODELS];
	struct medusa_sched_cluster cluster;
};

static uint64_t below(uint64_t *random, uint64_t count)
{
	return md_random_next(random) % count;
}

static double fraction(uint64_t *random)
{
	return (double)below(random, 1000) / 1000;
}

/* The same memory as several GPUs, of a third of the nodes. */
static void draw_gpus(uint64_t *random, struct any *any, uint32_t node)
{
	struct medusa_sched_cluster_node *n = &any->nodes[node];
	if (below(random, 3) || !n->memory_bytes)
		return;
	n->gpu_bytes = any->gpus[node];
	n->gpu_count = 1 + (uint32_t)below(random, GPUS);
	for (uint32_t i = 0; i < n->gpu_count; i++)
		any->gpus[node][i] = n->memory_bytes / n->gpu_count;
	n->memory_bytes = n->memory_bytes / n->gpu_count * n->gpu_count;
}

static void draw(uint64_t *random, struct any *any)
{
	memset(any, 0, sizeof(*any));
	any->cluster = CLUSTER(.nodes = any->nodes, .models = any->models, .places = any->places,
			       .node_count = 1 + (uint32_t)below(random, NODES),
			       .model_count = 1 + (uint32_t)below(random, MODELS));
	for (uint32_t i = 0; i < any->cluster.node_count; i++)
		any->nodes[i] = (struct medusa_sched_cluster_node){.memory_bytes = below(random, 6) * 40 * GB,
								   .domain = (uint32_t)below(random, 4) * 1000,
								   .closed = below(random, 8) == 0};
	for (uint32_t i = 0; i < any->cluster.node_count; i++)
		draw_gpus(random, any, i);
	for (uint32_t i = 0; i < any->cluster.model_count; i++)
		any->models[i] = (struct medusa_sched_cluster_model){
		    .bytes = below(random, 60) * GB,
		    .rate = below(random, 3) ? pow(10, 4 * fraction(random) - 2) : 0,
		    .load_s = 10 * fraction(random),
		    .busy_s = fraction(random),
		    .min_copies = (uint32_t)(below(random, 5) ? 0 : below(random, 4)),
		    .max_copies = (uint32_t)(below(random, 3) ? 0 : 3 + below(random, 3)),
		    .anywhere = below(random, 2) != 0};
	for (uint32_t model = 0; model < any->cluster.model_count; model++)
		for (uint32_t node = 0; node < any->cluster.node_count; node++)
			if (below(random, 3) == 0)
				any->places[any->cluster.place_count++] =
				    (struct medusa_sched_cluster_place){.model = model,
									.node = node,
									.loaded = below(random, 3) == 0,
									.planned = below(random, 3) == 0,
									.fixed = below(random, 40) == 0};
}

static const struct medusa_sched_cluster_place *place_of(const struct any *any, uint32_t model, uint32_t node)
{
	for (uint32_t i = 0; i < any->cluster.place_count; i++)
		if (any->places[i].model == model && any->places[i].node == node)
			return &any->places[i];
	return NULL;
}

static double used(const struct any *any, const struct answer *answer, uint32_t node, bool kept_alone)
{
	double bytes = 0;
	for (uint32_t i = 0; i < answer->count; i++)
		if (answer->choices[i].node == node && (answer->choices[i].kept || !kept_alone))
			bytes += (double)any->models[answer->choices[i].model].bytes;
	return bytes;
}

/* Whether what was chosen for the node, from that choice on, finds a GPU for each: all ways are tried. */
static bool can_be_packed(const struct any *any, const struct answer *answer, uint32_t node, uint32_t at, double *left)
{
	const struct medusa_sched_cluster_node *n = &any->nodes[node];
	while (at < answer->count && answer->choices[at].node != node)
		at++;
	if (at == answer->count)
		return true;
	double bytes = (double)any->models[answer->choices[at].model].bytes;
	for (uint32_t i = 0; i < n->gpu_count; i++) {
		if (left[i] < bytes)
			continue;
		left[i] -= bytes;
		bool packed = can_be_packed(any, answer, node, at + 1, left);
		left[i] += bytes;
		if (packed)
			return true;
	}
	return false;
}

static void check_gpus(const struct any *any, const struct answer *answer, uint32_t node)
{
	double left[GPUS];
	for (uint32_t i = 0; i < any->nodes[node].gpu_count; i++)
		left[i] = (double)any->nodes[node].gpu_bytes[i];
	if (any->nodes[node].gpu_count)
		cr_assert(can_be_packed(any, answer, node, 0, left), "node %u: no way to lay it on %u GPUs", node,
			  any->nodes[node].gpu_count);
}

/* Whether one more copy of the model could lie somewhere, beside what is wanted whatever the rates are. */
static bool could_lie(const struct any *any, const struct answer *answer, uint32_t model)
{
	for (uint32_t node = 0; node < any->cluster.node_count; node++) {
		uint32_t gpus = any->nodes[node].gpu_count; /* of one of them nobody else needs anything then */
		double bytes = (double)any->models[model].bytes,
		       memory = (double)any->nodes[node].memory_bytes / (gpus ? gpus : 1);
		bool allowed = any->models[model].anywhere || place_of(any, model, node);
		if (allowed && !any->nodes[node].closed && !find(answer, model, node) &&
		    (!bytes || !memory || used(any, answer, node, true) + bytes <= memory))
			return true;
	}
	return false;
}

static void check_choice(const struct any *any, const struct medusa_sched_cluster_choice *choice)
{
	const struct medusa_sched_cluster_place *place = place_of(any, choice->model, choice->node);
	const struct medusa_sched_cluster_model *model = &any->models[choice->model];
	cr_assert(!any->nodes[choice->node].closed);
	cr_assert(model->anywhere || place, "model %u can't be at node %u", choice->model, choice->node);
	cr_assert(choice->kept || (model->bytes && any->nodes[choice->node].memory_bytes && model->rate > 0));
}

static void check_model(const struct any *any, const struct answer *answer, uint32_t model)
{
	const struct medusa_sched_cluster_model *m = &any->models[model];
	uint32_t kept = 0, fixed = 0;
	for (uint32_t node = 0; node < any->cluster.node_count; node++) {
		const struct medusa_sched_cluster_choice *choice = find(answer, model, node);
		kept += choice && choice->kept;
		fixed += place_of(any, model, node) && place_of(any, model, node)->fixed;
	}
	cr_assert(kept >= m->min_copies || !could_lie(any, answer, model), "model %u: %u of %u", model, kept,
		  m->min_copies);
	cr_assert(!fixed || kept == copies(answer, model), "nothing but what is fixed, and min_copies");
	if (m->max_copies && !fixed)
		cr_assert_leq(copies(answer, model), m->max_copies);
}

static void check(const struct any *any, const struct answer *answer)
{
	for (uint32_t i = 0; i < answer->count; i++) {
		check_choice(any, &answer->choices[i]);
		if (i)
			cr_assert(answer->choices[i - 1].model < answer->choices[i].model ||
				      (answer->choices[i - 1].model == answer->choices[i].model &&
				       answer->choices[i - 1].node < answer->choices[i].node),
				  "sorted, each once");
	}
	for (uint32_t node = 0; node < any->cluster.node_count; node++) {
		double memory = (double)any->nodes[node].memory_bytes, kept = used(any, answer, node, true);
		if (memory > 0)
			cr_assert_leq(used(any, answer, node, false), fmax(kept, 0.9 * memory));
		if (memory > 0)
			cr_assert_leq(kept, memory);
	}
	for (uint32_t node = 0; node < any->cluster.node_count; node++)
		check_gpus(any, answer, node);
	for (uint32_t model = 0; model < any->cluster.model_count; model++)
		check_model(any, answer, model);
}

static bool equal(const struct answer *a, const struct answer *b)
{
	return a->count == b->count && (!a->count || !memcmp(a->choices, b->choices, a->count * sizeof(*a->choices)));
}

/* The places as they are when the plan was carried out. */
static void carry_out(struct any *any, const struct answer *answer)
{
	for (uint32_t i = 0; i < any->cluster.place_count; i++)
		any->places[i].planned = any->places[i].loaded = 0;
	for (uint32_t i = 0; i < answer->count; i++) {
		uint32_t model = answer->choices[i].model, node = answer->choices[i].node;
		struct medusa_sched_cluster_place *place =
		    (struct medusa_sched_cluster_place *)place_of(any, model, node);
		if (!place) {
			place = &any->places[any->cluster.place_count++];
			*place = (struct medusa_sched_cluster_place){.model = model, .node = node};
		}
		place->planned = place->loaded = 1;
	}
}

Test(scheduler_cluster, every_plan_keeps_the_rules_and_comes_to_rest)
{
	uint64_t random = 18;
	struct any *any = malloc(sizeof(*any));
	for (int i = 0; i < 400; i++) {
		draw(&random, any);
		struct answer answer = plan(&any->cluster), again = plan(&any->cluster);
		check(any, &answer);
		cr_assert(equal(&answer, &again), "equal input, equal plan");
		for (int round = 0; round < 4; round++) {
			carry_out(any, &again);
			drop(&answer);
			answer = again;
			again = plan(&any->cluster);
			check(any, &again);
		}
		cr_assert(equal(&answer, &again), "cluster %d: the same rates, and no rest after four plans", i);
		drop(&answer);
		drop(&again);
	}
	free(any);
}

/* ---- what is refused ---- */

static void refused(const struct medusa_sched_cluster *cluster, const char *why)
{
	struct answer answer = {0};
	cr_assert_eq(medusa_sched_cluster_plan(cluster, &answer.choices, &answer.count), MEDUSA_SCHED_ERR_INVALID);
	cr_assert(strstr(medusa_sched_error(NULL), why), "%s: %s", why, medusa_sched_error(NULL));
	cr_assert_null(answer.choices);
}

Test(scheduler_cluster, should_fail_invalid)
{
	struct medusa_sched_cluster_node node = NODE(GB, 0, 0);
	struct medusa_sched_cluster_model model = {.bytes = 1, .rate = NAN};
	struct medusa_sched_cluster_place places[] = {{.model = 0}, {.model = 0, .loaded = 1}};
	struct medusa_sched_cluster cluster =
	    CLUSTER(.nodes = &node, .models = &model, .places = places, .node_count = 1, .model_count = 1);
	refused(NULL, "NULL");
	refused(&(struct medusa_sched_cluster){.size = 3}, "size");
	refused(&CLUSTER(.node_count = 1), "NULL");
	refused(&cluster, "models[0]: rate");
	node.gpu_count = 1;
	refused(&cluster, "nodes[0]: gpu_count");
	node.gpu_bytes = (const uint64_t[]){GB};
	node.gpu_count = 1025;
	refused(&cluster, "nodes[0]: gpu_count is at most 1024");
	node.gpu_count = 0;
	model = (struct medusa_sched_cluster_model){.load_s = -1};
	refused(&cluster, "models[0]: rate, load_s");
	model = (struct medusa_sched_cluster_model){.min_copies = 3, .max_copies = 2};
	refused(&cluster, "models[0].max_copies: 2 is less than min_copies, 3");
	model = (struct medusa_sched_cluster_model){.bytes = 1};
	cluster.place_count = 2;
	refused(&cluster, "model 0 at node 0 is there twice");
	places[1].node = 1;
	refused(&cluster, "places[1]: there is no model 0, or no node 1");
	cr_assert_eq(medusa_sched_cluster_plan(&cluster, NULL, NULL), MEDUSA_SCHED_ERR_INVALID);
	struct answer answer = plan(&CLUSTER(0));
	cr_assert_eq(answer.count, 0);
	drop(&answer);
}
