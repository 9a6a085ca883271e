/* SPDX-License-Identifier: Apache-2.0 */
/* functions.yaml: functions that are made from models: a number of each, in turn, or listed one by one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/config/functions_yaml.h"
#include "simulator/random.h"

static const struct md_sim_field file_fields[] = {
    MD_SIM_FIELD("source", MD_SIM_TEXT, offsetof(struct md_sim_functions_config, out.source), .required = true),
    MD_SIM_FIELD("backbones", MD_SIM_NESTED, offsetof(struct md_sim_functions_config, backbones)),
    MD_SIM_FIELD("tenants", MD_SIM_NESTED, offsetof(struct md_sim_functions_config, tenants)),
    MD_SIM_FIELD("defaults", MD_SIM_NESTED, offsetof(struct md_sim_functions_config, defaults)),
    MD_SIM_FIELD("models", MD_SIM_NESTED, offsetof(struct md_sim_functions_config, models), .required = true),
    MD_SIM_FIELD("functions", MD_SIM_NESTED, offsetof(struct md_sim_functions_config, functions)),
};

/* ---- functions ---- */

void md_sim_config_free_functions(struct md_sim_function *functions, uint32_t count)
{
	for (uint32_t i = 0; functions && i < count; i++)
		free(functions[i].name);
	free(functions);
}

static void draw_rate(struct md_sim_function *function, uint64_t seed, uint32_t index)
{
	struct md_sim_random random = md_sim_random_of(seed, index);
	double part = md_sim_random_part(&random);
	function->rate_per_min = function->rate_low + (function->rate_high - function->rate_low) * part;
	if (function->rate_log && function->rate_low > 0)
		function->rate_per_min =
		    function->rate_low * md_sim_pow(function->rate_high / function->rate_low, part);
}

bool md_sim_config_add_function(struct md_sim_functions *out, uint32_t model, uint32_t ordinal, char *name)
{
	struct md_sim_function *function = &out->functions[out->count];
	if (!name)
		return false;
	*function = out->templates[model];
	function->name = name;
	function->spec.backbone = md_sim_config_backbone_of(function, ordinal);
	draw_rate(function, 0, out->count++);
	return true;
}

static bool add_function(struct md_sim_functions *out, uint32_t model, uint32_t ordinal)
{
	char *name;
	if (asprintf(&name, "%s-%" PRIu32, out->models[model], ordinal) < 0)
		return false;
	return md_sim_config_add_function(out, model, ordinal, name);
}

/* In turn: functions k, k + models, k + 2 models ... are of model k. */
static bool add_in_turn(struct md_sim_functions *out, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!add_function(out, i % out->model_count, i / out->model_count))
			return false;
	return true;
}

/* The given number of functions of each model, one model after another. */
static bool add_counted(struct md_sim_functions *out, const uint32_t *counts)
{
	for (uint32_t model = 0; model < out->model_count; model++)
		for (uint32_t i = 0; i < counts[model]; i++)
			if (!add_function(out, model, i))
				return false;
	return true;
}

struct functions {
	uint32_t count;
	int round_robin;
};

static const struct md_sim_field functions_fields[] = {
    MD_SIM_FIELD("count", MD_SIM_COUNT, offsetof(struct functions, count), .required = true, .low = 1,
		 .high = MD_SIM_FUNCTIONS_MAX),
    MD_SIM_FIELD("round_robin", MD_SIM_FLAG, offsetof(struct functions, round_robin)),
};

/* "functions: {count: 480}": in turn, or as blocks of equal size. */
static enum md_status make_functions(struct md_sim_functions_config *config, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(config->yaml, functions_fields);
	struct md_sim_functions *out = &config->out;
	struct functions wanted = {.round_robin = true};
	uint64_t seen = 0;
	bool made;
	MD_FORWARD(md_sim_fields_read(&fields, config->functions, "functions", &wanted, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, config->functions, "functions", seen, err));
	out->functions = calloc(wanted.count, sizeof(*out->functions));
	if (!out->functions)
		return md_sim_config_memory(config->yaml, err);
	if (wanted.round_robin) {
		made = add_in_turn(out, wanted.count);
	} else {
		for (uint32_t i = 0; i < out->model_count; i++)
			config->counts[i] =
			    wanted.count / out->model_count + (i < wanted.count % out->model_count ? 1 : 0);
		made = add_counted(out, config->counts);
	}
	return made ? MD_OK : md_sim_config_memory(config->yaml, err);
}

static enum md_status count_functions(struct md_sim_functions_config *config, struct md_error *err)
{
	struct md_sim_functions *out = &config->out;
	uint64_t total = 0;
	for (uint32_t i = 0; i < out->model_count; i++)
		total += config->counts[i];
	if (total > MD_SIM_FUNCTIONS_MAX)
		return md_sim_fields_refuse(config->yaml, config->models, "models", NULL, err,
					    "more than %u functions in all", MD_SIM_FUNCTIONS_MAX);
	out->functions = calloc(total, sizeof(*out->functions));
	if (!out->functions || !add_counted(out, config->counts))
		return md_sim_config_memory(config->yaml, err);
	return MD_OK;
}

/* An entry of a list of functions: the model, and fields that override the model's. */
struct entry {
	char *name, *model, *tenant;
	struct md_units_range rate;
	uint64_t slo_ns;
	double percentile;
};

static const struct md_sim_field entry_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, offsetof(struct entry, name), .required = true),
    MD_SIM_FIELD("model", MD_SIM_TEXT, offsetof(struct entry, model), .required = true),
    MD_SIM_FIELD("tenant", MD_SIM_TEXT, offsetof(struct entry, tenant)),
    MD_SIM_FIELD("rate", MD_SIM_RATE, offsetof(struct entry, rate), .high = 1e6),
    MD_SIM_FIELD("slo", MD_SIM_TIME, offsetof(struct entry, slo_ns), .low = 1, .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("percentile", MD_SIM_NUMBER, offsetof(struct entry, percentile), .low = 0.01, .high = 1),
};

static enum md_status add_entry(struct md_sim_functions_config *config, uint32_t at, const char *path,
				struct entry *entry, struct md_error *err)
{
	struct md_sim_functions *out = &config->out;
	struct md_sim_function *function = &out->functions[out->count];
	uint32_t model = 0;
	while (model < out->model_count && strcmp(out->models[model], entry->model))
		model++;
	if (model == out->model_count)
		return md_sim_fields_refuse(config->yaml, at, path, "model", err, "there is no model '%.60s'",
					    entry->model);
	*function = out->templates[model];
	function->name = md_steal_ptr(&entry->name);
	if (entry->rate.high > 0) {
		function->rate_low = entry->rate.low;
		function->rate_high = entry->rate.high;
	}
	if (entry->slo_ns)
		function->spec.slo_ns = entry->slo_ns;
	if (entry->percentile > 0)
		function->spec.slo_percentile = entry->percentile;
	draw_rate(function, 0, out->count++);
	return entry->tenant ? md_sim_config_tenant(config, at, path, entry->tenant, &function->tenant, err) : MD_OK;
}

static enum md_status list_functions(struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, entry_fields);
	uint32_t count = yaml->nodes[config->functions].count;
	MD_FORWARD(md_sim_config_list(yaml, config->functions, "functions", MD_SIM_FUNCTIONS_MAX, err));
	config->out.functions = calloc(count, sizeof(*config->out.functions));
	if (!config->out.functions)
		return md_sim_config_memory(yaml, err);
	for (uint32_t at = yaml->nodes[config->functions].first; at; at = yaml->nodes[at].next) {
		struct entry entry = {0};
		char path[32];
		uint64_t seen = 0;
		snprintf(path, sizeof(path), "functions[%" PRIu32 "]", config->out.count);
		enum md_status status = md_sim_fields_read(&fields, at, path, &entry, &seen, err);
		if (status == MD_OK)
			status = md_sim_fields_require(&fields, at, path, seen, err);
		if (status == MD_OK)
			status = add_entry(config, at, path, &entry, err);
		free(entry.name);
		free(entry.model);
		free(entry.tenant);
		MD_FORWARD(status);
	}
	return MD_OK;
}

static enum md_status check_functions(const struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_functions *out = &config->out;
	MD_AUTO_FREE struct md_sim_named *names = calloc(out->count, sizeof(*names));
	if (!names)
		return md_sim_config_memory(config->yaml, err);
	for (uint32_t i = 0; i < out->count; i++)
		names[i] = (struct md_sim_named){out->functions[i].name, i};
	const struct md_sim_named *twice = md_sim_config_double(names, out->count);
	if (!twice)
		return MD_OK;
	/* of a list, the second one has a line of its own; those that are made of models have none */
	uint32_t node = config->functions ? config->functions : config->models;
	if (config->functions && config->yaml->nodes[node].kind == MD_SIM_SEQUENCE) {
		node = config->yaml->nodes[node].first;
		for (uint32_t i = 0; i < twice->at; i++)
			node = config->yaml->nodes[node].next;
	}
	return md_sim_fields_refuse(config->yaml, node, "functions", NULL, err, "two are called '%.60s'", twice->name);
}

/* ---- the file ---- */

static enum md_status read_functions(struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	struct md_sim_fields fields = MD_SIM_FIELDS(yaml, file_fields);
	uint64_t seen = 0;
	MD_FORWARD(md_sim_fields_read(&fields, 0, "", config, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, 0, "", seen, err));
	MD_FORWARD(md_sim_config_tenants(config, err));
	MD_FORWARD(md_sim_config_backbones(config, err));
	MD_FORWARD(md_sim_config_models(config, err));
	if (!config->functions)
		MD_FORWARD(count_functions(config, err));
	else if (yaml->nodes[config->functions].kind == MD_SIM_MAPPING)
		MD_FORWARD(make_functions(config, err));
	else
		MD_FORWARD(list_functions(config, err));
	return check_functions(config, err);
}

enum md_status md_sim_functions_parse(const char *name, const char *text, size_t bytes,
				      struct md_sim_functions *functions, struct md_error *err)
{
	struct md_sim_yaml yaml;
	struct md_sim_functions_config config = {.yaml = &yaml};
	enum md_status status;
	MD_FORWARD(md_sim_yaml_parse(name, text, bytes, &yaml, err));
	config.out.file = strdup(name);
	status = config.out.file ? read_functions(&config, err) : md_sim_config_memory(&yaml, err);
	md_sim_yaml_finish(&yaml);
	md_sim_config_model_finish(&config.shared);
	md_sim_config_backbones_finish(&config);
	free(config.counts);
	if (status == MD_OK)
		*functions = config.out;
	else
		md_sim_functions_finish(&config.out);
	return status;
}

enum md_status md_sim_functions_read(const char *path, struct md_sim_functions *functions, struct md_error *err)
{
	MD_AUTO_FREE char *text = NULL;
	size_t bytes;
	MD_FORWARD(md_sim_file_read(path, MD_SIM_YAML_BYTES_MAX, &text, &bytes, err));
	return md_sim_functions_parse(path, text, bytes, functions, err);
}

enum md_status md_sim_functions_resize(struct md_sim_functions *functions, uint32_t count, uint64_t seed,
				       struct md_error *err)
{
	struct md_sim_functions resized = *functions;
	if (count == 0 || count > MD_SIM_FUNCTIONS_MAX)
		return md_error_set(err, MD_ERR_INVALID, "%u functions: 1 to %u can be simulated", count,
				    MD_SIM_FUNCTIONS_MAX);
	if (count != functions->count) {
		resized.count = 0;
		resized.functions = calloc(count, sizeof(*resized.functions));
		if (!resized.functions || !add_in_turn(&resized, count)) {
			md_sim_config_free_functions(resized.functions, resized.count);
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u functions", count);
		}
		md_sim_config_free_functions(functions->functions, functions->count);
		*functions = resized;
	}
	for (uint32_t i = 0; i < count; i++)
		draw_rate(&functions->functions[i], seed, i);
	return MD_OK;
}

void md_sim_functions_finish(struct md_sim_functions *functions)
{
	for (uint32_t i = 0; functions->backbones && i < functions->backbone_count; i++)
		free(functions->backbones[i].name);
	for (uint32_t i = 0; functions->models && i < functions->model_count; i++)
		free(functions->models[i]);
	for (uint32_t i = 0; functions->tenants && i < functions->tenant_count; i++)
		free(functions->tenants[i].name);
	md_sim_config_free_functions(functions->functions, functions->count);
	free(functions->tenants);
	free(functions->backbones);
	free(functions->models);
	free(functions->templates);
	free(functions->source);
	free(functions->file);
	for (uint32_t i = 0; i < functions->artifact_count; i++)
		free(functions->artifacts[i]);
	free(functions->artifacts);
	*functions = (struct md_sim_functions){0};
}
