/* SPDX-License-Identifier: Apache-2.0 */
/* An artifact says which checks were made of it; one that lacks any is refused by the check's name. */
#include "format/checks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(checks, what_an_analysis_says_is_all_that_a_restore_demands)
{
	struct md_artifact artifact = {0};
	struct md_error err = {0};
	cr_assert_eq(md_checks_state(&artifact, &err), MD_OK);
	cr_assert_eq(md_checks_state(&artifact, &err), MD_OK, "twice");
	cr_assert_eq(md_checks_require(&artifact, &err), MD_OK, "%s", err.message);
	cr_assert(md_check_count >= 12, "%zu checks", md_check_count);
	free(artifact.provenance.checks);
}

Test(checks, nothing_said_is_nothing_made)
{
	struct md_artifact artifact = {0};
	struct md_error err = {0};
	cr_assert_eq(md_checks_require(&artifact, &err), MD_ERR_VERSION);
	cr_assert(strstr(err.message, "capture again") != NULL, "%s", err.message);
	artifact.provenance.checks = (char *)"";
	cr_assert_eq(md_checks_require(&artifact, &err), MD_ERR_VERSION);
	cr_assert(strstr(err.message, md_checks[0].name) != NULL, "%s", err.message);
}

/* One name gone, or part of another word, and further names of a newer Medusa around it. */
Test(checks, each_is_missed_by_its_name)
{
	struct md_error err = {0};
	char text[4096], quoted[128];
	for (size_t lacking = 0; lacking < md_check_count; lacking++) {
		struct md_artifact artifact = {.provenance.checks = text};
		size_t at = (size_t)snprintf(text, sizeof(text), "newer-first ");
		for (size_t i = 0; i < md_check_count; i++)
			at += (size_t)snprintf(text + at, sizeof(text) - at, i == lacking ? "%s-not un%s " : "%s ",
					       md_checks[i].name, md_checks[i].name);
		cr_assert_eq(md_checks_require(&artifact, &err), MD_ERR_VERSION, "without %s", md_checks[lacking].name);
		snprintf(quoted, sizeof(quoted), "\"%s\", which refuses %s", md_checks[lacking].name,
			 md_checks[lacking].refuses);
		cr_assert(strstr(err.message, quoted) != NULL, "%s", err.message);
	}
}
