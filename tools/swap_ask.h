/* SPDX-License-Identifier: Apache-2.0 */
/* Sends commands to medusa-swap run, and prints the answers. */
#ifndef MD_TOOLS_SWAP_ASK_H
#define MD_TOOLS_SWAP_ASK_H

#include <stdbool.h>

#include "base/status.h"
#include "swap/ask.h"

/* MD_ERR_NOT_FOUND: no such engine runs. If the engine refuses, its status. */
enum md_status md_swap_ask(const char *name, const struct md_swap_question *question, bool json, struct md_error *err);
/* Prints the state of all engines of this user. */
enum md_status md_swap_ask_all(bool json, struct md_error *err);

#endif
