/* SPDX-License-Identifier: Apache-2.0 */
/* A verify report as a table, as JSON and as JUnit XML. */
#include "tools/verify_report.h"

#include <inttypes.h>
#include <string.h>

size_t md_verify_count(const struct md_verify_report *report, enum md_verify_outcome outcome)
{
	size_t count = 0;

	for (size_t i = 0; i < report->graph_count; i++)
		count += report->graphs[i].outcome == outcome;
	return count;
}

const char *md_verify_outcome_name(enum md_verify_outcome outcome)
{
	static const char *const names[] = {"skipped", "passed", "failed", "nondeterministic"};

	return names[outcome];
}

/* Length of the UTF-8 sequence at text, or 0 when it is none (overlong forms and surrogates included). */
static size_t utf8_length(const unsigned char *text)
{
	size_t length = text[0] < 0x80   ? 1
			: text[0] < 0xc2 ? 0
			: text[0] < 0xe0 ? 2
			: text[0] < 0xf0 ? 3
			: text[0] < 0xf5 ? 4
					 : 0;

	for (size_t i = 1; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	/* U+FFFE and U+FFFF are characters of no XML document. */
	if (text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe)
		return 0;
	return length;
}

/* Writes text with what escape gives for a character; what neither format may hold becomes '?'. */
static void print_escaped(FILE *out, const char *text, const char *(*escape)(char character))
{
	for (size_t i = 0; text[i];) {
		size_t length = utf8_length((const unsigned char *)text + i);
		const char *escaped = escape(text[i]);
		if (escaped) {
			fputs(escaped, out);
			i++;
		} else if (!length || (length == 1 && ((unsigned char)text[i] < 0x20 || text[i] == 0x7f))) {
			fputc('?', out);
			i++;
		} else {
			fwrite(text + i, 1, length, out);
			i += length;
		}
	}
}

static const char *xml_escape(char character)
{
	switch (character) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\t':
		return "&#9;";
	case '\n':
		return "&#10;";
	default:
		return NULL;
	}
}

static const char *json_escape(char character)
{
	switch (character) {
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	case '\t':
		return "\\t";
	case '\n':
		return "\\n";
	default:
		return NULL;
	}
}

static const char *no_escape(char character)
{
	(void)character;
	return NULL;
}

void md_verify_print_table(const struct md_verify_report *report, FILE *out)
{
	fprintf(out, "%-20s %6s  %-16s %11s %14s  %s\n", "label", "batch", "outcome", "comparisons", "bytes", "reason");
	for (size_t i = 0; i < report->graph_count; i++) {
		const struct md_verify_graph *graph = &report->graphs[i];
		int padding = 20 - (int)strnlen(graph->label, 20);
		print_escaped(out, graph->label, no_escape);
		fprintf(out, "%*s %6" PRIu32 "  %-16s %11" PRIu32 " %14" PRIu64 "  ", padding, "", graph->batch,
			md_verify_outcome_name(graph->outcome), graph->comparisons, graph->bytes);
		print_escaped(out, graph->reason, no_escape);
		fputc('\n', out);
	}
	fprintf(out, "%zu passed, %zu failed, %zu skipped", md_verify_count(report, MD_VERIFY_PASSED),
		md_verify_count(report, MD_VERIFY_FAILED), md_verify_count(report, MD_VERIFY_SKIPPED));
	if (md_verify_count(report, MD_VERIFY_NONDETERMINISTIC))
		fprintf(out, ", %zu nondeterministic", md_verify_count(report, MD_VERIFY_NONDETERMINISTIC));
	fputc('\n', out);
}

void md_verify_print_json(const struct md_verify_report *report, FILE *out)
{
	fprintf(out,
		"{\"complete\": %s, \"exit_code\": %d, \"passed\": %zu, \"failed\": %zu, \"skipped\": %zu, "
		"\"nondeterministic\": %zu, \"graphs\": [",
		report->complete ? "true" : "false", report->exit_code, md_verify_count(report, MD_VERIFY_PASSED),
		md_verify_count(report, MD_VERIFY_FAILED), md_verify_count(report, MD_VERIFY_SKIPPED),
		md_verify_count(report, MD_VERIFY_NONDETERMINISTIC));
	for (size_t i = 0; i < report->graph_count; i++) {
		const struct md_verify_graph *graph = &report->graphs[i];
		fprintf(out, "%s\n  {\"label\": \"", i ? "," : "");
		print_escaped(out, graph->label, json_escape);
		fprintf(out,
			"\", \"batch\": %" PRIu32 ", \"outcome\": \"%s\", \"comparisons\": %" PRIu32
			", \"bytes\": %" PRIu64 ", \"reason\": \"",
			graph->batch, md_verify_outcome_name(graph->outcome), graph->comparisons, graph->bytes);
		print_escaped(out, graph->reason, json_escape);
		fputs("\"}", out);
	}
	fputs("\n]}\n", out);
}

static void print_testcase(const struct md_verify_graph *graph, FILE *out)
{
	fputs("    <testcase classname=\"", out);
	print_escaped(out, graph->label, xml_escape);
	fputs("\" name=\"", out);
	print_escaped(out, graph->label, xml_escape);
	fprintf(out, " batch %" PRIu32 "\" assertions=\"%" PRIu32 "\"", graph->batch, graph->comparisons);
	if (graph->outcome == MD_VERIFY_PASSED) {
		fputs("/>\n", out);
		return;
	}
	fprintf(out, ">\n      <%s message=\"%s",
		graph->outcome == MD_VERIFY_FAILED ? "failure type=\"difference\"" : "skipped",
		graph->outcome == MD_VERIFY_NONDETERMINISTIC ? "nondeterministic: " : "");
	print_escaped(out, graph->reason, xml_escape);
	fputs("\"/>\n    </testcase>\n", out);
}

void md_verify_print_junit(const struct md_verify_report *report, FILE *out)
{
	char counts[128];

	snprintf(counts, sizeof(counts), "tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"%zu\"",
		 report->graph_count, md_verify_count(report, MD_VERIFY_FAILED),
		 md_verify_count(report, MD_VERIFY_SKIPPED) + md_verify_count(report, MD_VERIFY_NONDETERMINISTIC));
	fprintf(
	    out,
	    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites %s>\n  <testsuite name=\"medusa-verify\" %s>\n",
	    counts, counts);
	for (size_t i = 0; i < report->graph_count; i++)
		print_testcase(&report->graphs[i], out);
	fputs("  </testsuite>\n</testsuites>\n", out);
}
