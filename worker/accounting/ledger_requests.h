/* SPDX-License-Identifier: Apache-2.0 */
/* Single requests in the ledger's SQLite file, kept for some time: when each came, for which model, and how it went. */
#ifndef MD_WORKER_ACCOUNTING_LEDGER_REQUESTS_H
#define MD_WORKER_ACCOUNTING_LEDGER_REQUESTS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/accounting/usage.h"

enum md_ledger_outcome {
	MD_LEDGER_SERVED,
	MD_LEDGER_REFUSED, /* by the scheduler, or because its engine failed */
	MD_LEDGER_LEFT,    /* its client */
};

/* Times are in microseconds, and count from the arrival. */
struct md_ledger_request {
	int64_t arrived_us; /* since 1970 */
	char *model;
	char tenant[MD_USAGE_KEY_BYTES]; /* "": the default one */
	enum md_ledger_outcome outcome;
	bool streamed;
	uint64_t prompt_tokens, completion_tokens; /* as its engine says; 0: not said */
	uint64_t waited_us;                        /* until its engine was given it */
	uint64_t first_us;                         /* until its first byte; 0: none */
	uint64_t total_us;
};

/* Makes the table in a file that is open. */
extern const char md_ledger_requests_making[];

/* Within a transaction of the caller: adds all, and removes those that came before `from_us`. False: SQLite has failed. */
bool md_ledger_requests_add(sqlite3 *db, const struct md_ledger_request *requests, size_t count, int64_t from_us);

/*
 * Calls `visit` for each request from a time on (microseconds since 1970), in the order of arrival, until it returns
 * false. The file may be in use by a daemon. MD_ERR_NOT_FOUND: there is no such file; MD_ERR_CORRUPT: it has no requests.
 */
enum md_status md_ledger_requests_read(const char *path, int64_t from_us,
				       bool (*visit)(void *context, const struct md_ledger_request *request),
				       void *context, struct md_error *err);

#endif
