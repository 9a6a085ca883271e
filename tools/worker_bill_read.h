/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a node has said of its bill, which may be anything, and adds it up: all of it, or nothing. */
#ifndef MD_TOOLS_WORKER_BILL_READ_H
#define MD_TOOLS_WORKER_BILL_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/accounting/bill_reader.h"

struct md_bill_sums; /* SQLite's, in a file without a name where it is large */

/* by_node: sums are of each node, too. MD_ERR_NO_MEMORY, MD_ERR_IO. */
enum md_status md_bill_sums_create(bool by_node, struct md_bill_sums **made, struct md_error *err);
void md_bill_sums_destroy(struct md_bill_sums *sums); /* NULL is fine */

/* What a node has said beside its rows. */
struct md_bill_said {
	char identity[MD_BILL_ID_BYTES], ledger[MD_BILL_ID_BYTES];
	int64_t now; /* its clock, seconds since 1970 */
	uint64_t rows, lost;
};

/*
 * Reads the head of an answer alone. text: the answer, which is changed. MD_ERR_CORRUPT: err has why, a sentence without its end. Of whoever is asked twice, the
 * ledger says so, before anything is added.
 */
enum md_status md_bill_read_head(char *text, size_t size, const char *node, int64_t since, struct md_bill_said *said,
				 struct md_error *err);
/* Adds the rows of the same text. MD_ERR_CORRUPT as above; MD_ERR_IO: the sums can't be kept. */
enum md_status md_bill_sums_add(struct md_bill_sums *sums, char *text, size_t size, const char *node,
				struct md_bill_said *said, struct md_error *err);
/* Calls visit with each row, {"node" (by_node), "model", "key", a number for each enum md_usage_kind}, borrowed, in the order of these; false: out of memory. */
enum md_status md_bill_sums_visit(struct md_bill_sums *sums, bool (*visit)(void *context, const json_t *row),
				  void *context, struct md_error *err);

#endif
