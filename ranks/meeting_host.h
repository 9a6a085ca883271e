/* SPDX-License-Identifier: Apache-2.0 */
/* The rank at the socket: a thread welcomes the others, and ends the decisions when one of them goes. */
#ifndef MD_RANKS_MEETING_HOST_H
#define MD_RANKS_MEETING_HOST_H

#include <stdbool.h>

#include "base/status.h"
#include "ranks/rank.h"
#include "ranks/rounds.h"

/* Takes listening and memory over. The rounds and the rank outlive the thread. */
enum md_status md_meeting_host_start(const struct md_rank *rank, struct md_rounds *rounds, int listening, int memory,
				     struct md_error *err);
/* Whether this process still has the socket. */
bool md_meeting_host_listens(void);
/* Ends the thread, which drops all connections. Does nothing where none runs. */
void md_meeting_host_stop(void);
/* In a child of the process, which has no such thread: closes what it would have. */
void md_meeting_host_renew(void);

#endif
