/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/node_broker.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/core/sharers.h"
#include "worker/core/worker.h"
#include "worker/engine/broker_process.h"
#include "worker/engine/keeper.h"

#define VARIABLE "MEDUSA_BACKBONE"

struct md_node_broker {
	struct md_engine_broker_settings settings;
	struct md_engine_broker *process; /* NULL: nobody has wanted it yet */
	struct md_log_file *log;
	char *command;
	char socket[PATH_MAX];
	char variable[sizeof(VARIABLE) + PATH_MAX];
};

/* Where engines end with this daemon, because another one has the folder or none can, no later daemon needs the name. */
static void name_socket(const struct md_worker *worker, struct md_node_broker *broker, const char *folder)
{
	if (md_engine_keeper_has_place(md_engine_processes_keeper(worker->processes)))
		snprintf(broker->socket, sizeof(broker->socket), "%s/backbone.sock", folder);
	else
		snprintf(broker->socket, sizeof(broker->socket), "%s/backbone-%d.sock", worker->directory,
			 (int)getpid());
	snprintf(broker->variable, sizeof(broker->variable), "%s=%s", VARIABLE, broker->socket);
}

enum md_status md_node_broker_begin(struct md_worker *worker, const char *folder, struct md_error *err)
{
	worker->broker = calloc(1, sizeof(*worker->broker));
	if (!worker->broker)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for medusa-backbone");
	name_socket(worker, worker->broker, folder);
	return MD_OK;
}

static enum md_status start(struct md_worker *worker, struct md_node_broker *broker, struct md_error *err)
{
	if (!broker->command)
		broker->command = md_models_find_command("medusa-backbone");
	if (!broker->command)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for medusa-backbone");
	if (!broker->log)
		MD_FORWARD(md_log_file_open(worker->log_writer, worker->directory, "backbone~", "", &broker->log, err));
	broker->settings = (struct md_engine_broker_settings){
	    .command = broker->command, .socket = broker->socket, .output = md_log_file_output(broker->log)};
	MD_FORWARD(md_engine_broker_create(worker->base, worker->processes, &broker->settings, &broker->process, err));
	return md_sharers_begin(worker, broker->socket, err);
}

void md_node_broker_end(struct md_worker *worker)
{
	struct md_node_broker *broker = worker->broker;
	if (!broker)
		return;
	md_sharers_end(worker);
	md_engine_broker_destroy(broker->process);
	md_log_file_close(broker->log);
	free(broker->command);
	free(broker);
	worker->broker = NULL;
}

enum md_status md_node_broker_variable(struct md_worker *worker, const char **variable, struct md_error *err)
{
	if (!worker->broker->process)
		MD_FORWARD(start(worker, worker->broker, err));
	*variable = worker->broker->variable;
	return MD_OK;
}

unsigned md_node_broker_starts(const struct md_worker *worker)
{
	return worker->broker->process ? md_engine_broker_starts(worker->broker->process) : 0;
}
