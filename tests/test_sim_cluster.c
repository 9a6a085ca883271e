/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated clusters: small ones with answers that were computed by hand, one node against a run of one node, files that are wrong, and the same seed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/cluster/cluster_state.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define MOST 4000

/* ---- the file ---- */

static struct md_sim_cluster parse(const char *text)
{
	struct md_sim_cluster cluster = {0};
	struct md_error err = {0};
	cr_assert_eq(md_sim_cluster_parse("c.yaml", text, strlen(text), &cluster, &err), MD_OK, "%s", err.message);
	return cluster;
}

Test(sim_cluster, what_a_file_leaves_out_is_as_in_the_worker)
{
	struct md_sim_cluster c = parse("name: n\nsource: s\nnodes: 3\n");
	cr_assert(c.nodes == 3 && c.domain_nodes == 1 && c.placement_ns == S && c.told_ns == 200 * MS);
	cr_assert(c.lease_ns == 3 * S && c.grace_ns == 10 * S && !c.warmup_ns && !c.change_ns && !c.lost_every_ns);
	cr_assert_float_eq(c.rate_factor, 1, 1e-12);
	md_sim_cluster_finish(&c);
}

Test(sim_cluster, each_field_is_read)
{
	struct md_sim_cluster c =
	    parse("name: n\nsource: s\nnodes: 100\ndomain_nodes: 7\nplacement_interval: 10s\ntold_every: 1s\nhop: 2ms\n"
		  "lease: 4s\nlease_grace: 20s\nwarmup: 1min\nrate_factor: 2.5\npopularity_change: 30s\n"
		  "popularity_part: 10%\nnode_lost_every: 2h\nnode_lost_for: 1min\n"
		  "domains_lost: [{at: 5s, domain: 14}, {at: 6s, domain: 0, for: 7s}]\n");
	cr_assert(c.domain_nodes == 7 && c.placement_ns == 10 * S && c.told_ns == S && c.hop_ns == 2 * MS);
	cr_assert(c.lease_ns == 4 * S && c.grace_ns == 20 * S && c.warmup_ns == 60 * S && c.change_ns == 30 * S);
	cr_assert(c.lost_every_ns == 7200 * S && c.lost_for_ns == 60 * S && c.loss_count == 2);
	cr_assert_float_eq(c.rate_factor, 2.5, 1e-12);
	cr_assert_float_eq(c.change_part, 0.1, 1e-12);
	cr_assert(c.losses[0].at == 5 * S && c.losses[0].domain == 14 && !c.losses[0].back);
	cr_assert(c.losses[1].domain == 0 && c.losses[1].back == 7 * S);
	md_sim_cluster_finish(&c);
}

Test(sim_cluster, wrong_files_are_refused_with_line_and_field)
{
#define HEAD "name: n\nsource: s\n"
	static const struct {
		const char *text, *says;
	} cases[] = {
	    {"", "c.yaml"},
	    {HEAD, "c.yaml:1: nodes: "},
	    {"nodes: 3\n", "c.yaml:1: name: "},
	    {HEAD "nodes: 0\n", "c.yaml:3: nodes: "},
	    {HEAD "nodes: 4001\n", "c.yaml:3: nodes: "},
	    {HEAD "nodes: -1\n", "c.yaml:3: nodes: "},
	    {HEAD "nodes: many\n", "c.yaml:3: nodes: "},
	    {HEAD "nodes: [1]\n", "c.yaml:3: nodes: "},
	    {HEAD "nodes: 1\nnodes: 2\n", "c.yaml:4"},
	    {HEAD "nodes: 1\ncolour: red\n", "c.yaml:4"},
	    {HEAD "nodes: 1\ndomain_nodes: 0\n", "c.yaml:4: domain_nodes: "},
	    {HEAD "nodes: 1\ntold_every: 0\n", "c.yaml:4: told_every: "},
	    {HEAD "nodes: 1\nplacement_interval: 1ns\n", "c.yaml:1: placement_interval: 0 (no plans)"},
	    {HEAD "nodes: 1\ntold_every: 1\n", "c.yaml:4: told_every: "},
	    {HEAD "nodes: 1\nlease: 3 hours\n", "c.yaml:4: lease: "},
	    {HEAD "nodes: 1\nrate_factor: 0\n", "c.yaml:4: rate_factor: "},
	    {HEAD "nodes: 1\nrate_factor: nan\n", "c.yaml:4: rate_factor: "},
	    {HEAD "nodes: 1\npopularity_part: 101%\n", "c.yaml:4: popularity_part: "},
	    {HEAD "nodes: 1\npopularity_part: 10%\n",
	     "c.yaml:1: popularity_part: popularity_change and popularity_part"},
	    {HEAD "nodes: 1\npopularity_change: 10s\n", "c.yaml:1: popularity_change: popularity_change and"},
	    {HEAD "nodes: 1\npopularity_change: 1ns\npopularity_part: 1\n", "c.yaml:4: popularity_change: "},
	    {HEAD "nodes: 1\nnode_lost_every: 1ms\n", "c.yaml:4: node_lost_every: "},
	    {HEAD "nodes: 1\nnode_lost_for: 10s\n", "c.yaml:1: node_lost_for: without node_lost_every"},
	    {HEAD "nodes: 1\ndomains_lost: 5s\n", "c.yaml:4: domains_lost: a list"},
	    {HEAD "nodes: 1\ndomains_lost: [{at: 5s}]\n", "c.yaml:4: domains_lost[0].domain: "},
	    {HEAD "nodes: 10\ndomain_nodes: 4\ndomains_lost:\n - {at: 5s, domain: 2}\n - {at: 5s, domain: 3}\n",
	     "c.yaml:7: domains_lost[1].domain: there are 3 domains, the first is 0"},
	    {HEAD "nodes: 1\ndomains_lost: [3]\n", "c.yaml:4: domains_lost[0]"},
	    {HEAD "nodes: &a 1\n", "c.yaml:3"},
	    {"- 1\n", "c.yaml:1"},
	    {"nodes: {\n", "c.yaml:2"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_cluster cluster;
		struct md_error err = {0};
		enum md_status status =
		    md_sim_cluster_parse("c.yaml", cases[i].text, strlen(cases[i].text), &cluster, &err);
		cr_expect_neq(status, MD_OK, "case %zu is taken: %s", i, cases[i].text);
		cr_expect(strstr(err.message, cases[i].says), "case %zu says: %s", i, err.message);
	}
}

/* ---- requests ---- */

struct scene {
	struct medusa_sched_gpu gpus[2];
	struct md_sim_node node;
	struct md_sim_function functions[64];
	struct md_sim_functions all;
	struct md_sim_request requests[MOST];
	struct md_sim_workload workload;
	struct md_sim_cluster cluster;
};

/* Nodes of one GPU. A cold load of 10 GB: 2 s from the disk, 1 s over the link, and then 50 ms of computing. */
static struct scene *make_scene(uint32_t nodes, uint32_t functions)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	cr_assert(scene);
	for (uint32_t i = 0; i < 2; i++)
		scene->gpus[i] = (struct medusa_sched_gpu){sizeof(scene->gpus[i]), 25000000000, i, 4};
	scene->node = (struct md_sim_node){.name = (char *)"node",
					   .gpus = scene->gpus,
					   .gpu_count = 1,
					   .host_bytes_per_s = 10e9,
					   .cold_bytes_per_s = 5e9,
					   .prefill_share = 1,
					   .report_every_ns = S};
	for (uint32_t i = 0; i < functions; i++)
		scene->functions[i] = (struct md_sim_function){.name = (char *)"f",
							       .tail = 1,
							       .model = i,
							       .spec = {.size = sizeof(scene->functions[i].spec),
									.backbone = MEDUSA_SCHED_NONE,
									.weight_bytes = 10000000000,
									.t0_ns = 50 * MS,
									.token_ns = 100 * MS,
									.slo_ns = 200 * MS,
									.slo_goal = MEDUSA_SCHED_GOAL_FIRST_TOKEN,
									.max_batch = 4}};
	scene->all = (struct md_sim_functions){.functions = scene->functions, .count = functions};
	scene->workload.requests = scene->requests;
	scene->cluster = (struct md_sim_cluster){.name = (char *)"cluster",
						 .source = (char *)"made up",
						 .nodes = nodes,
						 .domain_nodes = 1,
						 .told_ns = 200 * MS,
						 .hop_ns = MS / 2,
						 .lease_ns = 3 * S,
						 .grace_ns = 10 * S,
						 .rate_factor = 1};
	return scene;
}

static void ask(struct scene *scene, uint64_t at, uint32_t function, uint32_t tokens)
{
	scene->requests[scene->workload.count++] =
	    (struct md_sim_request){.at = at, .function = function, .context_tokens = 1, .generated_tokens = tokens};
	scene->workload.end = at + 1;
}

static struct md_sim_cluster_inputs inputs_of(const struct scene *scene, uint64_t seed)
{
	return (struct md_sim_cluster_inputs){.cluster = &scene->cluster,
					      .node = &scene->node,
					      .functions = &scene->all,
					      .workload = &scene->workload,
					      .policy = md_sim_policy_find("medusa"),
					      .seed = seed};
}

static struct md_sim_cluster_result run(const struct scene *scene, enum md_sim_routing routing, uint64_t seed)
{
	struct md_sim_cluster_inputs inputs = inputs_of(scene, seed);
	struct md_sim_cluster_result result;
	struct md_error err = {0};
	cr_assert_eq(md_sim_cluster_run(&inputs, routing, NULL, &result, &err), MD_OK, "%s", err.message);
	cr_assert_eq(result.contradictions, 0, "actions contradict the nodes");
	cr_assert_eq(result.unfinished, 0, "%llu requests are left", (unsigned long long)result.unfinished);
	return result;
}

static bool is(double value, double expected)
{
	return value > expected - 1e-3 && value < expected + 1e-3;
}

/* ---- answers by hand ---- */

Test(sim_cluster, a_cold_model_is_loaded_where_it_is_asked_and_then_served_there)
{
	bool passed = false, stayed = false;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct scene *scene = make_scene(3, 1);
		ask(scene, 0, 0, 1);
		ask(scene, 10 * S, 0, 1);
		struct md_sim_cluster_result result = run(scene, MD_SIM_EXPECTED, seed);
		cr_assert_eq(result.served, 2);
		cr_assert_eq(result.met, 1);
		cr_assert(result.found[MD_SIM_FOUND_DISK] == 1 && result.found[MD_SIM_FOUND_GPU] == 1);
		cr_assert_eq(result.swaps_cold, 1);
		cr_assert_eq(result.bytes_cold, 10000000000);
		double first = result.ttft_ms.values[0], second = result.ttft_ms.values[1];
		cr_assert(is(first, 3050), "the cold one: %f ms", first);
		cr_assert(is(second, result.passed ? 50.5 : 50), "the other one, of %d passed: %f ms",
			  (int)result.passed, second);
		passed |= result.passed == 1;
		stayed |= !result.passed;
		md_sim_cluster_result_finish(&result);
		free(scene);
	}
	cr_assert(passed && stayed, "both happen");
}

Test(sim_cluster, locality_and_expectation_find_the_model_and_the_others_do_not_look)
{
	static const unsigned on_gpu_least[MD_SIM_ROUTINGS] = {200, 0, 0, 200};
	static const unsigned on_gpu_most[MD_SIM_ROUTINGS] = {200, 190, 199, 200};
	for (unsigned routing = 0; routing < MD_SIM_ROUTINGS; routing++) {
		struct scene *scene = make_scene(12, 1);
		scene->cluster.warmup_ns = 5 * S;
		ask(scene, 0, 0, 1);
		for (uint32_t i = 0; i < 200; i++)
			ask(scene, (10 + i) * S, 0, 1);
		struct md_sim_cluster_result result = run(scene, (enum md_sim_routing)routing, 5);
		cr_assert_eq(result.requests, 200, "what comes in the warm-up is not counted");
		cr_assert_eq(result.served, 200);
		cr_assert(result.found[MD_SIM_FOUND_GPU] >= on_gpu_least[routing] &&
			      result.found[MD_SIM_FOUND_GPU] <= on_gpu_most[routing],
			  "%s: %u found it", md_sim_routing_name((enum md_sim_routing)routing),
			  (unsigned)result.found[MD_SIM_FOUND_GPU]);
		cr_assert_eq(result.found[MD_SIM_FOUND_GPU] + result.found[MD_SIM_FOUND_COMING] +
				 result.found[MD_SIM_FOUND_HOST] + result.found[MD_SIM_FOUND_DISK],
			     200);
		cr_assert((result.swaps_cold > 0) == (result.found[MD_SIM_FOUND_GPU] < 200));
		md_sim_cluster_result_finish(&result);
		free(scene);
	}
}

Test(sim_cluster, what_a_lost_node_computed_is_tried_elsewhere_once)
{
	bool moved = false, stayed = false;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct scene *scene = make_scene(3, 1);
		struct md_sim_domain_loss losses[] = {{.at = S, .domain = 0}, {.at = S, .domain = 1}};
		scene->cluster.losses = losses;
		scene->cluster.loss_count = 2;
		ask(scene, 0, 0, 1);
		struct md_sim_cluster_result result = run(scene, MD_SIM_EXPECTED, seed);
		cr_assert_eq(result.lost, 2);
		if (result.served) {
			double ttft = result.ttft_ms.values[0];
			cr_assert(is(ttft, result.retried ? 4050 : 3050), "%d tried elsewhere: %f ms",
				  (int)result.retried, ttft);
		} else { /* node 0's request went to node 1, which was lost a moment later */
			cr_assert(result.broken == 1 && result.retried == 1);
		}
		moved |= result.retried == 1;
		stayed |= !result.retried;
		md_sim_cluster_result_finish(&result);
		free(scene);
	}
	cr_assert(moved && stayed, "both happen");
}

Test(sim_cluster, answers_that_have_begun_end_with_their_node_and_it_comes_back_empty)
{
	struct scene *scene = make_scene(1, 1);
	struct md_sim_domain_loss losses[] = {{.at = 4 * S, .domain = 0, .back = 4 * S}};
	scene->cluster.losses = losses;
	scene->cluster.loss_count = 1;
	ask(scene, 0, 0, 100);       /* its first token comes after 3.05 s, its last one would after 13 s */
	ask(scene, 3900 * MS, 0, 1); /* computes when the node is lost: no other one is there */
	ask(scene, 5 * S, 0, 1);     /* nobody is there */
	ask(scene, 10 * S, 0, 1);
	struct md_sim_cluster_result result = run(scene, MD_SIM_EXPECTED, 1);
	cr_assert_eq(result.broken, 1);
	cr_assert_eq(result.nowhere, 1 + (result.served == 1));
	cr_assert(result.lost == 1 && result.back == 1);
	cr_assert(is(result.ttft_ms.values[result.ttft_ms.count - 1], 3050), "all was lost");
	cr_assert_eq(result.served + result.broken + result.nowhere, 4);
	md_sim_cluster_result_finish(&result);
	free(scene);
}

/* A model that is called each second is at one node. When that is lost, the leader has it loaded elsewhere before it is called again. */
static double last_ttft(bool plans, uint64_t seed, uint64_t *ahead)
{
	struct scene *scene = make_scene(2, 1);
	struct md_sim_domain_loss losses[] = {{.at = 31 * S, .domain = 0}};
	scene->cluster.losses = losses;
	scene->cluster.loss_count = 1;
	scene->cluster.placement_ns = plans ? S : 0;
	scene->cluster.warmup_ns = 50 * S;
	for (uint32_t i = 0; i < 30; i++)
		ask(scene, i * S, 0, 1);
	ask(scene, 60 * S, 0, 1);
	struct md_sim_cluster_result result = run(scene, MD_SIM_EXPECTED, seed);
	double ttft = result.ttft_ms.values[0];
	cr_assert_eq(result.requests, 1);
	*ahead = result.ahead;
	md_sim_cluster_result_finish(&result);
	free(scene);
	return ttft;
}

Test(sim_cluster, the_leader_has_models_loaded_ahead_of_requests)
{
	unsigned cold = 0, ahead_times = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		uint64_t ahead;
		double without = last_ttft(false, seed, &ahead);
		cr_assert_eq(ahead, 0);
		double with = last_ttft(true, seed, &ahead);
		cr_assert(is(with, 50), "with plans: %f ms", with);
		cold += is(without, 3050);
		ahead_times += ahead > 0;
	}
	cr_assert(cold > 0 && ahead_times >= cold, "%u were cold without plans, %u loaded ahead with them", cold,
		  ahead_times);
}

/* ---- one node ---- */

Test(sim_cluster, a_cluster_of_one_node_is_the_node)
{
	struct scene *scene = make_scene(1, 12);
	struct md_sim_random random = md_sim_random_of(3, 3);
	struct md_sim_result alone;
	struct md_error err = {0};
	for (uint32_t i = 0; i < 12; i++) { /* called in the order of their numbers first */
		scene->functions[i].spec.weight_bytes = (1 + i) * UINT64_C(500000000);
		ask(scene, i * 100 * MS, i, 5);
	}
	for (uint64_t at = 2 * S; scene->workload.count < 3000; at += md_sim_random_next(&random) % (1500 * MS))
		ask(scene, at, (uint32_t)(md_sim_random_next(&random) % 12),
		    1 + (uint32_t)(md_sim_random_next(&random) % 9));
	scene->node.gpus[0].memory_bytes = 15000000000;
	scene->node.report_every_ns = 0;
	cr_assert_eq(md_sim_run(&scene->node, &scene->all, &scene->workload, md_sim_policy_find("medusa"), 9, NULL,
				&alone, &err),
		     MD_OK, "%s", err.message);
	for (unsigned routing = 0; routing < MD_SIM_ROUTINGS; routing++) {
		struct md_sim_cluster_result result = run(scene, (enum md_sim_routing)routing, 9);
		cr_assert_eq(result.met, alone.met, "%u, alone %u", (unsigned)result.met, (unsigned)alone.met);
		cr_assert(alone.met > 300 && alone.met < 2990, "some are late: %u", (unsigned)alone.met);
		cr_assert(result.served == alone.served && result.swaps_cold == alone.stats.swaps_cold &&
			  result.swaps_host == alone.stats.swaps_host && result.bytes_host == alone.stats.bytes_host);
		cr_assert_eq(result.ttft_ms.count, alone.ttft_ms.count);
		cr_assert_arr_eq(result.ttft_ms.values, alone.ttft_ms.values,
				 alone.ttft_ms.count * sizeof(*alone.ttft_ms.values));
		md_sim_cluster_result_finish(&result);
	}
	md_sim_result_finish(&alone);
	free(scene);
}

/* ---- requests laid over each other, and changes ---- */

static void load(struct scene *scene, uint64_t seed)
{
	struct md_error err = {0};
	struct md_sim_request *own = malloc(sizeof(scene->requests));
	memcpy(own, scene->requests, sizeof(scene->requests));
	scene->workload.requests = own;
	cr_assert_eq(md_sim_cluster_load(&scene->cluster, &scene->all, seed, &scene->workload, &err), MD_OK, "%s",
		     err.message);
}

Test(sim_cluster, a_trace_is_laid_over_itself)
{
	struct scene *scene = make_scene(1, 20);
	unsigned of[20] = {0};
	size_t same = 0;
	for (uint32_t i = 0; i < 1000; i++)
		ask(scene, i * S, i % 10 ? i % 20 : 0, 1);
	scene->cluster.rate_factor = 3.5;
	load(scene, 1);
	const struct md_sim_workload *w = &scene->workload;
	cr_assert(w->count > 3400 && w->count < 3600, "%zu requests", w->count);
	for (size_t i = 0; i < w->count; i++) {
		cr_assert(w->requests[i].at < w->end);
		cr_assert(!i || w->requests[i - 1].at <= w->requests[i].at);
		same += i && w->requests[i - 1].at == w->requests[i].at &&
			w->requests[i - 1].function == w->requests[i].function;
		of[w->requests[i].function]++;
	}
	cr_assert(of[0] > 300 && of[0] < 420 && of[10] == 0 && of[1] > 140 && of[1] < 210,
		  "popularity stays: %u, %u, %u", of[0], of[10], of[1]);
	cr_assert(same < 600, "copies ask for other functions: %zu are the same", same);
	free(scene->workload.requests);
	free(scene);
}

Test(sim_cluster, copies_beyond_all_bounds_are_refused)
{
	struct scene *scene = make_scene(1, 1);
	struct md_error err = {0};
	for (uint32_t i = 0; i < 100; i++)
		ask(scene, i * S, 0, 1);
	scene->cluster.rate_factor = 1e6;
	cr_assert_eq(md_sim_cluster_load(&scene->cluster, &scene->all, 1, &scene->workload, &err), MD_ERR_TOO_LARGE);
	cr_assert(strstr(err.message, "rate_factor 1e+06: 100 requests so many times"), "%s", err.message);
	free(scene);
}

Test(sim_cluster, popularity_changes_from_time_to_time)
{
	struct scene *scene = make_scene(1, 20);
	unsigned others = 0;
	for (uint32_t i = 0; i < 2000; i++)
		ask(scene, i * S, i % 20, 1);
	scene->cluster.change_ns = 1000 * S;
	scene->cluster.change_part = 0.5;
	load(scene, 1);
	uint32_t is_now[20];
	bool there[20] = {false};
	for (size_t i = 0; i < 1000; i++)
		cr_assert_eq(scene->workload.requests[i].function, i % 20, "nothing has changed yet");
	for (size_t i = 1000; i < 2000; i++) {
		if (i < 1020) {
			is_now[i % 20] = scene->workload.requests[i].function;
			cr_assert(!there[is_now[i % 20]], "each has one other's popularity");
			there[is_now[i % 20]] = true;
			others += is_now[i % 20] != i % 20;
		}
		cr_assert_eq(scene->workload.requests[i].function, is_now[i % 20]);
	}
	cr_assert(others >= 2 && others <= 10, "%u of 20 have changed", others);
	free(scene->workload.requests);
	free(scene);
}

/* ---- the same again ---- */

static struct md_sim_cluster_result play_all(uint64_t seed)
{
	struct scene *scene = make_scene(9, 40);
	struct md_sim_random random = md_sim_random_of(8, 8);
	scene->cluster.placement_ns = S;
	scene->cluster.domain_nodes = 3;
	scene->cluster.lost_every_ns = 60 * S;
	scene->cluster.lost_for_ns = 10 * S;
	for (uint64_t at = 0; scene->workload.count < 3000; at += md_sim_random_next(&random) % (60 * MS)) {
		uint32_t one = (uint32_t)(md_sim_random_next(&random) % 40),
			 other = (uint32_t)(md_sim_random_next(&random) % 40);
		ask(scene, at, one < other ? one : other, 1 + (uint32_t)(md_sim_random_next(&random) % 20));
	}
	struct md_sim_cluster_result result = run(scene, MD_SIM_EXPECTED, seed);
	free(scene);
	return result;
}

Test(sim_cluster, the_same_seed_gives_the_same_and_another_one_does_not)
{
	struct md_sim_cluster_result a = play_all(4), b = play_all(4), c = play_all(5);
	cr_assert(a.lost > 3 && a.retried > 0 && a.moved > 0 && a.rounds > 20, "much has happened: %u lost, %u retried",
		  (unsigned)a.lost, (unsigned)a.retried);
	cr_assert_eq(a.ttft_ms.count, b.ttft_ms.count);
	cr_assert_arr_eq(a.ttft_ms.values, b.ttft_ms.values, a.ttft_ms.count * sizeof(double));
	cr_assert(a.met == b.met && a.passed == b.passed && a.moved == b.moved && a.copies == b.copies &&
		  a.ahead == b.ahead && a.broken == b.broken && a.swaps_cold == b.swaps_cold);
	cr_assert_eq(a.served + a.broken + a.nowhere, 3000, "each request is counted once");
	cr_assert(a.ttft_ms.count != c.ttft_ms.count ||
		  memcmp(a.ttft_ms.values, c.ttft_ms.values, a.ttft_ms.count * sizeof(double)));
	md_sim_cluster_result_finish(&a);
	md_sim_cluster_result_finish(&b);
	md_sim_cluster_result_finish(&c);
}

/* ---- what is not simulated ---- */

static void assert_refused(const struct scene *scene, const char *policy, const char *says)
{
	struct md_sim_cluster_inputs inputs = inputs_of(scene, 1);
	struct md_sim_cluster_result result;
	struct md_error err = {0};
	inputs.policy = md_sim_policy_find(policy);
	cr_assert_neq(md_sim_cluster_run(&inputs, MD_SIM_EXPECTED, NULL, &result, &err), MD_OK, "%s", says);
	cr_assert(strstr(err.message, says), "%s", err.message);
}

Test(sim_cluster, what_a_cluster_cannot_have_is_refused)
{
	struct scene *scene = make_scene(2, 2);
	struct md_sim_backbone backbone = {.name = (char *)"b", .spec = {.size = sizeof(backbone.spec), .bytes = 1}};
	ask(scene, 0, 1, 1);
	assert_refused(scene, "native", "policy native binds functions to GPUs for ever");
	scene->functions[1].spec.weight_bytes = UINT64_C(30000000000);
	scene->functions[1].line = 7;
	scene->all.file = (char *)"f.yaml";
	assert_refused(scene, "medusa", "f.yaml:7: function f: ");
	scene->functions[1].spec.weight_bytes = 1;
	scene->functions[1].spec.backbone = 0;
	scene->all.backbones = &backbone;
	scene->all.backbone_count = 1;
	assert_refused(scene, "medusa", "f.yaml:7: function f has a backbone");
	scene->functions[1].spec.backbone = MEDUSA_SCHED_NONE;
	scene->all.tenant_count = 2;
	assert_refused(scene, "medusa", "f.yaml: tenants: ");
	free(scene);
}
