/* SPDX-License-Identifier: Apache-2.0 */
/* Collects what is used, and has a thread write it to SQLite once a second; the loop never waits for a disk. */
#ifndef MD_WORKER_ACCOUNTING_LEDGER_H
#define MD_WORKER_ACCOUNTING_LEDGER_H

#include <event2/event.h>
#include <stdbool.h>

#include "base/status.h"
#include "worker/accounting/ledger_requests.h"
#include "worker/accounting/usage.h"

struct md_ledger;

/*
 * path: of the file, which is opened by the thread; borrowed. keep_ns: how long single requests are kept; 0: not at all.
 * NULL: out of memory, or no thread.
 */
struct md_ledger *md_ledger_create(struct event_base *base, const char *path, uint64_t keep_ns);
/* Writes what there is, for at most some seconds if the disk is slow. NULL is fine. */
void md_ledger_destroy(struct md_ledger *ledger);

void md_ledger_add(struct md_ledger *ledger, const char *model, const char *key, const struct md_usage *usage);
void md_ledger_note(struct md_ledger *ledger, const struct md_ledger_request *request); /* copies it */
/* Requests that could not be written, and are in no sum. */
uint64_t md_ledger_lost(struct md_ledger *ledger);

/*
 * {"usage": sums from a time on (md_ledger_file_sum)} with all that was added before, printed on the thread; `done` is called
 * later, from the loop, with an error or the text, which it frees. NULL: out of memory.
 */
void *md_ledger_sum(struct md_ledger *ledger, int64_t since,
		    void (*done)(void *context, char *text, const struct md_error *err), void *context);
/* The same without sums: all that was added before is in the file then. The text is NULL. */
void *md_ledger_flush(struct md_ledger *ledger, void (*done)(void *context, char *text, const struct md_error *err),
		      void *context);
void md_ledger_forget(void *question); /* `done` is not called */
/*
 * Calls `work` on the thread, when all that was added before has been written, with the path of the file, which is there; then
 * `done` in the loop, in any case: md_ledger_destroy calls it at the latest. Where the file can't be opened, `work` is not
 * called, and `done` has the error. False: out of memory, and neither is called.
 */
bool md_ledger_work(struct md_ledger *ledger, void (*read)(void *context, const char *path, struct md_error *err),
		    void (*done)(void *context, char *none, const struct md_error *err), void *context);

#endif
