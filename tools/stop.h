/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM and SIGHUP: passed on to the engine while one runs; what was made on the way is removed
 * at the end. */
#ifndef MD_TOOLS_STOP_H
#define MD_TOOLS_STOP_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * From here on a signal does not end this process at once. While a child runs it is passed on, and the caller asks
 * md_stop_signal() when that has ended. While none runs, what md_stop_remove() was told of is removed and the process
 * ends with 128 + number. Signals that were ignored (nohup) stay so. SIGPIPE and SIGXFSZ are ignored: results matter
 * more than messages. False when it was so before.
 */
bool md_stop_watch(void);
void md_stop_unwatch(void);

/* The first signal that came while a child ran, or 0; whether a terminal sent it, to the child as well. */
int md_stop_signal(void);
bool md_stop_came_from_terminal(void);
/* Takes it as heard: the child was told to end, and that was all. */
void md_stop_forget(void);

/*
 * A file, or a folder with the files in it, that goes when the process is told to end; at most 32. The last one goes
 * first; the first one, a lock, stays if one of the others does, so that the next run knows of it.
 */
void md_stop_remove(const char *path);
void md_stop_remove_nothing(void);

/* ---- around fork ---- */

/*
 * Signals wait from _hold to _release; a child is known from _child to _child(0), -1: there is one of unknown number,
 * and nothing is passed on. In the child: all is as it was.
 */
void md_stop_hold(void);
void md_stop_release(void);
void md_stop_child(pid_t child);
void md_stop_in_child(void);

#endif
