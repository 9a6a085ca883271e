/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/health_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/core/gpu_memory.h"
#include "worker/core/reply.h"
#include "worker/core/target.h"
#include "worker/core/worker.h"
#include "worker/engine/health.h"

#define PATIENCE_S 6 /* of a client: a question to an engine ends after 5 s, and says why */

/* An engine is asked for a client. */
struct question {
	struct md_worker *worker;
	struct md_http_exchange *exchange;
	struct md_engine_health *health;
	struct event *deadline;
	char name[]; /* of the model, which may be gone when the engine answers */
};

static void answer(struct md_http_exchange *exchange, unsigned status, const char *text)
{
	md_reply_text(exchange, status, "text/plain; charset=utf-8", text);
}

static void free_question(struct question *question)
{
	md_engine_health_stop(question->health);
	if (question->deadline)
		event_free(question->deadline);
	free(question);
}

static void on_gone(void *context)
{
	free_question(context);
}

static bool on_healthy(void *context, char *why, size_t size)
{
	struct question *question = context;
	(void)why, (void)size;
	answer(question->exchange, 200, "OK");
	free_question(question);
	return true;
}

/* ---- models whose engine is not asked ---- */

/* A model that is not loaded is well if a request may load it. */
static bool answer_by_state(struct md_model *model, struct md_http_exchange *exchange)
{
	const struct md_model *host = md_model_with_engine(model);
	uint64_t rest = md_model_keep_rest(host);
	char text[640];
	enum md_engine_state state = md_engine_state(host->engine);
	if (state == MD_ENGINE_READY)
		return false;
	snprintf(text, sizeof(text), "%s", md_engine_state_name(state));
	if (rest)
		snprintf(text, sizeof(text), "model %.100s: its engine %.300s; a request starts it again in %u s",
			 host->id, host->last_failure, (unsigned)(rest / 1000000000u) + 1);
	char lack[200];
	bool away = state == MD_ENGINE_STOPPED || state == MD_ENGINE_SWAPPED;
	bool lacks = !rest && away && md_gpu_memory_lacks(model->worker, host, lack, sizeof(lack));
	if (lacks)
		snprintf(text, sizeof(text), "model %.100s: a request would wait for room: %s", host->id, lack);
	answer(exchange, rest || lacks ? 503 : 200, text);
	return true;
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
	struct question *question = context;
	struct md_model *model = md_models_find(question->worker, question->name);
	char text[400];
	(void)fd, (void)what;
	if (!model) {
		answer(question->exchange, 503, "the model was removed while its engine was asked");
	} else if (!answer_by_state(model, question->exchange)) { /* it may have been swapped out meanwhile */
		snprintf(text, sizeof(text), "model %.100s: its engine is not healthy: %s",
			 md_model_with_engine(model)->id, md_engine_health_last(question->health));
		answer(question->exchange, 503, text);
	}
	free_question(question);
}

/* ---- asking ---- */

static const struct md_http_exchange_events exchange_events = {.gone = on_gone};

static bool ask(struct md_model *model, struct md_http_exchange *exchange)
{
	struct md_worker *worker = model->worker;
	const struct md_engine_settings *settings = &md_model_with_engine(model)->settings;
	size_t size = strlen(model->id) + 1;
	struct question *question = calloc(1, sizeof(*question) + size);
	if (!question)
		return false;
	*question = (struct question){.worker = worker, .exchange = exchange};
	memcpy(question->name, model->id, size);
	question->deadline = evtimer_new(worker->base, on_deadline, question);
	question->health = md_engine_health_start(worker->base, &settings->address, settings->host, settings->check,
						  on_healthy, question);
	if (!question->deadline || !question->health ||
	    event_add(question->deadline, &(struct timeval){.tv_sec = PATIENCE_S})) {
		free_question(question);
		return false;
	}
	md_http_exchange_watch(exchange, &exchange_events, question);
	return true;
}

static void answer_for(struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	struct md_model *model = md_models_find(worker, name);
	char why[300];
	if (!model) {
		md_models_tell_none(worker, name, why, sizeof(why));
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "%s", why);
	} else if (!answer_by_state(model, exchange) && !ask(model, exchange))
		answer(exchange, 503, "out of memory for the question to the engine");
}

/* ---- the daemon ---- */

/* What every request needs. NULL: it is there. */
static const char *find_lack(const struct md_worker *worker)
{
	if (md_drain_is_on(worker->drain))
		return "draining";
	if (worker->step_waits)
		return "out of memory for the scheduler's events";
	int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return errno == EMFILE || errno == ENFILE ? "no file can be opened, so no engine can be reached"
							  : "no socket can be made, so no engine can be reached";
	close(probe);
	return NULL;
}

/* A node that has lost its cluster serves all the same. */
static void answer_well(const struct md_worker *worker, struct md_http_exchange *exchange)
{
	const char *lack = md_cluster_lack(worker->cluster);
	char text[480] = "OK";
	if (lack)
		snprintf(text, sizeof(text), "OK; %s", lack);
	answer(exchange, 200, text);
}

void md_health_page_answer(struct md_worker *worker, struct md_http_exchange *exchange)
{
	const char *lack = find_lack(worker);
	char name[MD_TARGET_MAX];
	if (lack)
		answer(exchange, 503, lack);
	else if (md_target_value(md_target_query(md_http_head_target(md_http_exchange_head(exchange))), "model", name,
				 sizeof(name)))
		answer_for(worker, exchange, name);
	else
		answer_well(worker, exchange);
}
