/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/worker_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "worker/accounting/ledger_requests.h"

struct times {
	double *items; /* seconds */
	size_t count, room;
};

/* A model, which is a function of the simulation; measured in the requests that were served. */
struct function {
	const json_t *model;
	const char *name;
	struct times first, token; /* from the engine's getting it to its first byte; of each further token */
	uint64_t requests;
};

struct export
{
	const json_t *answer;
	struct function *functions;
	size_t count;
	FILE *trace;
	bool tenants;
	int64_t first_us;                 /* arrival; 0: none yet */
	uint64_t served, others, unknown; /* unknown: of models that the daemon has no more */
	bool failed;                      /* out of memory */
};

static double real_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static long long whole_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

/* ---- times ---- */

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static double median(struct times *times, double otherwise)
{
	if (!times->count)
		return otherwise;
	qsort(times->items, times->count, sizeof(*times->items), compare);
	return times->items[times->count / 2];
}

static void note(struct export *all, struct times *times, double seconds)
{
	if (MD_ARRAY_GROW(times->items, times->count, times->room))
		times->items[times->count++] = seconds;
	else
		all->failed = true;
}

/* Only a stream shows when its first token was there. */
static void measure(struct export *all, struct function *function, const struct md_ledger_request *request)
{
	double first = (double)(request->first_us - request->waited_us) * 1e-6;
	double rest = (double)(request->total_us - request->first_us) * 1e-6;
	if (!request->streamed || request->first_us < request->waited_us || request->total_us < request->first_us)
		return;
	note(all, &function->first, first);
	if (request->completion_tokens > 1)
		note(all, &function->token, rest / (double)(request->completion_tokens - 1));
}

/* ---- the trace ---- */

static struct function *find(struct export *all, const char *name)
{
	for (size_t i = 0; i < all->count; i++)
		if (!strcmp(all->functions[i].name, name))
			return &all->functions[i];
	return NULL;
}

/* Cells have no quotes within quotes: a name that has them is given by its number. */
static void put_cell(FILE *out, const char *name, size_t number)
{
	if (strpbrk(name, "\"\r\n"))
		fprintf(out, "%zu", number);
	else if (*name)
		fprintf(out, "\"%s\"", name);
}

static void put_count(FILE *out, uint64_t count)
{
	if (count)
		fprintf(out, ",%" PRIu64, count);
	else
		fputc(',', out);
}

static bool take_request(void *context, const struct md_ledger_request *request)
{
	struct export *all = context;
	struct function *function = find(all, request->model);
	if (!function || request->outcome != MD_LEDGER_SERVED) {
		*(function ? &all->others : &all->unknown) += 1;
		return true;
	}
	if (!all->served++)
		all->first_us = request->arrived_us;
	function->requests++;
	measure(all, function, request);
	fprintf(all->trace, "%.6f,", (double)(request->arrived_us - all->first_us) * 1e-6);
	put_cell(all->trace, function->name, (size_t)(function - all->functions));
	put_count(all->trace, request->prompt_tokens);
	put_count(all->trace, request->completion_tokens);
	if (all->tenants) {
		fputc(',', all->trace);
		put_cell(all->trace, request->tenant, 0);
	}
	fputc('\n', all->trace);
	return !all->failed;
}

/* ---- the functions ---- */

/* As a text of YAML in quotes. */
static void put_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if ((unsigned char)*text < ' ')
			fprintf(out, "\\x%02x", (unsigned char)*text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

static void put_time(FILE *out, const char *name, double seconds)
{
	if (seconds > 0)
		fprintf(out, ", %s: %.6fs", name, seconds);
}

/*
 * How it comes and goes. A swapped model's first load is a start: until then it counts as not in host memory. Others start each
 * time, which is what their copy from the host stands for. after: what its time to load is said to be longer by.
 */
static void put_loads(FILE *out, const json_t *model, const char *weights, const char *loads, double after)
{
	double load = real_of(model, "load_s"), start = real_of(model, "start_s");
	bool swaps = json_is_true(json_object_get(model, "swaps"));
	if (load > start)
		load = start; /* a guess: the model was never swapped in */
	fprintf(out, ", %s: %lldB, in_host: %s", weights, whole_of(model, "memory_bytes"), swaps ? "false" : "true");
	put_time(out, loads, (swaps ? load : start) + after);
	put_time(out, "cold_time", swaps && start > load ? start - load : 0);
	put_time(out, "evict_time", real_of(model, "leave_s"));
}

/* An engine that takes adapters: its model and they are functions on it. */
static void put_backbone(FILE *out, const struct function *function)
{
	const json_t *backbone = json_object_get(function->model, "backbone");
	fputs("  - {name: ", out);
	put_text(out, function->name);
	put_loads(out, function->model, "weights", "load_time", 0);
	put_time(out, "keep_alive", real_of(function->model, "keep_alive_s"));
	fprintf(out, ", max_replicas: 1, adapter_slots: %lld, max_batch: %lld}\n", whole_of(backbone, "adapter_slots"),
		whole_of(backbone, "max_batch"));
}

/* Weights that engines of several models have in common; no model has such a name. */
static void put_shared_name(FILE *out, const json_t *shared)
{
	char name[400];
	snprintf(name, sizeof(name), "%s (shared, %lld bytes)", text_of(shared, "name"),
		 whole_of(shared, "memory_bytes"));
	put_text(out, name);
}

static bool same_shared(const json_t *a, const json_t *b)
{
	return a && b && !strcmp(text_of(a, "name"), text_of(b, "name")) &&
	       whole_of(a, "memory_bytes") == whole_of(b, "memory_bytes");
}

/* The time to load them is in that of the engines. */
static void put_shared(FILE *out, const struct export *all, size_t index)
{
	const json_t *shared = json_object_get(all->functions[index].model, "shared");
	for (size_t i = 0; shared && i < index; i++)
		if (same_shared(shared, json_object_get(all->functions[i].model, "shared")))
			return;
	if (!shared)
		return;
	fputs("  - {name: ", out);
	put_shared_name(out, shared);
	fprintf(out, ", weights: %lldB, in_host: true, load_time: 0.000001s}\n", whole_of(shared, "memory_bytes"));
}

static void put_backbones(FILE *out, const struct export *all)
{
	bool any = false;
	for (size_t i = 0; i < all->count; i++)
		any = any || json_object_get(all->functions[i].model, "backbone") ||
		      json_object_get(all->functions[i].model, "shared");
	if (any)
		fputs("backbones:\n", out);
	for (size_t i = 0; i < all->count; i++) {
		if (json_object_get(all->functions[i].model, "backbone"))
			put_backbone(out, &all->functions[i]);
		put_shared(out, all, i);
	}
}

static void put_model(FILE *out, struct function *function)
{
	const json_t *model = function->model, *shared = json_object_get(model, "shared");
	const char *base = json_object_get(model, "backbone") ? function->name : text_of(model, "base");
	double first = median(&function->first, real_of(model, "first_token_s"));
	fputs("  - {name: ", out);
	put_text(out, function->name);
	if (*base) {
		fputs(", backbone: ", out);
		put_text(out, base);
	}
	if (shared) {
		fputs(", backbone: ", out);
		put_shared_name(out, shared);
	}
	if (!json_object_get(model, "backbone"))
		put_loads(out, model, *base || shared ? "adapter" : "weights", "swap_host", first);
	if (whole_of(model, "kv_bytes"))
		fprintf(out, ", kv: %lldB", whole_of(model, "kv_bytes"));
	put_time(out, "execution", first > 1e-6 ? first : 1e-6);
	put_time(out, "token", median(&function->token, 0));
	put_time(out, "keep_alive", real_of(model, "keep_alive_s"));
	put_time(out, "slo", real_of(model, "slo_s"));
	if (whole_of(model, "min_replicas"))
		fprintf(out, ", min_replicas: %lld", whole_of(model, "min_replicas"));
	fprintf(out, ", goal: %s, max_batch: %lld, pinned: %s}\n",
		!strcmp(text_of(model, "goal"), "first token") ? "first_token" : "completion",
		whole_of(model, "max_batch"), json_is_true(json_object_get(model, "pinned")) ? "true" : "false");
}

static void put_tenants(FILE *out, const json_t *tenants)
{
	const json_t *tenant;
	size_t i;
	if (json_array_size(tenants))
		fputs("tenants:\n", out);
	json_array_foreach(tenants, i, tenant)
	{
		fputs("  - {name: ", out);
		put_text(out, text_of(tenant, "name"));
		fprintf(out, ", weight: %g", real_of(tenant, "weight"));
		if (whole_of(tenant, "max_waiting"))
			fprintf(out, ", max_waiting: %lld", whole_of(tenant, "max_waiting"));
		if (whole_of(tenant, "max_running"))
			fprintf(out, ", max_running: %lld", whole_of(tenant, "max_running"));
		fputs("}\n", out);
	}
}

static void put_functions(FILE *out, struct export *all)
{
	bool ruled = json_is_true(json_object_get(all->answer, "ruled"));
	fprintf(
	    out,
	    "source: recorded by medusa-worker; medians of streamed requests, and the times that its scheduler counts "
	    "on%s\ndefaults: {continuous: true, sequence_share: 0, max_parallel: 1, max_replicas: 1, tail: 1}\n",
	    ruled ? "; groups and matrix of the daemon are not in here" : "");
	put_tenants(out, json_object_get(all->answer, "tenants"));
	put_backbones(out, all);
	fputs("models:\n", out);
	for (size_t i = 0; i < all->count; i++)
		put_model(out, &all->functions[i]);
	fputs("functions:\n", out);
	for (size_t i = 0; i < all->count; i++) {
		fputs("  - {name: ", out);
		put_text(out, all->functions[i].name);
		fputs(", model: ", out);
		put_text(out, all->functions[i].name);
		fputs("}\n", out);
	}
}

/* ---- the node ---- */

static void put_node(FILE *out, const json_t *answer)
{
	const json_t *gpu;
	size_t i;
	fputs("name: this worker\nsource: recorded by medusa-worker\ngpus:\n", out);
	json_array_foreach(json_object_get(answer, "gpus"), i, gpu)
	    fprintf(out, "  - {memory: %lldB, slots: 1024}\n", whole_of(gpu, "memory_bytes"));
	fputs("host_speed: 25GB/s # copies take the time that functions.yaml says\ncold_speed: 25GB/s\n"
	      "prefill_share: 0 # what engines cost each other is in the times that were measured\ndecode_share: 0\n",
	      out);
}

/* ---- all ---- */

static FILE *open_file(const char *folder, const char *name, struct md_error *err)
{
	MD_AUTO_FREE char *path = NULL;
	if (asprintf(&path, "%s/%s", folder, name) < 0) {
		path = NULL;
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the path of %s", name);
		return NULL;
	}
	FILE *file = md_file_open_output(path);
	if (!file)
		md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", path, strerror(errno));
	return file;
}

static enum md_status close_file(FILE *file, const char *folder, const char *name, struct md_error *err)
{
	bool failed = ferror(file) != 0;
	if (fclose(file) || failed)
		return md_error_set(err, MD_ERR_OUTPUT, "%.300s/%s: %s", folder, name, strerror(errno));
	return MD_OK;
}

static enum md_status write_trace(struct export *all, int64_t since, const char *folder, struct md_error *err)
{
	if (!(all->trace = open_file(folder, "trace.csv", err)))
		return err->status;
	fprintf(all->trace, "seconds,function,context,generated%s\n", all->tenants ? ",tenant" : "");
	enum md_status status =
	    md_ledger_requests_read(text_of(all->answer, "state"), since * 1000000, take_request, all, err);
	if (status == MD_OK && all->failed)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the times of requests");
	struct md_error closing = {0};
	enum md_status closed = close_file(all->trace, folder, "trace.csv", status == MD_OK ? err : &closing);
	return status == MD_OK ? closed : status;
}

static enum md_status write_others(struct export *all, const char *folder, struct md_error *err)
{
	FILE *file = open_file(folder, "functions.yaml", err);
	if (!file)
		return err->status;
	put_functions(file, all);
	MD_FORWARD(close_file(file, folder, "functions.yaml", err));
	if (!(file = open_file(folder, "node.yaml", err)))
		return err->status;
	put_node(file, all->answer);
	return close_file(file, folder, "node.yaml", err);
}

static void print(const struct export *all, const char *folder)
{
	const json_t *policy;
	const char *kind;
	printf("%s: %" PRIu64 " requests that were served", folder, all->served);
	if (all->others)
		printf("; %" PRIu64 " that were refused, failed or left are not in it", all->others);
	if (all->unknown)
		printf("; %" PRIu64 " of models that are no longer configured are not in it", all->unknown);
	printf(
	    "\nmedusa-simulate --node %s/node.yaml --functions %s/functions.yaml --trace %s/trace.csv --policy medusa",
	    folder, folder, folder);
	json_object_foreach((json_t *)(uintptr_t)json_object_get(all->answer, "policies"), kind, policy)
	    printf(" --%s %s", kind, json_string_value(policy));
	printf(" --retries %lld\n", whole_of(all->answer, "retries"));
}

static void finish(struct export *all)
{
	for (size_t i = 0; i < all->count; i++) {
		free(all->functions[i].first.items);
		free(all->functions[i].token.items);
	}
	free(all->functions);
}

enum md_status md_worker_trace_write(const json_t *answer, int64_t since, const char *folder, struct md_error *err)
{
	const json_t *models = json_object_get(answer, "models"), *model;
	struct export all = {.answer = answer, .count = json_array_size(models)};
	size_t i;
	all.tenants = json_array_size(json_object_get(answer, "tenants")) > 0;
	all.functions = calloc(all.count + 1, sizeof(*all.functions));
	if (!all.functions)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of models");
	json_array_foreach(models, i, model) all.functions[i] =
	    (struct function){.model = model, .name = text_of(model, "model")};
	enum md_status status = MD_OK;
	if (mkdir(folder, 0777) && errno != EEXIST)
		status = md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", folder, strerror(errno));
	if (status == MD_OK)
		status = write_trace(&all, since, folder, err);
	if (status == MD_OK)
		status = write_others(&all, folder, err);
	if (status == MD_OK)
		print(&all, folder);
	finish(&all);
	return status;
}
