/* SPDX-License-Identifier: Apache-2.0 */
/* What /metrics says of the daemon, its GPUs and its tenants: few lines, however many models there are. */
#ifndef MD_WORKER_CORE_METRICS_NODE_H
#define MD_WORKER_CORE_METRICS_NODE_H

#include <stdio.h>

struct md_worker;

void md_metrics_node_print(struct md_worker *worker, FILE *out);

#endif
