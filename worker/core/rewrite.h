/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests: which model they name, and what the configuration changes in them. */
#ifndef MD_WORKER_CORE_REWRITE_H
#define MD_WORKER_CORE_REWRITE_H

#include "worker/config/config.h"

/* What a body says that the worker has to know. */
struct md_rewrite_body {
	json_t *json; /* the object; NULL: it is no JSON object */
	char model[256];
	bool stream;
};

/* False: it names no model, or one whose name has more than 255 bytes. md_rewrite_finish in both cases. */
bool md_rewrite_read(const char *body, size_t size, struct md_rewrite_body *read);
void md_rewrite_finish(struct md_rewrite_body *read);

/*
 * The body as the model's engine gets it: parameters stripped and set, the model's name replaced. *text is NULL if
 * nothing changes; else the caller frees it. False: out of memory.
 */
bool md_rewrite_apply(const struct md_config_model *model, struct md_rewrite_body *read, char **text, size_t *size);

#endif
