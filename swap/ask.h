/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one command to medusa-swap run, and waits for the answer: for the command line and for the C interface. */
#ifndef MD_SWAP_ASK_H
#define MD_SWAP_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "swap/wire.h"

struct md_swap_question {
	const char *verb; /* out, in, release, status */
	uint64_t deadline_ms;
	int process; /* out and in: of the engine's processes this one alone; 0: all */
	bool verify, overlap;
	bool neighbours; /* in: over links of other GPUs, too */
	bool peers;      /* in: what engines on other GPUs have as well comes from there */
	bool full;       /* out: the driver takes what is left */
	const char *gpu; /* in: where the engine comes back; NULL: where it was */
};

#define MD_SWAP_DEADLINE_S 10 /* unless the asker says otherwise */
#define MD_SWAP_DEADLINE_MOST_MS 3600000u

/*
 * Asks the engine of this name. MD_ERR_NOT_FOUND: none runs. If medusa-swap run refuses, its status; the message
 * begins with the name.
 */
enum md_status md_swap_ask_engine(const char *name, const struct md_swap_question *question,
				  struct md_swap_message *answer, struct md_error *err);
/* Asks the medusa-swap run that has started this process. MD_ERR_NOT_FOUND: none has, or it has ended. */
enum md_status md_swap_ask_own(const struct md_swap_question *question, struct md_swap_message *answer,
			       struct md_error *err);

#endif
