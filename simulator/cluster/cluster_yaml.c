/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.yaml: how many nodes, what they tell each other, how models are placed, and what fails. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "simulator/cluster/sim_cluster.h"
#include "simulator/config/fields.h"

#define S 1e9
#define LONG (1000 * 3600 * S)
#define PLANS_NS UINT64_C(10000000)
#define LOSSES_MAX 1000u

struct config {
	struct md_sim_cluster cluster;
	uint32_t losses; /* index of its YAML node */
};

#define FIELD(member) offsetof(struct config, cluster.member)

static const struct md_sim_field cluster_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, FIELD(name), .required = true),
    MD_SIM_FIELD("source", MD_SIM_TEXT, FIELD(source), .required = true),
    MD_SIM_FIELD("nodes", MD_SIM_COUNT, FIELD(nodes), .required = true, .low = 1, .high = MD_SIM_CLUSTER_NODES_MAX),
    MD_SIM_FIELD("domain_nodes", MD_SIM_COUNT, FIELD(domain_nodes), .low = 1, .high = MD_SIM_CLUSTER_NODES_MAX),
    MD_SIM_FIELD("placement_interval", MD_SIM_TIME, FIELD(placement_ns), .high = 3600 * S),
    MD_SIM_FIELD("told_every", MD_SIM_TIME, FIELD(told_ns), .low = 1e6, .high = 60 * S),
    MD_SIM_FIELD("hop", MD_SIM_TIME, FIELD(hop_ns), .high = 10 * S),
    MD_SIM_FIELD("lease", MD_SIM_TIME, FIELD(lease_ns), .high = 3600 * S),
    MD_SIM_FIELD("lease_grace", MD_SIM_TIME, FIELD(grace_ns), .high = 3600 * S),
    MD_SIM_FIELD("warmup", MD_SIM_TIME, FIELD(warmup_ns), .high = LONG),
    MD_SIM_FIELD("rate_factor", MD_SIM_NUMBER, FIELD(rate_factor), .low = 0.001, .high = 1e6),
    MD_SIM_FIELD("popularity_change", MD_SIM_TIME, FIELD(change_ns), .low = S, .high = LONG),
    MD_SIM_FIELD("popularity_part", MD_SIM_NUMBER, FIELD(change_part), .low = 0, .high = 1),
    MD_SIM_FIELD("node_lost_every", MD_SIM_TIME, FIELD(lost_every_ns), .low = S, .high = LONG),
    MD_SIM_FIELD("node_lost_for", MD_SIM_TIME, FIELD(lost_for_ns), .high = LONG),
    MD_SIM_FIELD("domains_lost", MD_SIM_NESTED, offsetof(struct config, losses)),
};

#define LOSS(member) offsetof(struct md_sim_domain_loss, member)

static const struct md_sim_field loss_fields[] = {
    MD_SIM_FIELD("at", MD_SIM_TIME, LOSS(at), .required = true, .high = LONG),
    MD_SIM_FIELD("domain", MD_SIM_COUNT, LOSS(domain), .required = true),
    MD_SIM_FIELD("for", MD_SIM_TIME, LOSS(back), .high = LONG),
};

static enum md_status read_loss(const struct md_sim_yaml *yaml, uint32_t at, const char *path,
				const struct md_sim_cluster *cluster, struct md_sim_domain_loss *loss,
				struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, loss_fields);
	uint32_t domains = (cluster->nodes - 1) / cluster->domain_nodes + 1;
	uint64_t seen = 0;
	MD_FORWARD(md_sim_fields_read(&fields, at, path, loss, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, at, path, seen, err));
	if (loss->domain >= domains)
		return md_sim_fields_refuse(yaml, at, path, "domain", err, "there are %u domains, the first is 0",
					    domains);
	return MD_OK;
}

static enum md_status read_losses(const struct md_sim_yaml *yaml, uint32_t list, struct md_sim_cluster *cluster,
				  struct md_error *err)
{
	if (yaml->nodes[list].kind != MD_SIM_SEQUENCE || yaml->nodes[list].count > LOSSES_MAX)
		return md_sim_fields_refuse(yaml, list, "domains_lost", NULL, err,
					    "a list of at most %u losses is expected", LOSSES_MAX);
	cluster->losses = calloc((size_t)yaml->nodes[list].count + 1, sizeof(*cluster->losses));
	if (!cluster->losses)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for the cluster", yaml->name);
	for (uint32_t at = yaml->nodes[list].first; at; at = yaml->nodes[at].next) {
		char path[40];
		snprintf(path, sizeof(path), "domains_lost[%" PRIu32 "]", cluster->loss_count);
		MD_FORWARD(read_loss(yaml, at, path, cluster, &cluster->losses[cluster->loss_count], err));
		cluster->loss_count++;
	}
	return MD_OK;
}

static enum md_status read_cluster(const struct md_sim_yaml *yaml, struct config *config, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, cluster_fields);
	const struct md_sim_cluster *cluster = &config->cluster;
	uint64_t seen = 0;
	MD_FORWARD(md_sim_fields_read(&fields, 0, "", config, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, 0, "", seen, err));
	if (cluster->placement_ns && cluster->placement_ns < PLANS_NS)
		return md_sim_fields_refuse(yaml, 0, "", "placement_interval", err,
					    "0 (no plans), or at least 10ms is expected");
	if (!cluster->change_ns != !(cluster->change_part > 0))
		return md_sim_fields_refuse(yaml, 0, "", cluster->change_ns ? "popularity_change" : "popularity_part",
					    err,
					    "popularity_change and popularity_part have no effect without each other");
	if (!cluster->lost_every_ns && seen & UINT64_C(1) << 14)
		return md_sim_fields_refuse(yaml, 0, "", "node_lost_for", err, "without node_lost_every none is lost");
	return config->losses ? read_losses(yaml, config->losses, &config->cluster, err) : MD_OK;
}

enum md_status md_sim_cluster_parse(const char *name, const char *text, size_t bytes, struct md_sim_cluster *cluster,
				    struct md_error *err)
{
	struct config config = {.cluster = {.domain_nodes = 1,
					    .placement_ns = 1000000000,
					    .told_ns = 200000000,
					    .hop_ns = 500000,
					    .lease_ns = UINT64_C(3000000000),
					    .grace_ns = UINT64_C(10000000000),
					    .rate_factor = 1,
					    .lost_for_ns = UINT64_C(300000000000)}};
	struct md_sim_yaml yaml;
	MD_FORWARD(md_sim_yaml_parse(name, text, bytes, &yaml, err));
	enum md_status status = read_cluster(&yaml, &config, err);
	md_sim_yaml_finish(&yaml);
	if (status == MD_OK)
		*cluster = config.cluster;
	else
		md_sim_cluster_finish(&config.cluster);
	return status;
}

enum md_status md_sim_cluster_read(const char *path, struct md_sim_cluster *cluster, struct md_error *err)
{
	MD_AUTO_FREE char *text = NULL;
	size_t bytes;
	MD_FORWARD(md_sim_file_read(path, MD_SIM_YAML_BYTES_MAX, &text, &bytes, err));
	return md_sim_cluster_parse(path, text, bytes, cluster, err);
}

void md_sim_cluster_finish(struct md_sim_cluster *cluster)
{
	free(cluster->name);
	free(cluster->source);
	free(cluster->losses);
	*cluster = (struct md_sim_cluster){0};
}
