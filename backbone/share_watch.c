/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread looks after the leases of a process: when their broker has gone, the next one that listens at the same place
 * is given the memory, so that processes which come later have the same memory, and none fills it anew.
 */
#define MD_LOG_DOMAIN "medusa backbone"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "backbone/share_lease.h"
#include "backbone/share_keeper.h"
#include "base/log.h"
#include "base/thread.h"

/* A broker that is started anew waits longer than RETRY_MOST_MS for what processes have (broker.c). */
#define RETRY_MS 125
#define RETRY_MOST_MS 500

static atomic_int watcher; /* the process that the thread belongs to: a child has none */

static bool may_be_there_later(enum md_status status)
{
	return status == MD_ERR_NOT_FOUND || status == MD_ERR_TIMEOUT || status == MD_ERR_TRUNCATED ||
	       status == MD_ERR_IO;
}

/* Whether a broker took any. */
static bool give_back_all(void)
{
	struct md_share *share;
	uint64_t after = 0;
	bool any = false;
	while ((share = md_share_claim_lost(&after))) {
		struct md_error err = {0};
		enum md_status status = md_share_hold(share, &err);
		any |= status == MD_OK;
		share->refused = status != MD_OK && !may_be_there_later(status);
		if (status == MD_OK)
			md_info("a new medusa-backbone has backbone %s again", share->name);
		else if (share->refused)
			md_warn("backbone %s stays this process's own: %s", share->name, err.message);
		md_share_end(share);
	}
	return any;
}

/* Until the list changes, a broker has gone, or the time is over (-1: never). */
static void wait_for_change(const int *fds, size_t count, int changes, int milliseconds)
{
	struct pollfd polled[MD_SHARE_WATCHED_MOST + 2];
	polled[0] = (struct pollfd){.fd = changes, .events = POLLIN};
	for (size_t i = 0; i < count; i++)
		polled[i + 1] = (struct pollfd){.fd = fds[i], .events = POLLRDHUP};
	if (poll(polled, count + 1, milliseconds) < 0)
		usleep(RETRY_MS * 1000); /* a signal, or a limit of descriptors: never at full speed */
}

static void *watch(void *unused)
{
	int fds[MD_SHARE_WATCHED_MOST + 1], changes, pause_ms = RETRY_MS;
	size_t lost;
	for (;;) {
		int common = md_share_keeper_look();
		size_t count = md_share_leases(fds, &lost, &changes);
		if (common >= 0)
			fds[count++] = common;
		wait_for_change(fds, count, changes, lost ? pause_ms : changes < 0 ? RETRY_MOST_MS : -1);
		if (!lost || give_back_all())
			pause_ms = RETRY_MS;
		else if (pause_ms < RETRY_MOST_MS)
			pause_ms *= 2;
	}
	return unused;
}

void md_share_watch(void)
{
	pthread_t thread;
	int self = (int)getpid(), before = atomic_load(&watcher);
	if (before == self || !atomic_compare_exchange_strong(&watcher, &before, self))
		return;
	int failure = md_thread_start(&thread, watch, NULL);
	if (!failure)
		pthread_detach(thread);
	else
		md_debug(
		    "no thread that looks after backbones (error %d): a broker that is started anew won't know of them",
		    failure);
}
