/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus's text format (0.0.4). */
#ifndef MD_WORKER_CORE_METRICS_TEXT_H
#define MD_WORKER_CORE_METRICS_TEXT_H

#include <stdio.h>

#define MD_METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The two lines before those of a metric. */
void md_metrics_text_begin(FILE *out, const char *prefix, const char *name, const char *type, const char *help);
void md_metrics_text_label(FILE *out, const char *value); /* as it stands between quotes */

#endif
