/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a trace names by model and adapter. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/workload/trace_functions.h"

#define HEADER "seconds,model,adapter,context,generated\n"
#define FILE_OF_FUNCTIONS                                                                                              \
	"source: s\n"                                                                                                  \
	"backbones:\n"                                                                                                 \
	"  - {name: base, weights: 10GB, count: 2}\n"                                                                  \
	"models:\n"                                                                                                    \
	"  - {name: plain, weights: 1GB, execution: 5ms, count: 2}\n"                                                  \
	"  - {name: lora, backbone: base, adapter: 100MB, execution: 7ms, slo: 2s, count: 3}\n"

static struct md_sim_functions read_file(void)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	cr_assert_eq(md_sim_functions_parse("f", FILE_OF_FUNCTIONS, strlen(FILE_OF_FUNCTIONS), &functions, &err), MD_OK,
		     "%s", err.message);
	return functions;
}

static struct md_sim_functions make(const char *trace, bool expected)
{
	struct md_sim_functions functions = read_file();
	struct md_error err = {0};
	bool made;
	cr_assert_eq(md_sim_functions_of_text("trace", trace, strlen(trace), &functions, &made, &err), MD_OK, "%s",
		     err.message);
	cr_assert_eq(made, expected, "made from:\n%s", trace);
	return functions;
}

static void assert_function(const struct md_sim_functions *functions, uint32_t i, const char *name, uint64_t t0_ms,
			    uint32_t backbone)
{
	cr_assert_lt(i, functions->count);
	const struct md_sim_function *function = &functions->functions[i];
	cr_assert_str_eq(function->name, name);
	cr_assert_eq(function->spec.t0_ns, t0_ms * 1000000, "%s", name);
	cr_assert_eq(function->spec.backbone, backbone, "%s is on backbone %u", name, function->spec.backbone);
}

Test(sim_trace_functions, one_for_each_model_and_adapter_as_they_come)
{
	static const char trace[] =
	    HEADER "0,lora,a,10,20\n1,plain,,5,\n2,lora,b,,30\n3,lora,a,,\n4,plain,,,7\n5,lora,,,\n";
	struct md_sim_functions functions = make(trace, true);
	struct md_sim_workload workload;
	struct md_error err = {0};
	cr_assert_eq(functions.count, 4);
	assert_function(&functions, 0, "lora/a", 7, 0);
	assert_function(&functions, 1, "plain", 5, MEDUSA_SCHED_NONE);
	assert_function(&functions, 2, "lora/b", 7, 1); /* in turn over the copies of the backbone */
	assert_function(&functions, 3, "lora", 7, 0);
	cr_assert_eq(functions.functions[2].spec.slo_ns, 2000000000u);
	cr_assert_eq(md_sim_workload_parse("trace", trace, strlen(trace), &functions,
					   &(struct md_sim_workload_options){0}, &workload, &err),
		     MD_OK, "%s", err.message);
	static const uint32_t of[] = {0, 1, 2, 0, 1, 3}, generated[] = {20, 0, 30, 0, 7, 0};
	cr_assert_eq(workload.count, 6);
	for (size_t i = 0; i < workload.count; i++) {
		cr_assert_eq(workload.requests[i].function, of[i], "request %zu", i);
		cr_assert_eq(workload.requests[i].generated_tokens, generated[i], "request %zu", i);
		cr_assert_eq(workload.requests[i].at, i * 1000000000u, "request %zu", i);
	}
	md_sim_workload_finish(&workload);
	md_sim_functions_finish(&functions);
}

Test(sim_trace_functions, many)
{
	size_t size = 0;
	char *trace = NULL;
	FILE *out = open_memstream(&trace, &size);
	fprintf(out, "\xef\xbb\xbf" HEADER);
	for (int i = 0; i < 6000; i++)
		fprintf(out, "%d,lora,adapter-%d,,\r\n", i, i * 7 % 3000);
	fclose(out);
	struct md_sim_functions functions = make(trace, true);
	cr_assert_eq(functions.count, 3000);
	for (uint32_t i = 0; i < 3000; i++) {
		char name[32];
		snprintf(name, sizeof(name), "lora/adapter-%u", i * 7 % 3000);
		assert_function(&functions, i, name, 7, functions.functions[i].spec.backbone);
	}
	md_sim_functions_finish(&functions);
	free(trace);
}

Test(sim_trace_functions, other_traces_leave_the_functions_as_they_are)
{
	static const char *const traces[] = {"",
					     "\n",
					     HEADER,
					     "seconds,function,context,generated\n1,plain-0,,\n",
					     "{\"timestamp\": 0}\n",
					     HEADER "x,lora,a,,\n"};
	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
		struct md_sim_functions functions = make(traces[i], false);
		cr_assert_eq(functions.count, 5);
		cr_assert_str_eq(functions.functions[4].name, "lora-2");
		md_sim_functions_finish(&functions);
	}
}

Test(sim_trace_functions, columns_may_come_in_any_order_and_in_quotes)
{
	struct md_sim_functions functions = make("Adapter, Model, Seconds\n\"a\", lora, 3\n,\"plain\",1\n", true);
	cr_assert_eq(functions.count, 2);
	assert_function(&functions, 0, "lora/a", 7, 0);
	assert_function(&functions, 1, "plain", 5, MEDUSA_SCHED_NONE);
	md_sim_functions_finish(&functions);
	functions = make("seconds,model\n1,lora\n", true);
	assert_function(&functions, 0, "lora", 7, 0);
	md_sim_functions_finish(&functions);
}

Test(sim_trace_functions, a_model_that_is_not_there_is_named)
{
	static const char trace[] = HEADER "0,lora,a,,\n\n1,laura,a,,\n";
	struct md_sim_functions functions = read_file();
	struct md_error err = {0};
	bool made;
	cr_assert_neq(md_sim_functions_of_text("trace", trace, strlen(trace), &functions, &made, &err), MD_OK);
	cr_assert_str_eq(err.message, "trace:4: model: there is no model 'laura' in the file of functions");
	cr_assert_eq(functions.count, 5, "the functions are as they were");
	md_sim_functions_finish(&functions);
}

Test(sim_trace_functions, a_bad_row_is_found_when_the_trace_is_read)
{
	static const struct {
		const char *row, *message;
	} cases[] = {
	    {"1,,a,,\n", "trace:2: model: '': a model's name is expected"},
	    {"1,lora,a,\n", "trace:2: line: 5 columns are expected"},
	    {"soon,lora,a,,\n", "trace:2: seconds: "},
	    {"1,lora,a,,many\n", "trace:2: generated: "},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char trace[128];
		struct md_sim_workload workload;
		struct md_error err = {0};
		snprintf(trace, sizeof(trace), HEADER "%s", cases[i].row);
		struct md_sim_functions functions = make(trace, false);
		cr_assert_neq(md_sim_workload_parse("trace", trace, strlen(trace), &functions,
						    &(struct md_sim_workload_options){0}, &workload, &err),
			      MD_OK);
		cr_assert(strstr(err.message, cases[i].message), "'%s' is not in '%s'", cases[i].message, err.message);
		md_sim_functions_finish(&functions);
	}
}
