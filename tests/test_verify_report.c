/* SPDX-License-Identifier: Apache-2.0 */
/* Verify reports: what counts as passed, what leaves the artifact, and output that machines can read. */
#include "tools/verify_report.h"

#include <criterion/criterion.h>
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
	return artifact;
}

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

static const char mixed[] = "decode\t1\tpass\t100\t\n"
			    "decode\t1\tpass\t100\t\n"
			    "decode\t2\tpass\t100\t\n"
			    "decode\t2\tfail\t100\tbyte 7 of \"logits\" differs\tby 3\n"
			    "decode\t2\tfail\t100\tlater\n"
			    "decode\t3\tpass\t50\t\n"
			    "decode\t3\tskipped\t0\tout of memory\n"
			    "prefill\t9\tpass\t1\t\n"
			    "end\n";

Test(verify, counts_each_graph_once)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(mixed, &artifact);

	cr_assert(report.complete);
	cr_assert_eq(report.graph_count, 4);
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
	cr_assert_eq(report.strangers, 1);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, failure_after_a_skip_wins)
{
	struct md_artifact artifact = artifact_of(1, decode);
	struct md_verify_report report =
	    report_of("decode\t1\tskipped\t0\tbusy\ndecode\t1\tfail\t8\twrong\ndecode\t1\tpass\t8\t\nend\n", &artifact);

	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_FAILED);
	cr_assert_str_eq(report.graphs[0].reason, "wrong");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

static const char doubtful[] = "decode\t1\tpass\t8\t\n"
			       "decode\t1\tnondeterministic\t8\t3 bytes of buffer \"kv\"\n"
			       "decode\t1\tnondeterministic\t8\tlater\n"
			       "decode\t2\tnondeterministic\t8\t5 bytes\n"
			       "decode\t2\tskipped\t0\tbusy\n"
			       "decode\t3\tnondeterministic\t8\t7 bytes\n"
			       "decode\t3\tfail\t8\twrong\n"
			       "decode\t4\tpass\t8\t\n"
			       "end\n";

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
	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 3, "only the wrong one leaves the artifact");
	cr_assert_eq(artifact.graphs[0].proof, MD_PROOF_TWO, "nothing was proven");
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, a_killed_engine_proves_what_it_compared)
{
	struct md_artifact artifact = artifact_of(2, decode);
	struct md_verify_report report = report_of("decode\t1\tpass\t8\t\ndecode\t2\tpa", &artifact);

	cr_assert_not(report.complete);
	cr_assert_eq(report.graphs[0].outcome, MD_VERIFY_PASSED);
	cr_assert_eq(report.graphs[1].outcome, MD_VERIFY_SKIPPED);
	cr_assert_not_null(strstr(report.graphs[1].reason, "ended early"));
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, refuses_other_lines)
{
	static const char *const texts[] = {
	    "\n",
	    "decode\t1\tpass\t8\n",
	    "decode\t-1\tpass\t8\t\n",
	    "decode\t4294967296\tpass\t8\t\n",
	    "decode\t1\tok\t8\t\n",
	    "decode\t1\tpass\tx\t\n",
	    "decode\t1\tpass\t18446744073709551616\t\n",
	    "decode 1 pass 8\n",
	};
	struct md_artifact artifact = artifact_of(1, decode);

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char text[256];
		struct md_verify_report report;
		struct md_error err = {0};
		snprintf(text, sizeof(text), "decode\t1\tpass\t8\t\n%s", texts[i]);
		cr_assert_eq(parse(text, &artifact, &report, &err), MD_ERR_CORRUPT, "%s", texts[i]);
		cr_assert_not_null(strstr(err.message, "line 2"), "%s", err.message);
	}
	md_artifact_finish(&artifact);
}

Test(verify, apply_keeps_proves_and_removes)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(mixed, &artifact);
	struct md_error err = {0};

	cr_assert_eq(md_verify_apply(&report, &artifact, &err), MD_OK);
	cr_assert_eq(artifact.graph_count, 3);
	cr_assert_eq(artifact.graphs[0].batch, 1);
	cr_assert_eq(artifact.graphs[0].proof, MD_PROOF_REPLAY);
	cr_assert_eq(artifact.graphs[1].batch, 3);
	cr_assert_eq(artifact.graphs[1].proof, MD_PROOF_TWO, "a graph that was not compared keeps the proof it had");
	cr_assert_eq(artifact.graphs[2].batch, 4);
	cr_assert_eq(artifact.refusal_count, 1);
	cr_assert_str_eq(artifact.refusals[0].label, "decode");
	cr_assert_eq(artifact.refusals[0].batch, 2);
	cr_assert_not_null(strstr(artifact.refusals[0].why, "byte 7 of"));
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

static char *printed(void (*print)(const struct md_verify_report *, FILE *), const struct md_verify_report *report)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	print(report, out);
	fclose(out);
	return text;
}

Test(verify, output_is_escaped)
{
	static const char *const labels[] = {"a<b>&\"c\"\\", "caf\xc3\xa9 \xff\x01"};
	struct md_artifact artifact = artifact_of(2, labels);
	struct md_verify_report report = report_of("a<b>&\"c\"\\\t1\tfail\t8\t1 < 2 && \"x\"\nend\n", &artifact);
	char *xml = printed(md_verify_print_junit, &report), *json = printed(md_verify_print_json, &report);

	cr_assert_not_null(strstr(xml, "tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "name=\"a&lt;b&gt;&amp;&quot;c&quot;\\ batch 1\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "message=\"1 &lt; 2 &amp;&amp; &quot;x&quot;\"/>"), "%s", xml);
	cr_assert_not_null(strstr(xml, "caf\xc3\xa9 ??"), "bytes that are no UTF-8, and control characters: %s", xml);
	cr_assert_not_null(strstr(json, "\"label\": \"a<b>&\\\"c\\\"\\\\\""), "%s", json);
	cr_assert_not_null(strstr(json, "\"outcome\": \"failed\""), "%s", json);
	free(xml);
	free(json);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}

Test(verify, nondeterministic_graphs_have_their_own_count)
{
	struct md_artifact artifact = artifact_of(4, decode);
	struct md_verify_report report = report_of(doubtful, &artifact);
	char *xml = printed(md_verify_print_junit, &report), *json = printed(md_verify_print_json, &report);
	char *table = printed(md_verify_print_table, &report);

	cr_assert_not_null(strstr(xml, "tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"2\""), "%s", xml);
	cr_assert_not_null(strstr(xml, "<skipped message=\"nondeterministic: 3 bytes of"), "%s", xml);
	cr_assert_not_null(strstr(json, "\"skipped\": 1, \"nondeterministic\": 1"), "%s", json);
	cr_assert_not_null(strstr(table, "1 passed, 1 failed, 1 skipped, 1 nondeterministic\n"), "%s", table);
	free(xml);
	free(json);
	free(table);
	md_verify_finish(&report);
	md_artifact_finish(&artifact);
}
