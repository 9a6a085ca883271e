/* SPDX-License-Identifier: Apache-2.0 */
/* One replay of a graph under test: launched, waited for with a deadline, and noted when it breaks the context. */
#ifndef MD_DRIVER_REPLAY_WATCH_H
#define MD_DRIVER_REPLAY_WATCH_H

#include "driver/cuda_driver.h"

/*
 * Launches exec on the stream and waits until the stream is done. *usual_ns is how long the first one took; 0 before
 * that. With a reader of notes (base/note.h) a replay that takes longer than MEDUSA_REPLAY_DEADLINE (seconds, 30
 * unless set) and a hundred times what is usual counts as hung, and an error after which the context is of no more use
 * is noted; either ends the process. Without one this waits for ever, and an error is an error.
 */
enum md_status md_replay(CUgraphExec exec, CUstream stream, uint64_t *usual_ns, struct md_error *err);
/* Notes that the context is of no more use, if it is: after a test that failed otherwise than by its replay. */
void md_replay_check_context(const struct md_error *why);

#endif
