/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM and SIGHUP: passed on to the engine while one runs; temporary files are removed at the end. */
#ifndef MD_TOOLS_STOP_H
#define MD_TOOLS_STOP_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * From here on a signal does not end this process at once. While a child runs, the signal is passed on to it, and the
 * caller asks md_stop_signal() when the child has ended. While none runs, the paths given to md_stop_remove() are
 * removed, and the process ends with 128 + number. Signals that were ignored (nohup) stay ignored. SIGPIPE and SIGXFSZ
 * are ignored, because results matter more than messages. False if this was called before.
 */
bool md_stop_watch(void);
void md_stop_unwatch(void);

/* The first signal that came while a child ran, or 0; and whether a terminal sent it, to the child as well. */
int md_stop_signal(void);
bool md_stop_came_from_terminal(void);
/* Forgets the signal: the child was told to end, and that was its only purpose. */
void md_stop_forget(void);

/*
 * A file, or a folder with its files, that is removed when this process is told to end; at most 32. Removed in reverse
 * order; the first one, a lock, stays if another one could not be removed, so that the next run knows of it.
 */
void md_stop_remove(const char *path);
void md_stop_remove_nothing(void);

/* ---- around fork ---- */

/*
 * Signals wait from _hold to _release. _child makes a child known, _child(0) forgets it; -1: the child's id is not
 * known, and nothing is passed on. Called in the child, it restores the original handling.
 */
void md_stop_hold(void);
void md_stop_release(void);
void md_stop_child(pid_t child);
void md_stop_in_child(void);

#endif
