/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulation of the daemon needs to know of it, as JSON: medusa-workerctl trace. */
#ifndef MD_WORKER_CONTROL_TRACE_REPORT_H
#define MD_WORKER_CONTROL_TRACE_REPORT_H

#include "worker/core/printer.h"

/*
 * {"state": path of the SQLite file, "gpus": [{"memory_bytes"}], "policies": {KIND: name}, "retries", "ruled": groups or a matrix,
 * "tenants": [{"name", "weight", "max_waiting", "max_running"}], "models": [{"model", "memory_bytes", "kv_bytes", "max_batch", "swaps",
 * "load_s", "start_s", "leave_s", "first_token_s", "keep_alive_s", "slo_s", "goal", "min_replicas", "pinned"}]}. Times are
 * what the scheduler counts on; load_s: of a swap-in, or of a start if the model is not swapped. As struct md_printer_kind wants them.
 */
enum md_printer_step md_trace_copy(struct md_worker *worker, void **copy);
bool md_trace_print(const void *copy, FILE *out);
void md_trace_free(void *copy);

#endif
