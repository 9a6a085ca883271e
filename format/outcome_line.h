/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of an artifact in one process, as a line that the restore library writes and medusa-restore reads. */
#ifndef MD_FORMAT_OUTCOME_LINE_H
#define MD_FORMAT_OUTCOME_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct md_outcome {
	uint32_t process;
	uint32_t total, restored, refused; /* graphs of the artifact */
	uint32_t handed_out;               /* different graphs that the engine was given */
	uint32_t
	    denied; /* different graphs that it has asked for and was not given, although the artifact does not say why */
	bool settled;  /* every graph is restored or refused */
	bool complete; /* the engine has said that it has all that it wants */
	bool
	    whole; /* every graph was restored at one time; when it ends, an engine may unload what unasked ones need */
	const char *reason;      /* why nothing is restored; NULL: something may be */
	const char *graph, *why; /* the first one that was refused or denied; NULL: none */
};

void md_outcome_line_write(const struct md_outcome *outcome, FILE *out);
/* line: without its end, followed by NUL. It is changed, and the texts point into it. MD_ERR_CORRUPT. */
enum md_status md_outcome_line_read(char *line, size_t size, struct md_outcome *out, struct md_error *err);

#endif
