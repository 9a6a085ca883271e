/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/loop_thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

/* The loop and the thread have it; the last of them frees it. */
struct md_loop_thread {
	atomic_uint users;
	pthread_t thread;
	int ended; /* an eventfd */
	atomic_bool done_working;
	struct event *event;
	void (*work)(void *context);
	void (*done)(void *context);
	void *context;
};

static void let_go(struct md_loop_thread *background)
{
	if (atomic_fetch_sub(&background->users, 1) != 1)
		return;
	if (background->ended >= 0)
		close(background->ended);
	free(background);
}

static void *run(void *argument)
{
	struct md_loop_thread *background = argument;
	background->work(background->context);
	atomic_store(&background->done_working, true);
	eventfd_write(background->ended, 1);
	let_go(background);
	return NULL;
}

/* The loop does so. */
static void leave(struct md_loop_thread *background)
{
	if (background->event)
		event_free(background->event);
	background->event = NULL;
	let_go(background);
}

void md_loop_thread_destroy(struct md_loop_thread *background)
{
	if (!background)
		return;
	pthread_join(background->thread, NULL);
	leave(background);
}

/* The thread has nothing left to do but to end, and joining it would wait until a processor is free for that. */
static void on_ended(evutil_socket_t fd, short what, void *context)
{
	struct md_loop_thread *background = context;
	void (*done)(void *context) = background->done;
	void *user = background->context;
	(void)fd, (void)what;
	if (!atomic_load(&background->done_working))
		return;
	pthread_detach(background->thread);
	leave(background);
	done(user);
}

enum md_status md_loop_thread_start(struct event_base *base, void (*work)(void *context), void (*done)(void *context),
				    void *context, struct md_loop_thread **background, struct md_error *err)
{
	struct md_loop_thread *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a thread");
	*made = (struct md_loop_thread){
	    .ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .work = work, .done = done, .context = context};
	atomic_store(&made->users, 2);
	made->event = made->ended < 0 ? NULL : event_new(base, made->ended, EV_READ, on_ended, made);
	int failure = made->event && !event_add(made->event, NULL) ? md_thread_start(&made->thread, run, made) : EMFILE;
	if (failure) {
		atomic_store(&made->users, 1);
		leave(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "a thread could not be started: %s", strerror(failure));
	}
	*background = made;
	return MD_OK;
}
