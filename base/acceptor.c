/* SPDX-License-Identifier: Apache-2.0 */
#include "base/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_MS UINT64_C(1000000)

static void hold_back(struct md_acceptor *acceptor)
{
	acceptor->spare = fcntl(acceptor->listening, F_DUPFD_CLOEXEC, 0);
}

void md_acceptor_init(struct md_acceptor *acceptor, int listening, bool spares)
{
	*acceptor = (struct md_acceptor){.listening = listening, .spare = -1, .spares = spares};
	if (spares)
		hold_back(acceptor);
}

void md_acceptor_finish(struct md_acceptor *acceptor)
{
	if (acceptor->spare >= 0)
		close(acceptor->spare);
	acceptor->spare = -1;
}

static uint64_t rest_left(const struct md_acceptor *acceptor)
{
	uint64_t now = acceptor->rests_until ? md_clock_ns() : 0;
	return acceptor->rests_until > now ? acceptor->rests_until - now : 0;
}

short md_acceptor_events(const struct md_acceptor *acceptor)
{
	return rest_left(acceptor) ? 0 : POLLIN;
}

int md_acceptor_wait_ms(const struct md_acceptor *acceptor, int wait_ms)
{
	uint64_t left = rest_left(acceptor);
	int rest_ms = (int)(left / NS_PER_MS) + 1;
	return left && (wait_ms < 0 || wait_ms > rest_ms) ? rest_ms : wait_ms;
}

static int take(const struct md_acceptor *acceptor)
{
	return accept4(acceptor->listening, NULL, NULL, SOCK_CLOEXEC);
}

/* All but that there is none: the connection stays in the kernel's queue, and poll reports it again at once. */
static bool stays(int failure)
{
	return failure == EMFILE || failure == ENFILE || failure == ENOBUFS || failure == ENOMEM;
}

int md_acceptor_next(struct md_acceptor *acceptor, bool *last)
{
	*last = false;
	if (acceptor->spares && acceptor->spare < 0)
		hold_back(acceptor);
	int fd = take(acceptor);
	if (fd >= 0 || !stays(errno))
		return fd;
	if (acceptor->spare >= 0) {
		md_acceptor_finish(acceptor);
		fd = take(acceptor);
		*last = fd >= 0;
	}
	if (fd < 0)
		acceptor->rests_until = md_clock_ns() + MD_ACCEPTOR_REST_MS * NS_PER_MS;
	return fd;
}
