/* SPDX-License-Identifier: Apache-2.0 */
/* The poison test wherever its copies lie and whatever compares them: on the device, on the host, for many graphs. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "tests/capture_fixture.h"

static char with_kernel[4096], with_wrong_kernel[4096];

static void setup(void)
{
	snprintf(with_kernel, sizeof(with_kernel), "MEDUSA_PROBE_KERNEL=%s/tests/images/probe_kernels.host.so",
		 build());
	snprintf(with_wrong_kernel, sizeof(with_wrong_kernel),
		 "MEDUSA_PROBE_KERNEL=%s/tests/images/wrong_kernels.host.so", build());
}

static uint64_t moved_bytes(const struct run *run)
{
	const char *at = strstr(run->errors, "poison tests moved ");
	unsigned long long bytes = 0, sum = 0;
	cr_assert_not_null(at, "no count in: %s", run->errors);
	for (; at; at = strstr(at + 1, "poison tests moved ")) {
		cr_assert_eq(sscanf(at, "poison tests moved %llu", &bytes), 1);
		sum += bytes;
	}
	return sum;
}

static void assert_contents_found(const struct run *run, const struct md_trace *trace, uint64_t list)
{
	const struct md_trace_graph *graph = find_graph(trace, "decode");
	uint64_t aux = address_of(run, "aux");
	cr_assert_eq(graph->probe, MD_PROBE_CONTENT_SAVED, "probe %d: %s", (int)graph->probe,
		     graph->probe_why ? graph->probe_why : "");
	cr_assert(is_saved(trace, address_of(run, "table") + 4 * 9000, 4, &(float){0.5f}), "the table's one value");
	cr_assert(is_saved(trace, address_of(run, "list") + list, 8, &aux), "the pointer in private memory");
	cr_assert(is_saved(trace, aux + 4, 4, &(float){1.0f}), "what that pointer points to");
}

static uint64_t written_of(const struct md_trace_graph *graph, uint64_t address, uint64_t size)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < graph->written_count; i++) {
		const struct md_trace_range *range = &graph->written[i];
		uint64_t from = range->address > address ? range->address : address;
		uint64_t to =
		    range->address + range->size < address + size ? range->address + range->size : address + size;
		sum += from < to ? to - from : 0;
	}
	return sum;
}

/* The graph computes in "temp", which the products of some of its floats leave zero bytes in, and reads the others. */
static void assert_written_found(const struct run *run, const struct md_trace *trace, const char *word)
{
	const struct {
		const char *name;
		uint64_t size, written;
	} places[] = {{"temp", 512, 512},
		      {"table", 64 << 10, strcmp(word, "beside") ? 0 : 1}, /* the lowest byte of a count */
		      {"list", 64, 0},
		      {"aux", 256, 0}};
	const struct md_trace_graph *graph = find_graph(trace, "decode");
	cr_assert(graph->written_known, "%s: what the graph writes is known", word);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		uint64_t written = written_of(graph, address_of(run, places[i].name), places[i].size);
		cr_assert_eq(written, places[i].written, "%s: %" PRIu64 " bytes of \"%s\" are written", word, written,
			     places[i].name);
	}
	if (!strcmp(word, "plain"))
		cr_assert_eq(graph->written_count, 1, "%u ranges", graph->written_count);
}

/* The same findings, the engine untouched. */
static void assert_probe(const char *word, const char *const *env)
{
	static struct run plain, run;
	struct md_trace trace;
	run_subject(&plain, (const char *[]){word, NULL}, NULL, false, false);
	run_subject(&run, (const char *[]){word, NULL}, env, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	assert_contents_found(&run, &trace, strcmp(word, "far") ? 0 : (1 << 20) - 8);
	assert_written_found(&run, &trace, word);
	cr_assert_null(find_graph(&trace, "decode")->probe_why, "%s is compared whole", word);
	if (!strcmp(word, "scatter"))
		cr_assert(is_saved(&trace, address_of(&run, "slot"), 4, &(uint32_t){7}), "the index");
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

static const char *const words[] = {"plain", "large", "growing", "scatter", "outputs", "unbound", "far", "beside"};

Test(capture_probe, copies_and_comparisons_on_the_device, .init = setup)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		assert_probe(words[i], (const char *[]){with_kernel, NULL});
}

Test(capture_probe, copies_on_the_device_comparisons_on_the_host)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		assert_probe(words[i], (const char *[]){"MEDUSA_PROBE_KERNEL=none", NULL});
}

Test(capture_probe, all_on_the_host)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		assert_probe(words[i], (const char *[]){"MEDUSA_PROBE_DEVICE_LIMIT=0", NULL});
}

/* The host's limit is for the host: on the device, state is kept and compared whole. */
Test(capture_probe, the_limit_is_the_hosts, .init = setup)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		assert_probe(words[i], (const char *[]){with_kernel, "MEDUSA_PROBE_LIMIT=2000", NULL});
}

/* Room for private memory alone: state goes to the host, or is sampled there. */
Test(capture_probe, a_device_that_is_nearly_full, .init = setup)
{
	const char *tight = "MEDUSA_PROBE_DEVICE_LIMIT=3000000";
	static struct run run;
	struct md_trace trace;
	assert_probe("large", (const char *[]){with_kernel, tight, NULL});
	run_subject(&run, (const char *[]){"large", NULL},
		    (const char *[]){with_kernel, tight, "MEDUSA_PROBE_LIMIT=200000", NULL}, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	assert_contents_found(&run, &trace, 0);
	cr_assert_str_eq(find_graph(&trace, "decode")->probe_why, "kv: 1048576 bytes, sampled");
	md_trace_finish(&trace);
	clean_up(&run);
}

Test(capture_probe, should_fail_private_memory_that_fits_nowhere)
{
	static struct run run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&run, NULL, (const char *[]){"MEDUSA_PROBE_DEVICE_LIMIT=10000", "MEDUSA_PROBE_LIMIT=50000", NULL},
		    true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "decode");
	cr_assert_eq(graph->probe, MD_PROBE_FAILED);
	cr_assert_not_null(strstr(graph->probe_why, "exceed MEDUSA_PROBE_LIMIT"), "%s", graph->probe_why);
	md_trace_finish(&trace);
	clean_up(&run);
}

Test(capture_probe, a_kernel_that_errs_is_not_used, .init = setup)
{
	static struct run run;
	assert_probe("scatter", (const char *[]){with_wrong_kernel, NULL});
	run_subject(&run, (const char *[]){"scatter", NULL},
		    (const char *[]){with_wrong_kernel, "MEDUSA_LOG=debug", NULL}, true, false);
	cr_assert_not_null(
	    strstr(run.errors, "memory is compared on the host: no device memory is left for the kernel"), "%s",
	    run.errors);
	clean_up(&run);
}

/* ---- many graphs in a row ---- */

/* 64 MiB of pool and 16 MiB of state per graph: what moves is counted, so that it stays little. */
Test(capture_probe, graphs_in_a_row_share_their_copies, .init = setup)
{
	static struct run run;
	struct md_trace trace;
	uint64_t moved;
	run_subject(&run, (const char *[]){"many", NULL}, (const char *[]){with_kernel, "MEDUSA_LOG=debug", NULL}, true,
		    false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	for (uint32_t i = 0; i < trace.graph_count; i++)
		cr_assert_eq(trace.graphs[i].probe, MD_PROBE_CLEAN, "graph %u: probe %d, %s", i,
			     (int)trace.graphs[i].probe, trace.graphs[i].probe_why ? trace.graphs[i].probe_why : "");
	cr_assert_eq(trace.graph_count, 8, "%u graphs", trace.graph_count);
	moved = moved_bytes(&run);
	printf("%" PRIu64 " bytes a graph\n", moved / 8);
	/* not the pool, which the device searches for addresses */
	cr_assert_lt(moved, 8u << 20, "%" PRIu64 " bytes moved", moved);
	md_trace_finish(&trace);
	clean_up(&run);
}
