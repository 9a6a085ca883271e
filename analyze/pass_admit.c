/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: refuses graphs whose pointers are proven but that a restore could not serve. */
#include <inttypes.h>
#include <string.h>

#include "analyze/analysis.h"

static void refuse_foreign_memory(const struct md_analysis *analysis, struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->findings.count; i++) {
		const struct md_finding *finding = &pair->findings.items[i];
		const struct md_view_alloc *alloc = &analysis->views[0].allocs[finding->target.alloc];

		if (finding->target.binding != MD_NONE ||
		    (alloc->family != MD_ALLOC_HOST && alloc->family != MD_ALLOC_GLOBAL))
			continue;
		md_pair_refuse(pair,
			       "node %" PRIu32 ": byte %" PRIu32 " points to %s (allocation %" PRIu32 ", %" PRIu64
			       " bytes), which a restore does not own%s",
			       finding->node, finding->at,
			       alloc->family == MD_ALLOC_HOST ? "host memory" : "a module global",
			       finding->target.alloc, alloc->size,
			       alloc->family == MD_ALLOC_HOST ? ": the engine must bind it" : "");
		return;
	}
}

static bool name_is_unique(const struct md_trace *trace, uint32_t kernel)
{
	for (uint32_t i = 0; i < trace->kernel_count; i++) {
		if (i != kernel && strcmp(trace->kernels[i].name, trace->kernels[kernel].name) == 0)
			return false;
	}
	return true;
}

/* Without its image a kernel can only be found by its name, which then has to say which one it is. */
static void refuse_nameless_kernels(const struct md_analysis *analysis, struct md_pair *pair)
{
	const struct md_trace *trace = analysis->traces[0];

	for (uint32_t n = 0; n < pair->graph[0]->node_count; n++) {
		const struct md_node *node = &pair->graph[0]->nodes[n];
		uint32_t kernel;
		if (node->type != MD_NODE_KERNEL)
			continue;
		kernel = analysis->kernel_identity[0][node->kernel];
		if (trace->kernels[kernel].image != MD_NONE || name_is_unique(trace, kernel))
			continue;
		md_pair_refuse(pair,
			       "node %" PRIu32 ": the image of kernel %s is not known, and another kernel has its name",
			       n, trace->kernels[kernel].name);
		return;
	}
}

enum md_status md_pass_admit(struct md_analysis *analysis, struct md_error *err)
{
	(void)err;
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		if (analysis->pairs[i].why)
			continue;
		refuse_foreign_memory(analysis, &analysis->pairs[i]);
		refuse_nameless_kernels(analysis, &analysis->pairs[i]);
	}
	return MD_OK;
}
