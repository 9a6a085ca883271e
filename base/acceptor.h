/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of a listening socket in a loop with poll(2), also when no descriptor is left: one is held back, by which
 * a peer is told so, and without it the socket rests, so that the loop never runs at full speed.
 */
#ifndef MD_BASE_ACCEPTOR_H
#define MD_BASE_ACCEPTOR_H

#include <stdbool.h>
#include <stdint.h>

#define MD_ACCEPTOR_REST_MS 1000

struct md_acceptor {
	int listening; /* the caller's */
	int spare;     /* -1: none */
	bool spares;
	uint64_t rests_until;
};

/* spares: hold a descriptor back. */
void md_acceptor_init(struct md_acceptor *acceptor, int listening, bool spares);
void md_acceptor_finish(struct md_acceptor *acceptor);

/* What to poll the socket for: POLLIN, or nothing while it rests. */
short md_acceptor_events(const struct md_acceptor *acceptor);
/* How long to poll at most, so that a socket that rests is polled again in time; wait_ms as of poll(2). */
int md_acceptor_wait_ms(const struct md_acceptor *acceptor, int wait_ms);

/*
 * The next connection, not inherited, which the caller closes; -1: there is none, or the socket rests from now on
 * (errno). *last: it has the descriptor that was held back, so the caller tells the peer, and closes it at once.
 */
int md_acceptor_next(struct md_acceptor *acceptor, bool *last);

#endif
