/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a broker, and what each has; for the sources of the broker alone. */
#ifndef MD_BACKBONE_BROKER_STATE_H
#define MD_BACKBONE_BROKER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "backbone/broker.h"
#include "backbone/holdings.h"
#include "base/acceptor.h"
#include "swap/wire.h"

/* What a connection keeps, beside what it has asked for itself. */
struct md_broker_lease {
	uint64_t number; /* the process's */
	struct md_shared_backbone *has;
	bool asks;    /* the process asks before it has memory of its own instead, so it may be counted as shared */
	uint64_t ask; /* a watcher is asked whether the process may have memory of its own instead; 0: none is */
};

struct md_broker_client {
	struct md_swap_wire wire;
	uid_t user;
	pid_t process;
	uint64_t since, pulsed_at;
	bool gone, spoken;
	bool waits;   /* for a backbone that another one fills */
	bool now;     /* does not wait, and is told so instead */
	bool watches; /* is told who has what (broker_watch.h) */
	char *name, *layout, device[64];
	uint64_t bytes;
	struct md_shared_backbone *has; /* that it fills or reads */
	struct md_broker_lease *kept;
	size_t kept_count, kept_room;
};

struct md_broker {
	const struct md_broker_settings *settings;
	struct md_acceptor acceptor;
	uint64_t silent_until; /* about refused connections */
	struct md_backbones all;
	struct md_broker_client *clients[MD_BROKER_CONNECTIONS];
	size_t count;
	uint64_t asks;
	uint64_t
	    taking_back_until; /* md_clock_ns; until then processes bring what a broker before this one gave them */
};

/* A line to the client; false, and the client is gone: out of memory. */
bool md_broker_begin(struct md_broker_client *client, struct md_swap_letter *letter);
void md_broker_post(struct md_broker_client *client, struct md_swap_letter *letter, int passed);
/* lease: 0, or that which is refused. */
void md_broker_refuse(struct md_broker_client *client, const struct md_error *why, uint64_t lease);

#endif
