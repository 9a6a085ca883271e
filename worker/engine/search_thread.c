/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/search_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

/* The loop and the thread have it; the last of them frees it. */
struct md_search_thread {
	atomic_uint users;
	atomic_bool searched; /* what the thread has found is the loop's from then on */
	void (*search)(void *state);
	void *state; /* the thread's until it has searched */
	int ended;   /* an eventfd */
	/* of the loop: */
	struct event *event;
	void (*found)(void *context, const void *state);
	void *context;
};

static void let_go(struct md_search_thread *search)
{
	if (atomic_fetch_sub(&search->users, 1) != 1)
		return;
	if (search->ended >= 0)
		close(search->ended);
	free(search->state);
	free(search);
}

static void *run(void *argument)
{
	struct md_search_thread *search = argument;
	search->search(search->state);
	atomic_store(&search->searched, true);
	eventfd_write(search->ended, 1);
	let_go(search);
	return NULL;
}

void md_search_thread_forget(struct md_search_thread *search)
{
	if (!search)
		return;
	if (search->event)
		event_free(search->event);
	search->event = NULL;
	let_go(search);
}

/* Whoever is told may forget others, but not this one. */
static void on_ended(evutil_socket_t fd, short what, void *context)
{
	struct md_search_thread *search = context;
	(void)fd, (void)what;
	if (!atomic_load(&search->searched)) /* which must not be */
		return;
	event_free(search->event);
	search->event = NULL;
	search->found(search->context, search->state);
	let_go(search);
}

struct md_search_thread *md_search_thread_begin(struct event_base *base, void (*search)(void *state), void *state,
						void (*found)(void *context, const void *state), void *context)
{
	pthread_t thread;
	struct md_search_thread *made = calloc(1, sizeof(*made));
	if (!made) {
		free(state);
		return NULL;
	}
	*made = (struct md_search_thread){.search = search,
					  .state = state,
					  .ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
					  .found = found,
					  .context = context};
	atomic_store(&made->users, 2);
	made->event = made->ended < 0 ? NULL : event_new(base, made->ended, EV_READ, on_ended, made);
	if (made->event && !event_add(made->event, NULL) && !md_thread_start(&thread, run, made)) {
		pthread_detach(thread);
		return made;
	}
	atomic_store(&made->users, 1);
	md_search_thread_forget(made);
	return NULL;
}
