/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the models of a configuration: their engines, and their functions in the scheduler. */
#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/core/templates.h"
#include "worker/core/model_rules.h"
#include "worker/core/node_broker.h"
#include "worker/core/shared_backbone.h"
#include "worker/core/worker.h"
#include "worker/engine/port_owner.h"
#include "worker/engine/swap_sockets.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define MS 1000000u
#define SWAP_MS 30000u
#define CHECKPOINT_GB_MS 10000u /* drivers have taken a tenth of that */
#define GB 1000000000u

/* ---- the engine ---- */

static uint64_t ms(uint64_t ns)
{
	return ns / MS;
}

/* Unless it is said, an engine is swapped if what it has is known, or if it starts from an artifact. */
static enum md_engine_swapping swapping_of(const struct md_config_own *own)
{
	/* what is shared would stay, and the scheduler give its room to others, unless it counts that by itself */
	if (own->share == MD_CONFIG_SHARE_ON)
		return own->backbone != MD_CONFIG_NONE && own->swap == MD_CONFIG_SWAP_ON ? MD_ENGINE_SWAP_RUN
											 : MD_ENGINE_SWAP_NEVER;
	if (own->share == MD_CONFIG_SHARE_AUTO)
		return MD_ENGINE_SWAP_RUN;
	if (own->swap == MD_CONFIG_SWAP_CHECKPOINT)
		return MD_ENGINE_SWAP_CHECKPOINT;
	bool runs =
	    own->swap == MD_CONFIG_SWAP_AUTO ? own->artifact || own->memory_bytes : own->swap == MD_CONFIG_SWAP_ON;
	return runs ? MD_ENGINE_SWAP_RUN : MD_ENGINE_SWAP_NEVER;
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
	int used = snprintf(model->swap_name, sizeof(model->swap_name), MD_SWAP_SOCKETS_PREFIX "%d-%zu-", (int)getpid(),
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
	char **made = calloc(words + 15, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the command of model %s", model->id);
	model->argv = made;
	if (!words) /* nothing can be started */
		return MD_OK;
	model->settings.swapping = swapping_of(own);
	if (model->settings.swapping == MD_ENGINE_SWAP_RUN) {
		name_engine(model);
		model->settings.swap_name = model->swap_name;
		made[used++] = model->worker->swap_command;
		made[used++] = (char *)"run";
		made[used++] = (char *)"--name";
		made[used++] = model->swap_name;
		made[used++] = (char *)"--stays-out"; /* the scheduler has given the room to others */
		model->settings.swap_neighbours = own->gpu_neighbours == MD_CONFIG_NEIGHBOURS_AUTO;
		if (model->settings.swap_neighbours)
			made[used++] = (char *)"--gpu-neighbours";
		if (own->share == MD_CONFIG_SHARE_AUTO)
			made[used++] = (char *)"--share-constant";
		if (model->worker->pool.bytes) {
			made[used++] = (char *)"--pool-fd";
			made[used++] = (char *)MD_ENGINE_INHERITED;
			model->settings.inherits = model->worker->pool.fds;
		}
		if (model->worker->pool.bytes && model->worker->pool.spill) {
			made[used++] = (char *)"--spill-fd";
			made[used++] = (char *)MD_ENGINE_INHERITED_TOO;
		}
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
	return MD_OK;
}

/* Whether the number stands in the text, and is no part of a longer one. */
static bool has_number(const char *text, const char *number)
{
	size_t size = strlen(number);
	for (const char *at = text; (at = strstr(at, number)); at++)
		if ((at == text || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[size]))
			return true;
	return false;
}

/* Whether the command has the port of its URL in it, so that the engine is what must listen there. */
static bool names_port(const struct md_model *model)
{
	unsigned number = md_http_address_number(&model->settings.address);
	char port[12];
	if (!number)
		return false;
	snprintf(port, sizeof(port), "%u", number);
	for (const char *const *word = model->config->argv; *word; word++)
		if (has_number(*word, port))
			return true;
	return false;
}

static void make_mark(struct md_model *model)
{
	int name = snprintf(model->mark, sizeof(model->mark), "%s=", MD_ENGINE_MARK);
	snprintf(model->mark + name, sizeof(model->mark) - (size_t)name, "%d-%zu-%" PRIx64, (int)getpid(),
		 (size_t)(model - model->worker->models), md_clock_ns());
	model->settings.mark = names_port(model) ? model->mark + name : NULL;
}

/* The model's variables, and behind them the GPU that the scheduler chooses, which md_model_load fills in. */
static enum md_status make_environment(struct md_model *model, struct md_error *err)
{
	const struct md_config_texts *env = &model->config->env;
	const char *broker = NULL;
	size_t used = 0;
	if (model->config->own.share != MD_CONFIG_SHARE_OFF)
		MD_FORWARD(md_node_broker_variable(model->worker, &broker, err));
	model->environment = calloc(env->count + 5, sizeof(*model->environment));
	if (!model->environment)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the environment of model %s", model->id);
	if (broker)
		model->environment[used++] = broker; /* first: the model's own variable counts instead */
	if (model->shared_backbone != MEDUSA_SCHED_NONE)
		model->environment[used++] = "MEDUSA_BACKBONE_REQUIRED=1"; /* there is no room for weights of its own */
	for (uint32_t i = 0; i < env->count; i++)
		model->environment[used++] = env->items[i];
	model->environment[used++] = model->mark;
	if (md_gpus_visible(model->worker->gpus, 0))
		model->environment[used] = model->visible;
	return MD_OK;
}

/*
 * A template knows nothing of an engine yet, so all that the engine gets is in its environment. The pool of medusa-swap
 * is of a process that stands above the engine, which a fork does not have. Whether the driver can checkpoint a process
 * that was forked by another one is not known.
 */
static enum md_status make_fork(struct md_model *model, struct md_error *err)
{
	const struct md_config_own *own = &model->config->own;
	size_t used = 0;
	if (own->template == MD_CONFIG_NONE)
		return MD_OK;
	if (model->settings.swapping != MD_ENGINE_SWAP_NEVER) {
		md_warn(
		    "models.%s.medusa.template has no effect, because the engine's memory is swapped: say swap: off",
		    model->id);
		return MD_OK;
	}
	while (model->environment[used])
		used++;
	model->fork_environment = calloc(used + 2, sizeof(*model->fork_environment));
	char *artifact = own->artifact ? realpath(own->artifact, NULL) : NULL; /* else the engine says what is wrong */
	if (!model->fork_environment || (own->artifact && asprintf(&model->artifact, "MEDUSA_ARTIFACT=%s",
								   artifact ? artifact : own->artifact) < 0)) {
		free(artifact);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the environment of model %s", model->id);
	}
	free(artifact);
	memcpy(model->fork_environment, model->environment, used * sizeof(*model->fork_environment));
	model->fork_environment[used] = model->artifact;
	model->settings.fork_argv = (char *const *)model->config->argv;
	model->settings.fork_environment = model->fork_environment;
	return MD_OK;
}

/* What may change while the engine runs. */
static void set_limits(struct md_model *model)
{
	const struct md_config_model *config = model->config;
	struct md_engine_settings *settings = &model->settings;
	settings->template = NULL;
	if (model->fork_environment && config->own.template != MD_CONFIG_NONE)
		settings->template =
		    md_templates_find(model->worker, model->from->node.templates[config->own.template].name);
	settings->stop_argv = (char *const *)config->stop_argv;
	settings->check = config->check;
	settings->start_ms = ms(config->health_ns);
	settings->stop_ms = ms(config->unload_ns);
	model->connect_s = (unsigned)(config->timeouts.connect_ns / 1000000000u);
	model->answer_s = (unsigned)(config->timeouts.response_header_ns / 1000000000u);
}

static enum md_status make_engine(struct md_model *model, const struct md_engine_url *url, struct md_error *err)
{
	const struct md_config_model *config = model->config;
	struct md_engine_settings *settings = &model->settings;
	memcpy(model->host_name, url->host, sizeof(model->host_name));
	memcpy(model->prefix, url->prefix, sizeof(model->prefix));
	settings->address = url->address;
	MD_FORWARD(make_command(model, err));
	settings->name = config->id;
	settings->argv = model->argv;
	settings->swap_command = model->worker->swap_command;
	make_mark(model);
	MD_FORWARD(make_environment(model, err));
	settings->environment = model->environment;
	MD_FORWARD(make_fork(model, err));
	set_limits(model);
	settings->host = model->host_name;
	settings->swap_ms = SWAP_MS;
	settings->checkpoint_ms = 2 * SWAP_MS + model->weight_bytes / GB * CHECKPOINT_GB_MS;
	MD_FORWARD(
	    md_log_file_open(model->worker->log_writer, model->worker->directory, "", config->id, &model->log, err));
	model->engine =
	    md_engine_create(model->worker->base, model->worker->processes, settings, &md_model_events, model);
	return model->engine ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for model %s", config->id);
}

/* ---- the scheduler ---- */

static enum md_status make_scheduler(struct md_worker *worker, struct md_error *err)
{
	const struct md_config_node *config = &worker->config->node;
	struct medusa_sched_node node = {.size = sizeof(node), .host_bytes_per_s = 25e9};
	struct medusa_sched_options options = {.size = sizeof(options),
					       .queueing = config->policies.queueing,
					       .placement = config->policies.placement,
					       .eviction = config->policies.eviction,
					       .batching = config->policies.batching,
					       .preloading =
						   config->policies.preloading ? config->policies.preloading : "none",
					       .retries = config->retries};
	MD_FORWARD(md_gpus_create(config, &worker->gpus, err));
	node.gpus = md_gpus_list(worker->gpus, &node.gpu_count);
	if (medusa_sched_create(&node, &options, &worker->sched))
		return md_error_set(err, MD_ERR_INVALID, "%s", medusa_sched_error(NULL));
	return MD_OK;
}

/* A command beside this one, as they are installed; else one in PATH. */
char *md_models_find_command(const char *name)
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

/* ---- one model ---- */

struct md_model *md_models_each(const struct md_worker *worker, const struct md_model *model)
{
	size_t at = model ? (size_t)(model - worker->models) + 1 : 0;
	while (at < worker->model_count && !worker->models[at].engine)
		at++;
	return at < worker->model_count ? &worker->models[at] : NULL;
}

struct md_model *md_models_next(const struct md_worker *worker, const struct md_model *model)
{
	struct md_model *next = md_models_each(worker, model);
	while (next && next->base)
		next = md_models_each(worker, next);
	return next;
}

/* An adapter's requests go where its base's go. What is borrowed ends with the base, and the adapter ends before. */
static enum md_status make_adapter(struct md_model *model, struct md_error *err)
{
	const struct md_model *base = model->base;
	memcpy(model->host_name, base->host_name, sizeof(model->host_name));
	memcpy(model->prefix, base->prefix, sizeof(model->prefix));
	model->settings =
	    (struct md_engine_settings){.name = model->id, .address = base->settings.address, .host = model->host_name};
	set_limits(model);
	model->log = base->log;
	if (!md_adapter_begin(model))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for adapter %s", model->id);
	model->engine = base->engine;
	return MD_OK;
}

enum md_status md_models_add(struct md_worker *worker, const struct md_worker_config *config, uint32_t index,
			     const struct md_engine_url *url, struct md_model *base, bool coming,
			     struct md_model **added, struct md_error *err)
{
	struct md_model *model = &worker->models[worker->model_count];
	if (worker->model_count == MD_WORKER_MODELS_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "%u models were added or changed since the daemon began: start it anew",
				    MD_WORKER_MODELS_MAX);
	*model = (struct md_model){.worker = worker,
				   .made_from = config,
				   .from = config,
				   .config = &config->models[index],
				   .id = config->models[index].id,
				   .base = base,
				   .coming = coming,
				   .backbone = base ? base->backbone : MEDUSA_SCHED_NONE,
				   .shared_backbone = MEDUSA_SCHED_NONE};
	MD_FORWARD(md_models_add_function(model, err));
	worker->model_count++; /* its number is that of its function, also if the rest fails */
	MD_FORWARD(base ? make_adapter(model, err) : make_engine(model, url, err));
	*added = model;
	return MD_OK;
}

static void free_adapter(struct md_model *model)
{
	if (model->engine)
		md_adapter_end(model);
	model->engine = NULL;
	model->log = NULL;
}

void md_models_free(struct md_model *model)
{
	if (model->base) {
		free_adapter(model);
		return;
	}
	md_adapter_end_host(model);
	md_engine_destroy(model->engine);
	free(model->argv);
	free(model->environment);
	free(model->fork_environment);
	free(model->artifact);
	md_log_file_close(model->log);
	model->engine = NULL;
	model->argv = NULL;
	model->environment = model->fork_environment = NULL;
	model->artifact = NULL;
	model->log = NULL;
}

/* ---- a model whose configuration changes ---- */

static bool same_texts(const char *const *a, const char *const *b)
{
	for (; *a && *b; a++, b++)
		if (strcmp(*a, *b) != 0)
			return false;
	return !*a && !*b;
}

static bool same_environment(const struct md_config_texts *a, const struct md_config_texts *b)
{
	for (uint32_t i = 0; i < a->count && i < b->count; i++)
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	return a->count == b->count;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

bool md_models_same_engine(const struct md_model *model, const struct md_worker_config *config, uint32_t index,
			   const struct md_model *base)
{
	const struct md_config_model *old = model->config, *new = &config->models[index];
	if (model->base || base)
		return model->base == base && old->bytes == new->bytes && !strcmp(old->path, new->path) &&
		       !strcmp(old->use_model_name, new->use_model_name);
	return old->own.adapted == new->own.adapted &&md_models_memory(model->worker, config, new) ==
		   model->weight_bytes &&same_texts(old->argv, new->argv) &&
	       same_environment(&old->env, &new->env) && !strcmp(old->proxy, new->proxy) &&
	       same_text(old->own.artifact, new->own.artifact) && same_text(old->own.content, new->own.content) &&
	       same_text(old->own.place, new->own.place) && swapping_of(&old->own) == swapping_of(&new->own) &&
	       old->own.gpu_neighbours == new->own.gpu_neighbours &&
	       old->own.share == new->own.share &&md_shared_backbone_is(model, config, new->own.backbone);
}

void md_models_change(struct md_model *model, const struct md_worker_config *config, uint32_t index)
{
	model->from = config;
	model->config = &config->models[index];
	model->id = model->config->id;
	set_limits(model);
}

/* ---- all of them ---- */

enum md_status md_models_create(struct md_worker *worker, struct md_error *err)
{
	const struct md_worker_config *config = worker->config;
	MD_AUTO_FREE struct md_engine_url *urls = NULL;
	worker->swap_command = md_models_find_command("medusa-swap");
	worker->restore_command = md_models_find_command("medusa-restore");
	if (!worker->swap_command || !worker->restore_command)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the paths of commands");
	MD_FORWARD(md_engine_url_read_all(config, &urls, err));
	MD_FORWARD(make_scheduler(worker, err));
	MD_FORWARD(md_tenants_tell(worker, config, err));
	/* room for those that come later: memory that is not touched costs nothing, and models stay where they are */
	worker->models = calloc(MD_WORKER_MODELS_MAX + 1, sizeof(*worker->models));
	worker->current = calloc(config->model_count + 1, sizeof(struct md_model *));
	if (!worker->models || !worker->current)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u models", config->model_count);
	for (uint32_t i = 0; i < config->model_count; i++)
		if (config->models[i].base == MD_CONFIG_NONE)
			MD_FORWARD(md_models_add(worker, config, i, &urls[i], NULL, false, &worker->current[i], err));
	for (uint32_t i = 0; i < config->model_count; i++)
		if (config->models[i].base != MD_CONFIG_NONE)
			MD_FORWARD(md_models_add(worker, config, i, &urls[i], worker->current[config->models[i].base],
						 false, &worker->current[i], err));
	return md_model_rules_tell(worker, config, worker->current, err);
}

void md_models_destroy(struct md_worker *worker)
{
	for (size_t i = worker->model_count; i-- > 0;) /* adapters before their bases */
		md_models_free(&worker->models[i]);
	free(worker->backbones);
	md_shared_backbone_end(worker);
	md_tenants_destroy(worker);
	md_gpus_destroy(worker->gpus);
	free(worker->models);
	free(worker->current);
	free(worker->swap_command);
	free(worker->restore_command);
}

bool md_models_stop(struct md_worker *worker)
{
	bool stopped = true;
	worker->ending = true;
	for (struct md_model *model = NULL; (model = md_models_next(worker, model));) {
		enum md_engine_state state = md_engine_state(model->engine);
		if (state != MD_ENGINE_STOPPED && state != MD_ENGINE_STOPPING)
			md_engine_stop(model->engine);
		stopped = stopped && md_engine_state(model->engine) == MD_ENGINE_STOPPED;
	}
	return stopped;
}

struct md_model *md_models_find(struct md_worker *worker, const char *name)
{
	const struct md_config_model *found = md_config_find_model(worker->config, name);
	return found ? worker->current[found - worker->config->models] : NULL;
}

void md_models_say_ours(const struct md_worker *worker)
{
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		const struct md_config_place *place = &model->config->proxy_place;
		if (!model->base && md_http_address_number(&model->settings.address) == worker->port &&
		    md_engine_is_ours(model->engine))
			md_warn(
			    "%s:%u: models.%s: its engine is to serve at %s, where this daemon itself listens, so it "
			    "is never started: change startPort or proxy, or the daemon's --listen",
			    place->file, place->line, model->id, model->config->proxy);
	}
}

void md_models_tell_none(const struct md_worker *worker, const char *name, char *text, size_t size)
{
	enum md_config_target_kind kind = md_config_find(worker->config, name).kind;
	if (kind == MD_CONFIG_SELECTOR || kind == MD_CONFIG_PEER)
		snprintf(text, size, "\"%.200s\" is %s, and a model of this node is wanted", name,
			 kind == MD_CONFIG_PEER ? "a model of a peer" : "a selector");
	else
		snprintf(text, size, "no model is called \"%.200s\"", name);
}
