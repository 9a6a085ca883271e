/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic loads: the same on every machine, with the load, variation and order that their laws state. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/exact_math.h"
#include "simulator/random.h"
#include "simulator/simulator.h"

#define S UINT64_C(1000000000)

static struct md_sim_node read_node(uint32_t gpus)
{
	struct md_sim_node node;
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_read("simulator/nodes/h200-images.yaml", &node, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_node_resize(&node, gpus, &err), MD_OK, "%s", err.message);
	return node;
}

static struct md_sim_functions read_functions(const char *name)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	char path[128];
	snprintf(path, sizeof(path), "simulator/functions/%s.yaml", name);
	cr_assert_eq(md_sim_functions_read(path, &functions, &err), MD_OK, "%s", err.message);
	return functions;
}

static struct md_sim_workload draw(const char *law, const char *name, struct md_sim_workload_options options)
{
	struct md_sim_node node = read_node(4);
	struct md_sim_functions functions = read_functions(name);
	struct md_sim_workload workload;
	struct md_error err = {0};
	options.node = &node;
	cr_assert_eq(md_sim_workload_read(law, &functions, &options, &workload, &err), MD_OK, "%s", err.message);
	for (size_t i = 0; i < workload.count; i++)
		cr_assert(workload.requests[i].function < functions.count && workload.requests[i].at < workload.end &&
			      (!i || workload.requests[i - 1].at <= workload.requests[i].at),
			  "%s: request %zu at %llu", law, i, (unsigned long long)workload.requests[i].at);
	md_sim_functions_finish(&functions);
	md_sim_node_finish(&node);
	return workload;
}

/* ---- numbers ---- */

Test(sim_laws, mathematics_agree_with_the_library)
{
	struct md_sim_random random = {1};
	for (int i = 0; i < 20000; i++) {
		double x = ldexp(0.5 + md_sim_random_part(&random), (int)(i % 400) - 200);
		double y = (md_sim_random_part(&random) - 0.5) * 60, z = md_sim_random_part(&random) * 3;
		cr_assert_leq(fabs(md_sim_log(x) - log(x)), 1e-15 * fabs(log(x)), "log %a", x);
		cr_assert_leq(fabs(md_sim_exp(y) - exp(y)), 2e-15 * exp(y), "exp %a", y);
		cr_assert_leq(fabs(md_sim_pow(z, 3 * z) - pow(z, 3 * z)), 1e-14 * pow(z, 3 * z), "pow %a", z);
	}
	cr_assert(md_sim_log(1) == 0 && md_sim_exp(0) == 1 && md_sim_pow(0, 2) == 0 && md_sim_pow(0, 0) == 1);
	cr_assert(md_sim_exp(-1e9) == 0 && isinf(md_sim_exp(1e9)) && md_sim_pow(2, 10) - 1024 < 1e-9);
}

Test(sim_laws, mathematics_are_the_same_everywhere)
{
	/* recorded once; another bit on another machine is a defect */
	cr_assert_eq(md_sim_log(10), 0x1.26bb1bbb55516p+1, "%a", md_sim_log(10));
	cr_assert_eq(md_sim_exp(1), 0x1.5bf0a8b14576ap+1, "%a", md_sim_exp(1));
	cr_assert_eq(md_sim_pow(276, -1.1), 0x1.0eb6a8d7eb9e4p-9, "%a", md_sim_pow(276, -1.1));
}

Test(sim_laws, gamma_has_its_mean_and_variation)
{
	static const double covs[] = {0.3, 1, 2, 4};
	for (size_t c = 0; c < 4; c++) {
		enum { DRAWS = 400000 };
		struct md_sim_random random = {c + 1};
		double sum = 0, squares = 0;
		for (int i = 0; i < DRAWS; i++) {
			double value = md_sim_random_gamma(&random, 3, covs[c]);
			cr_assert(value >= 0 && isfinite(value));
			sum += value;
			squares += value * value;
		}
		double mean = sum / DRAWS, cov = sqrt(squares / DRAWS - mean * mean) / mean;
		cr_assert(fabs(mean - 3) < 0.06, "cov %g: mean %g", covs[c], mean);
		cr_assert(fabs(cov / covs[c] - 1) < 0.05, "cov %g: %g", covs[c], cov);
	}
}

/* FNV-1a over everything that a request is. */
static uint64_t hash(const struct md_sim_workload *workload)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < workload->count; i++) {
		const struct md_sim_request *request = &workload->requests[i];
		const uint64_t words[] = {request->at, request->function, request->context_tokens,
					  request->generated_tokens};
		for (size_t k = 0; k < 4; k++)
			for (int byte = 0; byte < 8; byte++)
				sum = (sum ^ (words[k] >> (8 * byte) & 255)) * UINT64_C(0x100000001b3);
	}
	return sum;
}

Test(sim_laws, loads_are_the_same_everywhere)
{
	static const struct {
		const char *law, *functions;
		uint64_t hash; /* recorded once; another one on another machine is a defect */
	} cases[] = {
	    {"poisson", "torpor-models", 0x37d460456870727},     {"mmpp", "xlora-llama2", 0x1112f0776b9a0366},
	    {"torpor", "torpor-models", 0x578264f11fc55b9e},     {"bursty", "lora-images", 0x72149a52ddb5f4ed},
	    {"diurnal", "azure-32", 0xe2dd82d1fb2dfa1b},         {"burst", "azure-32", 0xcd4395e50632a7f8},
	    {"cyclic:cov=0.5", "cyclic-7b", 0xc9b01d79ed7558fa}, {"poisson", "huge-and-small", 0xda640d40d934167},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_workload workload =
		    draw(cases[i].law, cases[i].functions, (struct md_sim_workload_options){.seed = 1, .load = 0.8});
		cr_expect_eq(hash(&workload), cases[i].hash, "%s: %#llx", cases[i].law,
			     (unsigned long long)hash(&workload));
		md_sim_workload_finish(&workload);
	}
}

/* ---- load ---- */

Test(sim_laws, load_is_what_was_asked_for)
{
	static const struct {
		const char *law, *functions;
		double most;
	} cases[] = {{"bursty", "lora-images", 1e-3}, {"poisson", "hot-and-heavy", 0.05},
		     {"diurnal", "azure-32", 0.05},   {"torpor", "torpor-models", 0.05},
		     {"cyclic", "cyclic-7b", 0.05},   {"mmpp", "azure-32", 0.2}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_workload workload =
		    draw(cases[i].law, cases[i].functions, (struct md_sim_workload_options){.seed = 2, .load = 0.7});
		cr_assert(fabs(workload.load / 0.7 - 1) < cases[i].most, "%s: %g", cases[i].law, workload.load);
		cr_assert(strstr(workload.source, "offered load 0."), "%s", workload.source);
		md_sim_workload_finish(&workload);
	}
}

Test(sim_laws, load_sets_the_speed_of_a_trace)
{
	static const char text[] = "seconds,function,context,generated\n0,,,\n5,,,11\n9,,,\n10,,,\n";
	static const char models[] = "source: s\nmodels: [{name: f, weights: 1GB, execution: 200ms, token: 10ms}]\n";
	struct md_sim_node node = read_node(2);
	struct md_sim_functions functions;
	struct md_sim_workload workload;
	struct md_sim_workload_options options = {.node = &node, .load = 0.05};
	struct md_error err = {0};
	cr_assert_eq(md_sim_functions_parse("f", models, strlen(models), &functions, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_workload_parse("t", text, strlen(text), &functions, &options, &workload, &err), MD_OK, "%s",
		     err.message);
	/* 0.9 s of computing over 10 s of 2 GPUs are 0.045 */
	cr_assert(fabs(workload.load - 0.05) < 1e-6, "%g", workload.load);
	cr_assert(workload.end > 8999 * S / 1000 && workload.end < 9001 * S / 1000);
	md_sim_workload_finish(&workload);
	options.speed = 2;
	cr_assert_eq(md_sim_workload_parse("t", text, strlen(text), &functions, &options, &workload, &err),
		     MD_ERR_INVALID, "a load and a speed");
	options = (struct md_sim_workload_options){.load = 0.05};
	cr_assert_eq(md_sim_workload_parse("t", text, strlen(text), &functions, &options, &workload, &err),
		     MD_ERR_INVALID, "a load without a node");
	options.node = &node;
	cr_assert_eq(md_sim_workload_parse("t", "seconds,function,context,generated\n0,,,\n", 39, &functions, &options,
					   &workload, &err),
		     MD_ERR_INVALID, "a load of one moment");
	md_sim_functions_finish(&functions);
	md_sim_node_finish(&node);
}

/* ---- each law ---- */

static double variation(const struct md_sim_workload *workload)
{
	double sum = 0, squares = 0, count = (double)workload->count - 1;
	for (size_t i = 1; i < workload->count; i++) {
		double gap = (double)(workload->requests[i].at - workload->requests[i - 1].at);
		sum += gap;
		squares += gap * gap;
	}
	return sqrt(squares / count - (sum / count) * (sum / count)) / (sum / count);
}

/* Requests by function, and how many functions have one. */
static uint32_t count_functions(const struct md_sim_workload *workload, uint32_t *counts, uint32_t functions)
{
	uint32_t called = 0;
	memset(counts, 0, functions * sizeof(*counts));
	for (size_t i = 0; i < workload->count; i++)
		called += counts[workload->requests[i].function]++ == 0;
	return called;
}

Test(sim_laws, bursty_is_a_trace_of_adapters)
{
	enum { FUNCTIONS = 276 };
	uint32_t counts[FUNCTIONS], most = 0;
	struct md_sim_workload workload =
	    draw("bursty", "lora-images", (struct md_sim_workload_options){.seed = 3, .load = 0.85});
	uint32_t called = count_functions(&workload, counts, FUNCTIONS);
	size_t again = 0;
	double cov = variation(&workload);
	for (uint32_t i = 0; i < FUNCTIONS; i++)
		most = counts[i] > most ? counts[i] : most;
	for (size_t i = 1; i < workload.count; i++)
		again += workload.requests[i].function == workload.requests[i - 1].function;
	cr_assert(workload.count > 24000 && workload.count < 30000, "%zu", workload.count);
	cr_assert(called >= 219, "%u functions were called", called);
	cr_assert(most > workload.count / 12 && most < workload.count / 3, "Zipf: the first one has %u", most);
	cr_assert(cov > 1.8 && cov < 2.2, "%g", cov);
	cr_assert(workload.requests[5].generated_tokens >= 20 && workload.requests[5].generated_tokens <= 50);
	md_sim_workload_finish(&workload);
	workload =
	    draw("bursty:cov=1,zipf=0,requests=5000", "lora-images", (struct md_sim_workload_options){.seed = 3});
	cov = variation(&workload);
	cr_assert(workload.count > 4700 && workload.count < 5300 && cov > 0.9 && cov < 1.1, "%zu, %g", workload.count,
		  cov);
	md_sim_workload_finish(&workload);
	workload = draw("bursty:requests=5000", "lora-images",
			(struct md_sim_workload_options){.seed = 3, .duration_ns = 3600 * S});
	cr_assert(workload.end == 3600 * S && workload.count < 3000, "a duration decides: %zu", workload.count);
	md_sim_workload_finish(&workload);
}

Test(sim_laws, diurnal_has_nights_and_days)
{
	uint32_t hours[48] = {0};
	struct md_sim_workload workload =
	    draw("diurnal:day=1h", "azure-32", (struct md_sim_workload_options){.load = 0.5, .duration_ns = 7200 * S});
	for (size_t i = 0; i < workload.count; i++)
		hours[workload.requests[i].at / (150 * S)]++;
	cr_assert(hours[14] > 4 * hours[4] && hours[14] < 8 * hours[4], "%u at night, %u by day", hours[4], hours[14]);
	cr_assert(fabs((double)hours[38] / hours[14] - 1) < 0.1, "each day is alike: %u, %u", hours[14], hours[38]);
	md_sim_workload_finish(&workload);
	workload = draw("diurnal:night=1", "azure-32", (struct md_sim_workload_options){.load = 0.5});
	double cov = variation(&workload);
	cr_assert(cov > 0.95 && cov < 1.05, "without a night it is a Poisson process: %g", cov);
	md_sim_workload_finish(&workload);
}

/* The most requests of one function in any second. */
static uint32_t peak_of(const struct md_sim_workload *workload, uint32_t functions)
{
	uint32_t *counts = calloc(functions, sizeof(*counts)), most = 0;
	for (size_t i = 0; i < workload->count; i++) {
		if (i && workload->requests[i].at / S != workload->requests[i - 1].at / S)
			memset(counts, 0, functions * sizeof(*counts));
		uint32_t count = ++counts[workload->requests[i].function];
		most = count > most ? count : most;
	}
	free(counts);
	return most;
}

Test(sim_laws, bursts_come_out_of_the_blue)
{
	/* 32 functions of about 1 request a second each */
	struct md_sim_workload_options options = {.seed = 4, .load = 0.5};
	struct md_sim_workload with = draw("burst:bursts=2", "azure-32", options),
			       without = draw("poisson", "azure-32", options);
	cr_assert(peak_of(&without, 32) < 20, "%u", peak_of(&without, 32));
	cr_assert(peak_of(&with, 32) > 60, "%u", peak_of(&with, 32));
	cr_assert(with.count > without.count + 300 && with.count < without.count + 3000, "%zu, %zu", with.count,
		  without.count);
	md_sim_workload_finish(&with);
	md_sim_workload_finish(&without);
}

Test(sim_laws, cyclic_calls_in_turn)
{
	struct md_sim_workload workload = draw("cyclic", "cyclic-7b", (struct md_sim_workload_options){.load = 0.5});
	uint32_t last = 0;
	for (size_t i = 0; i < workload.count; i++)
		last = workload.requests[i].function > last ? workload.requests[i].function : last;
	/* 4 x 139 GiB x 1.1 / 14 GB = 46.9 */
	cr_assert_eq(last, 46, "%u", last);
	for (size_t i = 0; i < workload.count; i++)
		cr_assert_eq(workload.requests[i].function, i % 47);
	for (size_t i = 2; i < workload.count; i++)
		cr_assert_leq(llabs((long long)(workload.requests[i].at - workload.requests[i - 1].at) -
				    (long long)workload.requests[1].at),
			      1000, "gap %zu", i);
	md_sim_workload_finish(&workload);
}

Test(sim_laws, wrong_values_are_refused)
{
	static const struct {
		const char *law, *message;
	} cases[] = {
	    {"bursty:cov", "bursty:cov: cov: name=value is expected"},
	    {"bursty:", "name=value is expected"},
	    {"bursty:cov=4,", "name=value is expected"},
	    {"bursty:cov=", "cov=: a number is expected"},
	    {"bursty:cov=-1", "a number is expected"},
	    {"bursty:cov=nan", "a number is expected"},
	    {"bursty:cov=0", "cov=0: 0.1 to 20 is possible"},
	    {"bursty:cov=1e300", "a number without an exponent is expected"},
	    {"bursty:cov=1,cov=1", "it is given twice"},
	    {"bursty:factor=2", "the law has no such value"},
	    {"bursty:requests=1.5", "a whole number is expected"},
	    {"bursty:requests=99999999999", "is possible"},
	    {"poisson:cov=2", "the law has no such value"},
	    {"diurnal:day=24", "a time with a unit"},
	    {"diurnal:day=0s", "day=0s: 1 to 3200000 seconds is possible"},
	    {"burst:length=2h", "is possible"},
	    {"burst:factor=0.5", "is possible"},
	    {"cyclic:set=1000", "more functions (--count) or a smaller set"},
	};
	struct md_sim_node node = read_node(4);
	struct md_sim_functions functions = read_functions("azure-32");
	struct md_sim_workload_options options = {.node = &node};
	struct md_sim_workload workload;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_error err = {0};
		cr_assert_eq(md_sim_workload_read(cases[i].law, &functions, &options, &workload, &err), MD_ERR_INVALID,
			     "%s was taken", cases[i].law);
		cr_assert(strstr(err.message, cases[i].message), "'%s' is not in '%s'", cases[i].message, err.message);
	}
	md_sim_functions_finish(&functions);
	md_sim_node_finish(&node);
}

/* ---- nodes of other sizes ---- */

Test(sim_laws, nodes_have_as_many_gpus_as_wanted)
{
	struct md_sim_node node = read_node(2);
	struct md_error err = {0};
	cr_assert(node.gpu_count == 2 && node.peer_bytes_per_s[1] == 390e9 && node.peer_bytes_per_s[3] == 0);
	cr_assert_eq(md_sim_node_resize(&node, 5, &err), MD_OK, "%s", err.message);
	cr_assert(node.gpu_count == 5 && node.peer_bytes_per_s[4 * 5 + 3] == 390e9 && node.peer_bytes_per_s[24] == 0);
	cr_assert_str_eq(node.gpu_names[4], "gpu4");
	cr_assert_eq(node.gpus[4].memory_bytes, node.gpus[0].memory_bytes);
	cr_assert_eq(md_sim_node_resize(&node, 0, &err), MD_ERR_INVALID);
	md_sim_node_finish(&node);
	cr_assert_eq(md_sim_node_read("simulator/nodes/torpor-v100.yaml", &node, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_node_resize(&node, 5, &err), MD_ERR_INVALID);
	cr_assert(strstr(err.message, "5 GPUs of 4: its GPUs differ"), "%s", err.message);
	cr_assert_eq(md_sim_node_resize(&node, 3, &err), MD_OK);
	cr_assert(node.peer_bytes_per_s[0 * 3 + 2] == 25e9 && node.peer_bytes_per_s[1 * 3 + 2] == 50e9);
	md_sim_node_finish(&node);
}
