/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank says when it comes to the meeting, and what it is answered: two messages of fixed size, both checked. */
#ifndef MD_RANKS_GREETING_H
#define MD_RANKS_GREETING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "ranks/rank.h"

#define MD_GREETING_VERSION 2u

struct md_greeting {
	char magic[8];
	uint32_t version, bytes; /* version, bytes and rank are where they are in every version */
	uint32_t rank, ranks;
	uint64_t job;
	uint8_t zero[24];
	uint64_t checksum; /* of all before */
};

struct md_greeting_answer { /* if it is welcome, a descriptor of the memory comes along */
	char magic[8];
	uint32_t version, bytes;
	uint32_t welcome; /* 1, or 0 with the reason */
	uint32_t zero;
	char why[240];
	uint64_t checksum;
};

void md_greeting_write(struct md_greeting *out, const struct md_rank *rank);
/* False: these bytes are no greeting of any version, and whoever sent them is no rank. */
bool md_greeting_is_one(const struct md_greeting *greeting);
/* Whether the rank may join; an error says what it has got wrong, in words for all ranks. */
enum md_status md_greeting_check(const struct md_greeting *greeting, const struct md_rank *host, struct md_error *err);

/* Never waits. memory: the descriptor that comes along; -1 with a reason. */
enum md_status md_greeting_answer_send(int socket, int memory, const char *why, struct md_error *err);
/* Waits until the deadline (CLOCK_MONOTONIC). *memory is the caller's. MD_ERR_MISMATCH: not welcome, with the reason. */
enum md_status md_greeting_answer_take(int socket, uint64_t deadline_ns, int *memory, struct md_error *err);

/* Whether the peer runs as this user; *process may be 0, when it lives in another namespace. */
enum md_status md_greeting_check_peer(int socket, pid_t *process, struct md_error *err);

#endif
