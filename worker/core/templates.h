/* SPDX-License-Identifier: Apache-2.0 */
/* The templates of the configuration with which the daemon began, and what they print. */
#ifndef MD_WORKER_CORE_TEMPLATES_H
#define MD_WORKER_CORE_TEMPLATES_H

#include "base/status.h"

struct md_engine_template;
struct md_worker;

/* Starts them. folder: for their sockets; others than this user have no access there. */
enum md_status md_templates_create(struct md_worker *worker, const char *folder, struct md_error *err);
void md_templates_destroy(struct md_worker *worker); /* engines that they have forked go on */
/* NULL: there is none of this name. */
struct md_engine_template *md_templates_find(const struct md_worker *worker, const char *name);

#endif
