/* SPDX-License-Identifier: Apache-2.0 */
/* A process that has done what engines begin with, such as imports, and forks engines: started, and started again. */
#ifndef MD_WORKER_ENGINE_TEMPLATE_H
#define MD_WORKER_ENGINE_TEMPLATE_H

#include "worker/engine/process.h"

/* In the environment of a template: the path of the Unix socket at which it listens. */
#define MD_ENGINE_TEMPLATE_SOCKET "MEDUSA_TEMPLATE_SOCKET"

struct md_engine_template;

/* Borrowed, and unchanged while the template is there. */
struct md_engine_template_settings {
	const char *name;
	char *const *argv;
	const char *const *environment; /* "NAME=VALUE", ends with NULL; with MD_ENGINE_TEMPLATE_SOCKET */
	const char *socket;
	int output;
};

/* Starts it. If it ends, it is started again after 1, 2, 4 ... 64 s, until it has forked an engine. NULL: out of memory. */
struct md_engine_template *md_engine_template_create(struct event_base *base, struct md_engine_processes *processes,
						     const struct md_engine_template_settings *settings);
/* Kills it; engines that it has forked go on. NULL is fine. */
void md_engine_template_destroy(struct md_engine_template *template);
const struct md_engine_template_settings *md_engine_template_settings(const struct md_engine_template *template);
void md_engine_template_served(struct md_engine_template *template); /* it has forked an engine */

#endif
