/* SPDX-License-Identifier: Apache-2.0 */
/* Reports with names that would be elements, with more functions and policies than are shown, without what is real. */
#include "tests/sim_results.h"

/* Whoever writes functions.yaml may name a function or a model anything: no name becomes a part of the page. */
Test(sim_page, hostile_names, .init = setup, .fini = teardown)
{
	static char long_name[5001];
	static char *odd_models[] = {(char *)"</text></svg><script>alert(1)</script>", long_name};
	static struct md_sim_function odd[FUNCTIONS];
	struct md_sim_functions hostile = functions;
	struct made made;
	make(&made);
	memset(long_name, 'x', sizeof(long_name) - 1);
	memcpy(odd, function_table, sizeof(odd));
	odd[0].name = (char *)"</th></table><script>document.title='owned'</script><img src=x onerror=alert(1)>";
	odd[1].name = (char *)"\xe6\x97\xa5\xe6\x9c\xac\xe2\x80\xae\x1b[31m\"quoted\" & 'so'\n\t\\u0000";
	odd[2].name = long_name;
	hostile.functions = odd;
	hostile.models = odd_models;
	made.report.functions = &hostile;
	write_both(&made.report);
	assert_accepted("hostile names");
	char *json = read_file(json_path), *html = read_file(html_path), *text = text_of(&made.report);
	cr_expect(!strstr(html, "<script>document.title") && !strstr(html, "<script>alert") && !strstr(html, "<img"),
		  "no name is an element");
	assert_holds(html,
		     "&lt;/th&gt;&lt;/table&gt;&lt;script&gt;document.title='owned'&lt;/script&gt;&lt;img src=x o...");
	assert_holds(html, "\xe6\x97\xa5\xe6\x9c\xac&#xFFFD;&#xFFFD;[31m&quot;quoted&quot; &amp; 'so'\n\t\\u0000");
	cr_expect(!strstr(html, long_name), "a very long name is cut in the page");
	cr_expect(!strstr(text, long_name) && strstr(text, "xxxxxx..."), "and in the text");
	cr_expect(!strchr(text, 0x1b), "no terminal is commanded");
	assert_holds(json, long_name);
	assert_holds(json, "\\u001b[31m\\\"quoted\\\" & 'so'\\n\\u0009\\\\u0000");
	free(json);
	free(html);
	free(text);
	unmake(&made);
}

/* Bytes that neither HTML nor XML may hold, in what a trace's path may be. */
Test(sim_page, hostile_bytes, .init = setup, .fini = teardown)
{
	struct md_sim_workload odd = workload;
	struct made made;
	make(&made);
	odd.source = "a\xff\x01\x7f</dd><script>]]>&amp;\xc3\xa9.csv";
	made.report.workload = &odd;
	write_both(&made.report);
	assert_accepted("odd bytes");
	char *html = read_file(html_path);
	assert_holds(html, "(a&#xFFFD;&#xFFFD;&#xFFFD;&lt;/dd&gt;&lt;script&gt;]]&gt;&amp;amp;\xc3\xa9.csv)");
	free(html);
	unmake(&made);
}

/* Thousands of functions: the worst ones are in the page, which says how many are not. */
Test(sim_page, many_functions, .init = setup, .fini = teardown)
{
	enum { MANY = 1200 };
	static struct md_sim_function many[MANY];
	static struct md_sim_function_result results[MANY];
	static char names[MANY][16];
	struct md_sim_functions large = functions;
	struct made made;
	make(&made);
	for (size_t i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof(names[i]), "many-%zu", i);
		many[i] = (struct md_sim_function){.name = names[i], .spec = {.slo_ns = 1000000}};
		results[i] = (struct md_sim_function_result){.requests = 2000, .served = i, .met = i, .counted = true};
	}
	large.functions = many;
	large.count = MANY;
	made.report.functions = &large;
	made.results[1].functions = results;
	made.results[1].function_count = MANY;
	made.results[1].requests = 2000 * MANY;
	made.report.results = &made.results[1];
	made.report.count = 1;
	cr_assert(md_sim_report_html(&made.report, html_path, &(struct md_error){0}) == MD_OK, "written");
	char *html = read_file(html_path);
	/* function i has 2000 - i requests that are not in time: 500 to 1199 are left out */
	assert_holds(html,
		     "<p>The 500 functions with the most requests that were not in time. Left out: 700 functions, "
		     "which have 805350 such requests together; the JSON has all (per_function).</p>");
	assert_holds(html, ">many-0<");
	assert_holds(html, ">many-499<");
	cr_expect(!strstr(html, ">many-500<"), "the 501st is left out");
	cr_expect(strstr(html, ">many-0<") < strstr(html, ">many-1<"), "the worst comes first");
	assert_holds(html, "<td>0 (never)</td>");
	free(html);
	unmake(&made);
}

Test(sim_page, many_policies_and_models, .init = setup, .fini = teardown)
{
	enum { MODELS = 100 };
	static char *many[MODELS];
	static char names[MODELS][16];
	static struct md_sim_result results[17];
	struct md_sim_functions large = functions;
	struct made made;
	make(&made);
	for (size_t i = 0; i < MODELS; i++) {
		snprintf(names[i], sizeof(names[i]), "model-%zu", i);
		many[i] = names[i];
	}
	large.models = many;
	large.model_count = MODELS;
	for (size_t i = 0; i < 17; i++)
		results[i] = made.results[i % 2];
	made.report.functions = &large;
	made.report.results = results;
	made.report.count = 17;
	write_both(&made.report);
	char *html = read_file(html_path), *json = read_file(json_path), *text = text_of(&made.report);
	assert_holds(html, "(and 36 models more: see the JSON)");
	assert_holds(text, "(and 36 models more: see the JSON)");
	assert_holds(json, "\"model-99\"");
	unsigned dashed = 0;
	for (const char *at = html; (at = strstr(at, "class=\"line s0 dashed\"")); at++)
		dashed++;
	cr_expect(dashed == 4, "the ninth policy is dashed in two legends and two plots, not %u times", dashed);
	free(html);
	free(json);
	free(text);
	unmake(&made);
}

/* Equals are named together; without an objective there is no winner, and the reader is told why. */
Test(sim_page, who_is_the_best)
{
	struct made made;
	make(&made);
	made.results[1].met = 8;
	char *verdict = md_sim_report_verdict(&made.report);
	cr_expect(
	    !strcmp(verdict,
		    "Most requests in time: torpor, refuse (80.0 %). Most functions within SLO: torpor (1 of 2)."),
	    "equals: %s", verdict);
	free(verdict);
	struct md_sim_function aimless = {.name = (char *)"a"};
	struct md_sim_functions all = {.functions = &aimless, .count = 1};
	made.report.functions = &all;
	verdict = md_sim_report_verdict(&made.report);
	cr_expect(strstr(verdict, "No function has an objective (slo"), "no objective: %s", verdict);
	free(verdict);
	struct md_sim_workload idle = {0};
	made.report.workload = &idle;
	verdict = md_sim_report_verdict(&made.report);
	cr_expect(!strcmp(verdict, "There were no requests."), "idle: %s", verdict);
	free(verdict);
	unmake(&made);
}

/* Whatever the clock of the machine said, nothing of it is in any form. */
Test(sim_page, without_what_is_real, .init = setup, .fini = teardown)
{
	struct made made;
	make(&made);
	made.report.no_real = true;
	char *text = text_of(&made.report);
	write_both(&made.report);
	assert_accepted("nothing real");
	char *json = read_file(json_path), *html = read_file(html_path);
	made.results[0].decide_us_p50 = made.results[0].decide_us_p99 = made.results[0].decide_us_p999 = 1234.5;
	made.results[0].wall_s = 6789;
	char *text_again = text_of(&made.report);
	write_both(&made.report);
	char *json_again = read_file(json_path), *html_again = read_file(html_path);
	cr_expect(!strcmp(text, text_again), "the text says what was measured:\n%s", text_again);
	cr_expect(!strcmp(json, json_again), "the JSON says what was measured");
	cr_expect(!strcmp(html, html_again), "the HTML says what was measured");
	assert_holds(json, "\"real\": null");
	cr_expect(!strstr(text, "eal time") && !strstr(html, "eal time"), "no empty section is left");
	free(text);
	free(text_again);
	free(json);
	free(json_again);
	free(html);
	free(html_again);
	unmake(&made);
}
