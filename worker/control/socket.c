/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/socket.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/listener.h"
#include "http/wire_watch.h"
#include "json/tree_text.h"
#include "worker/control/control_place.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define CONNECTIONS_MAX 64u
#define ANSWER_HEAD "{\"version\":%d,\"ok\":true,\"result\":"

/* A connection, which has one question at a time. */
struct md_control_call {
	struct md_control *control;
	struct md_control_call *next;
	struct bufferevent *wire;
	bool open;  /* a question has no answer yet */
	bool skips; /* the rest of a line that was too long */
	void (*gone)(void *context);
	void (*drained)(void *context); /* of an answer that comes piece by piece */
	void *context;
};

struct md_control {
	struct event_base *base;
	struct md_http_listener *listener;
	struct md_control_call *first;
	unsigned count;
	md_control_take *take;
	void *context;
};

/* ---- connections ---- */

static void close_connection(struct md_control_call *call)
{
	struct md_control_call **at = &call->control->first;
	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
	call->control->count--;
	bufferevent_free(call->wire);
	if (call->gone)
		call->gone(call->context);
	free(call);
}

void md_control_watch(struct md_control_call *call, void (*gone)(void *context), void *context)
{
	call->gone = gone;
	call->context = context;
}

/* ---- answers ---- */

/* A second line would be taken for the answer to the next question. */
static bool may_answer(const struct md_control_call *call)
{
	if (!call->open)
		md_error_log("the control socket: a question was answered twice, and the second answer is not sent");
	return call->open;
}

static void end_answer(struct md_control_call *call)
{
	md_http_wire_watch(call->wire, EV_WRITE);
	call->open = false;
	call->gone = call->drained = NULL;
	/* the next question may be there already; it is looked at outside of the caller's call */
	bufferevent_trigger(call->wire, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

static void send_line(struct md_control_call *call, json_t *answer)
{
	struct evbuffer *output = bufferevent_get_output(call->wire);
	if (!may_answer(call)) {
		json_decref(answer);
		return;
	}
	char *text = answer ? md_jansson_print(answer, JSON_COMPACT) : NULL;
	if (text)
		evbuffer_add_printf(output, "%s\n", text);
	else
		evbuffer_add_printf(
		    output,
		    "{\"version\":%d,\"ok\":false,\"status\":\"%s\",\"message\":\"out of memory for the answer\"}\n",
		    MD_CONTROL_VERSION, md_status_name(MD_ERR_NO_MEMORY));
	free(text);
	json_decref(answer);
	end_answer(call);
}

struct released {
	void (*release)(void *context);
	void *context;
};

static void on_sent(const void *bytes, size_t size, void *context)
{
	struct released *released = context;
	(void)bytes, (void)size;
	released->release(released->context);
	free(released);
}

/* NULL: out of memory. What it has is released with it. */
static struct evbuffer *make_line(const char *result, size_t size, struct released *released)
{
	struct evbuffer *line = evbuffer_new();
	if (line && evbuffer_add_printf(line, ANSWER_HEAD, MD_CONTROL_VERSION) > 0 &&
	    !evbuffer_add_reference(line, result, size, on_sent, released)) {
		if (!evbuffer_add(line, "}\n", 2))
			return line;
	} else {
		on_sent(NULL, 0, released);
	}
	if (line)
		evbuffer_free(line);
	return NULL;
}

void md_control_answer_text(struct md_control_call *call, const char *result, size_t size,
			    void (*release)(void *context), void *context)
{
	struct released *released = malloc(sizeof(*released));
	if (!released) {
		release(context);
		send_line(call, NULL);
		return;
	}
	*released = (struct released){.release = release, .context = context};
	struct evbuffer *line = make_line(result, size, released);
	if (line && may_answer(call)) {
		evbuffer_add_buffer(bufferevent_get_output(call->wire), line);
		end_answer(call);
	} else if (!line) {
		send_line(call, NULL);
	}
	if (line)
		evbuffer_free(line);
}

void md_control_answer_begin(struct md_control_call *call, void (*drained)(void *context))
{
	if (!may_answer(call))
		return;
	call->drained = drained;
	evbuffer_add_printf(bufferevent_get_output(call->wire), ANSWER_HEAD, MD_CONTROL_VERSION);
}

/* A piece for which memory is lacking would leave a text that says something else: its reader is told by the end of the connection. */
size_t md_control_answer_write(struct md_control_call *call, const void *bytes, size_t size)
{
	struct evbuffer *output = bufferevent_get_output(call->wire);
	if (evbuffer_add(output, bytes, size))
		bufferevent_trigger_event(call->wire, BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS);
	md_http_wire_watch(call->wire, EV_WRITE);
	return evbuffer_get_length(output);
}

void md_control_answer_end(struct md_control_call *call)
{
	if (!may_answer(call))
		return;
	md_control_answer_write(call, "}\n", 2);
	end_answer(call);
}

void md_control_answer(struct md_control_call *call, json_t *result)
{
	send_line(call, json_pack("{s:i, s:b, s:o}", "version", MD_CONTROL_VERSION, "ok", 1, "result", result));
}

void md_control_refuse(struct md_control_call *call, enum md_status status, const char *format, ...)
{
	char message[MD_ERROR_MESSAGE_BYTES];
	va_list list;
	va_start(list, format);
	vsnprintf(message, sizeof(message), format, list);
	va_end(list);
	send_line(call, json_pack("{s:i, s:b, s:s, s:o}", "version", MD_CONTROL_VERSION, "ok", 0, "status",
				  md_status_name(status), "message", md_jansson_text(message)));
}

/* ---- questions ---- */

static void take_line(struct md_control_call *call, const char *line)
{
	json_error_t error;
	json_t *question = md_jansson_parse(line, strlen(line), JSON_REJECT_DUPLICATES, &error);
	json_int_t version = json_integer_value(json_object_get(question, "version"));
	const char *verb = json_string_value(json_object_get(question, "verb"));
	call->open = true;
	if (!question && json_error_code(&error) == json_error_out_of_memory)
		md_control_refuse(call, MD_ERR_NO_MEMORY, "%s", error.text);
	else if (!verb || !version)
		md_control_refuse(call, MD_ERR_INVALID, "a line is no question: an object with version and verb is");
	else if (version != MD_CONTROL_VERSION)
		md_control_refuse(call, MD_ERR_VERSION,
				  "the question is in version %lld, and this daemon speaks version %d",
				  (long long)version, MD_CONTROL_VERSION);
	else
		call->control->take(call->control->context, call, verb, question);
	json_decref(question); /* not before: a verb may read it after it has answered */
}

/* Closing would take the answer from the asker, who is still sending. */
static void refuse_long(struct md_control_call *call)
{
	call->open = call->skips = true;
	md_control_refuse(call, MD_ERR_TOO_LARGE, "a question has at most %u bytes, and this line has more",
			  MD_CONTROL_LINE_MAX - 1);
}

/* False: it has not ended yet. */
static bool skip_line(struct md_control_call *call, struct evbuffer *input)
{
	struct evbuffer_ptr end = evbuffer_search_eol(input, NULL, NULL, EVBUFFER_EOL_LF);
	call->skips = end.pos < 0;
	evbuffer_drain(input, call->skips ? evbuffer_get_length(input) : (size_t)end.pos + 1);
	return !call->skips;
}

static void on_read(struct bufferevent *wire, void *context)
{
	struct md_control_call *call = context;
	struct evbuffer *input = bufferevent_get_input(wire);
	if (call->open)
		return;
	if (call->skips && !skip_line(call, input)) {
		md_http_wire_watch(call->wire, EV_READ);
		return;
	}
	char *line = evbuffer_readln(input, NULL, EVBUFFER_EOL_LF);
	if (line)
		take_line(call, line);
	else if (evbuffer_get_length(input) >= MD_CONTROL_LINE_MAX)
		refuse_long(call);
	else /* reading begins again by itself when input was taken */
		md_http_wire_watch(call->wire, EV_READ);
	free(line);
}

static void on_written(struct bufferevent *wire, void *context)
{
	struct md_control_call *call = context;
	(void)wire;
	if (call->drained)
		call->drained(call->context);
}

static void on_event(struct bufferevent *wire, short what, void *context)
{
	(void)wire, (void)what;
	close_connection(context);
}

/* ---- accepting ---- */

static bool is_allowed(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return false;
	if (!peer.uid || peer.uid == geteuid())
		return true;
	md_warn("the control socket does not answer user %u (process %d)", peer.uid, (int)peer.pid);
	return false;
}

static void on_accept(void *context, int fd, const struct sockaddr *address)
{
	struct md_control *control = context;
	bool allowed = is_allowed(fd) && control->count < CONNECTIONS_MAX;
	struct md_control_call *call = allowed ? calloc(1, sizeof(*call)) : NULL;
	struct bufferevent *wire = call ? bufferevent_socket_new(control->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
	(void)address;
	if (!wire) {
		free(call);
		close(fd);
		return;
	}
	*call = (struct md_control_call){.control = control, .next = control->first, .wire = wire};
	control->first = call;
	control->count++;
	bufferevent_setcb(wire, on_read, on_written, on_event, call);
	bufferevent_setwatermark(wire, EV_READ, 0, MD_CONTROL_LINE_MAX);
	md_http_wire_watch(wire, EV_READ | EV_WRITE);
}

/* ---- beginning and end ---- */

/* The socket is made for this user alone, from its first moment on. */
static enum md_status listen_at(struct md_control *control, const struct md_http_address *address, struct md_error *err)
{
	char place[sizeof(address->local.sun_path) + sizeof("unix:")];
	struct md_error why = {0};
	snprintf(place, sizeof(place), "unix:%s", address->local.sun_path);
	mode_t before = umask(0177);
	enum md_status status =
	    md_http_listener_create(control->base, place, on_accept, control, &control->listener, &why);
	umask(before);
	if (status != MD_OK)
		return md_error_set(err, MD_ERR_OUTPUT, "the control socket: %s", why.message);
	return MD_OK;
}

enum md_status md_control_create(struct event_base *base, const char *given, md_control_take *take, void *context,
				 struct md_control **control, struct md_error *err)
{
	struct md_http_address address;
	MD_FORWARD(md_control_place(given, true, &address, err));
	MD_FORWARD(md_http_address_clear(&address, err));
	struct md_control *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the control socket");
	made->base = base;
	made->take = take;
	made->context = context;
	if (listen_at(made, &address, err) != MD_OK) {
		md_control_destroy(made);
		return err->status;
	}
	*control = made;
	return MD_OK;
}

void md_control_destroy(struct md_control *control)
{
	if (!control)
		return;
	while (control->first)
		close_connection(control->first);
	md_http_listener_destroy(control->listener);
	free(control);
}
