/* SPDX-License-Identifier: Apache-2.0 */
/* A process that writes what engines print into their logs, each of which it holds to a limit. */
#ifndef MD_WORKER_CORE_LOG_WRITER_H
#define MD_WORKER_CORE_LOG_WRITER_H

#include <event2/event.h>
#include <stdbool.h>

#include "base/status.h"

/*
 * An engine prints into a pipe, which this process reads: so no engine waits for the daemon, or ends with it, and none
 * prints more than there is room for. A log is PATH, and what came before it is PATH.1.
 */
#define MD_LOG_WRITER_MAX (8u << 20) /* bytes of both together */

struct md_log_writer;
struct md_log_pipe;

/*
 * Forks the process, which ends when the daemon and all engines that print have ended; when it ends earlier, another one
 * follows. copies: what engines print is written to standard output, too, as far as that takes it. NULL: errno says why.
 */
struct md_log_writer *md_log_writer_create(struct event_base *base, bool copies);
void md_log_writer_destroy(struct md_log_writer *writer); /* NULL is fine */

/* A pipe into the log at this path. */
enum md_status md_log_pipe_create(struct md_log_writer *writer, const char *path, struct md_log_pipe **pipe,
				  struct md_error *err);
void md_log_pipe_destroy(struct md_log_pipe *pipe);     /* the daemon's end of it; NULL is fine */
int md_log_pipe_output(const struct md_log_pipe *pipe); /* for the engine */

/* ---- log_process.c: the process itself ---- */

/* Takes "descriptor of a pipe, path" from the socket and writes until that and all pipes are closed. copy: -1, or where to. */
void md_log_process_run(int socket, int copy);

#endif
