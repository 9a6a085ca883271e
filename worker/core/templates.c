/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/templates.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker/core/worker.h"
#include "worker/engine/keeper.h"
#include "worker/engine/template.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

struct one {
	struct md_engine_template_settings settings;
	struct md_engine_template *template; /* NULL: it could not be made, which was said */
	struct md_log_file *log;
	const char **environment;
	char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char variable[sizeof(MD_ENGINE_TEMPLATE_SOCKET) + sizeof(((struct sockaddr_un *)0)->sun_path)];
};

struct md_templates {
	struct one *items;
	uint32_t count;
};

static int is_socket_name(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "template-", strlen("template-"));
}

/* Sockets of daemons that were killed: their templates end, and nobody else asks them. */
static void clear(const char *folder)
{
	struct dirent **names;
	char path[PATH_MAX];
	int count = scandir(folder, &names, is_socket_name, NULL);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
		unlink(path);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

/* A template that an earlier daemon has started may still listen, so the name has this daemon's process in it. */
static enum md_status name_socket(struct one *one, const char *folder, uint32_t index, struct md_error *err)
{
	int size = snprintf(one->socket, sizeof(one->socket), "%s/template-%u-%d", folder, index, (int)getpid());
	if (size < 0 || (size_t)size >= sizeof(one->socket))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "%.200s: the path is too long for a template's socket: say --control PATH to have a "
		    "shorter one",
		    folder);
	snprintf(one->variable, sizeof(one->variable), "%s=%s", MD_ENGINE_TEMPLATE_SOCKET, one->socket);
	return MD_OK;
}

/* No mark of an engine: whoever has one may listen at the engine's port, and these processes become several engines. */
static enum md_status name_variables(struct one *one, const struct md_config_texts *env, struct md_error *err)
{
	one->environment = calloc(env->count + 3, sizeof(*one->environment));
	if (!one->environment)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for its environment");
	for (uint32_t i = 0; i < env->count; i++)
		one->environment[i] = env->items[i];
	one->environment[env->count] = one->variable;
	one->environment[env->count + 1] = "MEDUSA_WORKER_ENGINE=";
	return MD_OK;
}

static enum md_status create_one(struct md_worker *worker, struct one *one, const struct md_config_template *config,
				 const char *folder, struct md_error *err)
{
	MD_FORWARD(name_socket(one, folder, (uint32_t)(config - worker->config->node.templates), err));
	MD_FORWARD(name_variables(one, &config->env, err));
	MD_FORWARD(md_log_file_open(worker->log_writer, worker->directory, "template~", config->name, &one->log, err));
	one->settings = (struct md_engine_template_settings){.name = config->name,
							     .argv = (char *const *)config->argv,
							     .environment = one->environment,
							     .socket = one->socket,
							     .output = md_log_file_output(one->log)};
	one->template = md_engine_template_create(worker->base, worker->processes, &one->settings);
	return one->template ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a template");
}

enum md_status md_templates_create(struct md_worker *worker, const char *folder, struct md_error *err)
{
	const struct md_config_node *node = &worker->config->node;
	worker->templates = calloc(1, sizeof(*worker->templates));
	struct md_templates *made = worker->templates;
	if (made)
		made->items = calloc(node->template_count + 1, sizeof(*made->items));
	if (!made || !made->items)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u templates", node->template_count);
	if (md_engine_keeper_has_place(md_engine_processes_keeper(worker->processes)))
		clear(folder); /* which this daemon alone has */
	for (; made->count < node->template_count; made->count++) {
		struct md_error why = {0};
		if (create_one(worker, &made->items[made->count], &node->templates[made->count], folder, &why) != MD_OK)
			md_warn("medusa.templates.%s: %s; its engines are started by their commands",
				node->templates[made->count].name, why.message);
	}
	return MD_OK;
}

void md_templates_destroy(struct md_worker *worker)
{
	struct md_templates *templates = worker->templates;
	for (uint32_t i = 0; templates && i < templates->count; i++) {
		md_engine_template_destroy(templates->items[i].template);
		md_log_file_close(templates->items[i].log);
		free(templates->items[i].environment);
	}
	if (templates)
		free(templates->items);
	free(templates);
	worker->templates = NULL;
}

struct md_engine_template *md_templates_find(const struct md_worker *worker, const char *name)
{
	for (uint32_t i = 0; worker->templates && i < worker->templates->count; i++) {
		const struct one *one = &worker->templates->items[i];
		if (one->template && !strcmp(one->settings.name, name))
			return one->template;
	}
	return NULL;
}
