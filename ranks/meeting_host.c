/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the socket. Whoever is no rank of this user is sent away and changes nothing. */
#define MD_LOG_DOMAIN "ranks"
#include "ranks/meeting_host.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/acceptor.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/thread.h"
#include "ranks/greeting.h"

#define GUESTS_MOST (MD_RANKS_MOST + 32u)
#define GREETING_NS UINT64_C(10000000000)
#define NS_PER_MS UINT64_C(1000000)

struct guest {
	struct md_descriptor socket;
	bool arrived; /* it is a rank, whose number is: */
	uint32_t rank;
	pid_t process;
	uint64_t until_ns; /* when its greeting must have come */
	size_t used;
	struct md_greeting greeting;
};

static struct {
	bool runs;
	atomic_bool stop;
	pthread_t thread;
	const struct md_rank *rank;
	struct md_rounds *rounds;
	struct md_descriptor listening, memory;
	struct guest guests[GUESTS_MOST];
	unsigned guest_count;
} host = {.listening = {.fd = -1}, .memory = {.fd = -1}};

static void dismiss(unsigned at)
{
	md_descriptor_drop(&host.guests[at].socket);
	host.guests[at] = host.guests[--host.guest_count];
}

/* ---- a greeting ---- */

static void send_away(struct guest *guest, const char *why)
{
	struct md_error ignored = {0};
	md_greeting_answer_send(guest->socket.fd, -1, why, &ignored);
}

/* What all ranks must know ends the decisions. */
static bool welcome(struct guest *guest)
{
	struct md_error err = {0};
	uint32_t process = guest->process ? (uint32_t)guest->process : UINT32_MAX, before = process;
	uint32_t rank = guest->greeting.rank;
	if (md_greeting_check(&guest->greeting, host.rank, &err) == MD_OK &&
	    !md_rounds_arrive(host.rounds, rank, &before))
		md_error_set(&err, MD_ERR_MISMATCH,
			     "rank %u has come twice, as processes %u and %u: two jobs of one name, or a rank's child",
			     rank, before, process);
	if (err.status) {
		send_away(guest, err.message); /* first: once all is over, this process may end at any time */
		md_rounds_end(host.rounds, MD_ROUNDS_OTHER, rank & 0xffffff, "%s", err.message);
		return false;
	}
	guest->rank = rank;
	guest->arrived = true;
	if (md_greeting_answer_send(guest->socket.fd, host.memory.fd, NULL, &err) == MD_OK)
		return true;
	md_rounds_end(host.rounds, MD_ROUNDS_GONE, rank, "rank %u (process %u) has ended", rank, process);
	return false;
}

/* False: the guest goes. */
static bool hear(struct guest *guest)
{
	char *room = (char *)&guest->greeting + guest->used;
	size_t left = guest->arrived ? 0 : sizeof(guest->greeting) - guest->used;
	char more; /* nothing is said after the greeting */
	ssize_t got = recv(guest->socket.fd, left ? room : &more, left ? left : 1, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (guest->arrived) {
		md_rounds_end(host.rounds, MD_ROUNDS_GONE, guest->rank, "rank %u (process %d) has ended", guest->rank,
			      (int)guest->process);
		return false;
	}
	if (got <= 0)
		return false;
	guest->used += (size_t)got;
	if (guest->used < sizeof(guest->greeting))
		return true;
	if (md_greeting_is_one(&guest->greeting))
		return welcome(guest);
	md_warn("process %d has sent something that is no greeting of a rank", (int)guest->process);
	return false;
}

/* ---- the thread ---- */

static void take_guest(struct md_acceptor *acceptor)
{
	bool last;
	struct md_error err = {0};
	struct guest guest = {.socket = {.fd = -1}, .until_ns = md_clock_ns() + GREETING_NS};
	MD_AUTO_FD int fd = md_acceptor_next(acceptor, &last);
	if (fd < 0)
		return;
	if (md_greeting_check_peer(fd, &guest.process, &err) != MD_OK) {
		md_warn("a process has come that is no rank of this job: %s", err.message);
		return;
	}
	if (host.guest_count < GUESTS_MOST && md_descriptor_keep(&guest.socket, md_descriptor_raise(md_steal_fd(&fd))))
		host.guests[host.guest_count++] = guest;
}

static void look_at_guests(const struct pollfd *ready, unsigned count)
{
	for (unsigned i = count; i-- > 0;) {
		struct guest *guest = &host.guests[i];
		bool ours = md_descriptor_is_ours(&guest->socket), stays = ours;
		if (!ours && guest->arrived) /* the engine has closed what it does not know */
			md_rounds_end(host.rounds, MD_ROUNDS_GONE, guest->rank,
				      "the engine of rank %u has closed its connection to rank %u", host.rank->rank,
				      guest->rank);
		if (ours && ready[i].revents)
			stays = hear(guest);
		if (!guest->arrived && md_clock_ns() > guest->until_ns)
			stays = false;
		if (!stays)
			dismiss(i);
	}
}

static int next_look_ms(void)
{
	uint64_t now = md_clock_ns(), next = UINT64_MAX;
	for (unsigned i = 0; i < host.guest_count; i++)
		if (!host.guests[i].arrived && host.guests[i].until_ns < next)
			next = host.guests[i].until_ns;
	if (next == UINT64_MAX)
		return -1;
	return next <= now ? 0 : (int)((next - now) / NS_PER_MS + 1);
}

static void *serve(void *argument)
{
	static struct pollfd ready[GUESTS_MOST + 1];
	struct md_acceptor acceptor;
	(void)argument;
	prctl(PR_SET_NAME, "medusa-ranks");
	md_acceptor_init(&acceptor, host.listening.fd, false);
	while (!atomic_load(&host.stop) && md_descriptor_is_ours(&host.listening)) {
		unsigned count = host.guest_count;
		for (unsigned i = 0; i < count; i++)
			ready[i] = (struct pollfd){.fd = host.guests[i].socket.fd, .events = POLLIN};
		ready[count] = (struct pollfd){.fd = host.listening.fd, .events = md_acceptor_events(&acceptor)};
		if (poll(ready, count + 1, md_acceptor_wait_ms(&acceptor, next_look_ms())) < 0 && errno != EINTR)
			break;
		if (atomic_load(&host.stop))
			break;
		look_at_guests(ready, count);
		if (ready[count].revents)
			take_guest(&acceptor);
	}
	md_acceptor_finish(&acceptor);
	md_rounds_end(host.rounds, MD_ROUNDS_GONE, host.rank->rank, "rank %u (process %d) has left", host.rank->rank,
		      (int)getpid());
	while (host.guest_count)
		dismiss(host.guest_count - 1);
	return NULL;
}

static void close_own(void)
{
	md_descriptor_drop(&host.listening);
	md_descriptor_drop(&host.memory);
}

enum md_status md_meeting_host_start(const struct md_rank *rank, struct md_rounds *rounds, int listening, int memory,
				     struct md_error *err)
{
	bool kept = md_descriptor_keep(&host.listening, md_descriptor_raise(listening));
	kept = md_descriptor_keep(&host.memory, md_descriptor_raise(memory)) && kept;
	host.rank = rank;
	host.rounds = rounds;
	host.guest_count = 0;
	atomic_store(&host.stop, false);
	host.runs = kept && md_thread_start(&host.thread, serve, NULL) == 0;
	if (host.runs)
		return MD_OK;
	close_own();
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the thread that waits for other ranks");
}

bool md_meeting_host_listens(void)
{
	return host.runs && md_descriptor_is_ours(&host.listening);
}

void md_meeting_host_stop(void)
{
	if (!host.runs)
		return;
	atomic_store(&host.stop, true);
	/* the thread wakes; if the engine has closed the socket, it has ended, or is left behind */
	if (md_descriptor_is_ours(&host.listening) && !shutdown(host.listening.fd, SHUT_RDWR))
		pthread_join(host.thread, NULL);
	host.runs = false;
	close_own();
}

void md_meeting_host_renew(void)
{
	if (!host.runs)
		return;
	for (unsigned i = 0; i < host.guest_count && i < GUESTS_MOST; i++)
		md_descriptor_drop(&host.guests[i].socket);
	host.guest_count = 0;
	host.runs = false;
	close_own();
}
