/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a simulation: figures worked out by hand, files that readers of their formats accept, refusals. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/sim_results.h"

static void assert_nothing_beside_it(void)
{
	unlink(json_path);
	unlink(html_path);
	cr_expect(rmdir(folder) == 0, "no temporary file is left in %s", folder);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char expected[] = "Simulated: no GPU was used. Only the times that say so are real.\n"
			       "  node       two-gpus, 2 GPUs (made by hand)\n"
			       "  functions  3 of 2 models (by hand)\n"
			       "  trace      10 requests in 60.0 s (ten requests)\n"
			       "  seed       7\n"
			       "  policies   torpor: As in the paper.\n"
			       "             refuse: Refuses \"all\" <of them>.\n"
			       "\n"
			       "Service                                       torpor            refuse\n"
			       "functions within SLO                 1 of 2 (50.0 %)    0 of 2 (0.0 %)\n"
			       "functions ever served                         3 of 3            0 of 3\n"
			       "functions never served                0 of 3 (0.0 %)  3 of 3 (100.0 %)\n"
			       "requests                                          10                10\n"
			       "served                                             9                 0\n"
			       "served within SLO                   8 of 10 (80.0 %)   0 of 10 (0.0 %)\n"
			       "rejected                                           1                10\n"
			       "rejected: never fits                               0                10\n"
			       "rejected: waited too long                          1                 0\n"
			       "\n"
			       "Latencies, times and waiting below are those of requests that were served.\n"
			       "\n"
			       "Latency to the goal of the SLO, ms            torpor            refuse\n"
			       "p50                                             50.0                 -\n"
			       "p90                                            400.0                 -\n"
			       "p98                                            400.0                 -\n"
			       "p99                                            400.0                 -\n"
			       "p99.9                                          400.0                 -\n"
			       "\n"
			       "Time to first token, ms                       torpor            refuse\n"
			       "mean                                            55.6                 -\n"
			       "p50                                             25.0                 -\n"
			       "p90                                            200.0                 -\n"
			       "p98                                            200.0                 -\n"
			       "p99                                            200.0                 -\n"
			       "p99.9                                          200.0                 -\n"
			       "\n"
			       "Time to completion, ms                        torpor            refuse\n"
			       "mean                                           222.2                 -\n"
			       "p50                                            100.0                 -\n"
			       "p90                                            800.0                 -\n"
			       "p98                                            800.0                 -\n"
			       "p99                                            800.0                 -\n"
			       "p99.9                                          800.0                 -\n"
			       "\n"
			       "Waiting and batches                           torpor            refuse\n"
			       "waiting, mean, ms                                1.5                 -\n"
			       "waiting, p99, ms                                 1.5                 -\n"
			       "requests per batch, mean                        1.00                 -\n"
			       "\n"
			       "Load                                          torpor            refuse\n"
			       "GPU 0 busy                                    50.0 %             0.0 %\n"
			       "GPU 1 busy                                    25.0 %             0.0 %\n"
			       "variance of load / greatest load              0.0625            0.0000\n"
			       "\n"
			       "Swaps                                         torpor            refuse\n"
			       "swaps from host                                    5                 0\n"
			       "swaps from a peer GPU                              2                 0\n"
			       "swaps from cold                                    0                 0\n"
			       "GB from host                                    12.3               0.0\n"
			       "GB from a peer GPU                               0.5               0.0\n"
			       "GB from cold                                     0.0               0.0\n"
			       "preloads                                           0                 0\n"
			       "evictions                                          4                 0\n"
			       "offloads                                           0                 0\n"
			       "\n"
			       "Bill                                          torpor            refuse\n"
			       "GPU-seconds billed                               4.8               0.0\n"
			       "cost, at the node's prices                    0.7500            0.0000\n"
			       "\n"
			       "Real time (the rest is simulated)             torpor            refuse\n"
			       "decision p50, us                                1.25              0.00\n"
			       "decision p99, us                                9.00              0.00\n"
			       "decision p99.9, us                             99.00              0.00\n"
			       "whole run, s                                   0.500             0.000\n"
			       "\n"
			       "Functions within SLO, by model                torpor            refuse\n"
			       "resnet                               1 of 2 (50.0 %)    0 of 2 (0.0 %)\n"
			       "<b>&\"bert\"                                         -                 -\n"
			       "\n"
			       "Most requests in time: torpor (80.0 %). Most functions within SLO: torpor (1 of 2).\n";

Test(sim_report, text)
{
	struct made made;
	make(&made);
	char *text = text_of(&made.report);
	cr_expect(!strcmp(text, expected), "the text is\n%s", text);
	free(text);
	unmake(&made);
}

/* Nobody is named for being as bad as all the others. */
Test(sim_report, a_score_of_zero_has_no_winner)
{
	struct made made;
	make(&made);
	made.report.results = &made.results[1];
	made.report.count = 1;
	char *text = md_sim_report_verdict(&made.report);
	cr_expect_str_eq(text, "No policy served a request in time.");
	free(text);
	made.results[1].met = 1;
	text = md_sim_report_verdict(&made.report);
	cr_expect_str_eq(text,
			 "Most requests in time: refuse (10.0 %). No function is within its SLO (0 of 2) with any "
			 "policy.");
	free(text);
	made.report.count = 2;
	unmake(&made);
}

Test(sim_report, long_sources_are_broken_at_spaces)
{
	struct md_sim_node wordy = node;
	struct made made;
	make(&made);
	wordy.source = "one word after the other up to the edge of the page and then some that go on below them, "
		       "averyveryveryverylongwordthatfitsonnolineatallbecauseithasoverahundredlettersandnospaceanywhere"
		       "inallofit end";
	made.report.node = &wordy;
	char *text = text_of(&made.report);
	cr_expect(strstr(text,
			 "\n  node       two-gpus, 2 GPUs (one word after the other up to the edge of the page and "
			 "then some that go on\n             below them,\n             averyvery"),
		  "broken:\n%s", text);
	cr_expect(strstr(text, "inallofit\n             end)\n  functions  3"), "a word of its own line:\n%s", text);
	free(text);
	unmake(&made);
}

Test(sim_report, says_what_must_not_be)
{
	struct made made;
	make(&made);
	made.results[1].unfinished = 3;
	made.results[0].contradictions = 2;
	char *text = text_of(&made.report);
	cr_expect(strstr(text, "\nJAMMED: never ended                                0                 3\n"),
		  "a row of its own:\n%s", text);
	cr_expect(strstr(text, "\nWRONG: actions that cannot be                      2                 0\n"),
		  "and another:\n%s", text);
	free(text);
	unmake(&made);
}

/* More policies than stand side by side: each label comes once for every row of tables. */
Test(sim_report, many_policies_stand_below_each_other)
{
	static struct md_sim_result results[14];
	struct made made;
	unsigned tables = 0, cells = 0;
	make(&made);
	for (size_t i = 0; i < 14; i++)
		results[i] = made.results[1];
	made.report.results = results;
	made.report.count = 14;
	char *text = text_of(&made.report);
	for (const char *at = text; (at = strstr(at, "\nfunctions within SLO")); at++)
		tables++;
	for (const char *at = text; (at = strstr(at, " 0 of 3")); at++)
		cells++;
	cr_expect(tables == 3, "three rows of tables, not %u", tables);
	cr_expect(cells == 14, "14 cells, not %u", cells);
	free(text);
	unmake(&made);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

Test(sim_report, load_variance)
{
	static const struct {
		double busy[4];
		uint32_t count;
		double variance;
	} cases[] = {{{0}, 0, 0}, {{0, 0}, 2, 0}, {{5, 5, 5}, 3, 0}, {{30, 15}, 2, 0.0625}, {{8, 0, 0, 0}, 4, 0.1875}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_result result = {.gpu_busy_s = (double *)cases[i].busy, .gpu_count = cases[i].count};
		double variance = md_sim_report_load_variance(&result);
		cr_expect(fabs(variance - cases[i].variance) < 1e-12, "case %zu: %g", i, variance);
	}
}

static void assert_curve(size_t samples)
{
	struct md_sim_samples values = {0};
	struct md_sim_cdf cdf;
	for (size_t i = 0; i < samples; i++)
		add(&values, (double)((i * 7919) % samples + 1));
	md_sim_report_cdf(&values, &cdf);
	cr_expect(cdf.count <= MD_SIM_CDF_MAX && (cdf.count > 0) == (samples > 0), "%zu samples: %zu points", samples,
		  cdf.count);
	for (size_t i = 0; i < cdf.count; i++) {
		double part = floor(cdf.values[i]) / (double)samples; /* values are 1 .. samples */
		cr_expect(part >= cdf.parts[i] - 1e-9, "%zu samples, point %zu: %g of them <= %g, not %g", samples, i,
			  part, cdf.values[i], cdf.parts[i]);
		cr_expect(!i || (cdf.values[i] > cdf.values[i - 1] && cdf.parts[i] > cdf.parts[i - 1]),
			  "%zu samples: point %zu rises", samples, i);
	}
	cr_expect(!cdf.count || (cdf.parts[cdf.count - 1] == 1 && cdf.values[cdf.count - 1] == (double)samples),
		  "%zu samples: the last point is the greatest value", samples);
	md_sim_samples_finish(&values);
}

Test(sim_report, curves)
{
	static const size_t sizes[] = {0, 1, 2, 3, 99, 100, 101, 1000, 20011};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_curve(sizes[i]);
}

/* 10 of 100 ms ... 150 of 100 ms; the function without an SLO is left out. */
Test(sim_report, latency_in_parts_of_the_slo)
{
	struct md_sim_samples samples = {0};
	struct made made;
	make(&made);
	cr_assert(md_sim_report_normalize(&made.report, &made.results[0], &samples), "memory");
	cr_expect(samples.count == 7, "7 requests have an SLO, not %zu", samples.count);
	cr_expect(fabs(md_sim_samples_percentile(&samples, 100) - 1.5) < 1e-12, "150 ms of 100 ms");
	cr_expect(fabs(md_sim_samples_percentile(&samples, 50) - 0.4) < 1e-12, "40 ms of 100 ms");
	md_sim_samples_finish(&samples);
	unmake(&made);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

Test(sim_report, files, .init = setup, .fini = teardown)
{
	struct made made;
	make(&made);
	write_both(&made.report);
	assert_accepted("two policies");
	char *json = read_file(json_path), *html = read_file(html_path);
	assert_holds(json, "\"tool\": \"medusa-simulate\",\n  \"format\": 1,\n  \"simulated\": true,");
	assert_holds(json, "\"seed\": 7,");
	assert_holds(json, "\"gpu_busy_s\": [30, 15],\n        \"normalized_variance\": 0.0625,");
	assert_holds(json, "\"waited too long\": 1,");
	assert_holds(json, "\"name\": \"bert\\ufffd-0\",\n          \"name_hex\": \"62657274ff2d30\",\n          "
			   "\"model\": \"<b>&\\\"bert\\\"\",");
	assert_holds(json, "\"gpu_s\": 4.75,");
	assert_holds(html, "&lt;b&gt;&amp;&quot;bert&quot;");
	assert_holds(html, "Refuses &quot;all&quot; &lt;of them&gt;.");
	assert_holds(html, "<td>1 of 2 (50.0 %)</td>");
	assert_holds(html, "GPU 0: torpor 50.0 %, refuse 0.0 %.");
	assert_holds(html, "waited too long: torpor 1, refuse 0.");
	assert_holds(html, "torpor: half within 0.4, 98 % within 1.5. refuse: no request was served.");
	free(json);
	free(html);
	unmake(&made);
}

/* The same results, the same bytes. */
Test(sim_report, files_are_stable, .init = setup, .fini = teardown)
{
	struct made made;
	make(&made);
	write_both(&made.report);
	char *json = read_file(json_path), *html = read_file(html_path);
	write_both(&made.report);
	char *json_again = read_file(json_path), *html_again = read_file(html_path);
	cr_expect(!strcmp(json, json_again) && !strcmp(html, html_again), "written twice");
	free(json);
	free(html);
	free(json_again);
	free(html_again);
	unmake(&made);
}

Test(sim_report, nothing_to_say, .init = setup, .fini = teardown)
{
	struct md_sim_functions none = {.source = "none"};
	struct md_sim_node bare = {0};
	struct md_sim_workload idle = {.source = "nothing"};
	struct md_sim_result result = {.policy = &policies[0]};
	struct md_sim_report report = {
	    .node = &bare, .functions = &none, .workload = &idle, .results = &result, .count = 1};
	write_both(&report);
	assert_accepted("no GPU, no function, no request");
	report.count = 0;
	write_both(&report);
	free(text_of(&report));
}

/* Values that a division by zero would leave: no file may hold what no reader accepts. */
Test(sim_report, no_number_is_not_a_number, .init = setup, .fini = teardown)
{
	struct made made;
	make(&made);
	add(&made.results[0].ttft_ms, INFINITY);
	add(&made.results[0].ttft_ms, 0);
	made.functions[0][0].cost = NAN;
	write_both(&made.report);
	char *json = read_file(json_path);
	assert_holds(json, "\"cost\": null");
	static const char *const words[] = {" inf", "[inf", "-inf", " nan", "[nan", "-nan"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		cr_expect(!strstr(json, words[i]), "no word for a number, but there is '%s'", words[i]);
	free(json);
	assert_accepted("infinite");
	unmake(&made);
}

/* A report that cannot be written leaves nothing beside what was there. */
Test(sim_report, refusals, .init = setup, .fini = teardown)
{
	struct made made;
	struct md_error err;
	char missing[128];
	make(&made);
	snprintf(missing, sizeof(missing), "%s/none/report.json", folder);
	cr_expect(md_sim_report_json(&made.report, missing, &err) == MD_ERR_OUTPUT, "no such folder");
	cr_expect(strstr(err.message, missing) && strstr(err.message, "No such file"), "says: %s", err.message);
	snprintf(missing, sizeof(missing), "%s/taken", folder);
	cr_assert(mkdir(missing, 0700) == 0, "a folder in the way");
	cr_expect(md_sim_report_html(&made.report, missing, &err) == MD_ERR_OUTPUT, "a folder is in the way");
	cr_expect(strstr(err.message, missing), "says: %s", err.message);
	rmdir(missing);
	assert_nothing_beside_it();
	unmake(&made);
}

static void write_much(void *report, FILE *out)
{
	static char much[1 << 16];
	(void)report;
	for (int i = 0; i < 64; i++)
		fwrite(much, 1, sizeof(much), out);
}

/* Less than a buffer: the trouble comes when the file is closed. */
static void write_little(void *report, FILE *out)
{
	(void)report;
	fputs("a few words", out);
}

Test(sim_report, full_disk, .init = setup, .fini = teardown)
{
	static const struct {
		md_sim_report_writer writer;
		rlim_t limit;
	} cases[] = {{write_much, 1 << 16}, {write_little, 4}};
	struct md_error err;
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < 2; i++) {
		struct rlimit limit = {cases[i].limit, RLIM_INFINITY};
		cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0, "a small limit for files");
		enum md_status status = md_sim_report_publish(NULL, cases[i].writer, json_path, &err);
		limit.rlim_cur = RLIM_INFINITY;
		cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0, "no limit for what the test says");
		cr_expect(status == MD_ERR_OUTPUT, "case %zu does not fit", i);
		cr_expect(strstr(err.message, "File too large"), "case %zu says: %s", i, err.message);
		cr_expect(access(json_path, F_OK) != 0, "case %zu: there is no half report", i);
	}
	assert_nothing_beside_it();
}

static size_t names_while_writing;

static void count_names(void *report, FILE *out)
{
	(void)report;
	fputs("new", out);
	fflush(out);
	DIR *opened = opendir(folder);
	cr_assert_not_null(opened);
	for (const struct dirent *entry; (entry = readdir(opened));)
		names_while_writing += entry->d_name[0] != '.';
	closedir(opened);
}

/* Whoever is killed while a report is written leaves nothing behind, where the file system has files without a name. */
Test(sim_report, a_report_has_no_name_until_it_is_whole, .init = setup, .fini = teardown)
{
	struct md_error err = {0};
	int probe = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
	cr_assert(md_sim_report_publish(NULL, count_names, json_path, &err) == MD_OK, "%s", err.message);
	cr_expect_eq(names_while_writing, probe < 0 ? 1 : 0, "%zu names", names_while_writing);
	if (probe >= 0)
		close(probe);
	assert_nothing_beside_it();
}

Test(sim_report, a_report_keeps_the_permissions_of_what_it_replaces, .init = setup, .fini = teardown)
{
	struct md_error err = {0};
	struct stat info;
	cr_assert(md_sim_report_publish(NULL, count_names, json_path, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(chmod(json_path, 0444), 0);
	cr_assert(md_sim_report_publish(NULL, count_names, json_path, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(stat(json_path, &info), 0);
	cr_expect_eq(info.st_mode & 07777, 0444, "mode %o", info.st_mode & 07777);
	cr_expect_eq(info.st_size, 3);
	assert_nothing_beside_it();
}
