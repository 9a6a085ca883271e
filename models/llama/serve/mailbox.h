/* SPDX-License-Identifier: Apache-2.0 */
/* What passes between the HTTP thread and the engine's thread: requests there, tokens back. */
#ifndef LLAMA_SERVE_MAILBOX_H
#define LLAMA_SERVE_MAILBOX_H

#include <pthread.h>

#include "base/status.h"
#include "models/llama/serve/serve_request.h"

struct serve_mailbox {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct serve_request *arrived, **arrived_end;
	struct serve_request *news, **news_end;
	bool poked, stopped;
	int fd; /* an eventfd: readable when there are news */
};

enum md_status serve_mailbox_init(struct serve_mailbox *mailbox, struct md_error *err);
void serve_mailbox_finish(struct serve_mailbox *mailbox);

/* ---- the HTTP thread ---- */

/* The request is the engine's until serve_mailbox_hear says that it has ended. */
void serve_mailbox_submit(struct serve_mailbox *mailbox, struct serve_request *request);
void serve_mailbox_poke(struct serve_mailbox *mailbox); /* `cancelled` or `held` of a request has changed */
void serve_mailbox_stop(struct serve_mailbox *mailbox); /* the engine's thread ends */
/*
 * The next request of which something is new, with its tokens so far and whether it has ended; false: there is none.
 * One that has ended is the caller's again.
 */
bool serve_mailbox_hear(struct serve_mailbox *mailbox, struct serve_request **request, size_t *told,
			enum serve_finish *finish);

/* ---- the engine's thread ---- */

/* Takes the requests that have come, linked by next_arrived. With `wait`, waits for one, a poke or the stop. */
struct serve_request *serve_mailbox_take(struct serve_mailbox *mailbox, bool wait, bool *stopped);
/* `made` tokens of it are there now. After a finish, the request is no longer the engine's. */
void serve_mailbox_tell(struct serve_mailbox *mailbox, struct serve_request *request, size_t made,
			enum serve_finish finish);

#endif
