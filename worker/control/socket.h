/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: whoever runs the daemon asks and orders here, one JSON object per line in both directions. */
#ifndef MD_WORKER_CONTROL_SOCKET_H
#define MD_WORKER_CONTROL_SOCKET_H

#include <event2/event.h>
#include <jansson.h>

#include "base/status.h"

/*
 * A question is {"version": 1, "verb": TEXT, ...}; the answer to it {"version": 1, "ok": true, "result": OBJECT}, or
 * {"version": 1, "ok": false, "status": TEXT, "message": TEXT}, where status is a word of md_status_name. Questions of a
 * connection are answered one after the other. A line has at most 64 KiB. Only the daemon's own user and root are heard.
 */
#define MD_CONTROL_VERSION 1
#define MD_CONTROL_LINE_MAX 65536u

struct md_control;      /* listens */
struct md_control_call; /* a question that has no answer yet */

/* verb and question are borrowed until it returns, whether it has answered by then or answers later. */
typedef void md_control_take(void *context, struct md_control_call *call, const char *verb, const json_t *question);

/* given: see md_control_place. MD_ERR_BUSY: another process listens there. */
enum md_status md_control_create(struct event_base *base, const char *given, md_control_take *take, void *context,
				 struct md_control **control, struct md_error *err);
void md_control_destroy(struct md_control *control); /* NULL is fine */

/* Each ends the call; a second answer to it is logged, and is not sent. The reference to result is taken over; NULL: out of memory. */
void md_control_answer(struct md_control_call *call, json_t *result);
/* The same with the text of a JSON object, of which no copy is made: `release` is called when it was sent, or will not be. */
void md_control_answer_text(struct md_control_call *call, const char *result, size_t size,
			    void (*release)(void *context), void *context);
/*
 * The same piece by piece: begin, then any number of writes, which make the text of one JSON object without a line end, then the end. A write returns how
 * many bytes wait to be sent, and `drained` (of md_control_watch's context) is called when none waits any more.
 */
void md_control_answer_begin(struct md_control_call *call, void (*drained)(void *context));
size_t md_control_answer_write(struct md_control_call *call, const void *bytes, size_t size);
void md_control_answer_end(struct md_control_call *call);
void md_control_refuse(struct md_control_call *call, enum md_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* `gone` is called if the asker goes before it was answered; the call is no longer there then. */
void md_control_watch(struct md_control_call *call, void (*gone)(void *context), void *context);

#endif
