/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests: which model they name, and what the configuration changes in them. */
#ifndef MD_WORKER_CORE_REWRITE_H
#define MD_WORKER_CORE_REWRITE_H

#include "worker/config/config.h"
#include "worker/core/body_scan.h"
#include "worker/core/target.h"

/* What a body says that the worker has to know. */
struct md_rewrite_body {
	const char *text; /* borrowed */
	size_t size;
	struct md_body_object object;
	char model[MD_TARGET_MAX]; /* "": it names none */
	bool stream;
	char why[160];  /* it is no body for a model: a sentence without its end */
	bool no_memory; /* it may be a good one */
};

/* A NUL must follow the body. False: `why` says why, nothing is to be finished. */
bool md_rewrite_read(const char *body, size_t size, struct md_rewrite_body *read);
void md_rewrite_finish(struct md_rewrite_body *read);

/* What is to be changed. */
struct md_rewrite_wish {
	const struct md_config_filters *filters;
	const char *asked; /* by_id: for this name */
	const char *name;  /* stands as "model" then; NULL or "": what stood there */
};

/*
 * The body as whoever answers gets it: parameters stripped and set, the model's name replaced; all other bytes are as
 * they were. *text is NULL if nothing changes; else the caller frees it. False: `why` says why.
 */
bool md_rewrite_apply(const struct md_rewrite_wish *wish, struct md_rewrite_body *read, char **text, size_t *size);

#endif
