/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long texts about the daemon, for pages and for the control socket: what they say is copied in the loop, a part in each turn,
 * printed on a thread, and handed out in the loop.
 */
#ifndef MD_WORKER_CORE_PRINTER_H
#define MD_WORKER_CORE_PRINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct md_http_exchange;
struct md_printer; /* makes texts of one kind, one after the other */
struct md_printer_order;
struct md_worker;

/* A text, for all that had asked for it when it was begun. It lives until the last holder lets it go. */
struct md_printed {
	char *bytes; /* a NUL follows */
	size_t size;
	uint64_t hash;
	unsigned holders;
};

enum md_printer_step {
	MD_PRINTER_MORE,  /* the next part is copied in a later turn of the loop */
	MD_PRINTER_LATER, /* nothing can be copied now: in a millisecond */
	MD_PRINTER_DONE,
	MD_PRINTER_NO_MEMORY,
};

struct md_printer_kind {
	const char *what; /* as in "out of memory for the metrics" */
	const char *type; /* Content-Type */
	/* In the loop: a part of what there is to say, as much as takes a few milliseconds. *copy is NULL at first. */
	enum md_printer_step (*copy)(struct md_worker *worker, void **copy);
	bool (*print)(const void *copy, FILE *out); /* on a thread; false: out of memory */
	void (*free)(void *copy);                   /* in the loop; NULL is fine */
};

struct md_printer *md_printer_create(struct md_worker *worker,
				     const struct md_printer_kind *kind); /* NULL: out of memory */
void md_printer_destroy(struct md_printer *printer); /* nothing is ordered any more; NULL is fine */
const struct md_printer_kind *md_printer_kind(const struct md_printer *printer);

/*
 * A text that is copied after this call. `done` is called later, outside of this call, with a text that is there as long as it
 * is held, or with NULL: out of memory. The order is no longer there then. NULL: out of memory, `done` is not called.
 */
struct md_printer_order *md_printer_order(struct md_printer *printer,
					  void (*done)(void *context, struct md_printed *text), void *context);
void md_printer_forget(struct md_printer_order *order); /* `done` is not called; NULL is fine */

void md_printed_hold(struct md_printed *text);
void md_printed_let_go(struct md_printed *text); /* NULL is fine */
/* Writes what a client takes now of an answer that has begun. False: the rest waits until what was written is sent. */
bool md_printed_write(struct md_http_exchange *exchange, const struct md_printed *text, size_t *written);
/* Answers with the next text, and ends the exchange. */
void md_printer_answer(struct md_printer *printer, struct md_http_exchange *exchange);

#endif
