/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that an artifact has passed, and those that a restore demands (checks.def). */
#ifndef MD_FORMAT_CHECKS_H
#define MD_FORMAT_CHECKS_H

#include <stddef.h>

#include "format/artifact/artifact.h"

struct md_check {
	const char *name, *refuses;
};
extern const struct md_check md_checks[];
extern const size_t md_check_count;

/* Records in the artifact that all checks were made; whoever makes them calls this. MD_ERR_NO_MEMORY. */
enum md_status md_checks_state(struct md_artifact *artifact, struct md_error *err);
/* MD_ERR_VERSION names the first check that the artifact lacks, and what to do. */
enum md_status md_checks_require(const struct md_artifact *artifact, struct md_error *err);

#endif
