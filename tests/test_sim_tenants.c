/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants of the simulator: whose a request is, and what shares come to with each policy, on several GPUs and in batches. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/run/run_state.h"

#define MS UINT64_C(1000000)
#define GB UINT64_C(1000000000)

/* ---- whose a request is ------------------------------------------------------------------------------------------ */

#define FILE_OF_FUNCTIONS                                                                                              \
	"source: s\n"                                                                                                  \
	"tenants:\n"                                                                                                   \
	"  - {name: web, weight: 3, max_waiting: 7}\n"                                                                 \
	"  - {name: default, weight: 0.5, max_running: 2}\n"                                                           \
	"  - {name: night}\n"                                                                                          \
	"defaults: {weights: 1GB, execution: 5ms, tenant: web}\n"                                                      \
	"models:\n"                                                                                                    \
	"  - {name: shared, rate: 6000/min}\n"                                                                         \
	"  - {name: own, rate: 6000/min, tenant: night}\n"                                                             \
	"  - {name: nobody, rate: 6000/min, tenant: default}\n"

static struct md_sim_functions read_functions(const char *text)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	cr_assert_eq(md_sim_functions_parse("f", text, strlen(text), &functions, &err), MD_OK, "%s", err.message);
	return functions;
}

static struct md_sim_workload read_trace(const char *text, const struct md_sim_functions *functions)
{
	struct md_sim_workload workload;
	struct md_error err = {0};
	const struct md_sim_workload_options options = {.seed = 1};
	cr_assert_eq(md_sim_workload_parse("t", text, strlen(text), functions, &options, &workload, &err), MD_OK, "%s",
		     err.message);
	return workload;
}

static void assert_tenants(const char *trace, const char *expected)
{
	struct md_sim_functions functions = read_functions(FILE_OF_FUNCTIONS);
	struct md_sim_workload workload = read_trace(trace, &functions);
	char text[256] = "";
	for (size_t i = 0; i < workload.count; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
			 md_sim_tenant_name(&functions, workload.requests[i].tenant));
	cr_expect_str_eq(text, expected, "'%s' and not '%s' of\n%s", text, expected, trace);
	md_sim_workload_finish(&workload);
	md_sim_functions_finish(&functions);
}

static void assert_tenant(const struct md_sim_tenant *tenant, const char *name, double weight, uint32_t waiting,
			  uint32_t running)
{
	cr_expect_str_eq(tenant->name, name);
	cr_expect_float_eq(tenant->spec.weight, weight, 1e-12, "%s", name);
	cr_expect_eq(tenant->spec.max_waiting, waiting, "%s", name);
	cr_expect_eq(tenant->spec.max_running, running, "%s", name);
}

Test(sim_tenants, are_read)
{
	struct md_sim_functions functions = read_functions(FILE_OF_FUNCTIONS);
	cr_assert_eq(functions.tenant_count, 3);
	assert_tenant(&functions.tenants[0], "default", 0.5, 0, 2);
	assert_tenant(&functions.tenants[1], "web", 3, 7, 0);
	assert_tenant(&functions.tenants[2], "night", 1, 0, 0);
	cr_expect_eq(functions.functions[0].tenant, 1, "of the defaults");
	cr_expect_eq(functions.functions[1].tenant, 2, "of its model");
	cr_expect_eq(functions.functions[2].tenant, 0);
	md_sim_functions_finish(&functions);
	functions = read_functions(FILE_OF_FUNCTIONS "functions:\n  - {name: a, model: own}\n"
						     "  - {name: b, model: own, tenant: web}\n");
	cr_expect_eq(functions.functions[0].tenant, 2, "of its model");
	cr_expect_eq(functions.functions[1].tenant, 1, "its own");
	md_sim_functions_finish(&functions);
}

Test(sim_tenants, default_is_listed_once)
{
	static const char text[] = "source: s\ntenants: [{name: default}, {name: default}]\n"
				   "models: [{name: a, weights: 1GB, execution: 5ms}]\n";
	struct md_sim_functions functions;
	struct md_error err = {0};
	cr_assert_neq(md_sim_functions_parse("f", text, strlen(text), &functions, &err), MD_OK);
	cr_expect_str_eq(err.message, "f:2: tenants[1].name: 'default' is there already");
}

Test(sim_tenants, a_trace_may_name_them)
{
	assert_tenants("seconds,function\n0,shared-0\n1,own-0\n2,nobody-0\n", "web night default");
	assert_tenants("seconds,function,tenant\n0,shared-0,night\n1,own-0,\n2,own-0,default\n", "night night default");
	assert_tenants("Tenant,seconds,function\n\"night\", 1 ,shared-0\nweb,0,own-0\n", "web night");
	assert_tenants("seconds,model,adapter,context,generated,tenant\n0,shared-0,,1,1,night\n", "night");
	assert_tenants("TIMESTAMP,ContextTokens,GeneratedTokens,tenant\n2023-11-16 18:17:03,1,1,night\n"
		       "2023-11-16 18:17:04,1,1,\n",
		       "night night"); /* the second one is of own-0, in turn */
	assert_tenants("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n", "web");
}

/* Requests at one time are sorted by all that they state, so the order of lines does not matter. */
Test(sim_tenants, lines_in_another_order_are_the_same_trace)
{
	assert_tenants("seconds,function,tenant\n1,shared-0,night\n1,shared-0,web\n0,own-0,\n", "night web night");
	assert_tenants("seconds,function,tenant\n1,shared-0,web\n1,shared-0,night\n0,own-0,\n", "night web night");
}

Test(sim_tenants, a_law_draws_for_the_functions_tenants)
{
	struct md_sim_functions functions = read_functions(FILE_OF_FUNCTIONS);
	struct md_sim_workload workload;
	struct md_error err = {0};
	const struct md_sim_workload_options options = {.seed = 1, .duration_ns = 1000 * MS};
	cr_assert_eq(md_sim_workload_read("poisson", &functions, &options, &workload, &err), MD_OK, "%s", err.message);
	cr_assert_gt(workload.count, 100);
	for (size_t i = 0; i < workload.count; i++)
		cr_assert_eq(workload.requests[i].tenant, functions.functions[workload.requests[i].function].tenant);
	md_sim_workload_finish(&workload);
	md_sim_functions_finish(&functions);
}

/* ---- what shares come to ----------------------------------------------------------------------------------------- */

#define GPUS 4
#define FUNCTIONS 4
#define REQUESTS 1200

enum { DEFAULT, WEB, NIGHT, TENANTS };

/* Functions that both tenants call, more than the node can serve, all within a few seconds. */
struct crowd {
	struct medusa_sched_gpu gpus[GPUS];
	char *gpu_names[GPUS];
	struct md_sim_node node;
	struct md_sim_tenant tenants[TENANTS];
	struct md_sim_function functions[FUNCTIONS];
	struct md_sim_functions all;
	struct md_sim_request requests[REQUESTS];
	struct md_sim_workload workload;
	char *models[1];
};

static struct medusa_sched_function model_of(uint32_t max_batch)
{
	return (struct medusa_sched_function){.size = sizeof(struct medusa_sched_function),
					      .backbone = MEDUSA_SCHED_NONE,
					      .weight_bytes = GB,
					      .in_host = 1,
					      .t0_ns = 100 * MS,
					      .alpha_ns = 20 * MS,
					      .token_ns = 10 * MS,
					      .max_batch = max_batch,
					      .max_parallel = 8,
					      .slo_ns = 2000 * MS,
					      .slo_goal = MEDUSA_SCHED_GOAL_FIRST_TOKEN};
}

static void gather(struct crowd *crowd, uint32_t gpus, uint32_t functions, struct medusa_sched_function model)
{
	static char *name[] = {(char *)"default", (char *)"web", (char *)"night"};
	*crowd = (struct crowd){.models = {(char *)"m"}};
	for (uint32_t i = 0; i < GPUS; i++) {
		crowd->gpus[i] = (struct medusa_sched_gpu){sizeof(crowd->gpus[i]), 80 * GB, i, 1};
		crowd->gpu_names[i] = (char *)"g";
	}
	crowd->node = (struct md_sim_node){.gpus = crowd->gpus,
					   .gpu_names = crowd->gpu_names,
					   .gpu_count = gpus,
					   .host_bytes_per_s = 100e9,
					   .cold_bytes_per_s = 1e9,
					   .prefill_share = 1};
	for (uint32_t i = 0; i < TENANTS; i++)
		crowd->tenants[i] = (struct md_sim_tenant){
		    name[i], {.size = sizeof(crowd->tenants[i].spec), .weight = i == WEB ? 3 : 1}};
	for (uint32_t i = 0; i < functions; i++)
		crowd->functions[i] =
		    (struct md_sim_function){.name = (char *)"f", .spec = model, .sequence_share = 0.01};
	crowd->all = (struct md_sim_functions){.tenants = crowd->tenants,
					       .tenant_count = TENANTS,
					       .functions = crowd->functions,
					       .count = functions,
					       .models = crowd->models,
					       .model_count = 1};
	for (uint32_t i = 0; i < REQUESTS; i++)
		crowd->requests[i] = (struct md_sim_request){.at = i * MS,
							     .function = i / 2 % functions,
							     .generated_tokens = 1 + i * 7919 % 20,
							     .tenant = i % 2 ? WEB : NIGHT};
	crowd->workload =
	    (struct md_sim_workload){.requests = crowd->requests, .count = REQUESTS, .end = REQUESTS * MS};
}

static struct md_sim_result run_as(const struct crowd *crowd, const struct md_sim_policy *policy)
{
	struct md_sim_result result;
	struct md_error err = {0};
	cr_assert_eq(md_sim_run(&crowd->node, &crowd->all, &crowd->workload, policy, 1, NULL, &result, &err), MD_OK,
		     "%s: %s", policy->name, err.message);
	cr_assert_eq(result.unfinished + result.contradictions, 0, "%s", policy->name);
	return result;
}

/* How far what web had while both waited is from what was due to it, in points of 100. */
static double deviation(const struct crowd *crowd, const struct md_sim_policy *policy)
{
	struct md_sim_result result = run_as(crowd, policy);
	const struct md_sim_tenant_result *web = &result.tenants[WEB];
	double all = web->contended_all_s, off = 100 * (web->contended_gpu_s - web->contended_due_s) / all;
	cr_expect_gt(web->contended_s, 5, "%s: they contend for a while", policy->name);
	cr_expect_float_eq(web->contended_due_s, 0.75 * all, 1e-6 * all, "%s: weights of 3 and 1", policy->name);
	md_sim_result_finish(&result);
	return fabs(off);
}

/* Engines that are bound to a GPU cannot use another one's time, and a process that knows no tenants shares nothing. */
static bool shares(const struct md_sim_policy *policy, uint32_t gpus)
{
	return !policy->early_binding && (gpus == 1 || strcmp(policy->placement, "early"));
}

static void assert_shares(uint32_t gpus, uint32_t functions, struct medusa_sched_function model, double points)
{
	struct crowd crowd;
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	gather(&crowd, gpus, functions, model);
	for (size_t p = 0; p < count; p++) {
		double off = shares(&policies[p], gpus) ? deviation(&crowd, &policies[p]) : 0;
		cr_expect_leq(off, points, "%s, %u GPUs: %.2f points off", policies[p].name, gpus, off);
	}
}

Test(sim_tenants, with_every_policy_shares_are_by_weight, .timeout = 120)
{
	assert_shares(1, FUNCTIONS, model_of(1), 0.5);
}

Test(sim_tenants, on_several_gpus, .timeout = 120)
{
	assert_shares(GPUS, FUNCTIONS, model_of(1), 0.5);
}

Test(sim_tenants, in_batches, .timeout = 120)
{
	assert_shares(1, FUNCTIONS, model_of(8), 1.5);
	assert_shares(GPUS, FUNCTIONS, model_of(8), 1.5);
}

Test(sim_tenants, in_engines_that_batch_by_themselves, .timeout = 120)
{
	struct medusa_sched_function model = model_of(16);
	model.continuous = 1;
	assert_shares(1, 1, model, 1.5);
	assert_shares(GPUS, 1, model, 3);
}

/* ---- functions of each tenant's own ------------------------------------------------------------------------------ */

/* Each tenant has half of the functions. */
static void part(struct crowd *crowd)
{
	uint32_t half = crowd->all.count / 2;
	for (uint32_t i = 0; i < REQUESTS; i++)
		crowd->requests[i].function = i / 2 % half + (crowd->requests[i].tenant == WEB ? 0 : half);
}

/* Engines of two tenants want the same slots, or the same memory: whose requests join them goes by what each tenant has had. */
static void assert_engines_take_turns(uint32_t gpus, uint32_t functions, uint64_t memory, double points)
{
	struct crowd crowd;
	struct medusa_sched_function model = model_of(16);
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	model.continuous = 1;
	gather(&crowd, gpus, functions, model);
	part(&crowd);
	for (uint32_t i = 0; i < gpus; i++)
		crowd.gpus[i].memory_bytes = memory;
	for (size_t p = 0; p < count; p++) {
		double off = shares(&policies[p], gpus) ? deviation(&crowd, &policies[p]) : 0;
		cr_expect_leq(off, points, "%s, %u GPUs, %u functions: %.2f points off", policies[p].name, gpus,
			      functions, off);
	}
}

Test(sim_tenants, engines_of_each_take_turns_on_slots, .timeout = 120)
{
	assert_engines_take_turns(1, 2, 80 * GB, 4);
	assert_engines_take_turns(GPUS, 2, 80 * GB, 8.5);
}

Test(sim_tenants, engines_of_each_take_turns_in_memory, .timeout = 120)
{
	assert_engines_take_turns(1, FUNCTIONS, GB + GB / 2, 7.5);
}

/* ---- where shares do not hold, as docs/scheduler.md says ---------------------------------------------------------- */

static double had_of(const struct crowd *crowd, const char *policy)
{
	struct md_sim_result result = run_as(crowd, md_sim_policy_find(policy));
	const struct md_sim_tenant_result *web = &result.tenants[WEB];
	double had = 100 * web->contended_gpu_s / web->contended_all_s;
	md_sim_result_finish(&result);
	return had;
}

/* Batches that run beside each other slow each other alike: nobody waits for a slot. */
Test(sim_tenants, free_slots_are_not_held_back)
{
	struct crowd crowd;
	struct medusa_sched_function model = model_of(1);
	model.max_parallel = 1;
	gather(&crowd, 1, FUNCTIONS, model);
	part(&crowd);
	crowd.gpus[0].slots = FUNCTIONS;
	double had = had_of(&crowd, "fifo-lru");
	cr_expect(had > 49 && had < 51, "four functions in four slots: web had %.1f %%", had);
	crowd.gpus[0].slots = 1;
	had = had_of(&crowd, "fifo-lru");
	cr_expect(had > 74 && had < 76, "four functions in one slot: web had %.1f %%", had);
}

Test(sim_tenants, bound_functions_share_their_gpu)
{
	struct crowd crowd;
	gather(&crowd, 1, FUNCTIONS, model_of(1));
	part(&crowd);
	double had = had_of(&crowd, "swapserve");
	cr_expect(had > 74 && had < 76, "one GPU: web had %.1f %%", had);
	gather(&crowd, GPUS, FUNCTIONS, model_of(1));
	part(&crowd);
	had = had_of(&crowd, "swapserve");
	cr_expect(had > 49 && had < 51, "a GPU for each function: web had %.1f %%", had);
}

/* What one does not ask for is the others', and it cannot be claimed later. */
Test(sim_tenants, idle_time_is_not_saved_up)
{
	struct crowd crowd;
	gather(&crowd, 1, FUNCTIONS, model_of(1));
	for (uint32_t i = 0; i < REQUESTS; i++)
		crowd.requests[i].tenant = i >= REQUESTS / 2 && i % 2 ? WEB : NIGHT;
	struct md_sim_result result = run_as(&crowd, md_sim_policy_find("medusa"));
	const struct md_sim_tenant_result *web = &result.tenants[WEB], *night = &result.tenants[NIGHT];
	cr_expect_gt(night->gpu_s, 2 * web->gpu_s, "night was alone for a while");
	cr_expect_float_eq(web->contended_gpu_s, web->contended_due_s, 0.02 * web->contended_due_s,
			   "%.3f s of %.3f s due", web->contended_gpu_s, web->contended_due_s);
	md_sim_result_finish(&result);
}
