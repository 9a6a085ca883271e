/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One replay of a graph under test: it is launched, waited for until a deadline, and noted when it breaks the context.
 */
#ifndef MD_DRIVER_REPLAY_WATCH_H
#define MD_DRIVER_REPLAY_WATCH_H

#include "driver/cuda_driver.h"

/*
 * Launches exec on the stream and waits until the stream is done. *usual_ns is how long the first replay took; 0 before
 * that. If a command reads notes (base/note.h), two things are noted, and the command ends the process: a replay that
 * takes longer than MEDUSA_REPLAY_DEADLINE (seconds; default 30) and than a hundred times *usual_ns, which counts as
 * hung; and an error that makes the context unusable. Without a reader, this waits for ever, and an error is an error.
 */
enum md_status md_replay(CUgraphExec exec, CUstream stream, uint64_t *usual_ns, struct md_error *err);
/* Notes that the context is unusable, if it is: for a test that failed by something other than its replay. */
void md_replay_check_context(const struct md_error *why);

#endif
