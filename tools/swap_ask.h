/* SPDX-License-Identifier: Apache-2.0 */
/* Asks medusa-swap run for something, and prints what it answers. */
#ifndef MD_TOOLS_SWAP_ASK_H
#define MD_TOOLS_SWAP_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct md_swap_question {
	const char *verb; /* out, in, release, status */
	const char *name;
	uint64_t deadline_ms;
	bool verify, overlap, json;
};

/* MD_ERR_NOT_FOUND: no such engine runs; any status with which the engine refused. */
enum md_status md_swap_ask(const struct md_swap_question *question, struct md_error *err);
/* The state of all engines of this user. */
enum md_status md_swap_ask_all(bool json, struct md_error *err);

#endif
