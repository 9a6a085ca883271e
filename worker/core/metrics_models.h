/* SPDX-License-Identifier: Apache-2.0 */
/* What /metrics says of each model: copied in the loop, where it is one moment's, and printed on a thread. */
#ifndef MD_WORKER_CORE_METRICS_MODELS_H
#define MD_WORKER_CORE_METRICS_MODELS_H

#include <stdio.h>

struct md_metrics_models;
struct md_worker;

struct md_metrics_models *md_metrics_models_copy(const struct md_worker *worker); /* NULL: out of memory */
void md_metrics_models_free(struct md_metrics_models *models);                    /* NULL is fine */
void md_metrics_models_print(const struct md_metrics_models *models, FILE *out);  /* on any thread */

#endif
