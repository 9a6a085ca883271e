/* SPDX-License-Identifier: Apache-2.0 */
/* A node with fewer GPUs than its file says, or with more of the same. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/simulator.h"

static bool same_gpu(const struct medusa_sched_gpu *a, const struct medusa_sched_gpu *b)
{
	return a->memory_bytes == b->memory_bytes && a->slots == b->slots && a->pcie_switch == b->pcie_switch;
}

/* Why no more GPUs can be made; NULL: they can. */
static const char *why_not(const struct md_sim_node *node)
{
	uint32_t count = node->gpu_count;
	for (uint32_t i = 1; i < count; i++)
		if (!same_gpu(&node->gpus[0], &node->gpus[i]))
			return "its GPUs differ";
	if (node->switch_bytes_per_s > 0)
		return "its GPUs share the link of a PCIe switch";
	for (uint32_t i = 0; node->peer_bytes_per_s && i < count * count; i++)
		if (i / count != i % count && node->peer_bytes_per_s[i] != node->peer_bytes_per_s[1])
			return "its links between GPUs differ";
	return NULL;
}

static double peer_speed(const struct md_sim_node *node, uint32_t from, uint32_t to)
{
	if (from == to)
		return 0;
	if (from < node->gpu_count && to < node->gpu_count)
		return node->peer_bytes_per_s[from * node->gpu_count + to];
	return node->gpu_count > 1 ? node->peer_bytes_per_s[1] : 0; /* all are alike */
}

/* Adds GPUs like the first one. */
static bool add_gpus(struct md_sim_node *node, uint32_t count)
{
	struct medusa_sched_gpu *gpus = calloc(count, sizeof(*gpus));
	char **names = calloc(count, sizeof(*names));
	if (!gpus || !names) {
		free(gpus);
		free(names);
		return false;
	}
	memcpy(gpus, node->gpus, node->gpu_count * sizeof(*gpus));
	memcpy(names, node->gpu_names, node->gpu_count * sizeof(*names));
	free(node->gpus);
	free(node->gpu_names);
	node->gpus = gpus;
	node->gpu_names = names;
	for (; node->gpu_count < count; node->gpu_count++) {
		gpus[node->gpu_count] = gpus[0];
		if (asprintf(&names[node->gpu_count], "gpu%u", node->gpu_count) < 0)
			return false;
	}
	return true;
}

enum md_status md_sim_node_resize(struct md_sim_node *node, uint32_t count, struct md_error *err)
{
	const char *wrong = count > node->gpu_count ? why_not(node) : NULL;
	MD_AUTO_FREE double *peers = calloc((size_t)count * count + 1, sizeof(*peers));
	if (count == 0 || wrong)
		return md_error_set(err, MD_ERR_INVALID, "node %s: %u GPUs of %u: %s", node->name, count,
				    node->gpu_count, wrong ? wrong : "at least one is needed");
	for (uint32_t i = 0; peers && node->peer_bytes_per_s && i < count * count; i++)
		peers[i] = peer_speed(node, i / count, i % count);
	if (!peers || (count > node->gpu_count && !add_gpus(node, count)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u GPUs", count);
	while (node->gpu_count > count)
		free(node->gpu_names[--node->gpu_count]);
	if (node->peer_bytes_per_s) {
		free(node->peer_bytes_per_s);
		node->peer_bytes_per_s = md_steal_ptr(&peers);
	}
	return MD_OK;
}
