/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a verify run for each graph of an artifact. */
#ifndef MD_TOOLS_VERIFY_REPORT_H
#define MD_TOOLS_VERIFY_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "format/artifact/artifact.h"
#include "tools/repeat.h"

enum md_verify_outcome {
	MD_VERIFY_SKIPPED = 0, /* some comparison, or every one, did not take place */
	MD_VERIFY_PASSED = 1,  /* every comparison passed, and there was at least one */
	MD_VERIFY_FAILED = 2,  /* at least one comparison failed, or never ended */
	/*
	 * Every comparison took place and none failed, but some values differed that differ between live replays, too.
	 */
	MD_VERIFY_NONDETERMINISTIC = 3,
};

struct md_verify_graph {
	char *label; /* owned */
	uint32_t batch;
	enum md_verify_outcome outcome;
	uint32_t comparisons, passed, nondeterministic;
	uint64_t bytes; /* compared, in all comparisons */
	/*
	 * owned; of the first failure, else of the first skip, else of the first nondeterministic comparison; "" when
	 * passed
	 */
	char *reason;
	enum md_verify_outcome reason_of;
	char *owed;       /* owned; what is missing for its comparisons to count, or NULL */
	uint32_t begun;   /* comparisons that began and have no result */
	uint32_t *begins; /* owned; bindings whose beginning an address at a border was shown to be */
	uint32_t begins_count;
	bool stranger;                        /* the engine captured it now, and the artifact does not hold it */
	uint64_t noise[MD_DOUBTFUL_MAX / 64]; /* a bit for each doubtful word that was proven to be noise */
};

struct md_verify_report {
	struct md_verify_graph *graphs; /* owned; those of the artifact, in its order, and strangers */
	size_t graph_count;
	bool complete; /* the restore library ended its report */
	bool reached;  /* what --until names has happened, or the engine has said that it is complete */
	int exit_code; /* of the command, as a shell reports it */
	/* Set by the caller that ran it: missing comparisons of these graphs count as skipped, not as failed. */
	struct md_tolerance tolerance; /* given: nondeterministic graphs were judged by it, and are accepted */
	bool allow_uncompared, allow_strangers;
};

/* For later runs: graphs that were always compared on equal inputs pass. */
void md_verify_accept_unvaried(bool accept);

/*
 * Runs the command with the restore library in verify mode and collects its report (of a bundle one for each rank, ranks
 * of them; 0: no bundle), which lies in the workplace for
 * that time; again, without the graph whose comparison breaks it. A command that fails is no error here (see
 * exit_code); one that cannot be started is, or that is broken too often. repeat->late says that the run was ended because it
 * took too long, before everything was compared.
 */
enum md_status md_verify_run(const char *artifact_path, uint32_t ranks, char *const argv[], struct md_repeat *repeat,
			     struct md_verify_report *out, struct md_error *err);

/*
 * Reads a report (docs/format.md). Nothing in it is passed over but graphs that the artifact has refused: a line that
 * is none, or that compares a graph which the artifact does not hold, is an error that names the line; out then needs
 * no finish. A last line without its end was not written whole: the report is not complete.
 */
enum md_status md_verify_parse(FILE *in, const struct md_artifact *artifact, struct md_verify_report *out,
			       struct md_error *err);

/* The graph leaves the artifact, and becomes a refusal: "WHAT: REASON". */
enum md_status md_verify_refuse_graph(struct md_artifact *artifact, uint32_t index, const char *what,
				      const char *reason, struct md_error *err);

/* NULL: the report does not mention the graph. */
struct md_verify_graph *md_verify_find(const struct md_verify_report *report, const char *label, uint32_t batch);

/*
 * Graphs that passed get MD_PROOF_REPLAY; those that failed, or were not compared although they had to be, leave the
 * artifact and become refusals with the reason; strangers become refusals. Nondeterministic ones stay when the report's
 * tolerance was given, and have it from then on; else they are refused, too. Bindings need not lie right behind others
 * any more where each graph that stays was shown not to need it.
 */
enum md_status md_verify_apply(const struct md_verify_report *report, struct md_artifact *artifact,
			       struct md_error *err);

/* The graph was not compared, although it had to be. */
bool md_verify_missed(const struct md_verify_report *report, const struct md_verify_graph *graph);
/* NULL: the run's result can be relied on; otherwise why it cannot. */
const char *md_verify_doubtful(const struct md_verify_report *report);
size_t md_verify_count(const struct md_verify_report *report, enum md_verify_outcome outcome);
/* ranks: how many reports there are, of a bundle; 0: one, of no bundle. */
void md_verify_print_table(const struct md_verify_report *reports, uint32_t ranks, FILE *out);
void md_verify_print_json(const struct md_verify_report *reports, uint32_t ranks, FILE *out);
void md_verify_print_junit(const struct md_verify_report *reports, uint32_t ranks, FILE *out);
/* For a run without a report. */
void md_verify_print_junit_error(const char *why, FILE *out);
void md_verify_finish(struct md_verify_report *report);

#endif
