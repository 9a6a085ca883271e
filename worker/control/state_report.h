/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says of itself as JSON: to the control socket, and to the status page. Made on any thread, but for the node. */
#ifndef MD_WORKER_CONTROL_REPORT_H
#define MD_WORKER_CONTROL_REPORT_H

#include <jansson.h>

#include "worker/core/model_rows.h"

/*
 * {"pid", "version", "uptime_s", "port", "draining", "models", "loaded", "waiting", "running", "served", "refused",
 * "failed", "cancelled", "gpus": [{"gpu", "limit_bytes", "used_bytes", "shared_bytes", "foreign_bytes", "kv_bytes", "running", "waiting", "present"}]}. A limit
 * of null: nobody has stated the GPU's memory. The caller owns the reference; NULL: out of memory.
 */
json_t *md_report_status(const struct md_model_rows *rows, const char *node);
/* The part of it that is not about models, as a text for it: made in the loop, for free(). NULL: out of memory. */
char *md_report_node(const struct md_worker *worker);
/*
 * [{"model", "state", "gpu" (null: on none), "memory_bytes" (null: not stated), "waiting", "running", "served",
 * "refused", "failed", "cancelled", "failures" (of the engine), "loads", "first_token_s" and "completion_s" ({"count", "p50", "p90", "p99"}: upper bounds, null
 * if there is none), "last_failure" (null: none), "base" (of an adapter: its model; else null)}], each model before its
 * adapters.
 */
json_t *md_report_models(const struct md_model_rows *rows);

#endif
