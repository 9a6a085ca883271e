/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/page_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "json/tree_text.h"
#include "worker/control/state_report.h"
#include "worker/core/reply.h"
#include "worker/page/look_pace.h"

#define LOOK_MS 500u        /* between two looks whether something has changed */
#define UNSENT_MAX 1048576u /* bytes that wait for a slow reader, who misses what changes meanwhile */
#define TYPES 2u

/* Somebody who reads events. */
struct reader {
	struct md_worker *worker;
	struct md_http_exchange *exchange;
	struct event *tick;
	uint64_t sent[TYPES]; /* hashes of what was sent last */
	struct md_look_pace pace;
	bool slow;
};

/* ---- what there is to say ---- */

json_t *md_page_events_state(const struct md_worker *worker)
{
	json_t *state = md_report_status(worker);
	json_object_set_new(state, "models", md_report_models(worker));
	return state;
}

static json_t *model_status(const struct md_worker *worker)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		json_t *aliases = json_array();
		for (uint32_t a = 0; a < model->config->aliases.count; a++)
			json_array_append_new(aliases, json_string(model->config->aliases.items[a]));
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:o}", "id", model->id, "name",
						      model->config->name, "description", model->config->description,
						      "state", md_engine_state_name(md_model_state(model)), "unlisted",
						      model->config->unlisted, "peerID", "", "aliases", aliases));
	}
	return list;
}

/* ---- saying it ---- */

/* Takes over the reference. */
static void say(struct reader *reader, unsigned type, const char *name, json_t *value)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT) : NULL;
	uint64_t hash = text ? md_hash_checksum(text, strlen(text)) : 0;
	json_t *event = text && hash != reader->sent[type] ? json_pack("{s:s, s:s}", "type", name, "data", text) : NULL;
	char *line = event ? md_jansson_print(event, JSON_COMPACT) : NULL;
	if (line) {
		md_http_answer_write(reader->exchange, "event:message\ndata:", 19);
		md_http_answer_write(reader->exchange, line, strlen(line));
		reader->slow = md_http_answer_write(reader->exchange, "\n\n", 2) > UNSENT_MAX;
		reader->sent[type] = hash;
	}
	free(line);
	json_decref(event);
	free(text);
	json_decref(value);
}

static void free_reader(struct reader *reader)
{
	event_free(reader->tick);
	free(reader);
}

/* The daemon ends, and so does the stream. */
static void end_stream(struct reader *reader)
{
	struct md_http_exchange *exchange = reader->exchange;
	free_reader(reader);
	md_http_answer_end(exchange);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct reader *reader = context;
	(void)fd, (void)what;
	if (md_drain_closes(reader->worker->drain)) {
		end_stream(reader);
		return;
	}
	if (!md_look_pace_begin(&reader->pace))
		return;
	if (!reader->slow)
		say(reader, 0, "modelStatus", model_status(reader->worker));
	if (!reader->slow)
		say(reader, 1, "medusa", md_page_events_state(reader->worker));
	md_look_pace_end(&reader->pace);
}

/* ---- readers ---- */

static void on_gone(void *context)
{
	free_reader(context);
}

static void on_drained(void *context)
{
	struct reader *reader = context;
	reader->slow = false;
}

void md_page_events_take(struct md_worker *worker, struct md_http_exchange *exchange)
{
	static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};
	struct timeval wait = {.tv_usec = LOOK_MS * 1000};
	struct reader *reader = calloc(1, sizeof(*reader));
	if (reader)
		reader->tick = event_new(worker->base, -1, EV_PERSIST, on_tick, reader);
	if (!reader || !reader->tick || event_add(reader->tick, &wait)) {
		if (reader && reader->tick)
			event_free(reader->tick);
		free(reader);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for events");
		return;
	}
	reader->worker = worker;
	reader->exchange = exchange;
	md_http_exchange_watch(exchange, &watching, reader);
	md_http_answer_begin(exchange, 200, -1);
	md_http_answer_header(exchange, "Content-Type", "text/event-stream");
	md_http_answer_header(exchange, "Cache-Control", "no-cache");
	md_http_answer_header(exchange, "X-Accel-Buffering", "no");
	md_http_answer_body(exchange);
	on_tick(-1, 0, reader);
}
