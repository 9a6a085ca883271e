/* SPDX-License-Identifier: Apache-2.0 */
/* node.yaml: the GPUs of a node, their links and prices. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/config/fields.h"
#include "simulator/simulator.h"

#define SPEED_LEAST 1e3 /* bytes per second; a lower speed would stop time */

struct config {
	struct md_sim_node node;
	uint32_t gpus, peers; /* indices of their YAML nodes */
	double peer_speed;
};

#define FIELD(member) offsetof(struct config, member)

static const struct md_sim_field node_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, FIELD(node.name), .required = true),
    MD_SIM_FIELD("source", MD_SIM_TEXT, FIELD(node.source), .required = true),
    MD_SIM_FIELD("gpus", MD_SIM_NESTED, FIELD(gpus), .required = true),
    MD_SIM_FIELD("host_memory", MD_SIM_BYTES, FIELD(node.host_bytes)),
    MD_SIM_FIELD("host_speed", MD_SIM_SPEED, FIELD(node.host_bytes_per_s), .required = true, .low = SPEED_LEAST,
		 .high = 1e15),
    MD_SIM_FIELD("switch_speed", MD_SIM_SPEED, FIELD(node.switch_bytes_per_s), .low = SPEED_LEAST, .high = 1e15),
    MD_SIM_FIELD("cold_speed", MD_SIM_SPEED, FIELD(node.cold_bytes_per_s), .low = SPEED_LEAST, .high = 1e15),
    MD_SIM_FIELD("peer_speed", MD_SIM_SPEED, FIELD(peer_speed), .low = SPEED_LEAST, .high = 1e15),
    MD_SIM_FIELD("peers", MD_SIM_NESTED, FIELD(peers)),
    MD_SIM_FIELD("prefill_share", MD_SIM_NUMBER, FIELD(node.prefill_share), .high = 10),
    MD_SIM_FIELD("decode_share", MD_SIM_NUMBER, FIELD(node.decode_share), .high = 10),
    MD_SIM_FIELD("native_instance", MD_SIM_BYTES, FIELD(node.native_instance_bytes)),
    MD_SIM_FIELD("gpu_price", MD_SIM_NUMBER, FIELD(node.gpu_price_per_h), .high = 1e6),
    MD_SIM_FIELD("host_gb_price", MD_SIM_NUMBER, FIELD(node.host_gb_price_per_h), .high = 1e6),
    MD_SIM_FIELD("allocation_time", MD_SIM_TIME, FIELD(node.allocation_ns), .high = 60e9),
    MD_SIM_FIELD("allocation_block", MD_SIM_BYTES, FIELD(node.allocation_block_bytes), .low = 4096, .high = 1e15),
    MD_SIM_FIELD("report_every", MD_SIM_TIME, FIELD(node.report_every_ns), .low = 1e6, .high = 3600e9),
    MD_SIM_FIELD("report_lag", MD_SIM_TIME, FIELD(node.report_lag_ns), .high = 3600e9),
};

struct gpu {
	char *name;
	struct medusa_sched_gpu spec;
	uint32_t count;
};

static const struct md_sim_field gpu_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, offsetof(struct gpu, name)),
    MD_SIM_FIELD("memory", MD_SIM_BYTES, offsetof(struct gpu, spec.memory_bytes), .required = true, .low = 1e6,
		 .high = 1e15),
    MD_SIM_FIELD("switch", MD_SIM_COUNT, offsetof(struct gpu, spec.pcie_switch), .high = MD_SIM_GPUS_MAX - 1),
    MD_SIM_FIELD("slots", MD_SIM_COUNT, offsetof(struct gpu, spec.slots), .low = 1, .high = 1024),
    MD_SIM_FIELD("count", MD_SIM_COUNT, offsetof(struct gpu, count), .low = 1, .high = MD_SIM_GPUS_MAX),
};

struct peer {
	uint32_t from, to;
	double speed;
	int one_way;
};

static const struct md_sim_field peer_fields[] = {
    MD_SIM_FIELD("from", MD_SIM_COUNT, offsetof(struct peer, from), .required = true),
    MD_SIM_FIELD("to", MD_SIM_COUNT, offsetof(struct peer, to), .required = true),
    MD_SIM_FIELD("speed", MD_SIM_SPEED, offsetof(struct peer, speed), .required = true, .low = SPEED_LEAST,
		 .high = 1e15),
    MD_SIM_FIELD("one_way", MD_SIM_FLAG, offsetof(struct peer, one_way)),
};

static enum md_status out_of_memory(const struct md_sim_yaml *yaml, struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for the node", yaml->name);
}

/* ---- GPUs ---- */

static enum md_status add_gpus(const struct md_sim_yaml *yaml, uint32_t at, const char *path, const struct gpu *gpu,
			       struct md_sim_node *node, struct md_error *err)
{
	uint32_t total = node->gpu_count + gpu->count;
	if (total > MD_SIM_GPUS_MAX)
		return md_sim_fields_refuse(yaml, at, path, "count", err, "more than %u GPUs", MD_SIM_GPUS_MAX);
	for (; node->gpu_count < total; node->gpu_count++) {
		char **name = &node->gpu_names[node->gpu_count];
		int length;
		if (gpu->name && gpu->count == 1)
			length = asprintf(name, "%s", gpu->name);
		else
			length = asprintf(name, "%s%u", gpu->name ? gpu->name : "gpu", node->gpu_count);
		if (length < 0) {
			*name = NULL;
			return out_of_memory(yaml, err);
		}
		node->gpus[node->gpu_count] = gpu->spec;
	}
	return MD_OK;
}

static enum md_status read_gpus(const struct md_sim_yaml *yaml, uint32_t list, struct md_sim_node *node,
				struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, gpu_fields);
	uint32_t i = 0;
	if (yaml->nodes[list].kind != MD_SIM_SEQUENCE || !yaml->nodes[list].count)
		return md_sim_fields_refuse(yaml, list, "gpus", NULL, err, "a list of at least one GPU is expected");
	node->gpus = calloc(MD_SIM_GPUS_MAX, sizeof(*node->gpus));
	node->gpu_names = calloc(MD_SIM_GPUS_MAX, sizeof(*node->gpu_names));
	if (!node->gpus || !node->gpu_names)
		return out_of_memory(yaml, err);
	for (uint32_t at = yaml->nodes[list].first; at; at = yaml->nodes[at].next, i++) {
		struct gpu gpu = {.spec = {.size = sizeof(gpu.spec)}, .count = 1};
		uint64_t seen = 0;
		char path[32];
		snprintf(path, sizeof(path), "gpus[%" PRIu32 "]", i);
		enum md_status status = md_sim_fields_read(&fields, at, path, &gpu, &seen, err);
		if (status == MD_OK)
			status = md_sim_fields_require(&fields, at, path, seen, err);
		if (status == MD_OK)
			status = add_gpus(yaml, at, path, &gpu, node, err);
		free(gpu.name);
		MD_FORWARD(status);
	}
	return MD_OK;
}

/* ---- links among GPUs ---- */

static enum md_status make_peers(const struct md_sim_yaml *yaml, double speed, struct md_sim_node *node,
				 struct md_error *err)
{
	uint32_t count = node->gpu_count;
	node->peer_bytes_per_s = calloc((size_t)count * count, sizeof(*node->peer_bytes_per_s));
	if (!node->peer_bytes_per_s)
		return out_of_memory(yaml, err);
	for (uint32_t from = 0; from < count; from++)
		for (uint32_t to = 0; to < count; to++)
			node->peer_bytes_per_s[from * count + to] = from == to ? 0 : speed;
	return MD_OK;
}

/* given: links by from and to, gpu_count x gpu_count */
static enum md_status read_peer(const struct md_sim_yaml *yaml, uint32_t at, const char *path,
				const struct md_sim_node *node, bool *given, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, peer_fields);
	uint32_t count = node->gpu_count;
	struct peer peer = {0};
	uint64_t seen = 0;
	MD_FORWARD(md_sim_fields_read(&fields, at, path, &peer, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, at, path, seen, err));
	if (peer.from >= count || peer.to >= count)
		return md_sim_fields_refuse(yaml, at, path, peer.from >= count ? "from" : "to", err,
					    "there are %u GPUs, the first is 0", count);
	if (peer.from == peer.to)
		return md_sim_fields_refuse(yaml, at, path, "to", err, "a GPU cannot be a peer of itself");
	for (int back = 0; back < (peer.one_way ? 1 : 2); back++) {
		uint32_t from = back ? peer.to : peer.from, to = back ? peer.from : peer.to;
		if (given[from * count + to])
			return md_sim_fields_refuse(yaml, at, path, NULL, err,
						    "the link from GPU %u to %u is given above already", from, to);
		given[from * count + to] = true;
		node->peer_bytes_per_s[from * count + to] = peer.speed;
	}
	return MD_OK;
}

static enum md_status read_peers(const struct md_sim_yaml *yaml, uint32_t list, const struct md_sim_node *node,
				 struct md_error *err)
{
	MD_AUTO_FREE bool *given = calloc((size_t)node->gpu_count * node->gpu_count, sizeof(*given));
	uint32_t i = 0;
	if (!given)
		return out_of_memory(yaml, err);
	if (yaml->nodes[list].kind != MD_SIM_SEQUENCE)
		return md_sim_fields_refuse(yaml, list, "peers", NULL, err, "a list is expected");
	for (uint32_t at = yaml->nodes[list].first; at; at = yaml->nodes[at].next, i++) {
		char path[32];
		snprintf(path, sizeof(path), "peers[%" PRIu32 "]", i);
		MD_FORWARD(read_peer(yaml, at, path, node, given, err));
	}
	return MD_OK;
}

/* ---- the file ---- */

static enum md_status read_node(const struct md_sim_yaml *yaml, struct config *config, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, node_fields);
	uint64_t seen = 0;
	MD_FORWARD(md_sim_fields_read(&fields, 0, "", config, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, 0, "", seen, err));
	if (config->node.report_lag_ns && !config->node.report_every_ns)
		return md_sim_fields_refuse(yaml, 0, "", "report_lag", err,
					    "without report_every there are no reports");
	if (!config->node.allocation_ns != !config->node.allocation_block_bytes)
		return md_sim_fields_refuse(yaml, 0, "",
					    config->node.allocation_ns ? "allocation_time" : "allocation_block", err,
					    "allocation_time and allocation_block have no effect without each other");
	MD_FORWARD(read_gpus(yaml, config->gpus, &config->node, err));
	if (!config->peers && config->peer_speed == 0)
		return MD_OK;
	MD_FORWARD(make_peers(yaml, config->peer_speed, &config->node, err));
	return config->peers ? read_peers(yaml, config->peers, &config->node, err) : MD_OK;
}

enum md_status md_sim_node_parse(const char *name, const char *text, size_t bytes, struct md_sim_node *node,
				 struct md_error *err)
{
	struct config config = {.node = {.prefill_share = 1, .decode_share = 1}};
	struct md_sim_yaml yaml;
	enum md_status status;
	MD_FORWARD(md_sim_yaml_parse(name, text, bytes, &yaml, err));
	status = read_node(&yaml, &config, err);
	md_sim_yaml_finish(&yaml);
	if (status == MD_OK)
		*node = config.node;
	else
		md_sim_node_finish(&config.node);
	return status;
}

enum md_status md_sim_node_read(const char *path, struct md_sim_node *node, struct md_error *err)
{
	MD_AUTO_FREE char *text = NULL;
	size_t bytes;
	MD_FORWARD(md_sim_file_read(path, MD_SIM_YAML_BYTES_MAX, &text, &bytes, err));
	return md_sim_node_parse(path, text, bytes, node, err);
}

void md_sim_node_finish(struct md_sim_node *node)
{
	for (uint32_t i = 0; node->gpu_names && i < node->gpu_count; i++)
		free(node->gpu_names[i]);
	free(node->gpu_names);
	free(node->gpus);
	free(node->peer_bytes_per_s);
	free(node->name);
	free(node->source);
	*node = (struct md_sim_node){0};
}
