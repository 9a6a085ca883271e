/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which one the words of a kernel mean that are both the end of one binding and the beginning of the next. */
#ifndef MD_RESTORE_VERIFY_BORDER_WORDS_H
#define MD_RESTORE_VERIFY_BORDER_WORDS_H

#include "restore/restore.h"
#include "restore/verify/doubtful_words.h"

/*
 * Called after the graph was found equal. Replays the graph with copies of the second bindings at other places, and
 * reports the bindings of which each such word of the graph was shown to be the beginning. A word for which this is not
 * shown is no error; MD_ERR_UNPROVABLE names a word that is no beginning although the artifact takes it for one.
 * md_restore_work is held, and a note has begun.
 */
enum md_status md_verify_borders_prove(struct md_restore *r, struct md_restore_graph *graph,
				       const struct md_verify_replays *replays, struct md_error *err);

#endif
