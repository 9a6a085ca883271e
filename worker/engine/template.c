/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/template.h"

#include <stdlib.h>
#include <unistd.h>

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define WAIT_LOG_MAX 6u /* 64 s */

struct md_engine_template {
	struct md_engine_processes *processes;
	const struct md_engine_template_settings *settings;
	struct md_engine_process *process; /* NULL: it is to be started */
	struct event *again;
	unsigned failures; /* since it has forked an engine */
};

static void start_later(struct md_engine_template *template, const char *why)
{
	unsigned log = template->failures < WAIT_LOG_MAX ? template->failures : WAIT_LOG_MAX;
	struct timeval wait = {.tv_sec = 1u << log};
	template->failures++;
	md_warn("template %s %s; it is started again in %u s", template->settings->name, why, 1u << log);
	event_add(template->again, &wait);
}

static void on_ended(void *context, int status)
{
	struct md_engine_template *template = context;
	char what[160];
	template->process = NULL;
	md_engine_process_describe(status, what, sizeof(what));
	start_later(template, what);
}

static void start(evutil_socket_t fd, short what, void *context)
{
	struct md_engine_template *template = context;
	const struct md_engine_template_settings *settings = template->settings;
	struct md_engine_command command = {
	    .argv = settings->argv, .extra = settings->environment, .output = settings->output};
	struct md_error err = {0};
	(void)fd, (void)what;
	unlink(settings->socket); /* of the one before */
	if (md_engine_process_start(template->processes, &command, on_ended, template, &template->process, &err) !=
	    MD_OK)
		start_later(template, err.message);
}

struct md_engine_template *md_engine_template_create(struct event_base *base, struct md_engine_processes *processes,
						     const struct md_engine_template_settings *settings)
{
	struct md_engine_template *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	*made = (struct md_engine_template){.processes = processes, .settings = settings};
	made->again = evtimer_new(base, start, made);
	if (!made->again) {
		free(made);
		return NULL;
	}
	start(-1, 0, made);
	return made;
}

void md_engine_template_destroy(struct md_engine_template *template)
{
	if (!template)
		return;
	if (template->process)
		md_engine_process_kill(template->process);
	unlink(template->settings->socket);
	event_free(template->again);
	free(template);
}

const struct md_engine_template_settings *md_engine_template_settings(const struct md_engine_template *template)
{
	return template->settings;
}

void md_engine_template_served(struct md_engine_template *template)
{
	template->failures = 0;
}
