/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of what there is to say of models, made in the loop in parts, for whoever prints it on a thread. */
#ifndef MD_WORKER_CORE_MODEL_ROWS_H
#define MD_WORKER_CORE_MODEL_ROWS_H

#include "worker/cluster/cluster_report.h"
#include "worker/core/printer.h"
#include "worker/core/worker.h"

/* Upper bounds of the times in which so many of all requests have ended; ns; UINT64_MAX: there is none. */
struct md_row_latency {
	uint64_t count, p50, p90, p99;
};

/* Of a model that is not stopped, or that anything has happened to. */
struct md_row_used {
	uint32_t gpu;
	uint64_t running, waiting, starts, failures;
	uint64_t memory; /* of its engine's processes */
	bool counted;    /* which is known */
	struct md_usage usage;
	struct md_metrics_requests requests;
	struct md_metrics_histogram histograms[MD_MODEL_HISTOGRAMS];
	struct md_learned learned;
	struct md_row_latency first_token, completion;
	char last_failure[256];
};

struct md_model_row {
	const struct md_worker_config *from; /* held as long as the row is there */
	const struct md_config_model *config;
	enum md_engine_state state;
	struct md_row_used *used; /* NULL: all of it is zero */
};

struct md_model_rows {
	const struct md_worker_config *config; /* held as long as the rows are there */
	struct md_reload *holder;
	struct md_model_row *rows; /* of all models of the configuration, by their indexes there */
	uint32_t count;            /* that were copied */
	struct md_model_row *left; /* models that the configuration does not have any more, and whose engine is there */
	uint32_t left_count, left_room;
	struct md_cluster_names elsewhere; /* models of other nodes of the cluster */
};

/* Copies a part; *rows is NULL at first. It begins again where a reload has come in between. */
enum md_printer_step md_model_rows_copy(struct md_worker *worker, struct md_model_rows **rows);
void md_model_rows_free(struct md_model_rows *rows); /* in the loop; NULL is fine */
/* The ID of the model whose adapter it is; NULL: it is none. */
const char *md_model_row_base(const struct md_model_row *row);

#endif
