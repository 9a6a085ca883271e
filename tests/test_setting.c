/* SPDX-License-Identifier: Apache-2.0 */
/* Switches and numbers of the environment: what is permitted, and that anything else is named once and is not obeyed. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/setting.h"

#define NAME "MEDUSA_TEST_SETTING"

static char log_path[] = "/tmp/medusa-setting-XXXXXX";

static void setup(void)
{
	int fd = mkstemp(log_path);
	cr_assert(fd >= 0, "a file for the log");
	close(fd);
	setenv("MEDUSA_LOG_FILE", log_path, 1);
}

static void set(const char *name, const char *value)
{
	cr_assert((value ? setenv(name, value, 1) : unsetenv(name)) == 0, "memory");
}

/* How often the log has the text, or how many lines it has (NULL). */
static unsigned said(const char *text)
{
	char line[1024];
	unsigned count = 0;
	FILE *file = fopen(log_path, "r");
	cr_assert(file, "the log");
	while (fgets(line, sizeof(line), file))
		count += !text || strstr(line, text);
	fclose(file);
	return count;
}

Test(setting, a_switch_is_on_or_off, .init = setup)
{
	static const char *const words[][2] = {{"0", "1"},    {"off", "on"},     {"false", "true"}, {"no", "yes"},
					       {"OFF", "ON"}, {"False", "tRUE"}, {"nO", "Yes"}};
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		for (int on = 0; on < 2; on++) {
			set(NAME, words[i][on]);
			cr_assert_eq(md_setting_is_on(NAME, !on, !on, "so"), on, "%s", words[i][on]);
		}
	}
	for (int otherwise = 0; otherwise < 2; otherwise++) {
		set(NAME, NULL);
		cr_assert_eq(md_setting_is_on(NAME, otherwise, !otherwise, "so"), otherwise, "not set");
		set(NAME, "");
		cr_assert_eq(md_setting_is_on(NAME, otherwise, !otherwise, "so"), otherwise, "empty");
	}
	cr_assert_eq(said(NULL), 0, "nothing is said of these");
}

Test(setting, should_fail_what_is_no_switch_is_named_and_safe, .init = setup)
{
	static const char *const words[] = {"2", "of", "onn", " 1", "1 ", "-1", "01", "enabled", "\xc4\xb1", "10"};
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		char name[40];
		snprintf(name, sizeof(name), "%s_%zu", NAME, i);
		char *kept = strdup(name); /* as a name in the program is */
		set(name, words[i]);
		for (int safe = 0; safe < 2; safe++)
			cr_assert_eq(md_setting_is_on(kept, !safe, safe, "it is left out"), safe, "%s", words[i]);
	}
	cr_assert_eq(
	    said("MEDUSA_TEST_SETTING_1=of: one of 1, on, true, yes, 0, off, false, no is wanted; it is left out"), 1,
	    "once");
	cr_assert_eq(said(NULL), sizeof(words) / sizeof(*words), "one line each");
}

Test(setting, a_number_is_whole_and_in_its_bounds, .init = setup)
{
	static const struct {
		const char *text;
		uint64_t wanted;
	} cases[] = {{NULL, 7},    {"", 7},      {"0", 0},      {"12", 12},
		     {"0012", 12}, {"0x10", 16}, {"0Xff", 255}, {"1000", 1000}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		set(NAME, cases[i].text);
		cr_assert_eq(md_setting_number(NAME, 0, 1000, 7), cases[i].wanted, "%s", cases[i].text);
	}
	set(NAME, "18446744073709551615");
	cr_assert_eq(md_setting_number(NAME, 0, UINT64_MAX, 7), UINT64_MAX, "the largest");
	cr_assert_eq(said(NULL), 0, "nothing is said of these");
}

Test(setting, should_fail_what_is_no_number_is_named_and_not_used, .init = setup)
{
	static const char *const words[] = {"x",   "-1", "+1",  " 1",  "1 ",   "1.5",
					    "1e3", "0x", "0xg", "12a", "1001", "99999999999999999999"};
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		set(NAME, words[i]);
		cr_assert_eq(md_setting_number(NAME, 0, 1000, 7), 7, "%s", words[i]);
	}
	cr_assert_eq(said(NAME "=x: a whole number from 0 to 1000 is wanted; 7 is used"), 1, "once for the variable");
	cr_assert_eq(said(NULL), 1, "and nothing else");
	set(NAME "_MOST", "all");
	cr_assert_eq(md_setting_number(NAME "_MOST", 1, UINT64_MAX, UINT64_MAX), UINT64_MAX, "no limit");
	cr_assert_eq(said("_MOST=all: a whole number from 1 on is wanted; there is no limit now"), 1, "no limit");
}

Test(setting, should_fail_a_level_of_the_log_that_is_none, .init = setup)
{
	set("MEDUSA_LOG", "verbose");
	set(NAME, "of");
	md_setting_is_on(NAME, false, false, "so");
	cr_assert_eq(said("MEDUSA_LOG=verbose: one of error, warn, info, debug is wanted; warn is used"), 1, "once");
}
