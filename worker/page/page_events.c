/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/page_events.h"

#include <stdlib.h>

#include "json/tree_text.h"
#include "worker/core/long_pages.h"
#include "worker/core/reply.h"
#include "worker/page/look_pace.h"

#define LOOK_MS 500u /* between two looks whether something has changed */
#define TYPES 2u

/* Somebody who reads events. One who is slow misses what changes meanwhile. */
struct reader {
	struct md_worker *worker;
	struct md_http_exchange *exchange;
	struct event *tick;
	struct {
		struct md_printer_order
		    *order;              /* of the look that is under way; NULL: the event is there, or is the same */
		struct md_printed *text; /* of which the client has `written`; NULL: nothing is to be sent */
		size_t written;
		uint64_t sent; /* the hash of what was sent last */
	} types[TYPES];
	struct md_look_pace pace;
	bool looks; /* its end was not noted yet */
};

static const enum md_page pages[TYPES] = {MD_PAGE_MODELS_EVENT, MD_PAGE_STATE_EVENT};

/* ---- what there is to say ---- */

json_t *md_page_events_models(const struct md_model_rows *rows)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct md_config_model *config = rows->rows[i].config;
		json_t *aliases = json_array();
		for (uint32_t a = 0; a < config->aliases.count; a++)
			json_array_append_new(aliases, json_string(config->aliases.items[a]));
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:o}", "id", config->id, "name",
						      config->name, "description", config->description, "state",
						      md_engine_state_name(rows->rows[i].state), "unlisted",
						      config->unlisted, "peerID", "", "aliases", aliases));
	}
	return list;
}

bool md_page_events_print(const char *type, json_t *value, FILE *out)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT) : NULL;
	json_t *event = text ? json_pack("{s:s, s:s}", "type", type, "data", text) : NULL;
	char *line = event ? md_jansson_print(event, JSON_COMPACT) : NULL;
	bool printed = line && fprintf(out, "event:message\ndata:%s\n\n", line) > 0;
	free(line);
	json_decref(event);
	free(text);
	json_decref(value);
	return printed;
}

/* ---- saying it ---- */

static void free_reader(struct reader *reader)
{
	for (unsigned i = 0; i < TYPES; i++) {
		md_printer_forget(reader->types[i].order);
		md_printed_let_go(reader->types[i].text);
	}
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

static bool is_idle(const struct reader *reader)
{
	for (unsigned i = 0; i < TYPES; i++)
		if (reader->types[i].order || reader->types[i].text)
			return false;
	return true;
}

/* One event after the other, as far as the client takes them. */
static void send_on(struct reader *reader)
{
	for (unsigned i = 0; i < TYPES; i++) {
		if (!reader->types[i].text)
			continue;
		if (!md_printed_write(reader->exchange, reader->types[i].text, &reader->types[i].written))
			return;
		md_printed_let_go(reader->types[i].text);
		reader->types[i].text = NULL;
	}
	if (reader->looks && is_idle(reader)) {
		md_look_pace_end(&reader->pace);
		reader->looks = false;
	}
}

static void take_text(struct reader *reader, unsigned type, struct md_printed *text)
{
	reader->types[type].order = NULL;
	if (text && text->hash != reader->types[type].sent) {
		md_printed_hold(text);
		reader->types[type].text = text;
		reader->types[type].written = 0;
		reader->types[type].sent = text->hash;
	}
	/* both, in their order: the first one's end would be within the second one */
	if (!reader->types[0].order && !reader->types[1].order)
		send_on(reader);
}

static void on_models(void *context, struct md_printed *text)
{
	take_text(context, 0, text);
}

static void on_state(void *context, struct md_printed *text)
{
	take_text(context, 1, text);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	static void (*const done[TYPES])(void *context, struct md_printed *text) = {on_models, on_state};
	struct reader *reader = context;
	(void)fd, (void)what;
	if (md_drain_closes(reader->worker->drain)) {
		end_stream(reader);
		return;
	}
	if (!is_idle(reader) || !md_look_pace_begin(&reader->pace))
		return;
	reader->looks = true;
	for (unsigned i = 0; i < TYPES; i++)
		reader->types[i].order =
		    md_printer_order(md_long_pages_get(reader->worker->pages, pages[i]), done[i], reader);
}

/* ---- readers ---- */

static void on_gone(void *context)
{
	free_reader(context);
}

static void on_drained(void *context)
{
	struct reader *reader = context;
	if (!reader->types[0].order && !reader->types[1].order)
		send_on(reader);
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
