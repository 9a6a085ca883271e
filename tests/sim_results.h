/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a simulation that are made by hand, for tests of reports, and files that readers of their formats accept. */
#ifndef MD_TESTS_SIM_RESULTS_H
#define MD_TESTS_SIM_RESULTS_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simulator/report/report.h"

static char folder[64], json_path[96], html_path[96];

static void setup(void)
{
	strcpy(folder, "/tmp/medusa-simreport-XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(json_path, sizeof(json_path), "%s/report.json", folder);
	snprintf(html_path, sizeof(html_path), "%s/report.html", folder);
}

static void teardown(void)
{
	unlink(json_path);
	unlink(html_path);
	rmdir(folder);
}

/* ---- a result made by hand --------------------------------------------------------------------------------------- */

#define POLICIES 2
#define FUNCTIONS 3
#define GPUS 2

static struct medusa_sched_gpu gpus[GPUS] = {{.memory_bytes = 32000000000u}, {.memory_bytes = 32000000000u}};
static char *gpu_names[GPUS] = {"V100", "V100"};
static double peers[GPUS * GPUS] = {0, 25e9, 25e9, 0};
static struct md_sim_node node = {.name = "two-gpus",
				  .source = "made by hand",
				  .gpus = gpus,
				  .gpu_names = gpu_names,
				  .gpu_count = GPUS,
				  .peer_bytes_per_s = peers,
				  .gpu_price_per_h = 3};
static char *models[] = {"resnet", "<b>&\"bert\""};
static struct md_sim_function function_table[FUNCTIONS] = {
    {.name = "resnet-0", .model = 0, .spec = {.slo_ns = 100000000}},
    {.name = "resnet-1", .model = 0, .spec = {.slo_ns = 100000000}},
    {.name = "bert\xff-0", .model = 1},
};
static struct md_sim_functions functions = {
    .source = "by hand", .functions = function_table, .count = FUNCTIONS, .models = models, .model_count = 2};
static struct md_sim_workload workload = {.source = "ten requests", .count = 10, .end = 60000000000u};
static const struct md_sim_policy policies[POLICIES] = {
    {.name = "torpor", .summary = "As in the paper.", .queueing = "torpor"},
    {.name = "refuse", .summary = "Refuses \"all\" <of them>.", .early_binding = true},
};

static const double latencies[FUNCTIONS][4] = {{40, 10, 30, 20}, {150, 50, 100}, {400, 200}};
static const struct md_sim_function_result served[FUNCTIONS] = {
    {.requests = 4, .served = 4, .met = 4, .compliant = true, .counted = true, .gpu_s = 1.5, .cost = 0.25},
    {.requests = 4, .served = 3, .met = 2, .rejected = 1, .counted = true, .gpu_s = 2.25, .cost = 0.5},
    {.requests = 2, .served = 2, .met = 2, .compliant = true, .gpu_s = 1},
};

struct made {
	struct md_sim_report report;
	struct md_sim_result results[POLICIES];
	struct md_sim_function_result functions[POLICIES][FUNCTIONS];
	double busy[POLICIES][GPUS];
};

static void add(struct md_sim_samples *samples, double value)
{
	cr_assert(md_sim_samples_add(samples, value), "memory for a sample");
}

static void serve(struct md_sim_result *result)
{
	memcpy(result->functions, served, sizeof(served));
	for (size_t f = 0; f < FUNCTIONS; f++)
		for (size_t i = 0; i < served[f].served; i++) {
			struct md_sim_function_result *function = &result->functions[f];
			add(&function->latency_ms, latencies[f][i]);
			add(&function->ttft_ms, latencies[f][i] / 2);
			add(&result->latency_ms, latencies[f][i]);
			add(&result->ttft_ms, latencies[f][i] / 2);
			add(&result->end_ms, latencies[f][i] * 2);
			add(&result->wait_ms, 1.5);
			add(&result->batch, 1);
		}
	result->running_functions = FUNCTIONS;
	result->served = 9;
	result->met = 8;
	result->rejected[MEDUSA_SCHED_REASON_WAITED_TOO_LONG] = 1;
	result->gpu_busy_s[0] = 30;
	result->gpu_busy_s[1] = 15;
	result->decide_us_p50 = 1.25;
	result->decide_us_p99 = 9;
	result->decide_us_p999 = 99;
	result->wall_s = 0.5;
	result->stats = (struct medusa_sched_stats){
	    .swaps_host = 5, .swaps_peer = 2, .bytes_host = 12340000000u, .bytes_peer = 500000000, .evictions = 4};
}

static void make(struct made *made)
{
	*made = (struct made){.report = {.node = &node,
					 .functions = &functions,
					 .workload = &workload,
					 .seed = 7,
					 .results = made->results,
					 .count = POLICIES}};
	for (size_t p = 0; p < POLICIES; p++)
		made->results[p] = (struct md_sim_result){.policy = &policies[p],
							  .functions = made->functions[p],
							  .function_count = FUNCTIONS,
							  .requests = 10,
							  .gpu_busy_s = made->busy[p],
							  .gpu_count = GPUS,
							  .end_s = 60};
	serve(&made->results[0]);
	made->results[1].rejected[MEDUSA_SCHED_REASON_NEVER_FITS] = 10;
	for (size_t f = 0; f < FUNCTIONS; f++) {
		made->functions[1][f].requests = made->functions[1][f].rejected = served[f].requests;
		made->functions[1][f].counted = served[f].counted;
	}
}

static void unmake(struct made *made)
{
	for (size_t p = 0; p < POLICIES; p++) {
		struct md_sim_result *result = &made->results[p];
		for (size_t f = 0; f < FUNCTIONS; f++) {
			md_sim_samples_finish(&made->functions[p][f].latency_ms);
			md_sim_samples_finish(&made->functions[p][f].ttft_ms);
		}
		md_sim_samples_finish(&result->latency_ms);
		md_sim_samples_finish(&result->ttft_ms);
		md_sim_samples_finish(&result->end_ms);
		md_sim_samples_finish(&result->wait_ms);
		md_sim_samples_finish(&result->batch);
	}
}

static inline char *text_of(struct md_sim_report *report)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	md_sim_report_text(report, out);
	fclose(out);
	return text;
}

static void write_both(struct md_sim_report *report)
{
	struct md_error err;
	cr_assert(md_sim_report_json(report, json_path, &err) == MD_OK, "JSON: %s", err.message);
	cr_assert(md_sim_report_html(report, html_path, &err) == MD_OK, "HTML: %s", err.message);
}

static void assert_accepted(const char *what)
{
	char command[320];
	snprintf(command, sizeof(command), "python3 tests/sim_report_check.py '%s' '%s'", json_path, html_path);
	cr_expect(system(command) == 0, "%s: what is wrong stands above", what);
}

static inline char *read_file(const char *path)
{
	char *text = calloc(1, 1 << 20);
	FILE *in = fopen(path, "r");
	cr_assert(in && text, "%s is there", path);
	cr_assert(fread(text, 1, (1 << 20) - 1, in) > 0, "%s holds something", path);
	fclose(in);
	return text;
}

static void assert_holds(const char *text, const char *wanted)
{
	cr_expect(strstr(text, wanted), "there should be: %s", wanted);
}

#endif
