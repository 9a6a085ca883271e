/* SPDX-License-Identifier: Apache-2.0 */
/* medusa: the keys that are ours, of the node and of each model. A key that is not known is an error here. */
#include <stdio.h>
#include <string.h>

#include "http/address.h"
#include "worker/config/command.h"
#include "worker/config/parts.h"

#define GPUS_MAX 64u
#define TENANTS_MAX 1000u
#define TENANT_KEYS_MAX 4000u /* of all of them: each is compared with the others */
#define TEMPLATES_MAX 100u
#define BACKBONES_MAX 1000u
#define WEIGHT_LEAST 1e-6 /* the scheduler's */
#define WEIGHT_WANTED "a number from 0.000001 to 1000000 is wanted"
#define NOT_YET "medusa-worker does not obey it yet"

/* ---- of the node ---- */

struct node_source {
	struct md_config_node node;
	struct md_tree *gpus, *policies, *tenants, *templates, *backbones, *cluster;
};

#define SOURCE(member) offsetof(struct node_source, member)
#define NODE(member) offsetof(struct node_source, node.member)

static const struct md_config_key node_keys[] = {
    MD_KEY("gpus", MD_KEY_NODE, SOURCE(gpus), NULL),
    MD_KEY("host_memory", MD_KEY_BYTES, NODE(host_memory_bytes), "0", .note = NOT_YET),
    MD_KEY("policies", MD_KEY_NODE, SOURCE(policies), NULL),
    MD_KEY("tenants", MD_KEY_NODE, SOURCE(tenants), NULL),
    MD_KEY("templates", MD_KEY_NODE, SOURCE(templates), NULL),
    MD_KEY("backbones", MD_KEY_NODE, SOURCE(backbones), NULL),
    MD_KEY("cluster", MD_KEY_NODE, SOURCE(cluster), NULL),
    MD_KEY("retries", MD_KEY_COUNT, NODE(retries), "1", .high = 10),
    MD_KEY("adopt_time", MD_KEY_TIME, NODE(adopt_ns), "30s"),
    MD_KEY("cgroup", MD_KEY_TEXT, NODE(cgroup), "auto"),
    MD_KEY("listen", MD_KEY_TEXT, NODE(listen), NULL),
    MD_KEY("state", MD_KEY_TEXT, NODE(state), NULL),
    MD_KEY("trace_time", MD_KEY_TIME, NODE(trace_ns), "24h"),
    MD_KEY("control", MD_KEY_TEXT, NODE(control), NULL),
    MD_KEY("pool_bytes", MD_KEY_BYTES, NODE(pool_bytes), "0"),
    MD_KEY("spill", MD_KEY_TEXT, NODE(spill), NULL),
    MD_KEY("spill_bytes", MD_KEY_BYTES, NODE(spill_bytes), "0"),
    MD_KEY("measure_memory", MD_KEY_FLAG, NODE(measure_memory), "true"),
    MD_KEY("body_limit", MD_KEY_BYTES, NODE(body_limit), "100MB", .low = 1024,
	   .wanted = "at least 1024 bytes are wanted"),
    MD_KEY("bodies_limit", MD_KEY_BYTES, NODE(bodies_limit), "1GB", .low = 1024,
	   .wanted = "at least 1024 bytes are wanted"),
    MD_KEY("connection_limit", MD_KEY_COUNT, NODE(connection_limit), "4096", .low = 1, .high = 1000000),
    MD_KEY("write_timeout", MD_KEY_TIME, NODE(write_ns), "120s", .low = 1000000000, .wanted = "at least 1s is wanted"),
    MD_KEY("write_timeout_waiting", MD_KEY_TIME, NODE(write_waiting_ns), "10s", .low = 1000000000,
	   .wanted = "at least 1s is wanted"),
};
const struct md_config_keys md_config_node_keys = MD_KEYS("medusa.", node_keys, .strict = true);

#define GPU(member) offsetof(struct md_config_gpu, member)

static const struct md_config_key gpu_keys[] = {
    MD_KEY("uuid", MD_KEY_TEXT, GPU(uuid), NULL),
    MD_KEY("memory", MD_KEY_BYTES, GPU(memory_bytes), "0"),
    MD_KEY("slots", MD_KEY_COUNT, GPU(slots), "0", .high = 1024),
};
const struct md_config_keys md_config_gpu_keys = MD_KEYS("medusa.gpus[].", gpu_keys, .strict = true);

#define POLICY(member) offsetof(struct md_config_policies, member)

static const struct md_config_key policy_keys[] = {
    MD_KEY("queueing", MD_KEY_TEXT, POLICY(queueing), "medusa"),
    MD_KEY("placement", MD_KEY_TEXT, POLICY(placement), "medusa"),
    MD_KEY("eviction", MD_KEY_TEXT, POLICY(eviction), "medusa"),
    MD_KEY("batching", MD_KEY_TEXT, POLICY(batching), "medusa"),
    MD_KEY("preloading", MD_KEY_TEXT, POLICY(preloading), "medusa"),
};
const struct md_config_keys md_config_policy_keys = MD_KEYS("medusa.policies.", policy_keys, .strict = true);

#define TENANT(member) offsetof(struct md_config_tenant, member)

static const struct md_config_key tenant_keys[] = {
    MD_KEY("name", MD_KEY_TEXT, TENANT(name), NULL),
    MD_KEY("keys", MD_KEY_TEXTS, TENANT(keys), NULL, .secret = true),
    MD_KEY("weight", MD_KEY_REAL, TENANT(weight), "1", .high = 1000000, .wanted = WEIGHT_WANTED),
    MD_KEY("max_running", MD_KEY_COUNT, TENANT(max_running), "0"),
    MD_KEY("max_waiting", MD_KEY_COUNT, TENANT(max_waiting), "0"),
    MD_KEY("cluster_max_running", MD_KEY_COUNT, TENANT(cluster_max_running), "0", .high = 1000000000),
    MD_KEY("cluster_max_waiting", MD_KEY_COUNT, TENANT(cluster_max_waiting), "0", .high = 1000000000),
};
const struct md_config_keys md_config_tenant_keys = MD_KEYS("medusa.tenants[].", tenant_keys, .strict = true);

#define TEMPLATE(member) offsetof(struct md_config_template, member)

static const struct md_config_key template_keys[] = {
    MD_KEY("cmd", MD_KEY_TEXT, TEMPLATE(cmd), NULL),
    MD_KEY("env", MD_KEY_TEXTS, TEMPLATE(env), NULL),
};
const struct md_config_keys md_config_template_keys = MD_KEYS("medusa.templates.*.", template_keys, .strict = true);

static const struct md_config_key backbone_keys[] = {
    MD_KEY("memory", MD_KEY_BYTES, offsetof(struct md_config_backbone, bytes), "0"),
};
const struct md_config_keys md_config_backbone_keys = MD_KEYS("medusa.backbones.*.", backbone_keys, .strict = true);

/* ---- of a model ---- */

struct own_source {
	struct md_config_own own;
	const char *tenant, *template, *backbone;
	int goal;
	struct md_tree *adapters;
};

#define OWN(member) offsetof(struct own_source, own.member)

static const char *const goals[] = {"completion", "first_token", NULL}; /* as enum medusa_sched_goal */
static const char *const swaps[] = {"auto", "off", "on", "checkpoint", NULL};
static const char *const shares[] = {"off", "on", "auto", NULL}; /* as enum md_config_share */
static const char *const neighbours[] = {"off", "auto", NULL};

static const struct md_config_key own_keys[] = {
    MD_KEY("artifact", MD_KEY_TEXT, OWN(artifact), NULL),
    MD_KEY("files", MD_KEY_TEXTS, OWN(sources), NULL),
    MD_KEY("content", MD_KEY_TEXT, OWN(content), NULL),
    MD_KEY("memory", MD_KEY_BYTES, OWN(memory_bytes), "0"),
    MD_KEY("host_memory", MD_KEY_BYTES, OWN(host_memory_bytes), "0", .note = NOT_YET),
    MD_KEY("kv_per_request", MD_KEY_BYTES, OWN(kv_request_bytes), "0"),
    MD_KEY("slo", MD_KEY_TIME, OWN(slo_ns), "0"),
    MD_KEY("goal", MD_KEY_CHOICE, offsetof(struct own_source, goal), "completion", .choices = goals),
    MD_KEY("priority", MD_KEY_INTEGER, OWN(priority), "0", .low = -1000000, .high = 1000000),
    MD_KEY("pin", MD_KEY_FLAG, OWN(pin), "false"),
    MD_KEY("min_replicas", MD_KEY_COUNT, OWN(min_replicas), "0", .high = 1024),
    MD_KEY("min_nodes", MD_KEY_COUNT, OWN(min_nodes), "0", .high = 100000),
    MD_KEY("max_nodes", MD_KEY_COUNT, OWN(max_nodes), "0", .high = 100000),
    MD_KEY("max_batch", MD_KEY_COUNT, OWN(max_batch), "0", .high = 65536),
    MD_KEY("swap", MD_KEY_CHOICE, OWN(swap), "auto", .choices = swaps),
    MD_KEY("share", MD_KEY_CHOICE, OWN(share), "off", .choices = shares),
    MD_KEY("backbone", MD_KEY_TEXT, offsetof(struct own_source, backbone), NULL),
    MD_KEY("gpu_neighbours", MD_KEY_CHOICE, OWN(gpu_neighbours), "off", .choices = neighbours),
    MD_KEY("start_time", MD_KEY_TIME, OWN(start_ns), "0"),
    MD_KEY("swap_time", MD_KEY_TIME, OWN(swap_ns), "0"),
    MD_KEY("tenant", MD_KEY_TEXT, offsetof(struct own_source, tenant), NULL),
    MD_KEY("template", MD_KEY_TEXT, offsetof(struct own_source, template), NULL),
    MD_KEY("max_queue", MD_KEY_COUNT, OWN(max_queue), "0"),
    MD_KEY("max_wait", MD_KEY_TIME, OWN(max_wait_ns), "0"),
    MD_KEY("deadline", MD_KEY_TIME, OWN(deadline_ns), "0"),
    MD_KEY("adapters", MD_KEY_NODE, offsetof(struct own_source, adapters), NULL),
    MD_KEY("adapter_slots", MD_KEY_COUNT, OWN(adapter_slots), "0", .high = 65536),
};
const struct md_config_keys md_config_own_keys = MD_KEYS("models.*.medusa.", own_keys, .strict = true);

static uint32_t find_tenant(const struct md_config_node *node, const char *name)
{
	for (uint32_t i = 0; i < node->tenant_count; i++)
		if (!strcmp(node->tenants[i].name, name))
			return i;
	return MD_CONFIG_NONE;
}

static uint32_t find_template(const struct md_config_node *node, const char *name)
{
	for (uint32_t i = 0; i < node->template_count; i++)
		if (!strcmp(node->templates[i].name, name))
			return i;
	return MD_CONFIG_NONE;
}

static uint32_t find_backbone(const struct md_config_node *node, const char *name)
{
	for (uint32_t i = 0; i < node->backbone_count; i++)
		if (!strcmp(node->backbones[i].name, name))
			return i;
	return MD_CONFIG_NONE;
}

enum md_status md_config_find_tenant(struct md_config_build *build, struct md_tree *node, const char *name,
				     uint32_t *tenant)
{
	uint32_t found = find_tenant(&build->config->node, name);
	if (!*name)
		return MD_OK;
	if (found == MD_CONFIG_NONE)
		return md_tree_refuse(md_tree_find(node, "tenant"), build->err, "medusa.tenants has none of this name");
	*tenant = found;
	return MD_OK;
}

/* What is shared by the engine's own wish stays on the GPU when it is swapped out; what medusa-swap merges becomes one when it comes in. */
static enum md_status check_sharing(struct md_config_build *build, struct md_tree *node,
				    const struct md_config_own *own, bool backbone)
{
	bool runs = own->swap == MD_CONFIG_SWAP_AUTO || own->swap == MD_CONFIG_SWAP_ON;
	if (own->share == MD_CONFIG_SHARE_ON && own->swap == MD_CONFIG_SWAP_CHECKPOINT)
		return md_tree_refuse(md_tree_find(node, "swap"), build->err,
				      "share: on wants swap: off, because what an engine shares stays on the GPU");
	if (own->share == MD_CONFIG_SHARE_ON && own->swap == MD_CONFIG_SWAP_ON && !backbone)
		return md_tree_refuse(md_tree_find(node, "swap"), build->err,
				      "share: on wants swap: off, because what an engine shares stays on the GPU, "
				      "or a backbone, by which the scheduler knows what stays");
	if (own->share == MD_CONFIG_SHARE_AUTO && !runs)
		return md_tree_refuse(
		    md_tree_find(node, "swap"), build->err,
		    "share: auto wants swap: on, because equal memory becomes one when it comes in again");
	if (own->share == MD_CONFIG_SHARE_AUTO && own->gpu_neighbours != MD_CONFIG_NEIGHBOURS_OFF)
		return md_tree_refuse(md_tree_find(node, "gpu_neighbours"), build->err,
				      "share: auto wants gpu_neighbours: off, because what they carry is never shared");
	return MD_OK;
}

/* What lies beside it must be known, or the scheduler would count a whole GPU for each engine. */
static enum md_status take_backbone(struct md_config_build *build, struct md_tree *node, const char *name,
				    struct md_config_own *own)
{
	if (!*name)
		return MD_OK;
	const struct md_tree *at = md_tree_find(node, "backbone");
	own->backbone = find_backbone(&build->config->node, name);
	if (own->backbone == MD_CONFIG_NONE)
		return md_tree_refuse(at, build->err, "medusa.backbones has none of this name");
	if (own->share != MD_CONFIG_SHARE_ON)
		return md_tree_refuse(at, build->err, "a backbone wants share: on, because its engine must ask for it");
	if (!own->memory_bytes)
		return md_tree_refuse(at, build->err, "memory is missing: what the engine needs beside its backbone");
	if (own->adapted)
		return md_tree_refuse(at, build->err,
				      "an engine that takes adapters has no backbone beside it: say one of both");
	return MD_OK;
}

enum md_status md_config_read_own(struct md_config_build *build, struct md_tree *node, struct md_config_own *own)
{
	const struct md_config_node *shared = &build->config->node;
	struct own_source source = {
	    .own = {.tenant = MD_CONFIG_NONE, .template = MD_CONFIG_NONE, .backbone = MD_CONFIG_NONE}};
	MD_FORWARD(md_keys_read(build, &md_config_own_keys, node, &source));
	source.own.goal = (enum medusa_sched_goal)source.goal;
	if (!*source.own.artifact)
		source.own.artifact = NULL;
	source.own.adapted = source.adapters || source.own.adapter_slots;
	MD_FORWARD(check_sharing(build, node, &source.own, *source.backbone));
	MD_FORWARD(take_backbone(build, node, source.backbone, &source.own));
	MD_FORWARD(md_keys_mapping(build, source.adapters));
	MD_FORWARD(md_config_find_tenant(build, node, source.tenant, &source.own.tenant));
	if (*source.template) {
		source.own.template = find_template(shared, source.template);
		if (source.own.template == MD_CONFIG_NONE)
			return md_tree_refuse(md_tree_find(node, "template"), build->err,
					      "medusa.templates has none of this name");
	}
	*own = source.own;
	return MD_OK;
}

/* ---- lists of the node ---- */

static enum md_status check_list(struct md_config_build *build, const struct md_tree *list, uint32_t most)
{
	if (list->kind != MD_TREE_LIST)
		return md_tree_refuse(list, build->err, "a list is wanted");
	if (list->count > most)
		return md_tree_refuse_place(list, build->err, "there are more than %u", most);
	return MD_OK;
}

static enum md_status read_gpus(struct md_config_build *build, struct md_tree *list, struct md_config_node *node)
{
	struct md_config_gpu *gpus;
	if (!list || (list->kind == MD_TREE_TEXT && !strcmp(list->text, "auto")))
		return MD_OK;
	if (list->kind != MD_TREE_LIST || !list->count)
		return md_tree_refuse(list, build->err, "auto is wanted, or a list of at least one GPU");
	MD_FORWARD(check_list(build, list, GPUS_MAX));
	gpus = md_config_take(build, list->count, sizeof(*gpus));
	if (!gpus)
		return MD_ERR_NO_MEMORY;
	node->gpus = gpus;
	for (struct md_tree *at = list->first; at; at = at->next) {
		struct md_config_gpu *gpu = &gpus[node->gpu_count];
		MD_FORWARD(md_keys_read(build, &md_config_gpu_keys, at, gpu));
		if (!*gpu->uuid)
			gpu->uuid = NULL;
		for (uint32_t i = 0; i < node->gpu_count && gpu->uuid; i++)
			if (gpus[i].uuid && !strcmp(gpus[i].uuid, gpu->uuid))
				return md_tree_refuse(md_tree_find(at, "uuid"), build->err,
						      "this GPU is there already");
		node->gpu_count++;
	}
	return MD_OK;
}

static enum md_status check_policy(struct md_config_build *build, const struct md_tree *mapping,
				   enum medusa_sched_kind kind, const char **name)
{
	size_t count, used = 0;
	const struct medusa_sched_policy *known = medusa_sched_policies(kind, &count);
	char names[200] = "";
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(known[i].name, *name))
			return MD_OK;
		if (used < sizeof(names))
			used +=
			    (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", known[i].name);
	}
	return md_tree_refuse(md_tree_find(mapping, medusa_sched_kind_name(kind)), build->err, "one of %s is wanted",
			      names);
}

static enum md_status read_policies(struct md_config_build *build, struct md_tree *mapping,
				    struct md_config_policies *policies)
{
	MD_FORWARD(md_keys_read(build, &md_config_policy_keys, mapping, policies));
	if (!mapping)
		return MD_OK;
	MD_FORWARD(check_policy(build, mapping, MEDUSA_SCHED_KIND_QUEUEING, &policies->queueing));
	MD_FORWARD(check_policy(build, mapping, MEDUSA_SCHED_KIND_PLACEMENT, &policies->placement));
	MD_FORWARD(check_policy(build, mapping, MEDUSA_SCHED_KIND_EVICTION, &policies->eviction));
	MD_FORWARD(check_policy(build, mapping, MEDUSA_SCHED_KIND_BATCHING, &policies->batching));
	return check_policy(build, mapping, MEDUSA_SCHED_KIND_PRELOADING, &policies->preloading);
}

static bool has_text(const struct md_config_texts *texts, const char *text)
{
	for (uint32_t i = 0; i < texts->count; i++)
		if (!strcmp(texts->items[i], text))
			return true;
	return false;
}

static enum md_status check_tenant(struct md_config_build *build, const struct md_tree *at,
				   const struct md_config_tenant *tenants, uint32_t index)
{
	const struct md_config_tenant *tenant = &tenants[index];
	uint64_t keys = 0;
	if (!*tenant->name)
		return md_tree_refuse_place(at, build->err, "the tenant has no name");
	if (tenant->weight < WEIGHT_LEAST)
		return md_tree_refuse(md_tree_find(at, "weight"), build->err, WEIGHT_WANTED);
	for (uint32_t i = 0; i <= index; i++)
		keys += tenants[i].keys.count;
	if (keys > TENANT_KEYS_MAX)
		return md_tree_refuse_place(at, build->err, "tenants have at most %u keys in all", TENANT_KEYS_MAX);
	for (uint32_t i = 0; i < tenant->keys.count; i++)
		if (!*tenant->keys.items[i])
			return md_tree_refuse_place(at, build->err, "a key is empty");
	for (uint32_t i = 0; i < index; i++) {
		if (!strcmp(tenants[i].name, tenant->name))
			return md_tree_refuse_place(at, build->err, "there is a tenant of this name already");
		for (uint32_t j = 0; j < tenants[i].keys.count; j++)
			if (has_text(&tenant->keys, tenants[i].keys.items[j]))
				return md_tree_refuse_place(at, build->err, "tenant %.60s has one of the keys, too",
							    tenants[i].name);
	}
	return MD_OK;
}

static enum md_status read_tenants(struct md_config_build *build, struct md_tree *list, struct md_config_node *node)
{
	struct md_config_tenant *tenants;
	if (!list)
		return MD_OK;
	MD_FORWARD(check_list(build, list, TENANTS_MAX));
	tenants = md_config_take(build, list->count, sizeof(*tenants));
	if (!tenants)
		return MD_ERR_NO_MEMORY;
	node->tenants = tenants;
	for (struct md_tree *at = list->first; at; at = at->next) {
		MD_FORWARD(md_keys_read(build, &md_config_tenant_keys, at, &tenants[node->tenant_count]));
		MD_FORWARD(check_tenant(build, at, tenants, node->tenant_count));
		node->tenant_count++;
	}
	return MD_OK;
}

static enum md_status read_templates(struct md_config_build *build, struct md_tree *mapping,
				     struct md_config_node *node)
{
	struct md_config_template *templates;
	bool open;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping)
		return MD_OK;
	if (mapping->count > TEMPLATES_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u", TEMPLATES_MAX);
	templates = md_config_take(build, mapping->count, sizeof(*templates));
	if (!templates)
		return MD_ERR_NO_MEMORY;
	node->templates = templates;
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		struct md_config_template *template = &templates[node->template_count++];
		template->name = at->key;
		MD_FORWARD(md_keys_read(build, &md_config_template_keys, at, template));
		template->argv = md_command_split(&build->forest->arena, template->cmd, &open);
		if (!template->argv)
			return md_tree_memory(at->file, build->err);
		if (!*template->argv || open)
			return md_tree_refuse_place(
			    at, build->err, *template->argv ? "a quote of cmd is not closed" : "cmd is missing");
	}
	return MD_OK;
}

static enum md_status read_backbones(struct md_config_build *build, struct md_tree *mapping,
				     struct md_config_node *node)
{
	struct md_config_backbone *backbones;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping)
		return MD_OK;
	if (mapping->count > BACKBONES_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u", BACKBONES_MAX);
	backbones = md_config_take(build, mapping->count, sizeof(*backbones));
	if (!backbones)
		return MD_ERR_NO_MEMORY;
	node->backbones = backbones;
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		struct md_config_backbone *backbone = &backbones[node->backbone_count++];
		backbone->name = at->key;
		MD_FORWARD(md_keys_read(build, &md_config_backbone_keys, at, backbone));
		if (!backbone->bytes)
			return md_tree_refuse_place(at, build->err, "memory is missing: what it takes on a GPU");
	}
	return MD_OK;
}

/* medusa.templates.*.cmd may have comments, as other commands. */
static enum md_status uncomment_templates(struct md_config_build *build, const struct md_tree *medusa)
{
	const struct md_tree *templates = md_tree_find(medusa, "templates");
	for (struct md_tree *at = templates ? templates->first : NULL; at; at = at->next) {
		struct md_tree *cmd = md_tree_find(at, "cmd");
		if (!cmd || cmd->kind != MD_TREE_TEXT)
			continue;
		cmd->text = md_command_uncomment(&build->forest->arena, cmd->text);
		if (!cmd->text)
			return md_tree_memory(at->file, build->err);
	}
	return MD_OK;
}

static enum md_status check_sockets(struct md_config_build *build, const struct md_tree *medusa,
				    const struct md_config_node *node)
{
	struct md_http_address address;
	struct md_error why = {0};
	if (*node->listen && md_http_address_parse(node->listen, &address, &why) != MD_OK)
		return md_tree_refuse(md_tree_find(medusa, "listen"), build->err,
				      "ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH is wanted");
	if (strlen(node->control) >= sizeof(address.local.sun_path))
		return md_tree_refuse_place(md_tree_find(medusa, "control"), build->err,
					    "the path of a socket has at most %zu bytes",
					    sizeof(address.local.sun_path) - 1);
	return MD_OK;
}

static enum md_status check_cgroup(struct md_config_build *build, const struct md_tree *medusa, const char *cgroup)
{
	if (strcmp(cgroup, "auto") != 0 && strcmp(cgroup, "off") != 0 && *cgroup != '/')
		return md_tree_refuse(md_tree_find(medusa, "cgroup"), build->err,
				      "auto, off or the absolute path of a folder of cgroups is wanted");
	return MD_OK;
}

static enum md_status check_spill(struct md_config_build *build, const struct md_tree *medusa,
				  const struct md_config_node *node)
{
	if (*node->spill && *node->spill != '/')
		return md_tree_refuse(md_tree_find(medusa, "spill"), build->err,
				      "the absolute path of a folder is wanted");
	if (*node->spill && !node->pool_bytes)
		return md_tree_refuse(
		    md_tree_find(medusa, "spill"), build->err,
		    "medusa.pool_bytes is needed, too: the file is behind the pool that engines share");
	if (node->spill_bytes && !*node->spill)
		return md_tree_refuse(md_tree_find(medusa, "spill_bytes"), build->err, "medusa.spill is needed, too");
	return MD_OK;
}

enum md_status md_config_read_node(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_macro_scope scope = {.forest = build->forest, .global = &build->macros};
	struct node_source source = {0};
	if (sections->medusa) {
		MD_FORWARD(uncomment_templates(build, sections->medusa));
		MD_FORWARD(md_macros_expand(&scope, sections->medusa, build->err));
	}
	MD_FORWARD(md_keys_read(build, &md_config_node_keys, sections->medusa, &source));
	MD_FORWARD(check_sockets(build, sections->medusa, &source.node));
	MD_FORWARD(check_cgroup(build, sections->medusa, source.node.cgroup));
	MD_FORWARD(check_spill(build, sections->medusa, &source.node));
	MD_FORWARD(read_gpus(build, source.gpus, &source.node));
	MD_FORWARD(read_policies(build, source.policies, &source.node.policies));
	MD_FORWARD(read_tenants(build, source.tenants, &source.node));
	MD_FORWARD(read_templates(build, source.templates, &source.node));
	MD_FORWARD(read_backbones(build, source.backbones, &source.node));
	MD_FORWARD(md_config_read_cluster(build, source.cluster, &source.node.cluster));
	build->config->node = source.node;
	return MD_OK;
}
