/* SPDX-License-Identifier: Apache-2.0 */
/* A verify report as a table, as JSON and as JUnit XML. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/plain.h"
#include "base/utf8.h"
#include "simulator/report/table.h"
#include "tools/verify_report.h"

size_t md_verify_count(const struct md_verify_report *report, enum md_verify_outcome outcome)
{
	size_t count = 0;
	for (size_t i = 0; i < report->graph_count; i++)
		count += report->graphs[i].outcome == outcome;
	return count;
}

bool md_verify_missed(const struct md_verify_report *report, const struct md_verify_graph *graph)
{
	bool allowed = graph->stranger ? report->allow_strangers : report->allow_uncompared;
	return graph->outcome == MD_VERIFY_SKIPPED && !allowed;
}

const char *md_verify_doubtful(const struct md_verify_report *report)
{
	return report->complete ? NULL : "the report was cut short: comparisons may be missing";
}

/* "passed" ... */
static const char *outcome_name(enum md_verify_outcome outcome)
{
	static const char *const names[] = {"skipped", "passed", "failed", "nondeterministic"};
	return names[outcome];
}

/* ---- text ---- */

static void print_report(const struct md_verify_report *report, FILE *out)
{
	struct md_table table;
	md_table_init(&table, "label|>batch|outcome|>comparisons|>bytes|reason");
	for (size_t i = 0; i < report->graph_count; i++) {
		const struct md_verify_graph *graph = &report->graphs[i];
		md_table_cell(&table, "%s", graph->label);
		md_table_cell(&table, "%" PRIu32, graph->batch);
		md_table_cell(&table, "%s", outcome_name(graph->outcome));
		md_table_cell(&table, "%" PRIu32, graph->comparisons);
		md_table_cell(&table, "%" PRIu64, graph->bytes);
		md_table_cell(&table, "%s", graph->reason);
	}
	md_table_print(&table, 0, out);
	fprintf(out, "%zu passed, %zu failed, %zu skipped", md_verify_count(report, MD_VERIFY_PASSED),
		md_verify_count(report, MD_VERIFY_FAILED), md_verify_count(report, MD_VERIFY_SKIPPED));
	if (md_verify_count(report, MD_VERIFY_NONDETERMINISTIC))
		fprintf(out, ", %zu nondeterministic", md_verify_count(report, MD_VERIFY_NONDETERMINISTIC));
	fputc('\n', out);
	if (md_verify_doubtful(report))
		fprintf(out, "%s\n", md_verify_doubtful(report));
}

void md_verify_print_table(const struct md_verify_report *reports, uint32_t ranks, FILE *out)
{
	if (!ranks)
		print_report(reports, out);
	for (uint32_t i = 0; i < ranks; i++) {
		fprintf(out, "%srank %" PRIu32 "\n", i ? "\n" : "", i);
		print_report(&reports[i], out);
	}
}

/* ---- JSON ---- */

static void put_graph(struct md_json *json, const struct md_verify_graph *graph)
{
	md_json_object(json, NULL);
	md_json_text(json, "label", graph->label);
	md_json_number(json, "batch", graph->batch);
	md_json_text(json, "outcome", outcome_name(graph->outcome));
	md_json_number(json, "comparisons", graph->comparisons);
	md_json_number(json, "bytes", graph->bytes);
	md_json_text(json, "reason", graph->reason);
	md_json_bool(json, "in_artifact", !graph->stranger);
	md_json_end(json);
}

static void put_report(struct md_json *json, const struct md_verify_report *report)
{
	md_json_bool(json, "complete", report->complete);
	md_json_signed(json, "exit_code", report->exit_code);
	md_json_number(json, "passed", md_verify_count(report, MD_VERIFY_PASSED));
	md_json_number(json, "failed", md_verify_count(report, MD_VERIFY_FAILED));
	md_json_number(json, "skipped", md_verify_count(report, MD_VERIFY_SKIPPED));
	md_json_number(json, "nondeterministic", md_verify_count(report, MD_VERIFY_NONDETERMINISTIC));
	md_json_list(json, "graphs");
	for (size_t i = 0; i < report->graph_count; i++)
		put_graph(json, &report->graphs[i]);
	md_json_end(json);
}

void md_verify_print_json(const struct md_verify_report *reports, uint32_t ranks, FILE *out)
{
	struct md_json json;
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	if (ranks)
		md_json_list(&json, "ranks");
	else
		put_report(&json, reports);
	for (uint32_t i = 0; i < ranks; i++) {
		md_json_object(&json, NULL);
		md_json_number(&json, "rank", i);
		put_report(&json, &reports[i]);
		md_json_end(&json);
	}
	if (ranks)
		md_json_end(&json);
	md_json_end(&json);
}

/* ---- JUnit XML ---- */

/*
 * XML cannot hold control characters, bytes that are not UTF-8, U+FFFE and U+FFFF: they are written as \xHH, and a
 * backslash as two, so that two different texts never look the same.
 */
static void put_xml(FILE *out, const char *text)
{
	static const char *const escapes[] = {"&&amp;", "<&lt;", ">&gt;", "\"&quot;", "\t&#9;", "\n&#10;", "\\\\\\"};
	while (*text) {
		uint32_t point = 0;
		size_t length = md_utf8_length(text, &point), i = 0;
		while (i < sizeof(escapes) / sizeof(escapes[0]) && escapes[i][0] != *text)
			i++;
		if (i < sizeof(escapes) / sizeof(escapes[0]))
			fputs(escapes[i] + 1, out);
		else if (!length || md_utf8_acts(point) || point == 0xfffe || point == 0xffff)
			length = fprintf(out, "\\x%02x", (unsigned char)*text) != 0;
		else
			fwrite(text, 1, length, out);
		text += length;
	}
}

/* rank: "rank 0 ", or "" without a bundle */
static void put_case(const struct md_verify_report *report, const struct md_verify_graph *graph, const char *rank,
		     FILE *out)
{
	bool failed = graph->outcome == MD_VERIFY_FAILED, missed = md_verify_missed(report, graph);
	fprintf(out, "    <testcase classname=\"%s", rank);
	put_xml(out, graph->label);
	fprintf(out, "\" name=\"%s", rank);
	put_xml(out, graph->label);
	fprintf(out, " batch %" PRIu32 "\" assertions=\"%" PRIu32 "\"", graph->batch, graph->comparisons);
	if (graph->outcome == MD_VERIFY_PASSED) {
		fputs("/>\n", out);
		return;
	}
	fprintf(out, ">\n      <%s message=\"%s",
		failed   ? "failure type=\"difference\""
		: missed ? "failure type=\"not compared\""
			 : "skipped",
		graph->outcome == MD_VERIFY_NONDETERMINISTIC ? "nondeterministic: "
		: missed                                     ? "not compared: "
							     : "");
	put_xml(out, graph->reason);
	fputs("\"/>\n    </testcase>\n", out);
}

static void put_error(const char *why, const char *rank, FILE *out)
{
	fprintf(out, "    <testcase classname=\"medusa-verify\" name=\"%sreport\">\n      <error message=\"", rank);
	put_xml(out, why);
	fputs("\"/>\n    </testcase>\n", out);
}

static void put_head(size_t tests, size_t failures, size_t errors, size_t skipped, FILE *out)
{
	char counts[160];
	snprintf(counts, sizeof(counts), "tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\"", tests,
		 failures, errors, skipped);
	fprintf(
	    out,
	    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites %s>\n  <testsuite name=\"medusa-verify\" %s>\n",
	    counts, counts);
}

struct counts {
	size_t tests, failures, errors, skipped;
};

/* NULL: the run can be relied on. */
static const char *doubt_of(const struct md_verify_report *report, char ended[64])
{
	const char *doubt = md_verify_doubtful(report);
	snprintf(ended, 64, "the command ended with %d", report->exit_code);
	return doubt || !report->exit_code ? doubt : ended;
}

static void count_cases(const struct md_verify_report *report, struct counts *counts)
{
	char ended[64];
	size_t missed = 0, doubts = doubt_of(report, ended) != NULL;
	for (size_t i = 0; i < report->graph_count; i++)
		missed += md_verify_missed(report, &report->graphs[i]);
	counts->tests += report->graph_count + doubts;
	counts->failures += md_verify_count(report, MD_VERIFY_FAILED) + missed;
	counts->errors += doubts;
	counts->skipped +=
	    md_verify_count(report, MD_VERIFY_SKIPPED) - missed + md_verify_count(report, MD_VERIFY_NONDETERMINISTIC);
}

void md_verify_print_junit(const struct md_verify_report *reports, uint32_t ranks, FILE *out)
{
	struct counts counts = {0};
	char ended[64], rank[24] = "";
	uint32_t count = ranks ? ranks : 1;
	for (uint32_t i = 0; i < count; i++)
		count_cases(&reports[i], &counts);
	put_head(counts.tests, counts.failures, counts.errors, counts.skipped, out);
	for (uint32_t i = 0; i < count; i++) {
		const char *doubt = doubt_of(&reports[i], ended);
		if (ranks)
			snprintf(rank, sizeof(rank), "rank %" PRIu32 " ", i);
		for (size_t at = 0; at < reports[i].graph_count; at++)
			put_case(&reports[i], &reports[i].graphs[at], rank, out);
		if (doubt)
			put_error(doubt, rank, out);
	}
	fputs("  </testsuite>\n</testsuites>\n", out);
}

void md_verify_print_junit_error(const char *why, FILE *out)
{
	put_head(1, 0, 1, 0, out);
	put_error(why, "", out);
	fputs("  </testsuite>\n</testsuites>\n", out);
}
