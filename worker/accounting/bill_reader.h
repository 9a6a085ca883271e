/* SPDX-License-Identifier: Apache-2.0 */
/* A node's bill as a text that is read piece by piece on the ledger's thread, so that a long one is nowhere as a whole. */
#ifndef MD_WORKER_ACCOUNTING_BILL_READER_H
#define MD_WORKER_ACCOUNTING_BILL_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/accounting/ledger.h"

#define MD_BILL_FORMAT 1
#define MD_BILL_ID_BYTES 33u /* of a ledger's identity, 32 hexadecimal digits, with its NUL */

/*
 * The text is lines, each a JSON value: an object with "format", "node", "identity", "ledger", "since" and "now" (seconds since 1970, "since" being the
 * begin of a minute); then rows by model and key, each [MODEL, KEY, and a number for each enum md_usage_kind]; then an object with "rows", and "lost":
 * requests that could not be written. docs/cluster.md has it.
 */
struct md_bill_reader;

struct md_bill_reader_events {
	/*
	 * Whole lines, which stay until md_bill_reader_more or md_bill_reader_end is called, or, of the last piece, until this returns.
	 * last: the reader is no longer there.
	 */
	void (*piece)(void *context, const char *bytes, size_t size, bool last);
	void (*failed)(void *context, const struct md_error *err); /* the reader is no longer there */
};

/* node, identity: of the daemon; copied. since: seconds since 1970. NULL: out of memory. Events come later. */
struct md_bill_reader *md_bill_reader_begin(struct md_ledger *ledger, const char *node, const char *identity,
					    int64_t since, const struct md_bill_reader_events *events, void *context);
void md_bill_reader_more(struct md_bill_reader *reader); /* after a piece that is not the last one: the next */
void md_bill_reader_end(struct md_bill_reader *reader);  /* no event follows; NULL is fine */

/* The identity of the ledger in this file, which is there: 32 hexadecimal digits. For md_ledger_work. */
enum md_status md_bill_read_ledger(const char *path, char ledger[MD_BILL_ID_BYTES], struct md_error *err);

#endif
