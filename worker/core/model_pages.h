/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of models, as clients of OpenAI's and llama-swap's interfaces read them. */
#ifndef MD_WORKER_CORE_MODEL_PAGES_H
#define MD_WORKER_CORE_MODEL_PAGES_H

#include <jansson.h>

#include "worker/core/model_rows.h"

/* For md_jansson_print, on any thread; the caller owns the reference. */
json_t *md_model_pages_list(const struct md_model_rows *rows,
			    int64_t began);                         /* /v1/models; began: seconds since 1970 */
json_t *md_model_pages_upstreams(const struct md_model_rows *rows); /* whose engines are /upstream/NAME/ */
json_t *md_model_pages_running(const struct md_model_rows *rows);   /* /running: engines that are not stopped */
/* /v1/models/NAME */
void md_model_pages_show(struct md_worker *worker, struct md_http_exchange *exchange, const char *name);

#endif
