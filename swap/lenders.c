/* SPDX-License-Identifier: Apache-2.0 */
/* Takes connections to lenders, ends them, and remembers those that have not given rooms back. */
#define MD_LOG_DOMAIN "swap"

#include "swap/lenders.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/log.h"
#include "swap/pulse.h"

#define FINISH_NS 300000000ull /* for an answer: some milliseconds, unless the lender has much to do */
#define AWAIT_NS 3000000000ull
#define STEP_MS 5
#define MESSAGES_MOST 256u /* before others have their turn */
#define KEPT_MOST 16u

/* Lenders that have not said that they have given their rooms up. */
static struct kept {
	struct md_descriptor connection;
	int pid;
	char gpu[MD_CARRY_GPU_BYTES];
	bool said;
} kept[KEPT_MOST];
static unsigned kept_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards both */

/* ---- beginning ---- */

/* Whether the lender has said that it has no room any more, or has ended. What it has counted is added. */
static bool has_ended(int fd, uint64_t *times)
{
	struct md_carry_message message;
	struct md_error none = {0};
	bool there = true, ended = false;
	for (unsigned i = 0; there && !ended && i < MESSAGES_MOST; i++) {
		int passed = -1;
		if (md_carry_wire_receive(fd, &message, &passed, &there, &none) != MD_OK)
			return true;
		if (passed >= 0)
			close(passed);
		ended = there && (message.kind == MD_CARRY_END || message.kind == MD_CARRY_FAILED);
	}
	for (unsigned i = MD_PEER_COPIER; i < MD_PEER_TIMES && ended && times && message.kind == MD_CARRY_END; i++)
		times[i] += message.times[i];
	return ended;
}

/* A number that is somebody else's now says nothing about the lender. */
static bool is_over(const struct kept *one)
{
	return !md_descriptor_is_ours(&one->connection) || has_ended(one->connection.fd, NULL);
}

/* Under the lock. */
static void forget_ended(void)
{
	for (unsigned i = 0; i < kept_count;) {
		if (!is_over(&kept[i])) {
			i++;
			continue;
		}
		md_descriptor_drop(&kept[i].connection);
		kept[i] = kept[--kept_count];
	}
}

void md_swap_lenders_init(struct md_swap_lenders *lenders, int coming)
{
	*lenders = (struct md_swap_lenders){.coming = coming};
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		lenders->list[i].fd = -1;
	pthread_mutex_lock(&lock);
	forget_ended();
	pthread_mutex_unlock(&lock);
}

static void close_coming(struct md_swap_lenders *lenders)
{
	if (lenders->coming >= 0)
		close(lenders->coming);
	lenders->coming = -1;
}

void md_swap_lenders_accept(struct md_swap_lenders *lenders)
{
	bool there = true;
	while (there && lenders->coming >= 0) {
		struct md_carry_message message;
		struct md_error none = {0};
		int passed = -1;
		if (md_carry_wire_receive(lenders->coming, &message, &passed, &there, &none) != MD_OK) {
			close_coming(lenders);
			return;
		}
		if (passed < 0)
			continue;
		if (!there || message.kind != MD_CARRY_LENDER || lenders->count == MD_CARRY_LENDERS) {
			close(passed);
			continue;
		}
		lenders->list[lenders->count++] =
		    (struct md_swap_lender){.fd = md_descriptor_raise(passed), .heard_at = md_clock_ns()};
	}
}

/* ---- the end ---- */

/* Under the lock. The oldest one makes room: nobody waits for it any more. */
static void keep(const struct md_swap_lender *lender)
{
	forget_ended();
	if (kept_count == KEPT_MOST) {
		md_descriptor_drop(&kept[0].connection);
		kept[0] = kept[--kept_count];
	}
	struct kept *one = &kept[kept_count];
	*one = (struct kept){.pid = lender->pid};
	snprintf(one->gpu, sizeof(one->gpu), "%s", lender->gpu);
	kept_count += md_descriptor_keep(&one->connection, lender->fd);
}

/* One that does not read now finds the end of the connection when it does, and closes it when it has given the rooms back. */
void md_swap_lender_leave(struct md_swap_lender *lender, bool rooms_back)
{
	lender->way = MD_LENDER_GONE;
	if (lender->fd < 0)
		return;
	if (rooms_back || !lender->rooms) {
		close(lender->fd);
	} else {
		shutdown(lender->fd, SHUT_WR);
		pthread_mutex_lock(&lock);
		keep(lender);
		pthread_mutex_unlock(&lock);
	}
	lender->fd = -1;
}

void md_swap_lenders_end(struct md_swap_lenders *lenders)
{
	close_coming(lenders);
	for (unsigned i = 0; i < lenders->count; i++) {
		struct md_swap_lender *lender = &lenders->list[i];
		struct md_carry_message message = {.kind = MD_CARRY_END};
		struct md_error none = {0};
		if (lender->ends || lender->fd < 0)
			continue;
		lender->ends = true;
		if (!lender->rooms || md_carry_wire_send(lender->fd, &message, -1, &none) != MD_OK)
			md_swap_lender_leave(lender, false);
	}
}

void md_swap_lenders_finish(struct md_swap_lenders *lenders, uint64_t times[MD_PEER_TIMES])
{
	uint64_t began = md_clock_ns();
	md_swap_lenders_end(lenders);
	for (unsigned i = 0; i < lenders->count; i++) {
		struct md_swap_lender *lender = &lenders->list[i];
		struct pollfd ready = {.fd = lender->fd, .events = POLLIN};
		bool ended = false;
		while (lender->fd >= 0 && !(ended = has_ended(lender->fd, times)) &&
		       md_clock_ns() - began < FINISH_NS) {
			poll(&ready, 1, STEP_MS);
			md_swap_pulse_step();
		}
		md_swap_lender_leave(lender, ended);
	}
}

/* ---- afterwards ---- */

/* Under the lock. */
static void say_kept(void)
{
	for (unsigned i = 0; i < kept_count; i++) {
		if (!kept[i].said)
			md_warn("an allocation finds no room, and process %d on %.47s has not given back memory of "
				"this GPU that it has copied into (--gpu-peers): continue it if it is stopped, or end "
				"it",
				kept[i].pid, kept[i].gpu);
		kept[i].said = true;
	}
}

bool md_swap_lenders_await(void)
{
	uint64_t began = md_clock_ns();
	pthread_mutex_lock(&lock);
	bool any = kept_count > 0;
	forget_ended();
	while (kept_count && md_clock_ns() - began < AWAIT_NS) {
		poll(NULL, 0, STEP_MS);
		forget_ended();
	}
	say_kept();
	pthread_mutex_unlock(&lock);
	return any;
}

/* A child that kept a connection open would hide its end. */
static void renew(void)
{
	pthread_mutex_init(&lock, NULL);
	for (unsigned i = 0; i < kept_count; i++)
		md_descriptor_drop(&kept[i].connection);
	kept_count = 0;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
