/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a printer as answers to clients, as fast as each of them reads. */
#include <stdlib.h>

#include "http/front.h"
#include "worker/core/printer.h"
#include "worker/core/reply.h"

#define PIECE (64u << 10)
#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow reader: the rest waits until they are sent */

struct reader {
	const struct md_printer_kind *kind;
	struct md_http_exchange *exchange;
	struct md_printer_order *order; /* NULL: the text is there */
	struct md_printed *text;        /* NULL: not yet */
	size_t written;
};

bool md_printed_write(struct md_http_exchange *exchange, const struct md_printed *text, size_t *written)
{
	while (*written < text->size) {
		size_t rest = text->size - *written, size = rest < PIECE ? rest : PIECE;
		size_t unsent = md_http_answer_write(exchange, text->bytes + *written, size);
		*written += size;
		if (unsent > UNSENT_MAX)
			return false;
	}
	return true;
}

static void free_reader(struct reader *reader)
{
	md_printer_forget(reader->order);
	md_printed_let_go(reader->text);
	free(reader);
}

static void on_gone(void *context)
{
	free_reader(context);
}

static void on_drained(void *context)
{
	struct reader *reader = context;
	struct md_http_exchange *exchange = reader->exchange;
	if (!reader->text || !md_printed_write(exchange, reader->text, &reader->written))
		return;
	free_reader(reader);
	md_http_answer_end(exchange);
}

static void refuse(struct md_http_exchange *exchange, const struct md_printer_kind *kind)
{
	md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for %s", kind->what);
}

static void on_done(void *context, struct md_printed *text)
{
	struct reader *reader = context;
	struct md_http_exchange *exchange = reader->exchange;
	const struct md_printer_kind *kind = reader->kind;
	reader->order = NULL;
	if (!text) {
		free_reader(reader);
		refuse(exchange, kind);
		return;
	}
	md_printed_hold(text);
	reader->text = text;
	md_http_answer_begin(exchange, 200, (int64_t)text->size);
	md_http_answer_header(exchange, "Content-Type", kind->type);
	md_http_answer_body(exchange);
	on_drained(reader);
}

void md_printer_answer(struct md_printer *printer, struct md_http_exchange *exchange)
{
	static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};
	struct reader *reader = calloc(1, sizeof(*reader));
	if (reader)
		reader->order = md_printer_order(printer, on_done, reader);
	if (!reader || !reader->order) {
		free(reader);
		refuse(exchange, md_printer_kind(printer));
		return;
	}
	reader->kind = md_printer_kind(printer);
	reader->exchange = exchange;
	md_http_exchange_watch(exchange, &watching, reader);
}
