/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the models of a configuration: their engines, and their functions in the scheduler. */
#include <ctype.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "worker/core/worker.h"

#define MS 1000000u
#define START_GUESS_MS 5000u /* before a start was measured */
#define SWAP_GUESS_MS 500u
#define FIRST_TOKEN_GUESS_MS 50u
#define SLO_MS 30000u

/* ---- where an engine serves ---- */

/* http://HOST[:PORT][/PREFIX]; the lookup of a name waits, so it is done here, before the loop runs. */
static enum md_status parse_url(const struct md_config_model *model, struct md_model *made, struct md_error *err)
{
	char host[256], port[8] = "80";
	const char *rest = model->proxy + 7;
	size_t size = strcspn(rest, "/"), name;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	if (strncmp(model->proxy, "http://", 7) != 0 || size >= sizeof(host))
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "models.%.100s.proxy is \"%.200s\": http://HOST:PORT is wanted", model->id,
				    model->proxy);
	snprintf(made->host, sizeof(made->host), "%.*s", (int)size, rest);
	snprintf(made->prefix, sizeof(made->prefix), "%s", rest + size);
	name = strlen(made->prefix);
	while (name && made->prefix[name - 1] == '/')
		made->prefix[--name] = '\0';
	snprintf(host, sizeof(host), "%s", made->host);
	char *colon = strrchr(host, ':');
	if (colon && !strchr(colon, ']')) {
		*colon = '\0';
		snprintf(port, sizeof(port), "%.7s", colon + 1);
	}
	size = strlen(host);
	if (size >= 2 && host[0] == '[' && host[size - 1] == ']') {
		memmove(host, host + 1, size - 2);
		host[size - 2] = '\0';
	}
	int failure = getaddrinfo(strcmp(host, "localhost") ? host : "127.0.0.1", port, &hints, &found);
	if (failure)
		return md_error_set(err, MD_ERR_NOT_FOUND, "models.%.100s.proxy is \"%.200s\": %s", model->id,
				    model->proxy, gai_strerror(failure));
	memcpy(&made->settings.address.any, found->ai_addr, found->ai_addrlen);
	made->settings.address.size = found->ai_addrlen;
	freeaddrinfo(found);
	return MD_OK;
}

/* ---- the engine ---- */

static uint64_t ms(uint64_t ns)
{
	return ns / MS;
}

/* An engine whose memory is taken away and given back by medusa-swap, or that starts from an artifact. */
static bool wants_swap(const struct md_config_own *own)
{
	return own->swap == MD_CONFIG_SWAP_ON ||
	       (own->swap == MD_CONFIG_SWAP_AUTO && (own->artifact || own->memory_bytes));
}

static size_t count(char *const *argv)
{
	size_t words = 0;
	while (argv[words])
		words++;
	return words;
}

/* Names of engines are letters, digits, dots, dashes and underscores; the number keeps two of them apart. */
static void name_engine(struct md_model *model)
{
	int used = snprintf(model->swap_name, sizeof(model->swap_name), "worker-%d-%zu-", (int)getpid(),
			    (size_t)(model - model->worker->models));
	for (const char *at = model->id; *at && used + 1 < (int)sizeof(model->swap_name); at++)
		model->swap_name[used++] = isalnum((unsigned char)*at) || strchr("._-", *at) ? *at : '_';
	model->swap_name[used] = '\0';
}

/* The command, behind medusa-swap run or medusa-restore if the model wants them. */
static enum md_status make_command(struct md_model *model, struct md_error *err)
{
	const struct md_config_own *own = &model->config->own;
	char *const *argv = (char *const *)model->config->argv;
	size_t words = count(argv), used = 0;
	char **made = calloc(words + 8, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the command of model %s", model->id);
	if (wants_swap(own)) {
		name_engine(model);
		model->settings.swap_name = model->swap_name;
		made[used++] = model->worker->swap_command;
		made[used++] = (char *)"run";
		made[used++] = (char *)"--name";
		made[used++] = model->swap_name;
		if (own->artifact)
			made[used++] = (char *)"--artifact";
	} else if (own->artifact) {
		made[used++] = model->worker->restore_command;
	}
	if (own->artifact)
		made[used++] = (char *)own->artifact;
	if (used)
		made[used++] = (char *)"--";
	memcpy(made + used, argv, words * sizeof(*made));
	model->argv = made;
	return MD_OK;
}

/* The model's variables, and behind them the GPU that the scheduler chooses, which md_model_load fills in. */
static enum md_status make_environment(struct md_model *model, struct md_error *err)
{
	const struct md_config_texts *env = &model->config->env;
	model->environment = calloc(env->count + 2, sizeof(*model->environment));
	if (!model->environment)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the environment of model %s", model->id);
	for (uint32_t i = 0; i < env->count; i++)
		model->environment[i] = env->items[i];
	if (model->worker->names_gpus)
		model->environment[env->count] = model->visible;
	return MD_OK;
}

static enum md_status make_engine(struct md_model *model, const char *directory, struct md_error *err)
{
	const struct md_config_model *config = model->config;
	struct md_engine_settings *settings = &model->settings;
	MD_FORWARD(parse_url(config, model, err));
	MD_FORWARD(make_command(model, err));
	settings->name = config->id;
	settings->argv = model->argv;
	settings->swap_command = model->worker->swap_command;
	settings->stop_argv = (char *const *)config->stop_argv;
	MD_FORWARD(make_environment(model, err));
	settings->environment = model->environment;
	settings->host = model->host;
	settings->check = config->check;
	settings->start_ms = ms(config->health_ns);
	settings->stop_ms = ms(config->unload_ns);
	settings->swap_ms = 30000;
	model->connect_s = (unsigned)(config->timeouts.connect_ns / 1000000000u);
	model->answer_s = (unsigned)(config->timeouts.response_header_ns / 1000000000u);
	MD_FORWARD(md_log_file_open(directory, config->id, &model->log, err));
	model->engine = md_engine_create(model->worker->base, model->worker->processes, settings,
					 md_log_file_output(model->log), &md_model_events, model);
	return model->engine ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for model %s", config->id);
}

/* ---- the scheduler's view ---- */

/*
 * Device memory of a model that states none: a group tells which models run together, so a member that runs alone takes
 * a whole GPU, and members that run together share one.
 */
static uint64_t guess_memory(const struct md_worker_config *config, const struct md_config_model *model, uint64_t gpu)
{
	const struct md_config_group *group = model->group < config->group_count ? &config->groups[model->group] : NULL;
	return group && !group->swap && group->members.count ? gpu / group->members.count : gpu;
}

/* Requests that its engine is given at one time. */
static uint32_t most_requests(const struct md_config_model *config)
{
	uint32_t stated = config->own.max_batch;
	return stated && stated < config->concurrency ? stated : config->concurrency;
}

static enum md_status add_function(struct md_model *model, uint64_t gpu_bytes, struct md_error *err)
{
	struct md_worker *worker = model->worker;
	const struct md_config_model *config = model->config;
	const struct md_config_own *own = &config->own;
	uint64_t load = own->swap_ns ? own->swap_ns : own->start_ns ? own->start_ns : START_GUESS_MS * (uint64_t)MS;
	struct medusa_sched_function function = {
	    .size = sizeof(function),
	    .backbone = MEDUSA_SCHED_NONE,
	    .weight_bytes = own->memory_bytes ? own->memory_bytes : guess_memory(worker->config, config, gpu_bytes),
	    .in_host = 1,
	    .evict_ns = SWAP_GUESS_MS * (uint64_t)MS,
	    .t0_ns = FIRST_TOKEN_GUESS_MS * (uint64_t)MS,
	    .swap_ns = load,
	    .kv_bytes = own->kv_request_bytes,
	    .keep_alive_ns = config->ttl_ns,
	    .continuous = 1,
	    .max_batch = most_requests(config),
	    .max_parallel = 1,
	    .slo_ns = own->slo_ns ? own->slo_ns : SLO_MS * (uint64_t)MS,
	    .slo_goal = own->goal,
	};
	if (medusa_sched_add_function(worker->sched, &function, &model->function))
		return md_error_set(err, MD_ERR_INVALID, "models.%.100s: %s", config->id,
				    medusa_sched_error(worker->sched));
	return MD_OK;
}

static enum md_status make_scheduler(struct md_worker *worker, struct md_error *err)
{
	const struct md_config_node *config = &worker->config->node;
	struct medusa_sched_gpu *gpus = calloc(config->gpu_count + 1, sizeof(*gpus));
	struct medusa_sched_node node = {.size = sizeof(node),
					 .gpus = gpus,
					 .gpu_count = config->gpu_count ? config->gpu_count : 1,
					 .host_bytes_per_s = 25e9};
	struct medusa_sched_options options = {.size = sizeof(options),
					       .queueing = config->policies.queueing,
					       .placement = config->policies.placement,
					       .eviction = config->policies.eviction,
					       .batching = config->policies.batching,
					       .preloading =
						   config->policies.preloading ? config->policies.preloading : "none",
					       .retries = config->retries};
	if (!gpus)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of GPUs");
	if (config->gpu_count > 1) {
		free(gpus);
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED,
		    "medusa.gpus: %u GPUs are given, and one is supported so far: start a medusa-worker for "
		    "each, with CUDA_VISIBLE_DEVICES in its environment",
		    config->gpu_count);
	}
	for (uint32_t i = 0; i < node.gpu_count; i++)
		gpus[i] = (struct medusa_sched_gpu){.size = sizeof(gpus[i]),
						    .memory_bytes = config->gpu_count && config->gpus[i].memory_bytes
									? config->gpus[i].memory_bytes
									: MD_WORKER_GPU_BYTES,
						    .slots = 1024};
	worker->names_gpus = config->gpu_count && config->gpus[0].uuid;
	worker->gpu_bytes = gpus[0].memory_bytes;
	int code = medusa_sched_create(&node, &options, &worker->sched);
	free(gpus);
	return code ? md_error_set(err, MD_ERR_INVALID, "%s", medusa_sched_error(NULL)) : MD_OK;
}

/* A command beside this one, as they are installed; else one in PATH. */
static char *find_command(const char *name)
{
	char own[PATH_MAX], *made;
	ssize_t size = readlink("/proc/self/exe", own, sizeof(own) - 1);
	own[size > 0 ? size : 0] = '\0';
	char *slash = strrchr(own, '/');
	if (slash)
		slash[1] = '\0';
	if (asprintf(&made, "%s%s", own, name) < 0)
		return NULL;
	if (!access(made, X_OK))
		return made;
	free(made);
	return strdup(name);
}

enum md_status md_models_create(struct md_worker *worker, const char *directory, struct md_error *err)
{
	const struct md_worker_config *config = worker->config;
	worker->swap_command = find_command("medusa-swap");
	worker->restore_command = find_command("medusa-restore");
	if (!worker->swap_command || !worker->restore_command)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the paths of commands");
	MD_FORWARD(make_scheduler(worker, err));
	worker->models = calloc(config->model_count + 1, sizeof(*worker->models));
	if (!worker->models)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u models", config->model_count);
	for (uint32_t i = 0; i < config->model_count; i++) {
		struct md_model *model = &worker->models[worker->model_count++];
		model->worker = worker;
		model->config = &config->models[i];
		model->id = model->config->id;
		MD_FORWARD(add_function(model, worker->gpu_bytes, err));
		MD_FORWARD(make_engine(model, directory, err));
	}
	return MD_OK;
}

void md_models_destroy(struct md_worker *worker)
{
	for (size_t i = 0; i < worker->model_count; i++) {
		md_engine_destroy(worker->models[i].engine);
		free(worker->models[i].argv);
		free(worker->models[i].environment);
		md_log_file_close(worker->models[i].log);
	}
	free(worker->models);
	free(worker->swap_command);
	free(worker->restore_command);
}

bool md_models_stop(struct md_worker *worker)
{
	bool stopped = true;
	for (size_t i = 0; i < worker->model_count; i++) {
		enum md_engine_state state = md_engine_state(worker->models[i].engine);
		if (state != MD_ENGINE_STOPPED && state != MD_ENGINE_STOPPING)
			md_engine_stop(worker->models[i].engine);
		stopped = stopped && md_engine_state(worker->models[i].engine) == MD_ENGINE_STOPPED;
	}
	return stopped;
}

struct md_model *md_models_find(struct md_worker *worker, const char *name)
{
	const struct md_config_model *found = md_config_find_model(worker->config, name);
	return found ? &worker->models[found - worker->config->models] : NULL;
}
