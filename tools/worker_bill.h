/* SPDX-License-Identifier: Apache-2.0 */
/* The bill of a cluster: every node is asked for its own, by one daemon, and what they say is added up here. */
#ifndef MD_TOOLS_WORKER_BILL_H
#define MD_TOOLS_WORKER_BILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tools/options.h"

struct md_worker_bill {
	const struct md_command *command; /* that says what is missing */
	const char *socket;               /* see md_control_place */
	int64_t since;                    /* seconds since 1970 */
	unsigned deadline_s;              /* for which a node may say nothing */
	bool by_node, json, csv;
};

/*
 * Asks, adds up, and prints. *complete: no ledger is missing, of those that could have rows since then. Errors of md_control_ask, and MD_ERR_NO_MEMORY or MD_ERR_IO
 * of what is added up; nothing was printed to stdout then.
 */
enum md_status md_worker_bill_cluster(const struct md_worker_bill *wanted, bool *complete, struct md_error *err);

#endif
