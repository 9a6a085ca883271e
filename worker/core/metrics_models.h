/* SPDX-License-Identifier: Apache-2.0 */
/* What /metrics says of models. */
#ifndef MD_WORKER_CORE_METRICS_MODELS_H
#define MD_WORKER_CORE_METRICS_MODELS_H

#include <stdio.h>

#include "worker/core/model_rows.h"

bool md_metrics_models_print(const struct md_model_rows *rows, FILE *out); /* false: out of memory */

#endif
