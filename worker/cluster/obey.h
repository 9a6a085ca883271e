/* SPDX-License-Identifier: Apache-2.0 */
/* Does what the cluster's leader has placed on this node: models are kept on its GPUs, or loaded ahead of requests. */
#ifndef MD_WORKER_CLUSTER_OBEY_H
#define MD_WORKER_CLUSTER_OBEY_H

#include <jansson.h>
#include <stdbool.h>

struct md_worker;
struct md_obey;

struct md_obey *md_obey_create(struct md_worker *worker); /* NULL: out of memory */
void md_obey_destroy(struct md_obey *obey);               /* NULL is fine */
/*
 * Now and then: models: {"MODEL": "kept" or "wanted"}, borrowed for this call; NULL: none. loads: whether what is wanted may be loaded now; what is
 * kept is kept in any case. A load that has ended badly is tried again after a while.
 */
void md_obey_look(struct md_obey *obey, const json_t *models, bool loads);

#endif
