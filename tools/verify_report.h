/* SPDX-License-Identifier: Apache-2.0 */
/* What a verify run of an engine found out about each graph of an artifact. */
#ifndef MD_TOOLS_VERIFY_REPORT_H
#define MD_TOOLS_VERIFY_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "format/artifact.h"

enum md_verify_outcome {
	MD_VERIFY_SKIPPED = 0, /* some comparison, or all of them, did not take place */
	MD_VERIFY_PASSED = 1,  /* every comparison passed, and there was at least one */
	MD_VERIFY_FAILED = 2,  /* at least one comparison failed */
	/* All took place and none failed, but some differed where live graphs differ from one time to the next. */
	MD_VERIFY_NONDETERMINISTIC = 3,
};

struct md_verify_graph {
	char *label; /* owned */
	uint32_t batch;
	enum md_verify_outcome outcome;
	uint32_t comparisons, passed, nondeterministic;
	uint64_t bytes; /* compared, in all comparisons */
	char *reason;   /* owned; of the first failure, else skip, else nondeterministic one; "" when passed */
	enum md_verify_outcome reason_of;
};

struct md_verify_report {
	struct md_verify_graph *graphs; /* owned; those of the artifact, in its order */
	size_t graph_count;
	bool complete;    /* the restore library ended its report */
	int exit_code;    /* of the command, as in a shell */
	size_t strangers; /* lines about graphs that the artifact does not hold */
};

/*
 * Runs the command with the restore library in verify mode and collects its report. A command that fails is no error
 * here (see exit_code); one that cannot be started is.
 */
enum md_status md_verify_run(const char *artifact_path, char *const argv[], struct md_verify_report *out,
			     struct md_error *err);

/*
 * Reads a report: one line "label<TAB>batch<TAB>VERDICT<TAB>bytes<TAB>reason" a comparison, VERDICT being
 * pass, fail, skipped or nondeterministic, and "end" at the
 * end. Errors name the line; out then needs no finish.
 */
enum md_status md_verify_parse(FILE *in, const struct md_artifact *artifact, struct md_verify_report *out,
			       struct md_error *err);

/*
 * Graphs that passed get MD_PROOF_REPLAY; those that failed leave the artifact and become refusals with the reason. All
 * others keep what they had.
 */
enum md_status md_verify_apply(const struct md_verify_report *report, struct md_artifact *artifact,
			       struct md_error *err);

size_t md_verify_count(const struct md_verify_report *report, enum md_verify_outcome outcome);
const char *md_verify_outcome_name(enum md_verify_outcome outcome); /* "passed" ... */
void md_verify_print_table(const struct md_verify_report *report, FILE *out);
void md_verify_print_json(const struct md_verify_report *report, FILE *out);
void md_verify_print_junit(const struct md_verify_report *report, FILE *out);
void md_verify_finish(struct md_verify_report *report);

#endif
