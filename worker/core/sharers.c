/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/sharers.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backbone/share_wire.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "swap/wire.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define EQUAL "equal/"       /* begins the names of memory that engines had before it was merged (backbone/equal.c) */
#define TICK_US 100000       /* while there is something to wait for */
#define ROOM_NS 10000000000u /* for room: engines wait for 15 s */
#define AGAIN_NS 3000000000u /* after a broker was started anew, engines have brought what they have */

/* Memory that the engine of a model has. */
struct sharer {
	char id[MD_BACKBONE_ID_BYTES];
	struct md_model *model; /* NULL: it is of no model whose memory counts in full */
	pid_t process;
	uint64_t number, bytes; /* number: of the scheduler */
	uint32_t times;         /* the process has it so often */
	bool earlier;           /* a broker has said so that has ended, and no other one yet */
	bool leaves;            /* it is to be the engine's own, and counts in full */
};

/* A process waits for the room that its own memory needs. */
struct wish {
	uint64_t number, until;
	uint32_t gpu;
};

struct md_sharers {
	struct md_worker *worker;
	const char *socket;
	struct md_swap_wire wire; /* fd -1: not connected */
	struct event *readable, *tick;
	struct sharer *all;
	size_t count, room;
	struct wish *wishes;
	size_t wish_count, wish_room;
	uint64_t sure_at; /* what no broker has said again by then is over; 0: all is sure */
	struct md_swap_message message;
};

static void wait_on(struct md_sharers *s)
{
	if (!evtimer_pending(s->tick, NULL))
		event_add(s->tick, &(struct timeval){.tv_usec = TICK_US});
}

/* ---- telling the scheduler ---- */

static void tell(const struct sharer *one, bool shares)
{
	const struct md_model *model = one->model;
	bool backbone = model->backbone != MEDUSA_SCHED_NONE;
	md_decisions_post(model->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_SHARED,
								     .artifact = backbone ? MEDUSA_SCHED_CLASS_BACKBONE
											  : MEDUSA_SCHED_CLASS_WEIGHTS,
								     .function = model->function,
								     .backbone = model->backbone,
								     .gpu = model->gpu,
								     .share = one->number,
								     .bytes = shares ? one->bytes : 0});
}

/* The engine leads a process group; what its weights are that are counted as a backbone is not in its memory. */
static struct md_model *find_model(struct md_worker *worker, pid_t process)
{
	pid_t group = getpgid(process);
	for (struct md_model *model = NULL; group > 0 && (model = md_models_next(worker, model));)
		if (model->engine && md_engine_process_of(model->engine) == group)
			return model->shared_backbone == MEDUSA_SCHED_NONE ? model : NULL;
	return NULL;
}

static struct sharer *find(struct md_sharers *s, pid_t process, const char *id)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->all[i].process == process && !strcmp(s->all[i].id, id))
			return &s->all[i];
	return NULL;
}

static void forget(struct md_sharers *s, struct sharer *one, bool say)
{
	if (say && one->model && !one->leaves)
		tell(one, false);
	*one = s->all[--s->count];
}

/* The id is random, so half of it tells as much. */
static uint64_t number_of(const char *id)
{
	char digits[17];
	snprintf(digits, sizeof(digits), "%.16s", id);
	return strtoull(digits, NULL, 16);
}

static void has(struct md_sharers *s, pid_t process, const char *id, uint64_t bytes)
{
	struct sharer *one = find(s, process, id);
	if (one && one->earlier) {
		one->earlier = false;
		one->times = 1;
		return;
	}
	if (one) {
		one->times++;
		return;
	}
	if (!MD_ARRAY_GROW(s->all, s->count, s->room)) {
		md_warn("out of memory for what engines share: it counts in full");
		return;
	}
	one = &s->all[s->count++];
	*one = (struct sharer){.model = find_model(s->worker, process), .process = process, .bytes = bytes, .times = 1};
	snprintf(one->id, sizeof(one->id), "%s", id);
	one->number = number_of(id);
	if (one->model)
		tell(one, true);
}

static void left(struct md_sharers *s, pid_t process, const char *id)
{
	struct sharer *one = find(s, process, id);
	if (one && !--one->times)
		forget(s, one, true);
}

void md_sharers_are_there(struct md_model *model)
{
	struct md_sharers *s = model->worker->sharers;
	for (size_t i = 0; s && i < s->count; i++) {
		struct sharer *one = &s->all[i];
		if (!one->model) /* the broker may have said so before the engine was adopted */
			one->model = find_model(s->worker, one->process);
		if (one->model == model && !one->leaves)
			tell(one, true);
	}
}

/* The scheduler knows that it has left, and what that means. */
void md_sharers_are_gone(struct md_model *model)
{
	struct md_sharers *s = model->worker->sharers;
	for (size_t i = s ? s->count : 0; i-- > 0;)
		if (s->all[i].model == model)
			forget(s, &s->all[i], false);
}

/* ---- memory of one's own ---- */

static void lose_broker(struct md_sharers *s);

static void answer(struct md_sharers *s, uint64_t wish, bool may)
{
	struct md_swap_letter letter;
	struct md_error err = {0};
	struct pollfd polled = {.fd = s->wire.fd, .events = POLLOUT};
	if (s->wire.fd < 0)
		return;
	bool ready = poll(&polled, 1, 0) > 0 && polled.revents == POLLOUT; /* the loop never waits */
	if (!ready || md_swap_letter_begin(&letter, &err) != MD_OK) {
		lose_broker(s);
		return;
	}
	md_json_text(&letter.json, "do", "let");
	md_json_number(&letter.json, "ask", wish);
	md_json_number(&letter.json, "may", may);
	if (md_swap_letter_send(&letter, s->wire.fd, -1, &err) != MD_OK)
		lose_broker(s);
}

/* The memory counts in full from now on, whatever comes of the wish: what others have to leave for is not shared again in between. */
static void wants(struct md_sharers *s, uint64_t number, pid_t process, const char *id)
{
	struct sharer *one = find(s, process, id);
	if (one && !one->model)
		one->leaves = true;
	if (!one || !one->model) {
		answer(s, number, true); /* it always counted in full */
		return;
	}
	if (!MD_ARRAY_GROW(s->wishes, s->wish_count, s->wish_room)) {
		answer(s, number, false);
		return;
	}
	if (!one->leaves)
		tell(one, false);
	one->leaves = true;
	s->wishes[s->wish_count++] =
	    (struct wish){.number = number, .until = md_clock_ns() + ROOM_NS, .gpu = one->model->gpu};
	wait_on(s);
}

static bool has_room(const struct md_worker *worker, uint32_t gpu)
{
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	return !medusa_sched_gpu_get(worker->sched, gpu, &state) && !state.over_bytes;
}

void md_sharers_look(struct md_worker *worker)
{
	struct md_sharers *s = worker->sharers;
	if (!s || worker->queued)
		return;
	for (size_t i = s->wish_count; i-- > 0;) {
		struct wish wish = s->wishes[i];
		bool room = has_room(worker, wish.gpu);
		if (!room && md_clock_ns() < wish.until)
			continue;
		s->wishes[i] = s->wishes[--s->wish_count];
		if (!room)
			md_warn("GPU %u: an engine that shares memory wants its own, for which others did not leave in "
				"time: it is refused",
				wish.gpu);
		answer(s, wish.number, room);
		if (i > s->wish_count)
			return; /* the broker has gone, and with it all wishes */
	}
}

/* ---- the connection ---- */

static void hear(struct md_sharers *s)
{
	const struct md_swap_message *m = &s->message;
	const char *id = md_swap_message_text(m, "id");
	if (strlen(id) != MD_BACKBONE_ID_BYTES - 1 || strspn(id, "0123456789abcdef") != MD_BACKBONE_ID_BYTES - 1)
		return;
	bool equal = !strncmp(md_swap_message_text(m, "name"), EQUAL, strlen(EQUAL));
	if (md_swap_message_has(m, "has") && equal)
		has(s, (pid_t)md_swap_message_number(m, "has"), id, md_swap_message_number(m, "bytes"));
	else if (md_swap_message_has(m, "left") && equal)
		left(s, (pid_t)md_swap_message_number(m, "left"), id);
	else if (md_swap_message_has(m, "wants"))
		wants(s, md_swap_message_number(m, "wants"), (pid_t)md_swap_message_number(m, "process"), id);
}

static enum md_status hear_all(struct md_sharers *s, struct md_error *err)
{
	bool there = true;
	MD_FORWARD(md_swap_wire_take(&s->wire, err));
	while (there && s->wire.fd >= 0) {
		MD_FORWARD(md_swap_wire_next(&s->wire, &s->message, &there, err));
		if (there)
			hear(s);
	}
	return MD_OK;
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
	struct md_sharers *s = context;
	struct md_error err = {0};
	(void)fd, (void)what;
	if (hear_all(s, &err) != MD_OK)
		lose_broker(s);
}

/* What engines share they go on sharing: they get no memory of their own without asking, and nobody can be asked. */
static void lose_broker(struct md_sharers *s)
{
	if (s->wire.fd < 0)
		return;
	event_free(s->readable);
	s->readable = NULL;
	md_swap_wire_finish(&s->wire);
	md_swap_wire_init(&s->wire, -1);
	s->wish_count = 0;
	s->sure_at = 0;
	for (size_t i = 0; i < s->count; i++)
		s->all[i].earlier = true;
	wait_on(s);
}

static enum md_status ask(const struct md_sharers *s, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_backbone", MD_BACKBONE_PROTOCOL);
	md_json_text(&letter.json, "do", "watch");
	return md_swap_letter_send(&letter, s->wire.fd, -1, err);
}

static void connect_broker(struct md_sharers *s)
{
	struct md_error err = {0};
	int fd;
	if (md_swap_wire_connect_now(s->socket, &fd, &err) != MD_OK)
		return;
	md_swap_wire_init(&s->wire, md_descriptor_raise(fd));
	s->readable = event_new(s->worker->base, s->wire.fd, EV_READ | EV_PERSIST, on_readable, s);
	if (s->readable && !event_add(s->readable, NULL) && ask(s, &err) == MD_OK) {
		s->sure_at = md_clock_ns() + AGAIN_NS;
		return;
	}
	if (s->readable)
		event_free(s->readable);
	s->readable = NULL;
	md_swap_wire_finish(&s->wire);
	md_swap_wire_init(&s->wire, -1);
}

static void drop_earlier(struct md_sharers *s)
{
	s->sure_at = 0;
	for (size_t i = s->count; i-- > 0;)
		if (s->all[i].earlier)
			forget(s, &s->all[i], true);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_sharers *s = context;
	(void)fd, (void)what;
	if (s->wire.fd < 0)
		connect_broker(s);
	if (s->sure_at && md_clock_ns() >= s->sure_at)
		drop_earlier(s);
	md_sharers_look(s->worker);
	if (s->wire.fd < 0 || s->sure_at || s->wish_count)
		wait_on(s);
}

/* ---- beginning and end ---- */

enum md_status md_sharers_begin(struct md_worker *worker, const char *socket, struct md_error *err)
{
	struct md_sharers *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what engines share");
	made->worker = worker;
	made->socket = socket;
	md_swap_wire_init(&made->wire, -1);
	made->tick = evtimer_new(worker->base, on_tick, made);
	if (!made->tick) {
		free(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what engines share");
	}
	worker->sharers = made;
	wait_on(made);
	return MD_OK;
}

void md_sharers_end(struct md_worker *worker)
{
	struct md_sharers *s = worker->sharers;
	if (!s)
		return;
	if (s->readable)
		event_free(s->readable);
	event_free(s->tick);
	md_swap_wire_finish(&s->wire);
	free(s->all);
	free(s->wishes);
	free(s);
	worker->sharers = NULL;
}
