/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/loading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/core/gpu_memory.h"

static void say(struct md_worker_job *job, const char *text)
{
	json_t *event =
	    json_pack("{s:s, s:s, s:[{s:i, s:{s:s}, s:n}]}", "object", "chat.completion.chunk", "model", job->model->id,
		      "choices", "index", 0, "delta", "reasoning_content", text, "finish_reason");
	char *line = event ? md_jansson_print(event, JSON_COMPACT) : NULL;
	if (line) {
		md_http_answer_write(job->relay.exchange, "data: ", 6);
		md_http_answer_write(job->relay.exchange, line, strlen(line));
		md_http_answer_write(job->relay.exchange, "\n\n", 2);
	}
	free(line);
	json_decref(event);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_worker_job *job = context;
	char text[600], lack[200], room[240] = "waiting for room";
	enum md_engine_state state = md_model_state(job->model);
	bool waits = state == MD_ENGINE_STOPPED || state == MD_ENGINE_SWAPPED;
	(void)fd, (void)what;
	if (!job->relay.exchange)
		return;
	if (waits && md_gpu_memory_lacks(job->model->worker, job->model, lack, sizeof(lack)))
		snprintf(room, sizeof(room), "waiting for room: %s", lack);
	snprintf(text, sizeof(text), "%.200s: %s, %.0f s\n", job->model->id, waits ? room : md_engine_state_name(state),
		 (double)(md_clock_ns() - md_http_exchange_since(job->relay.exchange)) * 1e-9);
	say(job, text);
}

static bool is_wanted(const struct md_worker_job *job)
{
	const struct md_model *model = job->model;
	size_t prefix = strlen(model->prefix);
	return model->config->send_loading_state && job->relay.stream && md_model_state(model) != MD_ENGINE_READY &&
	       strlen(job->target) > prefix && !strncmp(job->target + prefix, "/v1/chat/completions", 20);
}

void md_loading_begin(struct md_worker_job *job)
{
	struct timeval second = {.tv_sec = 1};
	if (!is_wanted(job))
		return;
	job->loading = event_new(job->model->worker->base, -1, EV_PERSIST, on_tick, job);
	if (!job->loading || event_add(job->loading, &second))
		return;
	job->relay.head_made = true;
	md_http_answer_begin(job->relay.exchange, 200, -1);
	md_http_answer_header(job->relay.exchange, "Content-Type", "text/event-stream");
	md_http_answer_header(job->relay.exchange, "Cache-Control", "no-cache");
	md_http_answer_header(job->relay.exchange, "X-Accel-Buffering", "no");
	md_http_answer_body(job->relay.exchange);
	on_tick(-1, 0, job);
}

void md_loading_end(struct md_worker_job *job)
{
	if (job->loading)
		event_free(job->loading);
	job->loading = NULL;
}
