/* SPDX-License-Identifier: Apache-2.0 */
/* Verify mode compares restored graphs with live ones, finds what is wrong, and leaves the engine's results alone. */
#include "format/verify_line.h"
#include "restore_fixture.h"

static char live_out[TEXT_BYTES];

static void set_up(void)
{
	set_up_places();
	struct run live = run_subject(NULL, NULL);
	cr_assert(live.status == 0, "the live run works: %s", live.err);
	snprintf(live_out, sizeof(live_out), "%s", live.out);
}

TestSuite(restore_verify, .init = set_up, .fini = remove_places, .timeout = 600);

/* What the subject prints from `from` on; all of it for NULL, nothing for "". */
static const char *results_from(const char *text, const char *from)
{
	const char *at = !from ? text : *from ? strstr(text, from) : "";
	cr_assert(at, "no \"%s\" in: %s", from, text);
	return at;
}

/* The lines that say what a comparison found, with tabs between; each must be a line of a report. */
static const char *plain_report(const char *text)
{
	static char plain[1 << 20];
	size_t used = 0;
	for (; *text; text += strcspn(text, "\n") + 1) {
		size_t size = strcspn(text, "\n");
		struct md_verify_line line;
		struct md_error err = {0};
		cr_assert(text[size], "the last line is whole: %s", text);
		char *copy = strndup(text, size);
		cr_assert_eq(md_verify_line_read(copy, size, &line, &err), MD_OK, "%s: %s", err.message, text);
		if (line.verdict == MD_VERDICT_END)
			used += (size_t)snprintf(plain + used, sizeof(plain) - used, "end\n");
		else if (line.verdict != MD_VERDICT_BEGUN && line.verdict != MD_VERDICT_OWED &&
			 line.verdict != MD_VERDICT_SETTLED && line.verdict != MD_VERDICT_UNTIL)
			used += (size_t)snprintf(plain + used, sizeof(plain) - used, "%s\t%u\t%s\t%llu\t%s\n",
						 line.label, line.batch, md_verdict_name(line.verdict),
						 (unsigned long long)line.bytes, line.reason);
		cr_assert_lt(used, sizeof(plain));
		free(copy);
	}
	return plain;
}

/* The subject's settings besides those that verify mode needs, and its results that must be as they are live. */
static const char *verify_with(void (*change)(struct md_artifact *), const char *first, const char *second,
			       const char *same_from)
{
	char report[600];
	struct md_artifact artifact;
	make_artifact(&artifact, true);
	if (change)
		change(&artifact);
	snprintf(report, sizeof(report), "MEDUSA_VERIFY_REPORT=%s", made("report"));
	struct run run =
	    run_subject(write_artifact(&artifact), (const char *[]){"MEDUSA_VERIFY=1", report, first, second, NULL});
	cr_assert(run.status == 0, "exit status %x: %s%s", run.status, run.err, run.log);
	cr_assert_str_eq(results_from(run.out, same_from), results_from(live_out, same_from),
			 "verifying changed the engine's results: %s%s", run.err, run.log);
	const char *text = plain_report(read_text(made("report")));
	size_t length = strlen(text);
	cr_assert(length >= 4 && !strcmp(text + length - 4, "end\n"), "the report is whole: %s", text);
	return text;
}

static const char *verify(void (*change)(struct md_artifact *))
{
	return verify_with(change, NULL, NULL, NULL);
}

Test(restore_verify, right_artifact_passes)
{
	const char *report = verify(NULL);
	/* when it is labelled, and at each of the first three replays */
	cr_assert(count(report, "\tpass\t") >= GRAPHS * 4, "every comparison passes: %s", report);
	cr_assert(count(report, "\tfail\t") == 0 && count(report, "\tskipped\t") == 0, "nothing else: %s", report);
	char line[64];
	snprintf(line, sizeof(line), LABEL "\t2\tpass\t%u\t\n", 2 * (2 * BYTES + OUTPUT_BYTES));
	cr_assert(strstr(report, line), "input, state and output, twice: %s", report);
}

static void drop_table(struct md_artifact *a)
{
	free(a->contents[0].data);
	a->contents[0] = a->contents[1];
	a->content_count = 1;
}

Test(restore_verify, should_fail_missing_contents)
{
	const char *report = verify(drop_table);
	cr_assert(count(report, "\tfail\t") > 0, "found: %s", report);
	cr_assert(strstr(report, "buffer \""), "names the buffer: %s", report);
}

static void noise_that_matters(struct md_artifact *a)
{
	for (uint32_t i = 0; i < GRAPHS; i++) {
		a->graphs[i].noise[0] = (struct md_noise){N_SCALE, 28, 4};
		memset(a->graphs[i].nodes[N_SCALE].params + 28, 0, 4);
	}
}

Test(restore_verify, should_fail_bytes_that_are_no_noise)
{
	const char *report = verify(noise_that_matters);
	cr_assert(count(report, "\tfail\t") == GRAPHS * 4, "found each time: %s", report);
	cr_assert(strstr(report, "live ") && strstr(report, "restored "), "tells both values: %s", report);
}

static void swap_pointers(struct md_artifact *a)
{
	for (uint32_t i = 0; i < GRAPHS; i++) /* scaled and copied change places */
		a->graphs[i].pointers[11].offset = 0;
}

Test(restore_verify, should_fail_wrong_pointer)
{
	const char *report = verify(swap_pointers);
	cr_assert(count(report, "\tfail\t") > 0, "found: %s", report);
	cr_assert(strstr(report, "buffer \"output\" differs at offset "), "names buffer and offset: %s", report);
}

static void other_device(struct md_artifact *a)
{
	strcpy(a->fingerprint.device_name, "Another Device");
}

Test(restore_verify, refused_artifact_is_skipped_with_its_reason)
{
	const char *report = verify(other_device);
	cr_assert(count(report, "\tskipped\t0\t") == GRAPHS * 4, "skipped: %s", report);
	cr_assert(strstr(report, "Another Device"), "and why: %s", report);
}

/* ---- state that there is no room to save ---- */

/* Input and state fit twice; the output, bound as state, does not. */
#define OUTPUT_TOO_LARGE "MEDUSA_PROBE_LIMIT=4096", "SUBJECT_OUTPUT_IS_STATE=1"
/* Input and output fit twice; the state, which graphs add to, does not. */
#define STATE_TOO_LARGE "MEDUSA_PROBE_LIMIT=6400", NULL

/* The first result of a graph that writes all rows: before it, some are what verifying larger graphs left. */
#define ALL_ROWS "\n3 state "

Test(restore_verify, large_state_is_sampled)
{
	const char *report = verify_with(NULL, OUTPUT_TOO_LARGE, ALL_ROWS);
	char line[64];
	cr_assert(count(report, "\tpass\t") >= GRAPHS * 4, "every comparison passes: %s", report);
	cr_assert(count(report, "\toutput: 2304 bytes, sampled\n") >= GRAPHS * 4, "and says what it saw: %s", report);
	snprintf(line, sizeof(line), LABEL "\t2\tpass\t%u\t", 2 * (2 * BYTES + OUTPUT_BYTES));
	cr_assert(!strstr(report, line), "the sample is not counted as the whole: %s", report);
}

Test(restore_verify, should_fail_wrong_pointer_beside_large_state)
{
	const char *report = verify_with(swap_pointers, OUTPUT_TOO_LARGE, ALL_ROWS);
	cr_assert(count(report, "\tfail\t") == GRAPHS * 4, "found: %s", report);
}

Test(restore_verify, should_fail_large_state_that_is_not_written_idempotently)
{
	const char *report = verify_with(NULL, STATE_TOO_LARGE, "");
	cr_assert(count(report, "\tpass\t") == 0, "nothing is shown: %s", report);
	cr_assert(strstr(report, "may not be written idempotently: buffer \"state\""), "and why: %s", report);
}

Test(restore_verify, no_room_for_outputs_is_skipped)
{
	const char *report = verify_with(NULL, "MEDUSA_PROBE_LIMIT=64", NULL, NULL);
	cr_assert(count(report, "\tskipped\t") == GRAPHS * 4, "skipped: %s", report);
	cr_assert(strstr(report, "MEDUSA_PROBE_LIMIT"), "and why: %s", report);
}

/* ---- live graphs that are nondeterministic themselves ---- */

#define RACES "SUBJECT_RACES=3"

Test(restore_verify, bytes_that_differ_between_live_replays_are_neither_equal_nor_wrong)
{
	const char *report = verify_with(NULL, RACES, NULL, "");
	cr_assert(count(report, "\tfail\t") == 0, "nothing is wrong: %s", report);
	cr_assert(count(report, "\tnondeterministic\t") > GRAPHS, "and not everything is equal: %s", report);
	cr_assert(strstr(report, "elements of buffer \"output\" differ between live replays"), "says where: %s",
		  report);
}

Test(restore_verify, values_that_scatter_are_nondeterministic)
{
	const char *report = verify_with(NULL, "SUBJECT_SCATTERS=1", NULL, "");
	cr_assert(count(report, "\tnondeterministic\t") >= GRAPHS * 4, "each comparison: %s", report);
	cr_assert(count(report, "\tfail\t") == 0, "nothing is wrong: %s", report);
}

Test(restore_verify, should_fail_other_bytes_of_a_nondeterministic_buffer)
{
	const char *report = verify_with(swap_pointers, RACES, NULL, "");
	cr_assert(count(report, "\tfail\t") >= GRAPHS, "found: %s", report);
	cr_assert(count(report, "\tnondeterministic\t") == 0, "and not excused: %s", report);
	cr_assert(strstr(report, "buffer \"output\" differs at offset "), "names buffer and offset: %s", report);
}

/* The last elements of the last row, which are nondeterministic, are not written. */
static void short_gather(struct md_artifact *a)
{
	for (uint32_t i = 0; i < GRAPHS; i++) {
		int32_t n = (int32_t)((i + 1) * WIDTH) - 8;
		memcpy(a->graphs[i].nodes[N_GATHER].params + 16, &n, sizeof(n));
	}
}

Test(restore_verify, should_fail_values_that_no_live_replay_leaves)
{
	const char *report = verify_with(short_gather, RACES, NULL, "");
	cr_assert(count(report, "\tfail\t") == GRAPHS * 4, "found each time: %s", report);
	cr_assert(strstr(report, ", which none of 32 live replays left there"), "and how hard was looked: %s", report);
}

Test(restore_verify, large_state_excuses_nothing)
{
	const char *report = verify_with(NULL, "MEDUSA_PROBE_LIMIT=4096", "SUBJECT_OUTPUT_IS_STATE=1", "");
	cr_assert(count(report, "\tpass\t") >= GRAPHS * 4, "a sampled output: %s", report);
	setenv("SUBJECT_RACES", "3", 1);
	report = verify_with(NULL, "MEDUSA_PROBE_LIMIT=4096", "SUBJECT_OUTPUT_IS_STATE=1", "");
	unsetenv("SUBJECT_RACES");
	cr_assert(count(report, "\tnondeterministic\t") == 0, "live replays did not start from one state: %s", report);
	cr_assert(count(report, "\tfail\t") > 0, "found: %s", report);
}

/* ---- the same with copies and comparisons on the device ---- */

static void set_up_device(void)
{
	char path[4096];
	set_up();
	snprintf(path, sizeof(path), "%s/tests/images/probe_kernels.host.so", getenv("MEDUSA_BUILD"));
	cr_assert(access(path, R_OK) == 0, "the comparing kernel is there: %s", path);
	setenv("MEDUSA_PROBE_KERNEL", path, 1);
}

TestSuite(restore_verify_device, .init = set_up_device, .fini = remove_places, .timeout = 600);

Test(restore_verify_device, right_artifact_passes)
{
	const char *report = verify(NULL);
	char line[64];
	cr_assert(count(report, "\tpass\t") >= GRAPHS * 4, "every comparison passes: %s", report);
	snprintf(line, sizeof(line), LABEL "\t2\tpass\t%u\t\n", 2 * (2 * BYTES + OUTPUT_BYTES));
	cr_assert(strstr(report, line), "input, state and output, twice: %s", report);
}

Test(restore_verify_device, should_fail_missing_contents)
{
	const char *report = verify(drop_table);
	cr_assert(count(report, "\tfail\t") > 0, "found: %s", report);
	cr_assert(strstr(report, "buffer \""), "names the buffer: %s", report);
}

Test(restore_verify_device, should_fail_bytes_that_are_no_noise)
{
	const char *report = verify(noise_that_matters);
	cr_assert(count(report, "\tfail\t") == GRAPHS * 4, "found each time: %s", report);
	cr_assert(strstr(report, "live ") && strstr(report, "restored "), "tells both values: %s", report);
}

Test(restore_verify_device, should_fail_wrong_pointer)
{
	const char *report = verify(swap_pointers);
	cr_assert(count(report, "\tfail\t") > 0, "found: %s", report);
	cr_assert(strstr(report, "buffer \"output\" differs at offset "), "names buffer and offset: %s", report);
}

Test(restore_verify_device, state_that_is_too_large_for_the_host_is_compared_whole)
{
	const char *report = verify_with(NULL, OUTPUT_TOO_LARGE, NULL);
	cr_assert(count(report, "\tpass\t") >= GRAPHS * 4, "every comparison passes: %s", report);
	cr_assert(count(report, "sampled") == 0, "whole: %s", report);
}

Test(restore_verify_device, state_that_is_not_written_idempotently_is_compared_whole)
{
	const char *report = verify_with(NULL, STATE_TOO_LARGE, NULL);
	cr_assert(count(report, "\tpass\t") >= GRAPHS * 4, "every comparison passes: %s", report);
}

Test(restore_verify_device, a_device_without_room_leaves_it_to_the_host)
{
	setenv("MEDUSA_PROBE_DEVICE_LIMIT", "0", 1);
	const char *report = verify_with(NULL, OUTPUT_TOO_LARGE, ALL_ROWS);
	cr_assert(count(report, "\toutput: 2304 bytes, sampled\n") >= GRAPHS * 4, "sampled: %s", report);
}

Test(restore_verify_device, nondeterministic_graphs_are_told_apart)
{
	const char *report = verify_with(NULL, RACES, NULL, "");
	cr_assert(count(report, "\tfail\t") == 0, "nothing is wrong: %s", report);
	cr_assert(count(report, "\tnondeterministic\t") > GRAPHS, "and not everything is equal: %s", report);
}

Test(restore_verify_device, should_fail_other_bytes_of_a_nondeterministic_buffer)
{
	const char *report = verify_with(swap_pointers, RACES, NULL, "");
	cr_assert(count(report, "\tfail\t") >= GRAPHS, "found: %s", report);
	cr_assert(count(report, "\tnondeterministic\t") == 0, "and not excused: %s", report);
}
