/* SPDX-License-Identifier: Apache-2.0 */
/* models.*.medusa.adapters: LoRA adapters, each of which is a model of its own whose requests go to its base's engine. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "worker/config/parts.h"

#define UNSEEN_BYTES (UINT64_C(1) << 20) /* of an adapter whose file is not to be seen from here */

/* ---- its keys ---- */

/* What is not given is as of its base. */
struct adapter_source {
	struct md_config_model model;
	const char *tenant;
	int64_t concurrency;
	int goal;
};

#define MODEL(member) offsetof(struct adapter_source, model.member)
#define OWN(member) offsetof(struct adapter_source, model.own.member)

static const char *const goals[] = {"completion", "first_token", NULL}; /* as enum medusa_sched_goal */

static const struct md_config_key adapter_keys[] = {
    MD_KEY("path", MD_KEY_TEXT, MODEL(path), NULL),
    MD_KEY("bytes", MD_KEY_BYTES, MODEL(bytes), "0"),
    MD_KEY("aliases", MD_KEY_TEXTS, MODEL(aliases), NULL),
    MD_KEY("useModelName", MD_KEY_TEXT, MODEL(use_model_name), NULL),
    MD_KEY("name", MD_KEY_TEXT, MODEL(name), NULL),
    MD_KEY("description", MD_KEY_TEXT, MODEL(description), NULL),
    MD_KEY("unlisted", MD_KEY_FLAG, MODEL(unlisted), NULL),
    MD_KEY("metadata", MD_KEY_JSON, MODEL(metadata), NULL),
    MD_KEY("concurrencyLimit", MD_KEY_INTEGER, offsetof(struct adapter_source, concurrency), "0", .high = 1000000000),
    MD_KEY("kv_per_request", MD_KEY_BYTES, OWN(kv_request_bytes), NULL),
    MD_KEY("slo", MD_KEY_TIME, OWN(slo_ns), NULL),
    MD_KEY("goal", MD_KEY_CHOICE, offsetof(struct adapter_source, goal), NULL, .choices = goals),
    MD_KEY("priority", MD_KEY_INTEGER, OWN(priority), NULL, .low = -1000000, .high = 1000000),
    MD_KEY("pin", MD_KEY_FLAG, OWN(pin), "false"),
    MD_KEY("min_replicas", MD_KEY_COUNT, OWN(min_replicas), "0", .high = 1024),
    MD_KEY("max_batch", MD_KEY_COUNT, OWN(max_batch), NULL, .high = 65536),
    MD_KEY("tenant", MD_KEY_TEXT, offsetof(struct adapter_source, tenant), NULL),
    MD_KEY("max_queue", MD_KEY_COUNT, OWN(max_queue), NULL),
    MD_KEY("max_wait", MD_KEY_TIME, OWN(max_wait_ns), NULL),
    MD_KEY("deadline", MD_KEY_TIME, OWN(deadline_ns), NULL),
};
const struct md_config_keys md_config_adapter_keys =
    MD_KEYS("models.*.medusa.adapters.*.", adapter_keys, .strict = true);

/* ---- its size ---- */

static bool is_weights(const char *name)
{
	const char *end = strrchr(name, '.');
	return end && (!strcmp(end, ".safetensors") || !strcmp(end, ".bin") || !strcmp(end, ".gguf"));
}

static uint64_t folder_bytes(const char *path)
{
	DIR *folder = opendir(path);
	uint64_t bytes = 0;
	struct stat facts;
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (is_weights(entry->d_name) && !fstatat(dirfd(folder), entry->d_name, &facts, 0) &&
		    S_ISREG(facts.st_mode))
			bytes += (uint64_t)facts.st_size;
	if (folder)
		closedir(folder);
	return bytes;
}

/* Of a file, or of the weights in a folder; 0: there is nothing to be seen. */
static uint64_t bytes_at(const char *path)
{
	struct stat facts;
	if (stat(path, &facts))
		return 0;
	return S_ISDIR(facts.st_mode) ? folder_bytes(path) : (uint64_t)facts.st_size;
}

static enum md_status measure(struct md_config_build *build, const struct md_tree *at, struct md_config_model *model)
{
	if (model->bytes)
		return MD_OK;
	model->bytes = bytes_at(model->path);
	if (model->bytes)
		return MD_OK;
	model->bytes = UNSEEN_BYTES;
	return md_config_note(build, at, "no file is to be seen there, so the adapter counts as 1 MiB; give bytes");
}

/* ---- one of them ---- */

/* An adapter has no command, no port, and no filters for names that are not its own. */
static struct md_config_model derive(const struct md_config_model *models, uint32_t base, const struct md_tree *node)
{
	static const char *const nothing[] = {NULL};
	struct md_config_model model = models[base];
	model.id = node->key;
	model.base = base;
	model.place = model.memory_place = (struct md_config_place){node->file, node->line};
	model.argv = nothing;
	model.stop_argv = NULL;
	model.cmd = "";
	model.env = model.aliases = (struct md_config_texts){NULL, 0};
	model.port = 0;
	model.filters.by_id = NULL;
	model.filters.by_id_count = 0;
	model.metadata = NULL;
	model.own.artifact = model.own.place = model.own.content = NULL;
	model.own.sources = (struct md_config_texts){NULL, 0};
	model.own.memory_bytes = model.own.host_memory_bytes = 0;
	model.own.swap = MD_CONFIG_SWAP_OFF;
	model.own.start_ns = model.own.swap_ns = 0;
	model.own.template = model.own.backbone = MD_CONFIG_NONE;
	model.own.adapted = false;
	model.own.adapter_slots = 0;
	return model;
}

static enum md_status read_mapping(struct md_config_build *build, struct md_tree *node, struct adapter_source *source)
{
	MD_FORWARD(md_keys_read(build, &md_config_adapter_keys, node, source));
	source->model.own.goal = (enum medusa_sched_goal)source->goal;
	if (source->concurrency)
		source->model.concurrency = (uint32_t)source->concurrency;
	return md_config_find_tenant(build, node, source->tenant, &source->model.own.tenant);
}

static enum md_status read_adapter(struct md_config_build *build, struct md_tree *node, uint32_t base,
				   struct md_config_model *models, struct md_config_model *model)
{
	struct adapter_source source = {.model = derive(models, base, node)};
	const struct md_tree *at = node;
	source.goal = (int)source.model.own.goal;
	if (node->kind == MD_TREE_MAPPING) {
		MD_FORWARD(read_mapping(build, node, &source));
		at = md_tree_find(node, "path") ? md_tree_find(node, "path") : node;
	} else {
		MD_FORWARD(read_mapping(build, NULL, &source));
		if (node->kind != MD_TREE_NULL)
			MD_FORWARD(md_keys_text(build, node, &source.model.path));
	}
	if (!*source.model.path)
		return md_tree_refuse_place(node, build->err,
					    "the adapter has no path: NAME: PATH, or a mapping with path");
	if (!*source.model.use_model_name)
		source.model.use_model_name = node->key;
	MD_FORWARD(measure(build, at, &source.model));
	*model = source.model;
	return MD_OK;
}

static uint32_t index_of(const struct md_config_entry *entries, uint32_t count, const struct md_tree *node)
{
	uint32_t low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (strcmp(entries[middle].node->key, node->key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* An engine knows its adapters by these names. */
static enum md_status check_names(struct md_config_build *build, const struct md_config_entry *entries,
				  const struct md_config_model *models, uint32_t index)
{
	const struct md_config_model *model = &models[index], *base = &models[model->base];
	for (const struct md_tree *at = entries[index].node->parent->first; at && at != entries[index].node;
	     at = at->next) {
		const struct md_tree *name = md_tree_find(at, "useModelName");
		if (!strcmp(name && name->text && *name->text ? name->text : at->key, model->use_model_name))
			return md_tree_refuse_place(entries[index].node, build->err,
						    "the engine would know it by the name of the adapter %.100s, "
						    "\"%.100s\"",
						    at->key, model->use_model_name);
	}
	if (!strcmp(base->id, model->use_model_name) || !strcmp(base->use_model_name, model->use_model_name))
		return md_tree_refuse_place(entries[index].node, build->err,
					    "the engine would know it by the name of its base, \"%.100s\"",
					    model->use_model_name);
	return MD_OK;
}

enum md_status md_config_read_adapters(struct md_config_build *build, const struct md_config_entry *entries,
				       struct md_config_model *models, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!entries[i].model)
			continue;
		uint32_t base = index_of(entries, count, entries[i].model);
		MD_FORWARD(read_adapter(build, entries[i].node, base, models, &models[i]));
		MD_FORWARD(check_names(build, entries, models, i));
	}
	return MD_OK;
}

/* ---- all names ---- */

static struct md_tree *adapters_of(const struct md_tree *model)
{
	const struct md_tree *medusa = md_tree_find(model, "medusa");
	struct md_tree *adapters = medusa ? md_tree_find(medusa, "adapters") : NULL;
	return adapters && adapters->kind == MD_TREE_MAPPING ? adapters : NULL;
}

static int compare_entries(const void *a, const void *b)
{
	const struct md_config_entry *left = a, *right = b;
	int order = strcmp(left->node->key, right->node->key);
	return order ? order : (left->model != NULL) - (right->model != NULL);
}

static enum md_status check_entry(struct md_config_build *build, const struct md_config_entry *entries, uint32_t i)
{
	const struct md_tree *node = entries[i].node;
	const char *what = entries[i].model ? "adapter" : "model";
	if (!*node->key)
		return md_tree_refuse_place(node, build->err, "the %s has no ID", what);
	if (strlen(node->key) > MD_CONFIG_NAME_MAX)
		return md_tree_refuse_place(node, build->err,
					    "the ID of %s %s has at most %u bytes, and this one has %zu",
					    entries[i].model ? "an" : "a", what, MD_CONFIG_NAME_MAX, strlen(node->key));
	if (!i || strcmp(entries[i - 1].node->key, node->key))
		return MD_OK;
	const struct md_tree *other = entries[i - 1].model;
	return md_tree_refuse_place(node, build->err, "%s%.100s has this name already",
				    other ? "an adapter of the model " : "the model ", other ? other->key : node->key);
}

enum md_status md_config_list_entries(struct md_config_build *build, struct md_tree *models,
				      struct md_config_entry **entries, uint32_t *count)
{
	uint64_t room = models ? models->count : 0;
	for (const struct md_tree *at = models ? models->first : NULL; at; at = at->next)
		room += adapters_of(at) ? adapters_of(at)->count : 0;
	if (room > MD_CONFIG_MODELS_MAX)
		return md_tree_refuse_place(models, build->err, "there are more than %u models%s", MD_CONFIG_MODELS_MAX,
					    room > models->count ? " and adapters" : "");
	*count = 0;
	*entries = md_config_take(build, room, sizeof(**entries));
	if (!*entries)
		return MD_ERR_NO_MEMORY;
	for (struct md_tree *at = models ? models->first : NULL; at; at = at->next) {
		(*entries)[(*count)++] = (struct md_config_entry){at, NULL};
		struct md_tree *adapters = adapters_of(at);
		for (struct md_tree *adapter = adapters ? adapters->first : NULL; adapter; adapter = adapter->next)
			(*entries)[(*count)++] = (struct md_config_entry){adapter, at};
	}
	qsort(*entries, *count, sizeof(**entries), compare_entries);
	for (uint32_t i = 0; i < *count; i++)
		MD_FORWARD(check_entry(build, *entries, i));
	return MD_OK;
}

/* ---- where a model with an engine is wanted ---- */

uint32_t md_config_engine_of(const struct md_worker_config *config, uint32_t model)
{
	uint32_t base = config->models[model].base;
	return base == MD_CONFIG_NONE ? model : base;
}

enum md_status md_config_want_engine(struct md_config_build *build, const struct md_tree *at, uint32_t model)
{
	uint32_t base = build->config->models[model].base;
	if (base == MD_CONFIG_NONE)
		return MD_OK;
	return md_tree_refuse(at, build->err, "it is an adapter: name its model, %.100s",
			      build->config->models[base].id);
}
