/* SPDX-License-Identifier: Apache-2.0 */
/* Traces in each form, their mapping to functions, and what the laws of arrivals draw. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/simulator.h"

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define OWN "seconds,function,context,generated\n"
#define MS UINT64_C(1000000)

static struct md_sim_functions make_functions(uint32_t count, const char *rate)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	char text[256];
	snprintf(text, sizeof(text),
		 "source: s\nmodels: [{name: f, weights: 1GB, execution: 5ms, rate: %s}]\nfunctions: {count: %u}\n",
		 rate, count);
	cr_assert_eq(md_sim_functions_parse("f", text, strlen(text), &functions, &err), MD_OK, "%s", err.message);
	return functions;
}

static struct md_sim_workload parse(const char *text, uint32_t functions, struct md_sim_workload_options options)
{
	struct md_sim_functions all = make_functions(functions, "6/min");
	struct md_sim_workload workload;
	struct md_error err = {0};
	cr_assert_eq(md_sim_workload_parse("trace", text, strlen(text), &all, &options, &workload, &err), MD_OK, "%s",
		     err.message);
	md_sim_functions_finish(&all);
	return workload;
}

static void assert_refused(const char *text, const char *message)
{
	struct md_sim_functions all = make_functions(3, "6/min");
	struct md_sim_workload_options options = {0};
	struct md_sim_workload workload;
	struct md_error err = {0};
	cr_assert_neq(md_sim_workload_parse("trace", text, strlen(text), &all, &options, &workload, &err), MD_OK,
		      "was read:\n%s", text);
	cr_assert(strstr(err.message, message), "'%s' is not in '%s'", message, err.message);
	md_sim_functions_finish(&all);
}

static void assert_request(const struct md_sim_workload *workload, size_t i, uint64_t at, uint32_t function,
			   uint32_t context, uint32_t generated)
{
	const struct md_sim_request *request = &workload->requests[i];
	cr_assert_lt(i, workload->count);
	cr_assert_eq(request->at, at, "request %zu at %llu", i, (unsigned long long)request->at);
	cr_assert_eq(request->function, function, "request %zu is function %u's", i, request->function);
	cr_assert(request->context_tokens == context && request->generated_tokens == generated, "request %zu", i);
}

/* ---- forms ---- */

Test(sim_workload, the_first_request_is_the_beginning)
{
	static const char *const traces[] = {OWN "1700000001.5,f-0,,\n1700000000,f-1,,\n",
					     OWN "86401.5,f-0,,\n86400,f-1,,\n",
					     "{\"timestamp\": 5000, \"input_length\": 0, \"output_length\": 0}\n"
					     "{\"timestamp\": 6500, \"input_length\": 0, \"output_length\": 0}\n"};
	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
		struct md_sim_workload workload =
		    parse(traces[i], 3, (struct md_sim_workload_options){.duration_ns = 600000 * MS});
		cr_assert_eq(workload.count, 2, "all of %s", traces[i]);
		assert_request(&workload, 0, 0, i < 2, 0, 0);
		assert_request(&workload, 1, 1500 * MS, i == 2, 0, 0);
		md_sim_workload_finish(&workload);
	}
}

/* The same two requests, however the columns are written. */
Test(sim_workload, columns_by_name_in_any_order_with_quotes_and_blanks)
{
	static const char *const traces[] = {
	    "generated,function,seconds,context\n20,f-1,1,10\n,f-2,2,\n",
	    "Seconds, Function, Context , GENERATED\n1, f-1, 10, 20\n2 ,f-2,,\n",
	    "\"seconds\",\"function\",\"context\",\"generated\"\n\"1\",\"f-1\",\"10\",\"20\"\n2,\"f-2\" ,,\"\"\n",
	    "seconds\t,\tfunction,generated,ContextTokens\r\n1,f-1,20,10\r\n2,f-2,,0\r\n",
	    "timestamp,function,contexttokens,generated\n2023-11-16 18:17:03,f-1,10,20\n2023-11-16 18:17:04,f-2,0,\n",
	};
	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
		struct md_sim_workload workload = parse(traces[i], 3, (struct md_sim_workload_options){0});
		cr_assert_eq(workload.count, 2, "%s", traces[i]);
		assert_request(&workload, 0, 0, 1, 10, 20);
		assert_request(&workload, 1, 1000 * MS, 2, 0, 0);
		md_sim_workload_finish(&workload);
	}
	struct md_sim_workload points = parse("seconds\n.05\n5.\n", 3, (struct md_sim_workload_options){0});
	assert_request(&points, 1, 4950 * MS, 1, 0, 0);
	md_sim_workload_finish(&points);
	struct md_sim_workload times = parse("seconds\n1\n3\n", 3, (struct md_sim_workload_options){0});
	assert_request(&times, 1, 2000 * MS, 1, 0, 0);
	md_sim_workload_finish(&times);
}

Test(sim_workload, azure_counts_from_its_first_request)
{
	struct md_sim_workload workload =
	    parse(AZURE "2023-12-31 23:59:59.9799600,4808,10\r\n2024-01-01 00:00:00.0319600,3180,8\n"
			"2024-02-29 12:00:00+00:00,1,0\n2024-03-01 12:00:00,2,3",
		  3, (struct md_sim_workload_options){0});
	cr_assert_eq(workload.count, 4);
	assert_request(&workload, 0, 0, 0, 4808, 10);
	assert_request(&workload, 1, 52 * MS, 1, 3180, 8);
	cr_assert_eq(workload.requests[3].at - workload.requests[2].at, 86400000 * MS, "a day after the leap day");
	assert_request(&workload, 3, (60 * 86400000ull + 43200000ull + 20) * MS + 40000, 0, 2, 3);
	cr_assert_eq(workload.end, workload.requests[3].at + 1);
	cr_assert(strstr(workload.source, "round-robin"), "%s", workload.source);
	md_sim_workload_finish(&workload);
}

Test(sim_workload, mooncake_is_json_lines)
{
	struct md_sim_workload workload = parse(
	    "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1, [2], \"}\"]}\n"
	    "\n{\"hash_ids\":[],\"output_length\":3,\"who\":\"a\\\"b\",\"input_length\":5,\"timestamp\":27.5}\n",
	    2, (struct md_sim_workload_options){0});
	cr_assert_eq(workload.count, 2);
	assert_request(&workload, 0, 0, 0, 6758, 500);
	assert_request(&workload, 1, 27500000, 1, 5, 3);
	md_sim_workload_finish(&workload);
}

Test(sim_workload, own_form_names_functions)
{
	struct md_sim_workload workload =
	    parse(OWN "2.5,f-1,10,20\n0.25,2,,\n3,,7,\n4,,,1\n", 3, (struct md_sim_workload_options){0});
	assert_request(&workload, 0, 0, 2, 0, 0);
	assert_request(&workload, 1, 2250 * MS, 1, 10, 20);
	assert_request(&workload, 2, 2750 * MS, 0, 7, 0);
	assert_request(&workload, 3, 3750 * MS, 1, 0, 1);
	md_sim_workload_finish(&workload);
}

Test(sim_workload, a_byte_order_mark_and_any_order_are_taken)
{
	struct md_sim_workload workload =
	    parse("\xef\xbb\xbf" OWN "2,f-1,,\r\n1,f-0,,\r\n", 3, (struct md_sim_workload_options){0});
	assert_request(&workload, 0, 0, 0, 0, 0);
	cr_assert(workload.reordered && !workload.mapped);
	md_sim_workload_finish(&workload);
	workload = parse("\xef\xbb\xbf" AZURE "2024-03-01 12:00:00,2,3\n", 3, (struct md_sim_workload_options){0});
	cr_assert(!workload.reordered && workload.mapped == 1);
	md_sim_workload_finish(&workload);
}

Test(sim_workload, a_long_gap_is_noted_with_the_lines_at_it)
{
	static const struct {
		const char *text;
		uint64_t days;
		uint32_t lines[2];
	} cases[] = {
	    {OWN "0,f-0,,\n2592000,f-0,,\n", 0, {0, 0}},
	    {OWN "86400,f-0,,\n\n5184000,f-0,,\n5184001,f-0,,\n", 59, {2, 4}},
	    {OWN "86400000,f-0,,\n1,f-0,,\n0,f-0,,\n1,f-0,,\n", 999, {2, 3}},
	    {OWN "0,f-0,,\n86400000,f-0,,\n259200000,f-0,,\n", 2000, {4, 3}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_workload workload =
		    parse(cases[i].text, 3, (struct md_sim_workload_options){.speed = 2, .duration_ns = MS});
		cr_assert_eq(workload.gap_ns / (86400000 * MS), cases[i].days, "%s", cases[i].text);
		for (int side = 0; side < 2; side++)
			cr_assert_eq(workload.gap_lines[side], cases[i].lines[side], "%s: line %u", cases[i].text,
				     workload.gap_lines[side]);
		md_sim_workload_finish(&workload);
	}
}

Test(sim_workload, bad_traces_are_refused_by_line_and_field)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"", "trace:1: there are no requests"},
	    {AZURE, "trace:1: there are no requests"},
	    {"\xef\xbb\xbf", "trace:1: there are no requests"},
	    {"\xef\xbb", "trace:1: neither TIMESTAMP,"},
	    {"time,tokens\n1,2\n", "trace:1: neither TIMESTAMP,"},
	    {AZURE "2023-11-16 18:17:03,1\n", "trace:2: line: 3 columns are expected, as in the header; it has 2"},
	    {AZURE "2023-11-16 18:17:03,1,2\n\n2023-11-16 18:17,1,2\n",
	     "trace:4: TIMESTAMP: '2023-11-16 18:17': a time such as"},
	    {AZURE "2023-13-16 18:17:03,1,2\n", "TIMESTAMP"},
	    {AZURE "2023-02-29 18:17:03,1,2\n", "trace:2: TIMESTAMP: '2023-02-29 18:17:03': a time such as"},
	    {AZURE "2024-02-30 18:17:03,1,2\n", "TIMESTAMP"},
	    {AZURE "2023-04-31 18:17:03,1,2\n", "TIMESTAMP"},
	    {OWN ".,f-0,1,1\n", "trace:2: seconds: '.': seconds such as"},
	    {OWN ",f-0,1,1\n", "trace:2: seconds: '': seconds such as"},
	    {OWN "1..,f-0,1,1\n", "trace:2: seconds: '1..': seconds such as"},
	    {AZURE "0000-00-00 18:17:03,1,2\n", "TIMESTAMP"},
	    {AZURE "2023-11-16 18:17:03+02:00,1,2\n", "TIMESTAMP"},
	    {AZURE "2023-11-16 18:17:03.,1,2\n", "TIMESTAMP"},
	    {AZURE "2023-11-16 18:17:03,-1,2\n", "trace:2: ContextTokens: '-1': a number of tokens"},
	    {AZURE "2023-11-16 18:17:03,1,\n", "trace:2: GeneratedTokens"},
	    {AZURE "2023-11-16 18:17:03,1,100000001\n", "trace:2: GeneratedTokens"},
	    {OWN "1,f-0,1\n", "trace:2: line: 4 columns are expected, as in the header; it has 3"},
	    {OWN "soon,f-0,1,1\n", "trace:2: seconds"},
	    {OWN "-1,f-0,1,1\n", "trace:2: seconds: '-1': seconds such as 12.5 are expected, up to 3000000000"},
	    {OWN "1,f-0,ten,1\n", "trace:2: context: 'ten': a number of tokens up to 100000000"},
	    {OWN "1,f-0,1,1e3\n", "trace:2: generated: '1e3': a number of tokens"},
	    {OWN "1,f-0,1,1,\n", "trace:2: line: 4 columns are expected, as in the header; it has 5"},
	    {OWN "1,\"f-0,1,1\n", "trace:2: function: its quotes do not end in this line"},
	    {OWN "1,\"f\"\"0\",1,1\n", "trace:2: function: quotes within quotes are not taken"},
	    {OWN "1,\"f-0\" x,1,1\n", "trace:2: function: there is something behind its quotes"},
	    {"seconds,user\n1,2\n", "trace:1: header: 'user': there is no such column; there are seconds or TIMESTAMP"},
	    {"seconds,context,ContextTokens\n1,2,2\n", "trace:1: header: 'ContextTokens': this column is given twice"},
	    {"seconds,TIMESTAMP\n", "trace:1: header: it has seconds and TIMESTAMP; one of them"},
	    {"seconds,model,function\n", "trace:1: header: it has function, and model or adapter"},
	    {"seconds,adapter\n", "trace:1: header: it has adapter, and no model"},
	    {OWN "9999999999,f-0,1,1\n", "trace:2: seconds"},
	    {OWN "1,f-0,1,1\n2,g,1,1\n", "trace:3: function: there is no function 'g' (names, or 0 to 2)"},
	    {OWN "1,3,1,1\n", "no function '3'"},
	    {OWN "1,00000000000000000000000001,1,1\n", "no function"},
	    {"{\"timestamp\": 0, \"input_length\": 1}\n", "trace:1: output_length: it is missing"},
	    {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}\n",
	     "trace:1: timestamp: '-1': milliseconds"},
	    {"{\"timestamp\": 1e999, \"input_length\": 1, \"output_length\": 1}\n",
	     "trace:1: timestamp: '1e999': milliseconds are expected, up to 3000000000000, without an exponent"},
	    {"{\"timestamp\": 1, \"input_length\": 1e2, \"output_length\": 1}\n",
	     "trace:1: input_length: '1e2': a number of tokens"},
	    {"{\"timestamp\": 1, \"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n", "it is given twice"},
	    {"{\"timestamp\": 1, \"input_length\": \"x\", \"output_length\": 1}\n",
	     "trace:1: input_length: '\"x\"': a number"},
	    {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1\n",
	     "trace:1: line: the object does not end"},
	    {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1} x\n",
	     "trace:1: line: the object does not end"},
	    {"{\"a\": [1, [2}\n", "trace:1: line: a value is expected"},
	    {"{\"a\": {\"b\": 1}}\n", "trace:1: line: a value is expected"},
	    {"{a: 1}\n", "trace:1: line: a name in quotes"},
	    {"{\"a\" 1}\n", "trace:1: line: a colon"},
	    {"{\"a\": 1, \"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\nnext\n",
	     "trace:2: line: an object"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_refused(cases[i].text, cases[i].message);
}

Test(sim_workload, a_zero_byte_in_a_name_is_refused)
{
	static const char text[] = OWN "1,f-0\0x,1,1\n";
	struct md_sim_functions all = make_functions(3, "6/min");
	struct md_sim_workload_options options = {0};
	struct md_sim_workload workload;
	struct md_error err = {0};
	cr_assert_neq(md_sim_workload_parse("trace", text, sizeof(text) - 1, &all, &options, &workload, &err), MD_OK);
	cr_assert_str_eq(err.message, "trace:2: function: 'f-0': there is a zero byte in it");
	md_sim_functions_finish(&all);
}

Test(sim_workload, options_out_of_range_are_refused)
{
	static const struct md_sim_workload_options bad[] = {{.speed = -1},
							     {.speed = NAN},
							     {.mapping = MD_SIM_ZIPF, .zipf = -1},
							     {.mapping = MD_SIM_ZIPF, .zipf = INFINITY}};
	struct md_sim_functions all = make_functions(3, "6/min"), none = {0};
	struct md_sim_workload workload;
	struct md_error err = {0};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(md_sim_workload_parse("t", OWN "1,,,\n", strlen(OWN) + 5, &all, &bad[i], &workload, &err),
			     MD_ERR_INVALID, "%zu", i);
	cr_assert_eq(md_sim_workload_read("poisson", &none, &bad[0], &workload, &err), MD_ERR_INVALID);
	cr_assert_eq(md_sim_workload_read("/nowhere", &all, &(struct md_sim_workload_options){0}, &workload, &err),
		     MD_ERR_NOT_FOUND);
	md_sim_functions_finish(&all);
	all = make_functions(1, "0/min");
	cr_assert_eq(md_sim_workload_read("mmpp", &all, &(struct md_sim_workload_options){0}, &workload, &err),
		     MD_ERR_INVALID);
	cr_assert(strstr(err.message, "no function has a rate: set it in the file of the functions"), "%s",
		  err.message);
	md_sim_functions_finish(&all);
	all = make_functions(100, "1000000/min");
	cr_assert_eq(md_sim_workload_read("torpor", &all, &(struct md_sim_workload_options){0}, &workload, &err),
		     MD_ERR_TOO_LARGE, "more requests than memory");
	md_sim_functions_finish(&all);
}

/* ---- speed, end, mapping ---- */

Test(sim_workload, speed_and_duration)
{
	struct md_sim_workload workload = parse(OWN "1,,,\n2,,,\n3,,,\n4,,,\n", 2,
						(struct md_sim_workload_options){.speed = 2, .duration_ns = 1500 * MS});
	cr_assert_eq(workload.count, 3);
	assert_request(&workload, 0, 0, 0, 0, 0);
	assert_request(&workload, 1, 500 * MS, 1, 0, 0);
	assert_request(&workload, 2, 1000 * MS, 0, 0, 0);
	cr_assert_eq(workload.end, 1500 * MS);
	md_sim_workload_finish(&workload);
}

Test(sim_workload, zipf_follows_its_law)
{
	enum { ROWS = 20000, FUNCTIONS = 8 };
	char *text = malloc(ROWS * 8 + 64), *at = text;
	uint32_t counts[FUNCTIONS] = {0};
	double sum = 0;
	at += sprintf(at, OWN);
	for (int i = 0; i < ROWS; i++)
		at += sprintf(at, "1,,,\n");
	struct md_sim_workload workload =
	    parse(text, FUNCTIONS, (struct md_sim_workload_options){.mapping = MD_SIM_ZIPF, .zipf = 1.2, .seed = 3});
	for (size_t i = 0; i < workload.count; i++)
		counts[workload.requests[i].function]++;
	for (int i = 0; i < FUNCTIONS; i++)
		sum += pow(i + 1, -1.2);
	for (int i = 0; i < FUNCTIONS; i++) {
		double expected = ROWS * pow(i + 1, -1.2) / sum;
		cr_assert(fabs(counts[i] - expected) < 5 * sqrt(expected), "function %d: %u of %g", i, counts[i],
			  expected);
	}
	cr_assert(strstr(workload.source, "Zipf law of exponent 1.2"), "%s", workload.source);
	md_sim_workload_finish(&workload);
	free(text);
}

/* ---- laws ---- */

static struct md_sim_workload draw(const char *law, uint32_t functions, const char *rate,
				   struct md_sim_workload_options options)
{
	struct md_sim_functions all = make_functions(functions, rate);
	struct md_sim_workload workload;
	struct md_error err = {0};
	cr_assert_eq(md_sim_workload_read(law, &all, &options, &workload, &err), MD_OK, "%s", err.message);
	for (size_t i = 0; i < workload.count; i++)
		cr_assert(workload.requests[i].function < functions && workload.requests[i].at < workload.end &&
			      (!i || workload.requests[i - 1].at <= workload.requests[i].at),
			  "%s: request %zu", law, i);
	md_sim_functions_finish(&all);
	return workload;
}

/* Standard deviation of gaps over their mean. */
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

Test(sim_workload, laws_keep_the_mean_rate)
{
	static const char *const laws[] = {"poisson", "mmpp", "torpor"};
	for (size_t i = 0; i < 3; i++) {
		struct md_sim_workload workload = draw(
		    laws[i], 100, "60/min", (struct md_sim_workload_options){.seed = 5, .duration_ns = 600000 * MS});
		cr_assert(workload.count > 58500 && workload.count < 61500, "%s: %zu", laws[i], workload.count);
		md_sim_workload_finish(&workload);
	}
	struct md_sim_workload twice =
	    draw("poisson", 100, "60/min", (struct md_sim_workload_options){.speed = 2, .duration_ns = 600000 * MS});
	cr_assert(twice.count > 117000 && twice.count < 123000, "%zu", twice.count);
	md_sim_workload_finish(&twice);
}

Test(sim_workload, laws_vary_as_they_should)
{
	static const struct {
		const char *law;
		double low, high;
	} cases[] = {{"poisson", 0.95, 1.05}, {"mmpp", 1.2, 1.8}, {"torpor", 0.28, 0.36}};
	for (size_t i = 0; i < 3; i++) {
		struct md_sim_workload workload =
		    draw(cases[i].law, 1, "6000/min", (struct md_sim_workload_options){.duration_ns = 600000 * MS});
		double cov = variation(&workload);
		cr_assert(cov > cases[i].low && cov < cases[i].high, "%s: %g", cases[i].law, cov);
		md_sim_workload_finish(&workload);
	}
}

Test(sim_workload, laws_are_the_same_for_a_seed)
{
	static const char *const laws[] = {"poisson", "mmpp", "torpor"};
	for (size_t i = 0; i < 3; i++) {
		struct md_sim_workload_options options = {.seed = 9};
		struct md_sim_workload a = draw(laws[i], 10, "6/min", options), b = draw(laws[i], 10, "6/min", options);
		options.seed = 10;
		struct md_sim_workload other = draw(laws[i], 10, "6/min", options);
		cr_assert_eq(a.end, 600000 * MS, "ten minutes unless it is said");
		cr_assert(a.count == b.count && !memcmp(a.requests, b.requests, a.count * sizeof(*a.requests)), "%s",
			  laws[i]);
		cr_assert_neq(a.requests[0].at, other.requests[0].at, "%s", laws[i]);
		md_sim_workload_finish(&a);
		md_sim_workload_finish(&b);
		md_sim_workload_finish(&other);
	}
}
