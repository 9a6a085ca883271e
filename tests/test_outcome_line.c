/* SPDX-License-Identifier: Apache-2.0 */
/* The line by which medusa-restore --require judges: what was written is what is read, and nothing else is. */
#include "format/outcome_line.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct md_outcome some = {
    .process = 4711, .total = 9, .restored = 7, .refused = 2, .handed_out = 5, .denied = 1, .settled = true};

static char *written(const struct md_outcome *outcome)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	md_outcome_line_write(outcome, out);
	cr_assert_eq(fclose(out), 0);
	cr_assert(size && text[size - 1] == '\n' && strchr(text, '\n') == text + size - 1, "one line");
	text[size - 1] = 0;
	return text;
}

static void assert_comes_back(const struct md_outcome *outcome)
{
	struct md_outcome got;
	struct md_error err = {0};
	char *text = written(outcome);
	cr_assert_eq(md_outcome_line_read(text, strlen(text), &got, &err), MD_OK, "%s", err.message);
	cr_assert(got.process == outcome->process && got.total == outcome->total && got.restored == outcome->restored &&
		  got.refused == outcome->refused && got.handed_out == outcome->handed_out &&
		  got.denied == outcome->denied && got.settled == outcome->settled &&
		  got.complete == outcome->complete && got.whole == outcome->whole);
	const char *const texts[][2] = {
	    {got.reason, outcome->reason}, {got.graph, outcome->graph}, {got.why, outcome->why}};
	for (size_t i = 0; i < 3; i++)
		cr_assert(!texts[i][0] == !texts[i][1] && (!texts[i][0] || !strcmp(texts[i][0], texts[i][1])), "%zu",
			  i);
	free(text);
}

Test(outcome_line, comes_back)
{
	struct md_outcome other = some;
	assert_comes_back(&some);
	other.settled = false;
	other.complete = other.whole = true;
	other.reason = "line\nbreak, \"quotes\" and bytes: \xff\x01";
	other.graph = "\xfe/1";
	other.why = "\xfd";
	assert_comes_back(&other);
}

Test(outcome_line, all_numbers_and_nothing_else)
{
	static const char *const bad[] = {
	    "",
	    "{}",
	    "{\"process\": 1}",
	    "[]",
	    "{\"process\":4711,\"total\":9,\"restored\":7,\"refused\":2,\"handed_out\":5,"
	    "\"denied\":1,\"settled\":true}",
	    "{\"process\":4294967296,\"total\":9,\"restored\":7,\"refused\":2,\"handed_out\":5,"
	    "\"denied\":1,\"settled\":true,\"complete\":true,\"whole\":true}",
	    "{\"process\":\"1\",\"total\":9,\"restored\":7,\"refused\":2,\"handed_out\":5,"
	    "\"denied\":1,\"settled\":true,\"complete\":true,\"whole\":true}",
	    "{\"process\":1,\"total\":9,\"restored\":7,\"refused\":2,\"handed_out\":5,"
	    "\"denied\":1,\"settled\":true,\"complete\":true,\"whole\":true,\"more\":1}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct md_outcome got = some;
		struct md_error err = {0};
		char *text = strdup(bad[i]);
		cr_assert_neq(md_outcome_line_read(text, strlen(text), &got, &err), MD_OK, "%s", bad[i]);
		cr_assert_eq(got.process, 4711, "nothing is set");
		free(text);
	}
}
