/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a daemon over its control socket, and waits for the answer. */
#ifndef MD_WORKER_CONTROL_ASK_H
#define MD_WORKER_CONTROL_ASK_H

#include <jansson.h>

#include "base/status.h"

/*
 * given: see md_control_place. The reference to question is taken over. On success the caller owns *result. A refusal of
 * the daemon's has the status that it names; MD_ERR_NOT_FOUND: no daemon listens there; MD_ERR_IO: it ended, or
 * said something else than an answer.
 */
enum md_status md_control_ask(const char *given, json_t *question, json_t **result, struct md_error *err);

#endif
