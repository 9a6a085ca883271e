/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of the artifact in this process, in files: a report for people, and a line that medusa-restore judges by. */
#ifndef MD_RESTORE_OUTCOME_H
#define MD_RESTORE_OUTCOME_H

#include "restore/restore.h"

/*
 * MEDUSA_REPORT is the file of the report (format/outcome_line.h has the line, which lies in the folder MEDUSA_OUTCOMES). Where neither is
 * set, the functions below do nothing. Files are replaced whole.
 *
 * They are written when every graph is restored or refused, when the artifact is refused as a whole, when the engine was not given a
 * graph, and before the restore ends; never by a process that neither binds a buffer nor asks for a graph.
 */
void md_outcome_init(const struct md_restore *r);

/* The engine uses the restore: it has bound a buffer. */
void md_outcome_engaged(void);
/* The engine has asked for the graph: it was handed out, or why not. expected: the artifact itself says that it lacks the graph. */
void md_outcome_asked(struct md_restore *r, const char *label, unsigned batch, const struct md_error *why,
		      bool expected) MD_REQUIRES(md_restore_lock);
/* The engine has said that it has all that it wants. */
void md_outcome_complete(void);
/*
 * A graph has become ready. Whether all of them are is noted here: before the background comes to its next step, the engine may be at
 * its end, and free what graphs need.
 */
void md_outcome_ready(const struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* Graphs, or all of them, have got another state. */
void md_outcome_changed(void);

/* True if there is something new to write. */
bool md_outcome_due(void);
/* Writes what is new. */
void md_outcome_write(struct md_restore *r);
/* The same by a thread of the engine: the background writes, or, if it has ended, this thread does, now and then. */
void md_outcome_tell(struct md_restore *r);
/* The same as the last time, in any case: nothing is restored from here on. */
void md_outcome_end(struct md_restore *r);

#endif
