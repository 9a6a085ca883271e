/* SPDX-License-Identifier: Apache-2.0 */
/* functions.yaml: the models that functions are made of. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/config/artifact_values.h"
#include "simulator/config/functions_yaml.h"

#define FIELD(member) offsetof(struct md_sim_model_entry, member)

static const char *const laws[] = {"even", "log", NULL};
static const char *const goals[] = {"completion", "first_token", NULL}; /* as enum medusa_sched_goal */

static const struct md_sim_field model_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, FIELD(name), .required = true),
    MD_SIM_FIELD("backbone", MD_SIM_TEXT, FIELD(backbone)),
    MD_SIM_FIELD("artifact", MD_SIM_TEXT, FIELD(artifact)),
    MD_SIM_FIELD("tenant", MD_SIM_TEXT, FIELD(tenant)),
    MD_SIM_FIELD("weights", MD_SIM_BYTES, FIELD(function.spec.weight_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("adapter", MD_SIM_BYTES, FIELD(adapter_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("context", MD_SIM_BYTES, FIELD(function.spec.context_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("context_time", MD_SIM_TIME, FIELD(function.spec.context_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("capture_time", MD_SIM_TIME, FIELD(function.capture_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("library", MD_SIM_BYTES, FIELD(function.spec.library_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("residue", MD_SIM_BYTES, FIELD(function.spec.residue_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("kv", MD_SIM_BYTES, FIELD(function.spec.kv_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("kv_per_token", MD_SIM_BYTES, FIELD(function.kv_bytes_per_token), .high = 1e12),
    MD_SIM_FIELD("kv_block_tokens", MD_SIM_COUNT, FIELD(kv_block_tokens), .low = 1, .high = 65536),
    MD_SIM_FIELD("execution", MD_SIM_TIME, FIELD(function.spec.t0_ns), .required = true, .low = 1,
		 .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("alpha", MD_SIM_TIME, FIELD(function.spec.alpha_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("token", MD_SIM_TIME, FIELD(function.spec.token_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("swap_host", MD_SIM_TIME, FIELD(function.spec.swap_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("swap_peer", MD_SIM_TIME, FIELD(function.spec.swap_peer_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("tail", MD_SIM_NUMBER, FIELD(function.tail), .high = 1),
    MD_SIM_FIELD("transfer", MD_SIM_BYTES, FIELD(function.transfer_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("native", MD_SIM_TIME, FIELD(function.native_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("native_memory", MD_SIM_BYTES, FIELD(function.native_bytes), .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("cold_time", MD_SIM_TIME, FIELD(function.spec.cold_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("keep_alive", MD_SIM_TIME, FIELD(function.spec.keep_alive_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("evict_time", MD_SIM_TIME, FIELD(function.spec.evict_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("in_host", MD_SIM_FLAG, FIELD(function.spec.in_host)),
    MD_SIM_FIELD("max_batch", MD_SIM_COUNT, FIELD(function.spec.max_batch), .low = 1, .high = 65536),
    MD_SIM_FIELD("max_parallel", MD_SIM_COUNT, FIELD(function.spec.max_parallel), .low = 1, .high = 65536),
    MD_SIM_FIELD("max_replicas", MD_SIM_COUNT, FIELD(function.spec.max_replicas), .low = 1, .high = 1024),
    MD_SIM_FIELD("min_replicas", MD_SIM_COUNT, FIELD(function.spec.min_replicas), .low = 1, .high = 1024),
    MD_SIM_FIELD("pinned", MD_SIM_FLAG, FIELD(function.spec.pinned)),
    MD_SIM_FIELD("continuous", MD_SIM_FLAG, FIELD(function.spec.continuous)),
    MD_SIM_FIELD("sequence_share", MD_SIM_NUMBER, FIELD(function.sequence_share), .high = 1),
    MD_SIM_FIELD("slo", MD_SIM_TIME, FIELD(function.spec.slo_ns), .low = 1, .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("goal", MD_SIM_CHOICE, FIELD(goal), .choices = goals),
    MD_SIM_FIELD("percentile", MD_SIM_NUMBER, FIELD(function.spec.slo_percentile), .low = 0.01, .high = 1),
    MD_SIM_FIELD("rate", MD_SIM_RATE, FIELD(rate), .high = 1e6),
    MD_SIM_FIELD("prompt_tokens", MD_SIM_COUNTS, FIELD(prompt), .low = 1, .high = 100000000),
    MD_SIM_FIELD("generated_tokens", MD_SIM_COUNTS, FIELD(generated), .low = 1, .high = 100000000),
    MD_SIM_FIELD("rate_law", MD_SIM_CHOICE, FIELD(function.rate_log), .choices = laws),
    MD_SIM_FIELD("count", MD_SIM_COUNT, FIELD(count), .low = 1, .high = MD_SIM_FUNCTIONS_MAX),
};

enum md_status md_sim_config_memory(const struct md_sim_yaml *yaml, struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its models", yaml->name);
}

enum md_status md_sim_config_list(const struct md_sim_yaml *yaml, uint32_t list, const char *name, uint32_t most,
				  struct md_error *err)
{
	if (yaml->nodes[list].kind != MD_SIM_SEQUENCE || !yaml->nodes[list].count)
		return md_sim_fields_refuse(yaml, list, name, NULL, err, "a list of at least one is expected");
	if (yaml->nodes[list].count > most)
		return md_sim_fields_refuse(yaml, list, name, NULL, err, "there are more than %u", most);
	return MD_OK;
}

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
	const struct md_sim_named *left = a, *right = b;
	int order = strcmp(left->name, right->name);
	return order ? order : (left->at > right->at) - (left->at < right->at);
}

const struct md_sim_named *md_sim_config_double(struct md_sim_named *names, uint32_t count)
{
	qsort(names, count, sizeof(*names), compare_names);
	for (uint32_t i = 1; i < count; i++)
		if (strcmp(names[i - 1].name, names[i].name) == 0)
			return &names[i];
	return NULL;
}

/* ---- models ---- */

void md_sim_config_model_finish(struct md_sim_model_entry *model)
{
	free(model->name);
	free(model->backbone);
	free(model->artifact);
	free(model->tenant);
}

static bool copy_text(const char *text, char **copy)
{
	*copy = text ? strdup(text) : NULL;
	return *copy || !text;
}

/* Begins with the defaults; texts are copied. */
static enum md_status start_model(const struct md_sim_functions_config *config, struct md_sim_model_entry *model,
				  struct md_error *err)
{
	const struct md_sim_model_entry *shared = &config->shared;
	*model = *shared;
	model->name = NULL;
	bool copied = copy_text(shared->backbone, &model->backbone);
	copied &= copy_text(shared->artifact, &model->artifact);
	copied &= copy_text(shared->tenant, &model->tenant);
	return copied ? MD_OK : md_sim_config_memory(config->yaml, err);
}

static bool was_seen(uint64_t seen, const char *name)
{
	size_t i = 0;
	while (strcmp(model_fields[i].name, name))
		i++;
	return seen >> i & 1;
}

/* Takes values from the artifact where the file has none. */
static enum md_status take_artifact(struct md_sim_functions_config *config, uint32_t at, const char *path,
				    struct md_sim_model_entry *model, uint64_t seen, struct md_error *err)
{
	struct medusa_sched_function *spec = &model->function.spec;
	struct md_sim_artifact_facts facts;
	struct md_error inner = {0};
	if (!model->artifact)
		return MD_OK;
	if (md_sim_artifact_facts(config->yaml->name, model->artifact, &facts, &inner) != MD_OK)
		return md_sim_fields_refuse(config->yaml, at, path, "artifact", err, "%s", inner.message);
	config->out.artifacts[config->out.artifact_count++] = facts.path;
	if (!was_seen(seen, "weights") && !was_seen(seen, "adapter"))
		spec->weight_bytes = facts.weight_bytes;
	if (!was_seen(seen, "context"))
		spec->context_bytes = facts.context_bytes;
	if (!was_seen(seen, "capture_time"))
		model->function.capture_ns = facts.capture_ns;
	if (!was_seen(seen, "kv_per_token") && !was_seen(seen, "kv") && model->kv_block_tokens)
		model->function.kv_bytes_per_token = facts.kv_block_bytes / model->kv_block_tokens;
	return MD_OK;
}

static enum md_status check_model(struct md_sim_functions_config *config, uint32_t at, const char *path,
				  struct md_sim_model_entry *model, uint64_t seen, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	struct medusa_sched_function *spec = &model->function.spec;
	if (was_seen(seen, "weights") && was_seen(seen, "adapter"))
		return md_sim_fields_refuse(yaml, at, path, "adapter", err, "weights are given as well; one of them");
	if (was_seen(seen, "adapter") && !model->backbone)
		return md_sim_fields_refuse(yaml, at, path, "adapter", err, "it needs a backbone");
	if (was_seen(seen, "adapter"))
		spec->weight_bytes = model->adapter_bytes;
	spec->backbone = MEDUSA_SCHED_NONE;
	if (model->backbone &&
	    !md_sim_config_find_backbone(config, model->backbone, &spec->backbone, &model->function.backbone_count))
		return md_sim_fields_refuse(yaml, at, path, "backbone", err, "there is no backbone '%.60s'",
					    model->backbone);
	MD_FORWARD(md_sim_config_tenant(config, at, path, model->tenant, &model->function.tenant, err));
	MD_FORWARD(take_artifact(config, at, path, model, seen, err));
	if (!model->backbone && spec->weight_bytes == 0)
		return md_sim_fields_refuse(yaml, at, path, "weights", err,
					    model->artifact ? "the artifact does not say, so give them"
							    : "it is missing");
	if (was_seen(seen, "transfer") && model->function.transfer_bytes / 2 > spec->weight_bytes)
		return md_sim_fields_refuse(yaml, at, path, "transfer", err,
					    "it is more than twice the weights, of which a swap copies about all");
	if (spec->residue_bytes > spec->context_bytes)
		return md_sim_fields_refuse(yaml, at, path, "residue", err, "it is more than the context");
	return MD_OK;
}

static enum md_status read_model(struct md_sim_functions_config *config, uint32_t at, const char *path,
				 struct md_sim_model_entry *model, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(config->yaml, model_fields);
	uint64_t own = 0, seen = config->shared_seen;
	MD_FORWARD(md_sim_fields_read(&fields, at, path, model, &own, err));
	seen |= own;
	if (was_seen(own, "sequence_share") && !model->function.spec.continuous)
		return md_sim_fields_refuse(config->yaml, at, path, "sequence_share", err,
					    "it has no effect unless the model is continuous");
	if (was_seen(own, "rate_law") && model->rate.low >= model->rate.high)
		return md_sim_fields_refuse(config->yaml, at, path, "rate_law", err,
					    "it has no effect unless rate is a range, such as 5..30/min");
	if (was_seen(own, "kv_block_tokens") && !model->artifact)
		return md_sim_fields_refuse(config->yaml, at, path, "kv_block_tokens", err,
					    "it has no effect without an artifact; kv_per_token says bytes");
	MD_FORWARD(md_sim_fields_require(&fields, at, path, seen, err));
	MD_FORWARD(check_model(config, at, path, model, seen, err));
	if (!was_seen(seen, "sequence_share"))
		model->function.sequence_share = MD_SIM_SEQUENCE_SHARE;
	model->function.spec.size = sizeof(model->function.spec);
	model->function.spec.slo_goal = (enum medusa_sched_goal)model->goal;
	model->function.rate_low = model->rate.low;
	model->function.rate_high = model->rate.high;
	model->function.prompt_low = model->prompt.low;
	model->function.prompt_high = model->prompt.high;
	model->function.generated_low = model->generated.low;
	model->function.generated_high = model->generated.high;
	return MD_OK;
}

static enum md_status add_model(struct md_sim_functions_config *config, uint32_t at, struct md_error *err)
{
	struct md_sim_functions *out = &config->out;
	uint32_t index = out->model_count;
	struct md_sim_model_entry model;
	char path[32];
	enum md_status status = start_model(config, &model, err);
	snprintf(path, sizeof(path), "models[%" PRIu32 "]", index);
	if (status == MD_OK)
		status = read_model(config, at, path, &model, err);
	if (status == MD_OK) {
		out->templates[index] = model.function;
		out->templates[index].model = index;
		out->templates[index].line = config->yaml->nodes[at].line;
		out->models[index] = md_steal_ptr(&model.name);
		config->counts[index] = model.count ? model.count : 1;
		out->model_count++;
	}
	md_sim_config_model_finish(&model);
	return status;
}

static enum md_status read_defaults(struct md_sim_functions_config *config, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(config->yaml, model_fields);
	if (!config->defaults)
		return MD_OK;
	MD_FORWARD(
	    md_sim_fields_read(&fields, config->defaults, "defaults", &config->shared, &config->shared_seen, err));
	if (config->shared.name)
		return md_sim_fields_refuse(config->yaml, config->defaults, "defaults", "name", err,
					    "models need names of their own");
	return MD_OK;
}

enum md_status md_sim_config_models(struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	struct md_sim_functions *out = &config->out;
	uint32_t count = yaml->nodes[config->models].count;
	MD_AUTO_FREE struct md_sim_named *names = calloc(count + 1, sizeof(*names));
	MD_FORWARD(md_sim_config_list(yaml, config->models, "models", MD_SIM_MODELS_MAX, err));
	MD_FORWARD(read_defaults(config, err));
	out->models = calloc(count, sizeof(*out->models));
	out->templates = calloc(count, sizeof(*out->templates));
	out->artifacts = calloc(count, sizeof(*out->artifacts));
	config->counts = calloc(count, sizeof(*config->counts));
	if (!names || !out->artifacts || !out->models || !out->templates || !config->counts)
		return md_sim_config_memory(yaml, err);
	for (uint32_t at = yaml->nodes[config->models].first; at; at = yaml->nodes[at].next) {
		MD_FORWARD(add_model(config, at, err));
		names[out->model_count - 1] = (struct md_sim_named){out->models[out->model_count - 1], at};
	}
	const struct md_sim_named *twice = md_sim_config_double(names, count);
	if (twice)
		return md_sim_fields_refuse(yaml, twice->at, "models", NULL, err, "'%.60s' is there already",
					    twice->name);
	return MD_OK;
}
