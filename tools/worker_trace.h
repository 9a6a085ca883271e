/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded requests of a daemon as files for medusa-simulate. */
#ifndef MD_TOOLS_WORKER_TRACE_H
#define MD_TOOLS_WORKER_TRACE_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

/*
 * answer: the daemon's to the verb "trace" (worker/control/trace_report.h). Writes node.yaml, functions.yaml and trace.csv
 * into the folder, which is made if need be, and prints what they hold and the command that replays them. since: in
 * seconds since 1970.
 */
enum md_status md_worker_trace_write(const json_t *answer, int64_t since, const char *folder, struct md_error *err);

#endif
