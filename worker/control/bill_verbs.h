/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked and ordered for the bill of a cluster. */
#ifndef MD_WORKER_CONTROL_BILL_VERBS_H
#define MD_WORKER_CONTROL_BILL_VERBS_H

#include <stdbool.h>

#include "worker/control/socket.h"

struct md_worker;

/*
 * The orders "ledgers", "bill" and "forget" of the verb "cluster", at a daemon that is in one. False: it is another order.
 * The result of "bill" is {"pieces": [BASE64, ...], "why": TEXT or null}, which is sent as it comes: what the node has said,
 * whatever it is, and why that is not all of it.
 */
bool md_bill_verbs_take(struct md_worker *worker, struct md_control_call *call, const char *order,
			const json_t *question);

#endif
