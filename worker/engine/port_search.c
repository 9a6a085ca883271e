/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/port_search.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "worker/engine/port_owner.h"

#define MARK_BYTES 64u

/* The loop and the thread have it; the last of them frees it. */
struct md_port_search {
	atomic_uint users;
	uint64_t inode;
	pid_t group, owner; /* owner: written by the thread before `ended` is */
	char mark[MARK_BYTES];
	int ended; /* an eventfd */
	/* of the loop: */
	struct event *event;
	void (*found)(void *context, pid_t owner);
	void *context;
};

static void let_go(struct md_port_search *search)
{
	if (atomic_fetch_sub(&search->users, 1) != 1)
		return;
	if (search->ended >= 0)
		close(search->ended);
	free(search);
}

static void *run(void *argument)
{
	struct md_port_search *search = argument;
	search->owner = md_port_foreign_owner(search->inode, search->group, search->mark);
	eventfd_write(search->ended, 1);
	let_go(search);
	return NULL;
}

void md_port_search_forget(struct md_port_search *search)
{
	if (!search)
		return;
	if (search->event)
		event_free(search->event);
	search->event = NULL;
	let_go(search);
}

static void on_ended(evutil_socket_t fd, short what, void *context)
{
	struct md_port_search *search = context;
	void (*found)(void *context, pid_t owner) = search->found;
	void *user = search->context;
	pid_t owner = search->owner;
	(void)fd, (void)what;
	md_port_search_forget(search);
	found(user, owner);
}

struct md_port_search *md_port_search_begin(struct event_base *base, uint64_t inode, pid_t group, const char *mark,
					    void (*found)(void *context, pid_t owner), void *context)
{
	pthread_t thread;
	struct md_port_search *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	*made = (struct md_port_search){.inode = inode,
					.group = group,
					.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
					.found = found,
					.context = context};
	atomic_store(&made->users, 2);
	snprintf(made->mark, sizeof(made->mark), "%s", mark);
	made->event = made->ended < 0 ? NULL : event_new(base, made->ended, EV_READ, on_ended, made);
	if (made->event && !event_add(made->event, NULL) && !md_thread_start(&thread, run, made)) {
		pthread_detach(thread);
		return made;
	}
	atomic_store(&made->users, 1);
	md_port_search_forget(made);
	return NULL;
}
