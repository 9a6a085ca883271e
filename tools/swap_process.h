/* SPDX-License-Identifier: Apache-2.0 */
/* Out, in and status of processes that medusa-swap run has not started, by the driver's checkpoints. */
#ifndef MD_TOOLS_SWAP_PROCESS_H
#define MD_TOOLS_SWAP_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct md_swap_process_question {
	const char *verb; /* out, in, status */
	const char *whom; /* a process id, or the name of a process */
	uint64_t deadline_ms;
	const char *gpu; /* in: "OLD:NEW", each a number or a UUID; NULL: where it was */
	bool freeze;     /* out: freeze the processes meanwhile */
	bool unshared;   /* out: several processes may go, for they share no memory of the device */
	bool json;
};

bool md_swap_process_is_id(const char *text);
/* Prints the answer. MD_ERR_NOT_FOUND: no such process uses a GPU. */
enum md_status md_swap_process_ask(const struct md_swap_process_question *question, struct md_error *err);

#endif
