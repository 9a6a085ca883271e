/* SPDX-License-Identifier: Apache-2.0 */
/* How a model of this node stands: where it is, how long a first token takes from there, and who waits for it. */
#ifndef MD_WORKER_CLUSTER_STANDING_H
#define MD_WORKER_CLUSTER_STANDING_H

#include "scheduler/cluster/first_token.h"

struct md_model;

/* As the model is, on this node. */
void md_standing_of(const struct md_model *model, struct md_standing *standing);
/* As a model is of which nothing has been measured, and which nobody has asked for. */
void md_standing_unused(const struct md_model *model, struct md_standing *standing);

#endif
