/* SPDX-License-Identifier: Apache-2.0 */
/* The file of faults: what is read, what is refused and in which words, and that the faults happen. */
#include <criterion/criterion.h>
#include <string.h>

#include "simulator/simulator.h"
#include "simulator/workload/fault_file.h"

#define HEADER "seconds,fault,gpu,value\n"
#define S UINT64_C(1000000000)

static struct md_sim_node node;
static struct md_sim_functions functions;

static void start(void)
{
	static const char gpus[] =
	    "name: n\nsource: s\nhost_speed: 12GB/s\ngpus: [{memory: 10GB, name: left}, {memory: 10GB}]\n"
	    "report_every: 1s\n";
	static const char models[] =
	    "source: s\nbackbones: [{name: big, weights: 4GB, in_host: true}]\n"
	    "models: [{name: f, backbone: big, adapter: 1MB, in_host: true, execution: 50ms, slo: 2s}]\n";
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_parse("n", gpus, strlen(gpus), &node, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_functions_parse("f", models, strlen(models), &functions, &err), MD_OK, "%s", err.message);
}

static void finish(void)
{
	md_sim_node_finish(&node);
	md_sim_functions_finish(&functions);
}

TestSuite(sim_faults, .init = start, .fini = finish);

static void parse(const char *text, struct md_sim_workload *workload)
{
	struct md_error err = {0};
	cr_assert_eq(md_sim_faults_parse("faults", text, strlen(text), &node, &functions, workload, &err), MD_OK, "%s",
		     err.message);
}

Test(sim_faults, each_kind_is_read)
{
	struct md_sim_workload workload = {0};
	parse("\xef\xbb\xbf" HEADER "0.5,gpu-lost,left,\r\n\r\n1,gpu-back,0,\n1,backbone-failed,gpu1,big\n"
	      "2,transfer-failed,1,\n3,batch-failed,1,\n4,memory-limit,1,8GB\n5,report-lag,,200ms\n6,gpu-drain,1,",
	      &workload);
	static const struct medusa_sched_event expected[] = {
	    {.type = MEDUSA_SCHED_EVENT_GPU_LOST, .now = S / 2},
	    {.type = MEDUSA_SCHED_EVENT_GPU_BACK, .now = S},
	    {.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED, .now = S, .gpu = 1},
	    {.type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED, .now = 2 * S, .gpu = 1},
	    {.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .now = 3 * S, .gpu = 1},
	    {.type = MEDUSA_SCHED_EVENT_MEMORY_LIMIT, .now = 4 * S, .gpu = 1, .bytes = 8000000000},
	    {.type = MEDUSA_SCHED_EVENT_MEMORY_REPORT, .now = 5 * S, .bytes = S / 5},
	    {.type = MEDUSA_SCHED_EVENT_GPU_DRAIN, .now = 6 * S, .gpu = 1},
	};
	cr_assert_eq(workload.fault_count, 8);
	for (size_t i = 0; i < 8; i++) {
		const struct medusa_sched_event *fault = &workload.faults[i];
		cr_assert(fault->type == expected[i].type && fault->now == expected[i].now &&
			      fault->gpu == expected[i].gpu && fault->bytes == expected[i].bytes && !fault->backbone,
			  "fault %zu", i);
	}
	md_sim_workload_finish(&workload);
}

Test(sim_faults, bad_files_are_refused_by_line_and_column)
{
	static const struct {
		const char *text, *message;
		size_t bytes; /* 0: up to the NUL */
	} cases[] = {
	    {"", "faults:1: there are no faults", 0},
	    {HEADER, "faults:1: there are no faults", 0},
	    {"seconds,fault,gpu\n", "faults:1: the header seconds,fault,gpu,value is expected", 0},
	    {HEADER "1,gpu-lost\n", "faults:2: four columns", 0},
	    {HEADER "1,gpu-lost,0,,\n", "faults:2: four columns", 0},
	    {HEADER "1,gpu-\0lost,0,\n", "faults:2: four columns", sizeof(HEADER "1,gpu-.lost,0,\n") - 1},
	    {HEADER "-1,gpu-lost,0,\n", "faults:2: seconds: '-1': a number is expected", 0},
	    {HEADER "nan,gpu-lost,0,\n", "seconds: 'nan'", 0},
	    {HEADER ",gpu-lost,0,\n", "seconds: ''", 0},
	    {HEADER "9999999999999,gpu-lost,0,\n", "up to 3000000000 seconds", 0},
	    {HEADER "1,gpu-lost,0,\n\n0.5,gpu-back,0,\n", "faults:4: seconds: '0.5': it is before the line above", 0},
	    {HEADER "1,gpu-gone,0,\n", "faults:2: fault: 'gpu-gone': gpu-lost, gpu-drain, gpu-back", 0},
	    {HEADER "1,gpu-lost,2,\n", "faults:2: gpu: '2': a GPU of the node is expected", 0},
	    {HEADER "1,gpu-lost,-1,\n", "gpu: '-1'", 0},
	    {HEADER "1,gpu-lost,,\n", "gpu: ''", 0},
	    {HEADER "1,gpu-lost,99999999999999999999,\n", "gpu: '99999", 0},
	    {HEADER "1,gpu-lost,0,3\n", "faults:2: value: '3': this fault has none", 0},
	    {HEADER "1,report-lag,0,3s\n", "faults:2: gpu: '0': this fault is the whole node's", 0},
	    {HEADER "1,report-lag,,3\n", "value: '3': a time with a unit", 0},
	    {HEADER "1,memory-limit,0,8\n", "value: '8': bytes with a unit", 0},
	    {HEADER "1,backbone-failed,0,small\n", "value: 'small': there is no such backbone", 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_workload workload = {0};
		struct md_error err = {0};
		size_t bytes = cases[i].bytes ? cases[i].bytes : strlen(cases[i].text);
		cr_assert_eq(md_sim_faults_parse("faults", cases[i].text, bytes, &node, &functions, &workload, &err),
			     MD_ERR_CORRUPT, "case %zu was read", i);
		cr_assert(strstr(err.message, cases[i].message), "'%s' is not in '%s'", cases[i].message, err.message);
		cr_assert_null(workload.faults, "case %zu", i);
	}
}

Test(sim_faults, they_happen)
{
	static const char trace[] = "seconds,function,context,generated\n0,,,\n10,,,\n20,,,\n";
	struct md_sim_workload_options options = {0};
	struct md_sim_policy policy = *md_sim_policy_find("medusa");
	struct md_sim_workload workload;
	struct md_sim_result result;
	struct md_error err = {0};
	cr_assert_eq(md_sim_workload_parse("t", trace, strlen(trace), &functions, &options, &workload, &err), MD_OK);
	parse(HEADER "5,gpu-lost,0,\n5,gpu-lost,1,\n15,gpu-back,0,\n", &workload);
	policy.max_wait_ns = 2 * S;
	cr_assert_eq(md_sim_run(&node, &functions, &workload, &policy, 1, NULL, &result, &err), MD_OK, "%s",
		     err.message);
	cr_assert(result.served == 2 && result.requests == 3 && !result.unfinished, "served %llu",
		  (unsigned long long)result.served);
	cr_assert_eq(result.contradictions, 0);
	md_sim_result_finish(&result);
	policy.max_wait_ns = 0;
	cr_assert_eq(md_sim_run(&node, &functions, &workload, &policy, 1, NULL, &result, &err), MD_OK, "%s",
		     err.message);
	cr_assert_eq(result.served, 3, "it waits until the GPU is back");
	md_sim_result_finish(&result);
	md_sim_workload_finish(&workload);
}

/* A GPU that is drained takes nothing until it is back: requests wait, and what it holds leaves. */
Test(sim_faults, a_drained_gpu_takes_nothing)
{
	static const char trace[] = "seconds,function,context,generated\n0,,,\n10,,,\n";
	struct md_sim_workload_options options = {0};
	struct md_sim_policy policy = *md_sim_policy_find("medusa");
	struct md_sim_workload workload;
	struct md_sim_result result;
	struct md_error err = {0};
	cr_assert_eq(md_sim_workload_parse("t", trace, strlen(trace), &functions, &options, &workload, &err), MD_OK);
	parse(HEADER "5,gpu-drain,0,\n5,gpu-drain,1,\n15,gpu-back,0,\n", &workload);
	cr_assert_eq(md_sim_run(&node, &functions, &workload, &policy, 1, NULL, &result, &err), MD_OK, "%s",
		     err.message);
	cr_assert_eq(result.served, 2);
	cr_assert_eq(result.contradictions, 0);
	cr_assert_gt(md_sim_samples_percentile(&result.wait_ms, 100), 4999, "the second waits until GPU 0 is back");
	md_sim_result_finish(&result);
	md_sim_workload_finish(&workload);
}

Test(sim_faults, reports_that_there_are_not_cannot_be_late)
{
	static const char text[] = HEADER "1,report-lag,,3s\n";
	struct md_sim_workload workload = {0};
	struct md_error err = {0};
	node.report_every_ns = 0;
	cr_assert_neq(md_sim_faults_parse("faults", text, strlen(text), &node, &functions, &workload, &err), MD_OK);
	cr_assert_str_eq(err.message,
			 "faults:2: fault: 'report-lag': the node has no report_every, so there are no reports");
}
