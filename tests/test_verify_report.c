/* SPDX-License-Identifier: Apache-2.0 */
/* Verify reports: what counts as passed, what leaves the artifact, and output that machines can read. */
#include "format/verify_line.h"
#include "tools/verify_report.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct md_artifact artifact_of(size_t count, const char *const labels[])
{
	struct md_artifact artifact = {.graph_count = (uint32_t)count};
	artifact.graphs = calloc(count, sizeof(*artifact.graphs));
	for (size_t i = 0; i < count; i++) {
		artifact.graphs[i].label = strdup(labels[i]);
		artifact.graphs[i].batch = (uint32_t)i + 1;
		artifact.graphs[i].proof = MD_PROOF_TWO;
	}
	artifact.refusals = calloc(1, sizeof(*artifact.refusals));
	artifact.refusals[artifact.refusal_count++] =
	    (struct md_artifact_refusal){strdup("left out"), 7, strdup("for a reason")};
	return artifact;
}

#define OF(label, verdict, batch, bytes, reason)                                                                       \
	"{\"verdict\": \"" verdict "\", \"label\": \"" label "\", \"batch\": " #batch ", \"bytes\": " #bytes           \
	", \"reason\": \"" reason "\"}\n"
#define LINE(verdict, batch, bytes, reason) OF("decode", verdict, batch, bytes, reason)
#define END "{\"verdict\": \"end\"}\n"

static const char *const decode[] = {"decode", "decode", "decode", "decode"};

static enum md_status parse(const char *text, const struct md_artifact *artifact, struct md_verify_report *report,
			    struct md_error *err)
{
	FILE *in = fmemopen((void *)text, strlen(text), "r");
	enum md_status status = md_verify_parse(in, artifact, report, err);
	fclose(in);
	return status;
}

static struct md_verify_report report_of(const char *text, const struct md_artifact *artifact)
{
	struct md_verify_report report;
	struct md_error err = {0};
	cr_assert_eq(parse(text, artifact, &report, &err), MD_OK, "%s", err.message);
	return report;
}

static const char mixed[] = LINE("pass", 1, 100, "") LINE("pass", 1, 100, "") LINE("pass", 2, 100, "")
    LINE("fail", 2, 100, "byte 7 of \\\"logits\\\" differs\\tby 3") LINE("fail", 2, 100, "later")
	LINE("pass", 3, 50, "") LINE("skipped", 3, 0, "out of memory") OF("prefill", "skipped", 9, 0, "no such graph")
	    OF("left out", "fail", 7, 0, "known") END;

Test(verify, counts_each_graph_once)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(mixed, &artifact);
	cr_assert(report.complete);
	cr_assert_eq(report.graph_count, 5);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_PASSED);
	cr_assert_eq(report.graphs[0].bytes, 200);
	cr_assert_eq(report.graphs[0].comparisons, 2);
	cr_assert_str_eq(report.graphs[0].reason, "");
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_FAILED);
	cr_assert_str_eq(report.graphs[1].reason, "byte 7 of \"logits\" differs\tby 3", "the first failure's reason");
	cr_assert_eq(report.graphs[2].outcome, MD_VERIFY_SKIPPED, "one comparison that did not happen is not a pass");
	cr_assert_str_eq(report.graphs[2].reason, "out of memory");
	cr_assert_eq(report.graphs[3].outcome, MD_VERIFY_SKIPPED);
	cr_assert_not_null(strstr(report.graphs[3].reason, "never instantiated"));
	cr_assert(report.graphs[4].stranger && !report.graphs[3].stranger);
	cr_assert_str_eq(report.graphs[4].label, "prefill");
	cr_assert_eq(report.graphs[4].outcome, MD_VERIFY_SKIPPED, "and what the artifact has refused is none");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, failure_after_a_skip_wins)
{
	struct md_artifact artifact = artifact_of(1, decode);
	struct md_verify_report report =
	    report_of(LINE("skipped", 1, 0, "busy") LINE("fail", 1, 8, "wrong") LINE("pass", 1, 8, "") END, &artifact);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_FAILED);
	cr_assert_str_eq(report.graphs[0].reason, "wrong");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, a_dropped_comparison_counts_as_nothing)
{
	struct md_artifact artifact = artifact_of(2, decode);
	struct md_verify_report report =
	    report_of(LINE("begun", 1, 0, "") LINE("pass", 1, 8, "") LINE("begun", 1, 0, "")
			  LINE("dropped", 1, 0, "differs") LINE("begun", 2, 0, "") LINE("dropped", 2, 0, "differs") END,
		      &artifact);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_PASSED);
	cr_assert_eq(report.graphs[0].comparisons, 1);
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_SKIPPED, "nor is it a pass");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

static const char doubtful[] = LINE("pass", 1, 8, "") LINE("nondeterministic", 1, 8, "3 bytes of buffer \\\"kv\\\"")
    LINE("nondeterministic", 1, 8, "later") LINE("nondeterministic", 2, 8, "5 bytes") LINE("skipped", 2, 0, "busy")
	LINE("nondeterministic", 3, 8, "7 bytes") LINE("fail", 3, 8, "wrong") LINE("pass", 4, 8, "") END;

Test(verify, comparisons_do_not_count_while_something_is_owed)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(
	    LINE("owed", 1, 0, "always the same") LINE("pass", 1, 100, "") LINE("owed", 2, 0, "always the same")
		LINE("pass", 2, 100, "") LINE("settled", 2, 0, "") LINE("owed", 3, 0, "always the same")
		    LINE("fail", 3, 100, "wrong") OF("prefill", "owed", 9, 0, "always the same") END,
	    &artifact);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_SKIPPED, "whoever killed the engine then");
	cr_assert_str_eq(report.graphs[0].reason, "always the same");
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_PASSED);
	cr_assert_eq(report.graphs[2].outcome, MD_VERIFY_FAILED);
	cr_assert_str_eq(report.graphs[2].reason, "wrong");
	cr_assert_eq(report.graph_count, 4, "nothing is compared of one that the artifact does not hold");
	cr_assert(report.complete && !report.reached);
	md_verify_finish(&report);
	report = report_of(LINE("pass", 1, 100, "") "{\"verdict\": \"until\"}\n" END, &artifact);
	cr_assert(report.complete && report.reached);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, nondeterministic_is_neither_passed_nor_failed)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(doubtful, &artifact);
	struct md_error err = {0};
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_NONDETERMINISTIC);
	cr_assert_str_eq(report.graphs[0].reason, "3 bytes of buffer \"kv\"", "the first one's reason");
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_SKIPPED, "one comparison did not take place");
	cr_assert_str_eq(report.graphs[1].reason, "busy");
	cr_assert_eq(report.graphs[2].outcome, MD_VERIFY_FAILED);
	cr_assert_str_eq(report.graphs[2].reason, "wrong");
	cr_assert_eq(report.graphs[3].outcome, MD_VERIFY_PASSED);
	report.allow_uncompared = true;
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 2, "it leaves the artifact, as the wrong one does");
	cr_assert_str_eq(artifact.refusals[1].why, "nondeterministic: 3 bytes of buffer \"kv\"");
	cr_assert_not(artifact.graphs[1].accepted.given, "what is equal needs no tolerance");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, nondeterministic_is_accepted_within_a_tolerance_that_was_named)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(doubtful, &artifact);
	struct md_error err = {0};
	report.allow_uncompared = true;
	report.tolerance = (struct md_tolerance){true, 64, MD_ELEMENT_BF16};
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 3, "only the wrong one leaves the artifact");
	cr_assert_eq(artifact.graphs[0].proof, MD_PROOF_REPLAY);
	cr_assert(artifact.graphs[0].accepted.given && artifact.graphs[0].accepted.ulps == 64 &&
		      artifact.graphs[0].accepted.type == MD_ELEMENT_BF16,
		  "and says within what");
	cr_assert_not(artifact.graphs[2].accepted.given, "what is equal needs no tolerance");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, a_killed_engine_proves_what_it_compared)
{
	struct md_artifact artifact = artifact_of(2, decode);
	struct md_verify_report report = report_of(LINE("pass", 1, 8, "") "{\"verdict\": \"pa", &artifact);
	cr_assert_not(report.complete);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_PASSED);
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_SKIPPED);
	cr_assert_not_null(strstr(report.graphs[1].reason, "ended early"));
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, should_fail_other_lines)
{
	static const char *const texts[] = {
	    "\n",
	    "decode\t1\tpass\t8\t\n",
	    LINE("pass", -1, 8, ""),
	    LINE("pass", 4294967296, 8, ""),
	    LINE("pass", "1", 8, ""),
	    LINE("pass", 1.0, 8, ""),
	    LINE("pass", 01, 8, ""),
	    LINE("ok", 1, 8, ""),
	    LINE("pass", 1, x, ""),
	    LINE("pass", 1, 18446744073709551616, ""),
	    LINE("pass", 1, 8, "\\u0000"),
	    LINE("pass", 1, 8, "\\ud800"),
	    LINE("pass", 1, 8, "\x80"),
	    LINE("pass", 1, 8, "\t"),
	    LINE("pass", 1, 8, "\", \"more\": \""),
	    LINE("pass", 1, 8, "\", \"batch\": 2, \"x\": \""),
	    LINE("pass", 1, 8, "\", \"reason_hex\": \"0"),
	    LINE("pass", 1, 8, "\", \"reason_hex\": \"00"),
	    LINE("pass", 1, 8, "\", \"reason_hex\": \"61\", \"reason_hex\": \"62"),
	    "{\"verdict\": \"pass\", \"label\": \"decode\", \"batch\": 1, \"bytes\": 8}\n",
	    "{\"verdict\": \"end\", \"batch\": 1}\n",
	    "{\"verdict\": \"end\"} x\n",
	    "{\"verdict\": \"end\",}\n",
	    "{\"verdict\": \"end\"\n",
	    "[]\n",
	    OF("prefill", "pass", 1, 8, ""), /* of a graph that is not there */
	    OF("decode", "begun", 2, 8, ""),
	    OF("prefill", "begins", 1, 0, ""),
	    LINE("begins", 1, 0, ""), /* of a binding that is not there */
	};
	struct md_artifact artifact = artifact_of(1, decode);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char text[512];
		struct md_verify_report report;
		struct md_error err = {0};
		snprintf(text, sizeof(text), LINE("pass", 1, 8, "") "%s", texts[i]);
		cr_assert_neq(parse(text, &artifact, &report, &err), MD_OK, "%s", texts[i]);
		cr_assert_not_null(strstr(err.message, "line 2"), "%s", err.message);
	}
	md_artifact_finish(&artifact);
}

Test(verify, a_comparison_that_never_ended_failed)
{
	struct md_artifact artifact = artifact_of(3, decode);
	struct md_verify_report report =
	    report_of(LINE("begun", 1, 0, "") LINE("pass", 1, 8, "") LINE("begun", 1, 0, "") LINE("begun", 2, 0, "")
			  LINE("pass", 2, 8, "") END /* of another process */,
		      &artifact);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_FAILED);
	cr_assert_not_null(strstr(report.graphs[0].reason, "while this graph was being compared"));
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_PASSED);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

/*
 * Three bindings, of which the second lay right behind the first one. Each graph has one launch with both, if `both`
 * says so, else with the second and third ones.
 */
static struct md_artifact neighbours_of(uint32_t count, const bool *both)
{
	struct md_artifact artifact = artifact_of(count, decode);
	artifact.binding_count = artifact.alloc_count = 3;
	artifact.bindings = calloc(3, sizeof(*artifact.bindings));
	artifact.allocs = calloc(3, sizeof(*artifact.allocs));
	for (uint32_t i = 0; i < 3; i++)
		artifact.allocs[i] = (struct md_artifact_alloc){.class = MD_CLASS_BOUND, .binding = i};
	artifact.bindings[1].adjoins = true;
	for (uint32_t i = 0; i < count; i++) {
		struct md_artifact_graph *graph = &artifact.graphs[i];
		graph->nodes = calloc(2, sizeof(*graph->nodes));
		graph->pointers = calloc(2, sizeof(*graph->pointers));
		graph->node_count = graph->pointer_count = 2;
		graph->pointers[0] = (struct md_pointer){.node = 1, .at = 0, .alloc = both[i] ? 0 : 2, .offset = 16};
		graph->pointers[1] = (struct md_pointer){.node = 1, .at = 8, .alloc = 1};
	}
	return artifact;
}

static const struct {
	const char *name, *text;
	bool both[3], apart;
} neighbours[] = {
    {"shown by each",
     LINE("begins", 1, 1, "") LINE("begins", 2, 1, "") LINE("begins", 3, 1, ""),
     {true, true, true},
     true},
    {"one has nothing to show", LINE("begins", 1, 1, "") LINE("begins", 3, 1, ""), {true, false, true}, true},
    {"one does not show it", LINE("begins", 1, 1, "") LINE("begins", 2, 1, ""), {true, true, true}, false},
    {"of another binding", LINE("begins", 1, 2, ""), {true, false, false}, false},
    {"one that does not show it is refused",
     LINE("begins", 1, 1, "") LINE("begins", 2, 1, "") LINE("fail", 3, 8, "wrong"),
     {true, true, true},
     true},
};

Test(verify, bindings_may_lie_apart_when_each_graph_has_shown_it)
{
	for (size_t i = 0; i < sizeof(neighbours) / sizeof(neighbours[0]); i++) {
		struct md_artifact artifact = neighbours_of(3, neighbours[i].both);
		char text[1024];
		struct md_error err = {0};
		snprintf(text, sizeof(text), "%s%s", neighbours[i].text,
			 LINE("pass", 1, 8, "") LINE("pass", 2, 8, "") LINE("pass", 3, 8, "") END);
		struct md_verify_report report = report_of(text, &artifact);
		cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
		cr_assert_eq(artifact.bindings[1].adjoins, !neighbours[i].apart, "%s", neighbours[i].name);
		md_verify_finish(&report);
		md_artifact_finish(&artifact);
	}
}

static const char hostile[] = "tab\tnewline\nESC \x1b[31m \"quoted\" \\ \xc2\x9b ]]> a/1 \xff\xfe end";

/* Any byte but NUL, in labels and reasons of any length, from the writer to the reader. */
Test(verify, lines_come_back_without_loss)
{
	char long_label[70001];
	const char *const labels[] = {hostile, long_label, "caf\xc3\xa9 \xf0\x9f\x98\x80", "\xed\xa0\x80", "", "\xff"};
	for (size_t i = 0; i + 1 < sizeof(long_label); i++)
		long_label[i] = (char)(1 + i % 255);
	long_label[sizeof(long_label) - 1] = '\0';
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		const struct md_verify_line line = {MD_VERDICT_FAIL, labels[i], UINT32_MAX, UINT64_MAX, labels[i]};
		struct md_verify_line read;
		struct md_error err = {0};
		char *text;
		size_t size;
		cr_assert_eq(md_verify_line_write(&line, &text, &size, &err), MD_OK);
		cr_assert(size == strlen(text) && text[size - 1] == '\n' && strchr(text, '\n') == text + size - 1,
			  "one line");
		for (size_t at = 0; at + 1 < size; at++)
			cr_assert((unsigned char)text[at] >= 0x20 && text[at] != 0x7f, "byte %zu of: %s", at, text);
		text[size - 1] = '\0';
		cr_assert_eq(md_verify_line_read(text, size - 1, &read, &err), MD_OK, "%s", err.message);
		cr_assert(read.verdict == line.verdict && read.batch == line.batch && read.bytes == line.bytes);
		cr_assert_str_eq(read.label, labels[i]);
		cr_assert_str_eq(read.reason, labels[i]);
		free(text);
	}
}

Test(verify, apply_keeps_proves_and_removes)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(mixed, &artifact);
	struct md_error err = {0};
	report.allow_uncompared = report.allow_strangers = true;
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 3);
	cr_assert_eq(artifact.graphs[0].batch, 1);
	cr_assert_eq(artifact.graphs[0].proof, MD_PROOF_REPLAY);
	cr_assert_eq(artifact.graphs[1].batch, 3);
	cr_assert_eq(artifact.graphs[1].proof, MD_PROOF_TWO, "a graph that was not compared keeps the proof it had");
	cr_assert_eq(artifact.graphs[2].batch, 4);
	cr_assert_eq(artifact.refusal_count, 2);
	cr_assert_str_eq(artifact.refusals[1].label, "decode");
	cr_assert_eq(artifact.refusals[1].batch, 2);
	cr_assert_not_null(strstr(artifact.refusals[1].why, "byte 7 of"));
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

/* Batch 2 failed, 3 was compared once and not another time, 4 never; "prefill" came in this run alone. */
Test(verify, should_fail_what_was_not_compared)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(mixed, &artifact);
	struct md_error err = {0};
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 1);
	cr_assert_eq(artifact.graphs[0].batch, 1);
	cr_assert_eq(artifact.refusal_count, 5);
	cr_assert_not_null(strstr(artifact.refusals[1].why, "verification failed: byte 7"));
	cr_assert_str_eq(artifact.refusals[2].why, "not compared: out of memory");
	cr_assert_not_null(strstr(artifact.refusals[3].why, "not compared: the engine never instantiated"));
	cr_assert_str_eq(artifact.refusals[4].label, "prefill");
	cr_assert_not_null(strstr(artifact.refusals[4].why, "in the verification run only"));
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

/* Graphs 1 to 4 have two doubtful words each: both proven, one, both but nondeterministic, none compared. */
Test(verify, nothing_in_doubt_is_published)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report =
	    report_of(LINE("noise", 1, 0, "") LINE("noise", 1, 1, "") LINE("pass", 1, 8, "") LINE("noise", 2, 1, "")
			  LINE("pass", 2, 8, "") LINE("noise", 3, 0, "") LINE("noise", 3, 1, "")
			      LINE("nondeterministic", 3, 8, "3 bytes") END,
		      &artifact);
	struct md_error err = {0};
	for (uint32_t i = 0; i < artifact.graph_count; i++) {
		struct md_doubtful *words = calloc(2, sizeof(*words));
		words[0] = (struct md_doubtful){.node = 1, .at = 8, .alloc = MD_NONE};
		words[1] = (struct md_doubtful){.node = 1, .at = 24, .alloc = MD_NONE};
		artifact.graphs[i].doubtful = words;
		artifact.graphs[i].doubtful_count = 2;
	}
	report.tolerance = (struct md_tolerance){true, 64, MD_ELEMENT_BF16};
	report.allow_uncompared = true;
	cr_assert_eq(report.graphs[0].comparisons, 1, "a proven word is no comparison");
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 1);
	cr_assert(artifact.graphs[0].batch == 1 && artifact.graphs[0].proof == MD_PROOF_REPLAY);
	cr_assert_eq(artifact.graphs[0].doubtful_count, 0);
	cr_assert(artifact.graphs[0].noise_count == 2 && artifact.graphs[0].noise[0].at == 8 &&
		      artifact.graphs[0].noise[1].at == 24,
		  "both are noise now");
	cr_assert_eq(artifact.refusal_count, 4);
	for (uint32_t i = 1; i < 4; i++)
		cr_assert_not_null(
		    strstr(artifact.refusals[i].why, i == 3 ? "node 1, parameter bytes 8..15" : "node 1"), "%s",
		    artifact.refusals[i].why);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

/* Of graph 1 all words are proven but the 66th; the second one, which lies in the same bit of another 64, is. */
Test(verify, should_fail_a_word_behind_the_first_64)
{
	struct md_artifact artifact = artifact_of(1, decode);
	struct md_verify_report report;
	struct md_error err = {0};
	char text[8192] = "", line[128];
	enum { WORDS = 66 };
	struct md_doubtful *words = calloc(WORDS, sizeof(*words));
	for (uint32_t i = 0; i < WORDS; i++) {
		words[i] = (struct md_doubtful){.node = 1, .at = 8 * i, .alloc = MD_NONE};
		snprintf(
		    line, sizeof(line),
		    "{\"verdict\": \"noise\", \"label\": \"decode\", \"batch\": 1, \"bytes\": %u, \"reason\": \"\"}\n",
		    i);
		if (i + 1 < WORDS)
			strcat(text, line);
	}
	strcat(text, LINE("pass", 1, 8, "") END);
	artifact.graphs[0].doubtful = words;
	artifact.graphs[0].doubtful_count = WORDS;
	cr_assert_eq(parse(text, &artifact, &report, &err), MD_OK, "%s", err.message);
	report.allow_uncompared = true;
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 0);
	cr_assert_not_null(strstr(artifact.refusals[1].why, "node 1, parameter bytes 520..527"), "%s",
			   artifact.refusals[1].why);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, should_fail_a_word_that_no_graph_can_have)
{
	struct md_artifact artifact = artifact_of(1, decode);
	struct md_verify_report report;
	struct md_error err = {0};
	cr_assert_eq(parse(LINE("noise", 1, 1024, "") END, &artifact, &report, &err), MD_ERR_CORRUPT);
	cr_assert_eq(parse(LINE("noise", 2, 0, "") END, &artifact, &report, &err), MD_ERR_CORRUPT);
	md_artifact_finish(&artifact);
}

static char *printed(void (*print)(const struct md_verify_report *, uint32_t, FILE *),
		     const struct md_verify_report *report)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	print(report, 0, out);
	fclose(out);
	return text;
}

Test(verify, output_is_escaped)
{
	static const char *const labels[] = {"a<b>&\"c\"\\", "caf\xc3\xa9 \xff\x01"};
	struct md_artifact artifact = artifact_of(2, labels);
	struct md_verify_report report =
	    report_of(OF("a<b>&\\\"c\\\"\\\\", "fail", 1, 8, "1 < 2 && \\\"x\\\"") END, &artifact);
	char *xml = printed(md_verify_print_junit, &report), *json = printed(md_verify_print_json, &report);
	cr_assert_not_null(strstr(xml, "tests=\"2\" failures=\"2\" errors=\"0\" skipped=\"0\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "name=\"a&lt;b&gt;&amp;&quot;c&quot;\\\\ batch 1\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "message=\"1 &lt; 2 &amp;&amp; &quot;x&quot;\"/>"), "%s", xml);
	cr_assert_not_null(strstr(xml, "caf\xc3\xa9 \\xff\\x01"), "bytes that are no UTF-8, and control characters: %s",
			   xml);
	cr_assert_not_null(strstr(json, "\"label\": \"a<b>&\\\"c\\\"\\\\\""), "%s", json);
	cr_assert_not_null(strstr(json, "\"outcome\": \"failed\""), "%s", json);
	free(xml);
	free(json);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, what_may_be_missing_is_said)
{
	struct md_artifact artifact = artifact_of(1, decode);
	struct md_verify_report report = report_of(LINE("pass", 1, 8, ""), &artifact);
	char *xml = printed(md_verify_print_junit, &report);
	cr_assert_not_null(md_verify_doubtful(&report));
	cr_assert_not_null(strstr(xml, "tests=\"2\" failures=\"0\" errors=\"1\" skipped=\"0\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "<error message=\"the report was cut short"), "%s", xml);
	free(xml);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, nondeterministic_graphs_have_their_own_count)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(doubtful, &artifact);
	char *xml = printed(md_verify_print_junit, &report), *json = printed(md_verify_print_json, &report);
	char *table = printed(md_verify_print_table, &report);
	cr_assert_not_null(strstr(xml, "tests=\"4\" failures=\"2\" errors=\"0\" skipped=\"1\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "<failure type=\"not compared\" message=\"not compared: busy\"/>"), "%s", xml);
	cr_assert_not_null(strstr(xml, "<skipped message=\"nondeterministic: 3 bytes of"), "%s", xml);
	cr_assert_not_null(strstr(json, "\"skipped\": 1,\n  \"nondeterministic\": 1"), "%s", json);
	cr_assert_not_null(strstr(table, "1 passed, 1 failed, 1 skipped, 1 nondeterministic\n"), "%s", table);
	free(xml);
	free(json);
	free(table);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}
