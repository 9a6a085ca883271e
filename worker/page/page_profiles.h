/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: which there are, and which one is active (GET /api/profiles, PUT /api/profiles/active). */
#ifndef MD_WORKER_PAGE_PAGE_PROFILES_H
#define MD_WORKER_PAGE_PAGE_PROFILES_H

#include "worker/core/worker.h"

/* False: it is another path or method. */
bool md_page_profiles_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);

#endif
