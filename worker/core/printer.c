/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/printer.h"

#include <stdlib.h>

#include "base/hash.h"
#include "worker/core/loop_thread.h"
#include "worker/core/worker.h"

#define LATER_US 1000

struct md_printer_order {
	struct md_printer_order *next; /* of those that wait for a text */
	struct md_printer *printer;
	void (*done)(void *context, struct md_printed *text);
	void *context;
};

struct md_printer {
	struct md_worker *worker;
	const struct md_printer_kind *kind;
	struct md_printer_order *waiting;  /* for the text after the one that is made now */
	struct md_printer_order *printing; /* for that one */
	struct event *turn;                /* the next part is copied */
	struct md_loop_thread *thread;
	bool busy; /* a text is made, or handed out */
	void *copy;
	char *bytes; /* of the thread; NULL: it was out of memory */
	size_t size;
};

/* ---- texts ---- */

void md_printed_hold(struct md_printed *text)
{
	text->holders++;
}

void md_printed_let_go(struct md_printed *text)
{
	if (!text || --text->holders)
		return;
	free(text->bytes);
	free(text);
}

/* NULL: out of memory. */
static struct md_printed *take_printed(struct md_printer *printer)
{
	struct md_printed *text = printer->bytes ? calloc(1, sizeof(*text)) : NULL;
	if (!text)
		return NULL;
	*text = (struct md_printed){.bytes = printer->bytes, .size = printer->size, .holders = 1};
	text->hash = md_hash_checksum(text->bytes, text->size);
	printer->bytes = NULL;
	return text;
}

/* ---- orders ---- */

static void take_off(struct md_printer_order **list, const struct md_printer_order *order)
{
	while (*list && *list != order)
		list = &(*list)->next;
	if (*list)
		*list = order->next;
}

void md_printer_forget(struct md_printer_order *order)
{
	if (!order)
		return;
	take_off(&order->printer->waiting, order);
	take_off(&order->printer->printing, order);
	free(order);
}

/* `done` may forget others of the list. */
static void hand_out(struct md_printer *printer, struct md_printed *text)
{
	for (struct md_printer_order *order; (order = printer->printing);) {
		void (*done)(void *context, struct md_printed *text) = order->done;
		void *context = order->context;
		printer->printing = order->next;
		free(order);
		done(context, text);
	}
}

/* ---- the making of one ---- */

static void begin_text(struct md_printer *printer);

static void forget_copy(struct md_printer *printer)
{
	printer->kind->free(printer->copy);
	free(printer->bytes);
	printer->copy = NULL;
	printer->bytes = NULL;
}

/* What is handed out may bring the next order before the call returns: `busy` keeps its text from beginning within. */
static void end_text(struct md_printer *printer, struct md_printed *text)
{
	forget_copy(printer);
	hand_out(printer, text);
	md_printed_let_go(text);
	printer->busy = false;
	begin_text(printer);
}

static void print(void *context)
{
	struct md_printer *printer = context;
	FILE *out = open_memstream(&printer->bytes, &printer->size);
	if (!out)
		return;
	bool printed = printer->kind->print(printer->copy, out) && !ferror(out);
	if (!fclose(out) && printed)
		return;
	free(printer->bytes);
	printer->bytes = NULL;
}

static void on_printed(void *context)
{
	struct md_printer *printer = context;
	printer->thread = NULL;
	end_text(printer, take_printed(printer));
}

/* A timer that has run out lets the loop look at its connections first. */
static bool go_on_in(struct md_printer *printer, suseconds_t us)
{
	return !event_add(printer->turn, &(struct timeval){.tv_usec = us});
}

static void copy_part(struct md_printer *printer)
{
	struct md_error err = {0};
	enum md_printer_step step =
	    printer->printing ? printer->kind->copy(printer->worker, &printer->copy) : MD_PRINTER_NO_MEMORY;
	bool goes_on = step == MD_PRINTER_MORE    ? go_on_in(printer, 0)
		       : step == MD_PRINTER_LATER ? go_on_in(printer, LATER_US)
		       : step == MD_PRINTER_DONE  ? md_loop_thread_start(printer->worker->base, print, on_printed,
									 printer, &printer->thread, &err) == MD_OK
						  : false; /* or nobody wants it any more */
	if (!goes_on)
		end_text(printer, NULL);
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	copy_part(context);
}

static void begin_text(struct md_printer *printer)
{
	if (printer->busy || !printer->waiting)
		return;
	printer->busy = true;
	printer->printing = printer->waiting;
	printer->waiting = NULL;
	if (!go_on_in(printer, 0))
		end_text(printer, NULL);
}

struct md_printer_order *md_printer_order(struct md_printer *printer,
					  void (*done)(void *context, struct md_printed *text), void *context)
{
	struct md_printer_order *made = malloc(sizeof(*made));
	if (!made)
		return NULL;
	*made =
	    (struct md_printer_order){.next = printer->waiting, .printer = printer, .done = done, .context = context};
	printer->waiting = made;
	begin_text(printer);
	return made;
}

/* ---- beginning and end ---- */

struct md_printer *md_printer_create(struct md_worker *worker, const struct md_printer_kind *kind)
{
	struct md_printer *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	*made = (struct md_printer){.worker = worker, .kind = kind};
	made->turn = evtimer_new(worker->base, on_turn, made);
	if (made->turn)
		return made;
	free(made);
	return NULL;
}

const struct md_printer_kind *md_printer_kind(const struct md_printer *printer)
{
	return printer->kind;
}

void md_printer_destroy(struct md_printer *printer)
{
	if (!printer)
		return;
	md_loop_thread_destroy(printer->thread);
	event_free(printer->turn);
	forget_copy(printer);
	free(printer);
}
