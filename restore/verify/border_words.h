/* SPDX-License-Identifier: Apache-2.0 */
/* Words of kernels that are the end of one binding and the beginning of the next: which of the two they mean. */
#ifndef MD_RESTORE_VERIFY_BORDER_WORDS_H
#define MD_RESTORE_VERIFY_BORDER_WORDS_H

#include "restore/restore.h"
#include "restore/verify/doubtful_words.h"

/*
 * After the graph was found equal. Replays it with copies of the second bindings at other places, and reports the
 * bindings of which each such word of the graph was shown to be the beginning. What is not shown is no error, but
 * MD_ERR_UNPROVABLE names a word that is no beginning although the artifact takes it for one. Holds work; a note is
 * begun.
 */
enum md_status md_verify_borders_prove(struct md_restore *r, struct md_restore_graph *graph,
				       const struct md_verify_replays *replays, struct md_error *err);

#endif
