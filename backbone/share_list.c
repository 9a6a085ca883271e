/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/share_list.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backbone/share_keeper.h"
#include "base/guarded.h"

/* Held for moments only: one thread may have to commit what another process needs before this one gets what it waits for. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unwatched = PTHREAD_COND_INITIALIZER;
static struct md_share *all MD_GUARDED_BY(lock);
static uint64_t numbers MD_GUARDED_BY(lock);
static struct md_descriptor changes MD_GUARDED_BY(lock) = {.fd = -1}; /* an eventfd */

/* ---- forks ---- */

static void before_fork(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_unlock(&lock);
}

/* A child has no device memory, and must not keep its parent's leases. */
static void in_child(void) MD_LOCKS_UNCHECKED
{
	for (struct md_share *one = all; one; one = one->next) {
		md_descriptor_drop(&one->lease);
		md_descriptor_drop(&one->memory);
	}
	all = NULL;
	md_descriptor_drop(&changes);
	unwatched = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- the list ---- */

static void say_changed(void) MD_REQUIRES(lock)
{
	uint64_t one = 1;
	if (md_descriptor_is_ours(&changes) && write(changes.fd, &one, sizeof(one)) < 0)
		return; /* it is full: who reads it is woken anyway */
}

static void make_changes(void) MD_REQUIRES(lock)
{
	if (md_descriptor_is_ours(&changes))
		return;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd >= 0)
		md_descriptor_keep(&changes, md_descriptor_raise(fd));
}

enum md_status md_share_take_lease(struct md_share *share, int fd, struct md_error *err)
{
	fd = md_descriptor_raise(fd);
	if (!md_descriptor_keep(&share->lease, fd))
		return md_error_set(err, MD_ERR_IO, "the connection to medusa-backbone: %s", strerror(errno));
	md_swap_wire_init(&share->wire, fd);
	return MD_OK;
}

void md_share_drop_lease(struct md_share *share)
{
	md_descriptor_drop(&share->lease);
	share->wire.fd = -1; /* closed, or the engine's own by now */
	md_swap_wire_finish(&share->wire);
	md_swap_wire_init(&share->wire, -1);
}

struct md_share *md_share_begin(const char *name, const char *layout, uint64_t asked)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct md_share *one = calloc(1, sizeof(*one));
	if (!one || !(one->layout = strdup(layout))) {
		free(one);
		return NULL;
	}
	pthread_once(&once, watch_forks);
	md_swap_wire_init(&one->wire, -1);
	snprintf(one->name, sizeof(one->name), "%s", name);
	one->lease = one->memory = MD_DESCRIPTOR_NONE;
	one->asked = asked;
	one->busy = true;
	pthread_mutex_lock(&lock);
	make_changes();
	one->number = ++numbers;
	one->next = all;
	all = one;
	pthread_mutex_unlock(&lock);
	return one;
}

void md_share_forget(struct md_share *share)
{
	md_share_keeper_leave(share);
	pthread_mutex_lock(&lock);
	struct md_share **at = &all;
	while (*at && *at != share)
		at = &(*at)->next;
	if (*at)
		*at = share->next;
	/* Under the lock, so that the watching thread never takes another file for a lease. */
	md_share_drop_lease(share);
	md_descriptor_drop(&share->memory);
	say_changed();
	pthread_mutex_unlock(&lock);
	free(share->layout);
	free(share);
}

static struct md_share *find(CUdeviceptr address) MD_REQUIRES(lock)
{
	struct md_share *one = all;
	while (one && (one->address != address || (one->busy && !one->watched)))
		one = one->next;
	return one;
}

struct md_share *md_share_claim(CUdeviceptr address, bool fills)
{
	struct md_share *one;
	pthread_mutex_lock(&lock);
	while ((one = find(address)) && one->watched)
		pthread_cond_wait(&unwatched, &lock);
	if (one && fills && !one->fills)
		one = NULL;
	if (one)
		one->busy = true;
	pthread_mutex_unlock(&lock);
	return one;
}

void md_share_end(struct md_share *share)
{
	pthread_mutex_lock(&lock);
	if (share->watched)
		pthread_cond_broadcast(&unwatched);
	else
		say_changed();
	share->busy = share->watched = false;
	pthread_mutex_unlock(&lock);
}

/* ---- for the thread that looks after leases ---- */

/* One that this process fills is not watched: its commit finds out. */
static bool has_lease(const struct md_share *one)
{
	return !one->busy && !one->fills && one->lease.fd >= 0;
}

static bool is_lost(const struct md_share *one)
{
	return !one->busy && !one->fills && one->lease.fd < 0 && !md_share_is_kept(one) && !one->refused &&
	       md_descriptor_is_ours(&one->memory);
}

static void look_after(struct md_share *one)
{
	struct pollfd polled = {.fd = one->lease.fd, .events = POLLRDHUP};
	if (!md_descriptor_is_ours(&one->lease) || (poll(&polled, 1, 0) > 0 && polled.revents))
		md_share_drop_lease(one);
}

size_t md_share_leases(int fds[MD_SHARE_WATCHED_MOST], size_t *lost, int *changed)
{
	size_t count = 0;
	uint64_t seen;
	*lost = 0;
	pthread_mutex_lock(&lock);
	*changed = md_descriptor_is_ours(&changes) ? changes.fd : -1;
	if (*changed >= 0 && read(*changed, &seen, sizeof(seen)) < 0)
		seen = 0; /* nothing had changed */
	for (struct md_share *one = all; one; one = one->next) {
		if (has_lease(one))
			look_after(one);
		if (has_lease(one) && count < MD_SHARE_WATCHED_MOST)
			fds[count++] = one->lease.fd;
		*lost += is_lost(one);
	}
	pthread_mutex_unlock(&lock);
	return count;
}

struct md_share *md_share_claim_lost(uint64_t *after)
{
	struct md_share *found = NULL;
	pthread_mutex_lock(&lock);
	for (struct md_share *one = all; one; one = one->next)
		if (is_lost(one) && one->number > *after && (!found || one->number < found->number))
			found = one;
	if (found) {
		found->busy = found->watched = true;
		*after = found->number;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
