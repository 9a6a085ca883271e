/* SPDX-License-Identifier: Apache-2.0 */
/* What the name of a request means: the active profile's pins, then selectors, models and models of peers. */
#ifndef MD_WORKER_CORE_NAMING_H
#define MD_WORKER_CORE_NAMING_H

#include "worker/core/worker.h"

enum md_naming { MD_NAMING_FOUND, MD_NAMING_UNKNOWN, MD_NAMING_DISABLED };

struct md_named {
	struct md_model *model; /* NULL: it is a peer's, or the node's: */
	struct md_view_node
	    *node; /* of the cluster; NULL: none. The naming does not set it, but worker/cluster/route.h */
	uint32_t peer;
	const char *peer_model; /* as the configuration lists it; NULL: it is none */
	const char *name;       /* whoever answers is asked for this one; NULL: for what the client has said */
};

/* DISABLED: the active profile has taken the name away. */
enum md_naming md_naming_find(struct md_worker *worker, const char *name, struct md_named *named);
/* The same without selectors, for paths that name whoever is to answer. */
enum md_naming md_naming_find_one(struct md_worker *worker, const char *name, struct md_named *named);

#endif
