/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/log_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "worker/core/reply.h"
#include "worker/core/target.h"
#include "worker/page/look_pace.h"

#define HISTORY (100u << 10) /* bytes */
#define LOOK_MS 300u
#define PIECE 16384u
#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow reader: no more is read until they are sent */

/* How much of a log was sent. */
struct place {
	const struct md_log_file *log; /* NULL: nothing yet */
	uint64_t offset;
};

struct reader {
	struct md_worker *worker;
	struct md_http_exchange *exchange;
	struct event *tick, *on;       /* the next look; the rest of this one, in the next turn of the loop */
	const struct md_model *looked; /* the last one whose log was looked at; NULL: none, or all were */
	char *model;                   /* NULL: all */
	struct place *places;
	size_t count;
	bool history, slow;
	struct md_look_pace pace;
};

/* A log that was not seen before begins with its history; one that follows another (a reload) at its end. */
static void begin_log(struct reader *reader, struct place *place, struct md_log_file *log)
{
	uint64_t end = UINT64_MAX;
	char none[1];
	md_log_file_read(log, &end, none, 0);
	place->offset = !place->log && reader->history && end > HISTORY ? end - HISTORY
			: !place->log && reader->history                ? 0
									: end;
	place->log = log;
}

static void send_log(struct reader *reader, size_t number, const struct md_model *model)
{
	char bytes[PIECE];
	size_t size;
	while (number >= reader->count) {
		if (!MD_ARRAY_EXTEND(reader->places, reader->count))
			return;
		reader->places[reader->count++] = (struct place){0};
	}
	struct place *place = &reader->places[number];
	if (place->log != model->log)
		begin_log(reader, place, model->log);
	while (!reader->slow && (size = md_log_file_read(model->log, &place->offset, bytes, sizeof(bytes))))
		reader->slow = md_http_answer_write(reader->exchange, bytes, size) > UNSENT_MAX;
}

static void free_reader(struct reader *reader)
{
	if (reader && reader->tick)
		event_free(reader->tick);
	if (reader && reader->on)
		event_free(reader->on);
	if (reader) {
		free(reader->model);
		free(reader->places);
	}
	free(reader);
}

/* The daemon ends, and so does the stream. */
static void end_stream(struct reader *reader)
{
	struct md_http_exchange *exchange = reader->exchange;
	free_reader(reader);
	md_http_answer_end(exchange);
}

/* Logs are looked at for a short time in each turn of the loop: there may be thousands. */
static void look_on(struct reader *reader)
{
	struct md_worker *worker = reader->worker;
	uint64_t until = md_clock_ns() + MD_WORKER_TURN_NS;
	const struct md_model *model = reader->looked;
	while (!reader->slow && (model = md_models_next(worker, model))) {
		reader->looked = model;
		if (!model->successor && !model->coming)
			send_log(reader, (size_t)(model - worker->models), model);
		if (md_clock_ns() > until && !event_add(reader->on, &(struct timeval){.tv_usec = 0}))
			return;
	}
	reader->looked = NULL;
	md_look_pace_end(&reader->pace);
}

static void on_more(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	look_on(context);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct reader *reader = context;
	struct md_worker *worker = reader->worker;
	(void)fd, (void)what;
	if (md_drain_closes(worker->drain)) {
		end_stream(reader);
		return;
	}
	if (reader->slow || reader->looked || !md_look_pace_begin(&reader->pace))
		return;
	const struct md_model *model = reader->model ? md_models_find(worker, reader->model) : NULL;
	if (model)
		send_log(reader, 0, model);
	else if (!reader->model)
		look_on(reader);
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

static struct reader *make_reader(struct md_worker *worker, const char *model)
{
	struct timeval wait = {.tv_usec = LOOK_MS * 1000};
	struct reader *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->worker = worker;
	made->model = model ? strdup(model) : NULL;
	made->tick = event_new(worker->base, -1, EV_PERSIST, on_tick, made);
	made->on = evtimer_new(worker->base, on_more, made);
	if (made->tick && made->on && !event_add(made->tick, &wait) && !model == !made->model)
		return made;
	free_reader(made);
	return NULL;
}

static void begin(struct md_worker *worker, struct md_http_exchange *exchange, const char *model)
{
	static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};
	const char *query = md_target_query(md_http_head_target(md_http_exchange_head(exchange)));
	struct reader *reader = make_reader(worker, model);
	if (!reader) {
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the log");
		return;
	}
	reader->exchange = exchange;
	reader->history = !strstr(query, "no-history");
	md_http_exchange_watch(exchange, &watching, reader);
	md_http_answer_begin(exchange, 200, -1);
	md_http_answer_header(exchange, "Content-Type", "text/plain; charset=utf-8");
	md_http_answer_header(exchange, "X-Content-Type-Options", "nosniff");
	md_http_answer_header(exchange, "Cache-Control", "no-cache");
	md_http_answer_header(exchange, "X-Accel-Buffering", "no");
	md_http_answer_body(exchange);
	on_tick(-1, 0, reader);
}

bool md_log_stream_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	static const char all[] = "/logs/stream";
	size_t size = sizeof(all) - 1;
	if (strncmp(path, all, size) != 0 || (path[size] && path[size] != '/'))
		return false;
	if (path[size] && !md_models_find(worker, path + size + 1))
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "no model is called \"%.200s\"",
			       path + size + 1);
	else
		begin(worker, exchange, path[size] ? path + size + 1 : NULL);
	return true;
}
