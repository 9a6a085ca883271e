/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/tree_text.h"
#include "worker/cluster/quota_share.h"
#include "worker/core/worker.h"

#define MODELS_MAX 20000u
#define NAMES_MAX 200000u
#define GPUS_MAX 1024u
#define MB 1e6
/* As of the configuration: what it refuses is refused from etcd, too. */
#define WEIGHT_LEAST 1e-6
#define WEIGHT_MOST 1e6
#define LIMIT_MOST 1000000000 /* of a tenant; 0: none */
#define NODES_MOST 100000

/* ---- writing ---- */

static json_t *list_texts(const struct md_config_texts *texts)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < texts->count; i++)
		json_array_append_new(list, json_string(texts->items[i]));
	return list;
}

static json_t *list_starts(const double first_s[MD_STARTS])
{
	json_t *list = json_array();
	for (unsigned i = 0; i < MD_STARTS; i++)
		json_array_append_new(list, json_real(first_s[i]));
	return list;
}

static void put_count(json_t *object, const char *key, uint64_t count)
{
	if (count)
		json_object_set_new(object, key, json_integer(count < INT64_MAX ? (json_int_t)count : INT64_MAX));
}

static json_t *describe_model(const struct md_model *model)
{
	const struct md_config_model *config = model->config;
	struct md_standing unused;
	md_standing_unused(model, &unused);
	json_t *made = json_pack("{s:s, s:o}", "id", config->id, "first_token_s", list_starts(unused.first_s));
	if (config->aliases.count)
		json_object_set_new(made, "aliases", list_texts(&config->aliases));
	if (model->base)
		json_object_set_new(made, "base", json_string(model->base->id));
	if (config->unlisted)
		json_object_set_new(made, "unlisted", json_true());
	put_count(made, "bytes", model->weight_bytes);
	put_count(made, "parallel", model->told.max_batch);
	put_count(made, "min_nodes", config->own.min_nodes);
	put_count(made, "max_nodes", config->own.max_nodes);
	return made;
}

static json_t *list_gpus(const struct md_worker *worker)
{
	json_t *list = json_array();
	uint32_t count;
	const struct medusa_sched_gpu *gpus = md_gpus_list(worker->gpus, &count);
	for (uint32_t i = 0; i < count; i++) {
		json_t *gpu = json_object();
		const char *uuid = md_gpus_visible(worker->gpus, i);
		if (gpus[i].memory_bytes != MD_WORKER_GPU_BYTES)
			json_object_set_new(gpu, "bytes", json_integer((json_int_t)gpus[i].memory_bytes));
		if (uuid)
			json_object_set_new(gpu, "device", json_string(uuid));
		json_array_append_new(list, gpu);
	}
	return list;
}

static char *print(json_t *value)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT | JSON_REAL_PRECISION(4)) : NULL;
	json_decref(value);
	return text;
}

char *md_record_print(const struct md_worker *worker, const struct md_record_self *self)
{
	json_t *models = json_array();
	for (uint32_t i = 0; i < worker->config->model_count; i++)
		json_array_append_new(models, describe_model(worker->current[i]));
	json_t *made = json_pack("{s:i, s:s, s:s, s:s, s:o, s:I, s:o}", "format", MD_RECORD_FORMAT, "identity",
				 self->identity, "url", self->url, "version", MD_VERSION, "gpus", list_gpus(worker),
				 "host_pool_bytes", (json_int_t)worker->config->node.pool_bytes, "models", models);
	if (*self->domain)
		json_object_set_new(made, "domain", json_string(self->domain));
	if (self->placed)
		json_object_set_new(made, "placed", json_true());
	if (worker->config->node.tenant_count)
		json_object_set_new(made, "tenants", md_quotas_describe(worker));
	return print(made);
}

static json_t *describe_standing(const struct md_standing *standing)
{
	json_t *made = json_pack("{s:s, s:o}", "place", md_place_name(standing->place), "first_token_s",
				 list_starts(standing->first_s));
	if (standing->lacks)
		json_object_set_new(made, "lacks", json_true());
	if (standing->waiting)
		json_object_set_new(made, "waiting", json_integer(standing->waiting));
	if (standing->running)
		json_object_set_new(made, "running", json_integer(standing->running));
	if (standing->rate > 0)
		json_object_set_new(made, "rate", json_real(standing->rate));
	if (standing->busy > 0)
		json_object_set_new(made, "busy", json_real(standing->busy));
	if (standing->prefill_s > 0)
		json_object_set_new(made, "prefill_s_per_mb", json_real(standing->prefill_s * MB));
	if (standing->rest_s > 0)
		json_object_set_new(made, "promptless_s", json_real(standing->rest_s));
	if (standing->uncached)
		json_object_set_new(made, "uncached", json_true());
	put_count(made, "life", standing->life);
	return made;
}

/* Models that stand as the record says have no entry. */
char *md_record_print_state(const struct md_worker *worker, const char *identity, const struct md_record_state *state)
{
	json_t *models = json_object();
	for (uint32_t i = 0; i < worker->config->model_count; i++)
		if (!md_standing_equal(&state->standings[i], &state->unused[i]))
			json_object_set_new(models, worker->current[i]->id, describe_standing(&state->standings[i]));
	json_t *made = json_pack("{s:i, s:s, s:b, s:b, s:o}", "format", MD_RECORD_FORMAT, "identity", identity,
				 "cordoned", state->cordoned, "draining", state->draining, "models", models);
	if (state->left)
		json_object_set_new(made, "left", json_true());
	if (state->loads.count) {
		json_object_set_new(made, "loads", json_integer(state->loads.count));
		json_object_set_new(made, "load_slows", json_real(state->loads.slows));
	}
	if (state->tenants)
		json_object_set(made, "quotas", state->tenants);
	return print(made);
}

/* ---- reading ---- */

const char *md_record_remedy(enum md_status status, bool ordered)
{
	if (status == MD_ERR_VERSION)
		return "this node has to be of a later version to know it";
	if (status == MD_ERR_NO_MEMORY)
		return "it counts when it is written again";
	return ordered ? "remove the key from etcd, or give the order again"
		       : "remove the key from etcd, and whoever writes it writes it anew";
}

static json_t *parse(const char *text, size_t size, struct md_error *err)
{
	json_error_t error;
	json_t *root = md_jansson_parse(text, size, 0, &error);
	json_int_t format = json_integer_value(json_object_get(root, "format"));
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		md_error_set(err, MD_ERR_NO_MEMORY, "%s", error.text);
	else if (!json_is_object(root))
		md_error_set(err, MD_ERR_CORRUPT, "it is no JSON object: %.100s", root ? "another value" : error.text);
	else if (format != MD_RECORD_FORMAT)
		md_error_set(err, MD_ERR_VERSION, "format: %lld, and this version reads %d", (long long)format,
			     MD_RECORD_FORMAT);
	else
		return root;
	json_decref(root);
	return NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* False: there are no three numbers from 0 on. */
static bool read_starts(const json_t *list, double first_s[MD_STARTS])
{
	double read[MD_STARTS];
	for (unsigned i = 0; i < MD_STARTS; i++) {
		const json_t *value = json_array_get(list, i);
		read[i] = json_number_value(value);
		if (!json_is_number(value) || !(read[i] >= 0 && read[i] < MD_STANDING_NEVER))
			return false;
	}
	memcpy(first_s, read, sizeof(read));
	return true;
}

static uint32_t count_of(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));
	return value < 0 ? 0 : value > INT32_MAX ? INT32_MAX : (uint32_t)value;
}

/* Numbers that a plan is made of; nonsense counts as nothing. */
static double amount_of(const json_t *object, const char *key)
{
	double value = json_number_value(json_object_get(object, key));
	return value >= 0 && value <= 1e9 ? value : 0;
}

/* An integer that the configuration takes, or none. */
static enum md_status check_count(const json_t *object, const char *what, const char *key, int64_t most,
				  struct md_error *err)
{
	const json_t *value = json_object_get(object, key);
	json_int_t count = json_integer_value(value);
	if (!value || (json_is_integer(value) && count >= 0 && count <= most))
		return MD_OK;
	return md_error_set(err, MD_ERR_CORRUPT, "%.80s.%s: an integer from 0 to %" PRId64 " is wanted", what, key,
			    most);
}

static enum md_status check_tenants(const json_t *tenants, struct md_error *err)
{
	const char *name;
	json_t *tenant;
	char what[80];
	if (tenants && !json_is_object(tenants))
		return md_error_set(err, MD_ERR_CORRUPT, "tenants: an object is wanted");
	json_object_foreach((json_t *)tenants, name, tenant)
	{
		const json_t *weight = json_object_get(tenant, "weight");
		double is = json_number_value(weight);
		snprintf(what, sizeof(what), "tenants.%.60s", name);
		if (!json_is_object(tenant) ||
		    (weight && !(json_is_number(weight) && is >= WEIGHT_LEAST && is <= WEIGHT_MOST)))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "%s.weight: a number from 0.000001 to 1000000 is wanted", what);
		MD_FORWARD(check_count(tenant, what, "max_running", LIMIT_MOST, err));
		MD_FORWARD(check_count(tenant, what, "max_waiting", LIMIT_MOST, err));
	}
	return MD_OK;
}

static enum md_status check_model(const json_t *model, size_t index, struct md_error *err)
{
	char what[40];
	snprintf(what, sizeof(what), "models[%zu]", index);
	MD_FORWARD(check_count(model, what, "bytes", INT64_MAX, err));
	MD_FORWARD(check_count(model, what, "parallel", INT32_MAX, err));
	MD_FORWARD(check_count(model, what, "min_nodes", NODES_MOST, err));
	return check_count(model, what, "max_nodes", NODES_MOST, err);
}

static bool read_model(const json_t *from, struct md_record_model *model)
{
	*model = (struct md_record_model){.id = text_of(from, "id"),
					  .base = text_of(from, "base"),
					  .aliases = json_object_get(from, "aliases"),
					  .unlisted = json_is_true(json_object_get(from, "unlisted")),
					  .parallel = count_of(from, "parallel"),
					  .min_nodes = count_of(from, "min_nodes"),
					  .max_nodes = count_of(from, "max_nodes")};
	json_int_t bytes = json_integer_value(json_object_get(from, "bytes"));
	model->bytes = bytes > 0 ? (uint64_t)bytes : 0;
	return model->id && read_starts(json_object_get(from, "first_token_s"), model->first_s);
}

static uint32_t rank(const struct md_record *record, const struct md_record_name *name)
{
	return record->models[name->model].id != name->name;
}

static int compare_names(const void *a, const void *b, void *context)
{
	const struct md_record_name *one = a, *other = b;
	int order = strcmp(one->name, other->name);
	return order ? order : (int)rank(context, one) - (int)rank(context, other);
}

/* False: out of memory, or there are too many. */
static bool index_names(struct md_record *record)
{
	size_t count = record->count, used = 0, left = 0;
	for (uint32_t i = 0; i < record->count; i++)
		count += json_array_size(record->models[i].aliases);
	if (count > NAMES_MAX || !(record->names = calloc(count + 1, sizeof(*record->names))))
		return false;
	for (uint32_t i = 0; i < record->count; i++) {
		const json_t *alias;
		size_t at;
		record->names[used++] = (struct md_record_name){.name = record->models[i].id, .model = i};
		json_array_foreach(record->models[i].aliases, at, alias) if (json_is_string(alias))
		    record->names[used++] = (struct md_record_name){.name = json_string_value(alias), .model = i};
	}
	qsort_r(record->names, used, sizeof(*record->names), compare_names, record);
	for (size_t i = 0; i < used; i++)
		if (!left || strcmp(record->names[left - 1].name, record->names[i].name) != 0)
			record->names[left++] = record->names[i];
	record->name_count = (uint32_t)left;
	return true;
}

static enum md_status read_models(struct md_record *record, struct md_error *err)
{
	const json_t *list = json_object_get(record->root, "models"), *from;
	size_t i;
	if (!json_is_array(list) || json_array_size(list) > MODELS_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "models: a list of at most %u is wanted", MODELS_MAX);
	record->models = calloc(json_array_size(list) + 1, sizeof(*record->models));
	if (!record->models)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a node's models");
	json_array_foreach(list, i, from)
	{
		if (!read_model(from, &record->models[record->count++]))
			return md_error_set(
			    err, MD_ERR_CORRUPT,
			    "models[%zu]: an id and three numbers of seconds in first_token_s are wanted", i);
		MD_FORWARD(check_model(from, i, err));
	}
	if (!index_names(record))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for names of a node's models");
	return MD_OK;
}

static enum md_status read_gpus(struct md_record *record, struct md_error *err)
{
	const json_t *list = json_object_get(record->root, "gpus"), *gpu;
	size_t i;
	if (json_array_size(list) > GPUS_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "gpus: a list of at most %u is wanted", GPUS_MAX);
	record->each_gpu_bytes = calloc(json_array_size(list) + 1, sizeof(*record->each_gpu_bytes));
	if (!record->each_gpu_bytes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a node's GPUs");
	record->gpu_count = (uint32_t)json_array_size(list);
	json_array_foreach(list, i, gpu)
	{
		char what[40];
		snprintf(what, sizeof(what), "gpus[%zu]", i);
		MD_FORWARD(check_count(gpu, what, "bytes", INT64_MAX, err));
		json_int_t bytes = json_integer_value(json_object_get(gpu, "bytes"));
		uint64_t room = INT64_MAX - record->gpu_bytes;
		if (bytes <= 0)
			continue;
		record->each_gpu_bytes[i] = (uint64_t)bytes;
		record->gpu_bytes += (uint64_t)bytes < room ? (uint64_t)bytes : room;
	}
	return MD_OK;
}

enum md_status md_record_read(const char *text, size_t size, struct md_record **read, struct md_error *err)
{
	struct md_record *record = calloc(1, sizeof(*record));
	if (!record)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a node");
	record->root = parse(text, size, err);
	enum md_status status = record->root ? MD_OK : err->status;
	record->identity = text_of(record->root, "identity");
	record->url = text_of(record->root, "url");
	record->version = text_of(record->root, "version");
	record->domain = text_of(record->root, "domain");
	record->placed = json_is_true(json_object_get(record->root, "placed"));
	if (status == MD_OK && (!record->identity || !record->url))
		status = md_error_set(err, MD_ERR_CORRUPT, "identity or url is missing");
	if (status == MD_OK)
		status = read_models(record, err);
	if (status == MD_OK)
		status = read_gpus(record, err);
	if (status == MD_OK)
		status = check_tenants(json_object_get(record->root, "tenants"), err);
	if (status != MD_OK) {
		md_record_free(record);
		return status;
	}
	md_record_apply(record, NULL, &(bool){false}, &(bool){false});
	*read = record;
	return MD_OK;
}

void md_record_free(struct md_record *record)
{
	if (!record)
		return;
	free(record->models);
	free(record->each_gpu_bytes);
	free(record->names);
	json_decref(record->root);
	free(record);
}

static int compare_name(const void *name, const void *entry)
{
	return strcmp(name, ((const struct md_record_name *)entry)->name);
}

struct md_record_model *md_record_find(const struct md_record *record, const char *name)
{
	const struct md_record_name *found =
	    bsearch(name, record->names, record->name_count, sizeof(*record->names), compare_name);
	return found ? &record->models[found->model] : NULL;
}

json_t *md_record_read_state(const char *text, size_t size, struct md_error *err)
{
	return parse(text, size, err);
}

bool md_record_says_left(const json_t *state)
{
	return json_is_true(json_object_get(state, "left"));
}

static void apply_standing(struct md_record *record, const char *id, const json_t *from)
{
	struct md_record_model *model = md_record_find(record, id);
	if (!model || strcmp(model->id, id) != 0)
		return;
	md_place_find(text_of(from, "place"), &model->standing.place);
	read_starts(json_object_get(from, "first_token_s"), model->standing.first_s);
	model->standing.lacks = json_is_true(json_object_get(from, "lacks"));
	model->standing.waiting = count_of(from, "waiting");
	model->standing.running = count_of(from, "running");
	model->standing.rate = amount_of(from, "rate");
	model->standing.busy = amount_of(from, "busy");
	model->standing.prefill_s = amount_of(from, "prefill_s_per_mb") / MB;
	model->standing.rest_s = amount_of(from, "promptless_s");
	model->standing.uncached = json_is_true(json_object_get(from, "uncached"));
	model->standing.life = count_of(from, "life");
}

void md_record_apply(struct md_record *record, const json_t *root, bool *cordoned, bool *draining)
{
	const char *id;
	json_t *from;
	for (uint32_t i = 0; i < record->count; i++) {
		record->models[i].standing = (struct md_standing){.place = MD_PLACE_DISK};
		memcpy(record->models[i].standing.first_s, record->models[i].first_s,
		       sizeof(record->models[i].first_s));
	}
	double slows = amount_of(root, "load_slows");
	record->loads = (struct md_loads){.count = count_of(root, "loads"), .slows = slows <= 1 ? slows : 1};
	*cordoned = json_is_true(json_object_get(root, "cordoned"));
	*draining = json_is_true(json_object_get(root, "draining"));
	json_object_foreach(json_object_get(root, "models"), id, from) apply_standing(record, id, from);
}

/* ---- wishes ---- */

static const char *const wishes[] = {[MD_WISH_NONE] = "", [MD_WISH_CORDON] = "cordon", [MD_WISH_DRAIN] = "drain"};

const char *md_wish_name(enum md_wish wish)
{
	return wishes[wish];
}

char *md_wish_print(enum md_wish wish)
{
	return print(json_pack("{s:i, s:s}", "format", MD_RECORD_FORMAT, "wish", wishes[wish]));
}

enum md_status md_wish_read(const char *text, size_t size, enum md_wish *wish, struct md_error *err)
{
	json_t *root = parse(text, size, err);
	if (!root)
		return err->status;
	const char *said = text_of(root, "wish");
	enum md_wish found = MD_WISH_NONE;
	for (unsigned i = MD_WISH_CORDON; said && i < sizeof(wishes) / sizeof(*wishes); i++)
		if (!strcmp(said, wishes[i]))
			found = (enum md_wish)i;
	enum md_status status = MD_OK;
	if (found == MD_WISH_NONE)
		status = md_error_set(err, MD_ERR_CORRUPT, "wish: \"cordon\" or \"drain\" is wanted");
	else
		*wish = found;
	json_decref(root);
	return status;
}
