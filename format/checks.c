/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that an artifact has passed: their names in a text, with one blank between them. */
#include "format/checks.h"

#include <stdlib.h>
#include <string.h>

const struct md_check md_checks[] = {
#define MD_CHECK(name, refuses) {name, refuses},
#include "format/checks.def"
#undef MD_CHECK
};
const size_t md_check_count = sizeof(md_checks) / sizeof(md_checks[0]);

#define MD_CHECK(name, refuses) " " name
static const char all[] =
#include "format/checks.def"
    ;
#undef MD_CHECK

enum md_status md_checks_state(struct md_artifact *artifact, struct md_error *err)
{
	char *copy = strdup(all + 1);
	if (!copy)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the names of the checks");
	free(artifact->provenance.checks);
	artifact->provenance.checks = copy;
	return MD_OK;
}

static bool holds(const char *checks, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = checks; (at = strstr(at, name)); at += length)
		if ((at == checks || at[-1] == ' ') && (!at[length] || at[length] == ' '))
			return true;
	return false;
}

enum md_status md_checks_require(const struct md_artifact *artifact, struct md_error *err)
{
	const char *checks = artifact->provenance.checks;
	if (!checks)
		return md_error_set(
		    err, MD_ERR_VERSION,
		    "the artifact does not say which checks were made of it, as one of an older Medusa; "
		    "capture again");
	for (size_t i = 0; i < md_check_count; i++) {
		if (!holds(checks, md_checks[i].name))
			return md_error_set(
			    err, MD_ERR_VERSION,
			    "the artifact was made without the check \"%s\", which refuses %s; an older "
			    "Medusa did not have it: capture again",
			    md_checks[i].name, md_checks[i].refuses);
	}
	return MD_OK;
}
