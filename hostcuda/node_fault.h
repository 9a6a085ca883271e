/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that makes something else of a node than it was told, for tests of what finds that. */
#ifndef HOSTCUDA_NODE_FAULT_H
#define HOSTCUDA_NODE_FAULT_H

#include <stdbool.h>

/* HOSTCUDA_NODE_FAULT=WHAT: true if WHAT is this. */
bool hc_node_fault(const char *what);

#endif
