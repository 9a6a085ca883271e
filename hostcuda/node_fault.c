/* SPDX-License-Identifier: Apache-2.0 */
/* HOSTCUDA_NODE_FAULT: what is changed in nodes that calls add to a graph, and in functions; captured nodes are as they were captured. */
#include "hostcuda/node_fault.h"

#include <stdlib.h>
#include <string.h>

bool hc_node_fault(const char *what)
{
	const char *wanted = secure_getenv("HOSTCUDA_NODE_FAULT");
	return wanted && !strcmp(wanted, what);
}
