/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics_page.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker/core/loop_thread.h"
#include "worker/core/metrics_models.h"
#include "worker/core/metrics_node.h"
#include "worker/core/metrics_text.h"
#include "worker/core/reply.h"
#include "worker/core/worker.h"

#define PIECE (64u << 10)
#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow reader: the rest waits until they are sent */

/* What was printed, for all that were waiting for it. */
struct text {
	char *bytes;
	size_t size;
	unsigned readers;
};

struct reader {
	struct reader *next; /* of those that wait for a text */
	struct md_metrics_page *page;
	struct md_http_exchange *exchange;
	struct text *text; /* NULL: not yet */
	size_t sent;
};

struct md_metrics_page {
	struct md_worker *worker;
	struct reader *waiting;  /* for the text after the one that is being printed */
	struct reader *printing; /* for that one */
	struct md_loop_thread *thread;
	bool busy; /* a text is being printed, or begun to be sent */
	struct md_metrics_models *models;
	char *node, *printed; /* printed: by the thread; NULL: it was out of memory */
	size_t node_size, printed_size;
};

/* ---- readers ---- */

static void let_go(struct text *text)
{
	if (!text || --text->readers)
		return;
	free(text->bytes);
	free(text);
}

static void take_off(struct reader **list, const struct reader *reader)
{
	while (*list && *list != reader)
		list = &(*list)->next;
	if (*list)
		*list = reader->next;
}

static void on_gone(void *context)
{
	struct reader *reader = context;
	take_off(&reader->page->waiting, reader);
	take_off(&reader->page->printing, reader);
	let_go(reader->text);
	free(reader);
}

static void on_drained(void *context)
{
	struct reader *reader = context;
	struct text *text = reader->text;
	while (text && reader->sent < text->size) {
		size_t rest = text->size - reader->sent, size = rest < PIECE ? rest : PIECE;
		size_t unsent = md_http_answer_write(reader->exchange, text->bytes + reader->sent, size);
		reader->sent += size;
		if (unsent > UNSENT_MAX)
			return;
	}
	if (!text)
		return;
	struct md_http_exchange *exchange = reader->exchange;
	let_go(text);
	free(reader);
	md_http_answer_end(exchange);
}

static void begin_answer(struct reader *reader, struct text *text)
{
	reader->text = text;
	text->readers++;
	md_http_answer_begin(reader->exchange, 200, (int64_t)text->size);
	md_http_answer_header(reader->exchange, "Content-Type", MD_METRICS_TEXT_TYPE);
	md_http_answer_body(reader->exchange);
	on_drained(reader);
}

/* Each of the list is told that there is no text. */
static void refuse(struct reader **list)
{
	for (struct reader *reader; (reader = *list);) {
		struct md_http_exchange *exchange = reader->exchange;
		*list = reader->next;
		free(reader);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the metrics");
	}
}

/* ---- the text ---- */

static void print(void *context)
{
	struct md_metrics_page *page = context;
	FILE *out = open_memstream(&page->printed, &page->printed_size);
	if (!out)
		return;
	md_metrics_models_print(page->models, out);
	fwrite(page->node, 1, page->node_size, out);
	bool failed = ferror(out) != 0;
	if (!fclose(out) && !failed)
		return;
	free(page->printed);
	page->printed = NULL;
}

static void forget(struct md_metrics_page *page)
{
	md_metrics_models_free(page->models);
	free(page->node);
	free(page->printed);
	page->models = NULL;
	page->node = page->printed = NULL;
}

static bool copy(struct md_metrics_page *page)
{
	FILE *out = open_memstream(&page->node, &page->node_size);
	if (out)
		md_metrics_node_print(page->worker, out);
	bool failed = out && ferror(out);
	if (!out || fclose(out) || failed || !page->node)
		return false;
	page->models = md_metrics_models_copy(page->worker);
	return page->models != NULL;
}

static void on_printed(void *context);

/* An answer that ends may bring the next request on its connection before the call returns: `busy` keeps that from beginning here. */
static void begin_text(struct md_metrics_page *page)
{
	struct md_error err = {0};
	struct md_loop_thread *thread;
	if (page->busy || !page->waiting)
		return;
	page->busy = true;
	if (copy(page) && md_loop_thread_start(page->worker->base, print, on_printed, page, &thread, &err) == MD_OK) {
		page->thread = thread;
		page->printing = page->waiting;
		page->waiting = NULL;
		return;
	}
	forget(page);
	refuse(&page->waiting);
	page->busy = false;
}

static void on_printed(void *context)
{
	struct md_metrics_page *page = context;
	struct text *text = page->printed ? calloc(1, sizeof(*text)) : NULL;
	page->thread = NULL;
	if (text) {
		*text = (struct text){.bytes = page->printed, .size = page->printed_size, .readers = 1};
		page->printed = NULL;
	}
	forget(page);
	for (struct reader *reader; text && (reader = page->printing);) {
		page->printing = reader->next;
		begin_answer(reader, text);
	}
	refuse(&page->printing);
	let_go(text);
	page->busy = false;
	begin_text(page);
}

void md_metrics_page_answer(struct md_metrics_page *page, struct md_http_exchange *exchange)
{
	static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};
	struct reader *reader = malloc(sizeof(*reader));
	if (!reader) {
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the metrics");
		return;
	}
	*reader = (struct reader){.next = page->waiting, .page = page, .exchange = exchange};
	page->waiting = reader;
	md_http_exchange_watch(exchange, &watching, reader);
	begin_text(page);
}

/* ---- beginning and end ---- */

struct md_metrics_page *md_metrics_page_create(struct md_worker *worker)
{
	struct md_metrics_page *made = calloc(1, sizeof(*made));
	if (made)
		made->worker = worker;
	return made;
}

void md_metrics_page_destroy(struct md_metrics_page *page)
{
	if (!page)
		return;
	md_loop_thread_destroy(page->thread);
	forget(page);
	free(page);
}
