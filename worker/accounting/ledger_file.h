/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite file of the ledger: one row per minute, model and key. Its calls wait, so a thread of its own makes them. */
#ifndef MD_WORKER_ACCOUNTING_LEDGER_FILE_H
#define MD_WORKER_ACCOUNTING_LEDGER_FILE_H

#include <jansson.h>

#include "base/status.h"
#include "worker/accounting/ledger_requests.h"
#include "worker/accounting/usage.h"

struct md_ledger_file;

struct md_ledger_row {
	char *model;
	char key[MD_USAGE_KEY_BYTES];
	int64_t minute; /* its begin, in seconds since 1970 */
	struct md_usage usage;
};

/* Opens or makes the file. MD_ERR_CORRUPT: it is no ledger; MD_ERR_OUTPUT: it can't be written. */
enum md_status md_ledger_file_open(const char *path, struct md_ledger_file **file, struct md_error *err);
void md_ledger_file_close(struct md_ledger_file *file); /* NULL is fine */
/* Whether the path leads to another file now, or to none: what is read there is not what is written here. */
bool md_ledger_file_has_moved(const struct md_ledger_file *file);

/* What is written at one time. */
struct md_ledger_rows {
	struct md_ledger_row *items;
	size_t count, room;
	struct md_ledger_request *requests;
	size_t request_count, request_room;
};

/* Adds all rows and requests, or none. Requests that came before keep_from_us (since 1970) are removed then. */
enum md_status md_ledger_file_add(struct md_ledger_file *file, const struct md_ledger_rows *rows, int64_t keep_from_us,
				  struct md_error *err);
/* Sums of each model and key from a time on (seconds since 1970): [{"model", "key", NAME: number ...}]. */
enum md_status md_ledger_file_sum(struct md_ledger_file *file, int64_t since, json_t **sums, struct md_error *err);

#endif
