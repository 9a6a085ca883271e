/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /medusa/content/HASH and /medusa/content/HASH/manifest, for other nodes: pieces are read on a thread, and the next one when
 * what was written has been sent.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/front.h"
#include "worker/cluster/content_source.h"
#include "worker/cluster/contents_parts.h"
#include "worker/core/reply.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define PIECE (1u << 20)
#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow reader: the rest waits until they are sent */
#define READERS_MAX 64u

struct md_contents_reader {
	struct md_contents *contents;
	struct md_contents_reader *next, **at;
	struct md_http_exchange *exchange; /* NULL: the client is gone */
	struct md_content *content;
	bool manifest, head_sent, ranged;
	uint64_t first, offset, end; /* bytes of the content, or of the manifest */
	char *piece;
	size_t size; /* of it */
	struct md_loop_thread *thread;
	struct md_error err;
};

static void free_reader(struct md_contents_reader *reader)
{
	*reader->at = reader->next;
	if (reader->next)
		reader->next->at = reader->at;
	reader->contents->reader_count--;
	md_content_let_go(reader->content);
	free(reader->piece);
	free(reader);
}

static void begin_answer(struct md_contents_reader *reader)
{
	struct md_http_exchange *exchange = reader->exchange;
	uint64_t whole = reader->manifest ? reader->content->manifest.size : reader->content->tree.bytes;
	char text[96];
	reader->head_sent = true;
	md_http_answer_begin(exchange, reader->ranged ? 206 : 200, (int64_t)(reader->end - reader->first));
	md_http_answer_header(exchange, "Content-Type",
			      reader->manifest ? "application/json" : "application/octet-stream");
	md_http_answer_header(exchange, "Accept-Ranges", "bytes");
	snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, reader->first, reader->end - 1, whole);
	if (reader->ranged)
		md_http_answer_header(exchange, "Content-Range", text);
	md_http_answer_body(exchange);
}

static void end_answer(struct md_contents_reader *reader)
{
	struct md_http_exchange *exchange = reader->exchange;
	free_reader(reader);
	md_http_answer_end(exchange);
}

/* A file that was changed since it was hashed: what is left of the answer would be wrong. */
static void fail(struct md_contents_reader *reader)
{
	struct md_http_exchange *exchange = reader->exchange;
	bool begun = reader->head_sent;
	char why[sizeof(reader->err.message)];
	snprintf(why, sizeof(why), "%s", reader->err.message);
	md_contents_doubt(reader->contents, reader->content, why);
	free_reader(reader);
	if (begun)
		md_http_answer_abort(exchange);
	else
		md_reply_error(exchange, MD_REPLY_CONFLICT, "content_changed", "%s", why);
}

static void read_piece(void *context)
{
	struct md_contents_reader *reader = context;
	md_content_tree_read(&reader->content->tree, reader->offset, reader->piece, reader->size, &reader->err);
}

static void go_on(struct md_contents_reader *reader);

static void on_read(void *context)
{
	struct md_contents_reader *reader = context;
	reader->thread = NULL;
	if (!reader->exchange) {
		free_reader(reader);
		return;
	}
	if (reader->err.status != MD_OK) {
		fail(reader);
		return;
	}
	if (!reader->head_sent)
		begin_answer(reader);
	size_t unsent = md_http_answer_write(reader->exchange, reader->piece, reader->size);
	reader->offset += reader->size;
	reader->contents->counts.served += reader->size;
	if (reader->offset == reader->end)
		end_answer(reader);
	else if (unsent <= UNSENT_MAX)
		go_on(reader);
}

static void begin_read(struct md_contents_reader *reader)
{
	uint64_t rest = reader->end - reader->offset;
	reader->size = rest < PIECE ? (size_t)rest : PIECE;
	if (!reader->piece)
		reader->piece = malloc(PIECE);
	if (!reader->piece)
		md_error_set(&reader->err, MD_ERR_NO_MEMORY, "out of memory for a piece of a content");
	else if (md_loop_thread_start(reader->contents->worker->base, read_piece, on_read, reader, &reader->thread,
				      &reader->err) == MD_OK)
		return;
	struct md_http_exchange *exchange = reader->exchange;
	bool begun = reader->head_sent;
	free_reader(reader);
	if (begun)
		md_http_answer_abort(exchange);
	else
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for a content");
}

static void go_on(struct md_contents_reader *reader)
{
	if (!reader->manifest) {
		begin_read(reader);
		return;
	}
	if (!reader->head_sent)
		begin_answer(reader);
	while (reader->offset < reader->end) {
		uint64_t rest = reader->end - reader->offset;
		size_t size = rest < PIECE ? (size_t)rest : PIECE;
		size_t unsent =
		    md_http_answer_write(reader->exchange, reader->content->manifest.data + reader->offset, size);
		reader->offset += size;
		if (unsent > UNSENT_MAX && reader->offset < reader->end)
			return;
	}
	end_answer(reader);
}

static void on_gone(void *context)
{
	struct md_contents_reader *reader = context;
	reader->exchange = NULL;
	if (!reader->thread)
		free_reader(reader);
}

static void on_drained(void *context)
{
	struct md_contents_reader *reader = context;
	if (!reader->thread && reader->head_sent)
		go_on(reader);
}

static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};

/* ---- the question ---- */

static bool read_number(const char **at, uint64_t *number)
{
	char *end;
	if (**at < '0' || **at > '9' || strlen(*at) > 40)
		return false;
	*number = strtoull(*at, &end, 10);
	*at = end;
	return *number <= MD_CONTENT_BYTES_MAX;
}

/* "bytes=FIRST-" or "bytes=FIRST-LAST". False: it is another one, or outside of what there is. */
static bool read_range(const char *text, struct md_contents_reader *reader)
{
	uint64_t whole = reader->end, last = whole - 1;
	if (strncmp(text, "bytes=", 6) != 0)
		return false;
	text += 6;
	if (!read_number(&text, &reader->first) || *text++ != '-')
		return false;
	if (*text && (!read_number(&text, &last) || *text))
		return false;
	if (reader->first >= whole || last < reader->first)
		return false;
	reader->end = (last < whole ? last : whole - 1) + 1;
	reader->offset = reader->first;
	return reader->ranged = true;
}

static void serve(struct md_contents *contents, struct md_http_exchange *exchange, struct md_content *content,
		  bool manifest)
{
	const struct md_http_head *head = md_http_exchange_head(exchange);
	const char *range = md_http_head_find(head, "Range");
	struct md_contents_reader *reader = contents->reader_count < READERS_MAX ? calloc(1, sizeof(*reader)) : NULL;
	if (!reader) {
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL,
			       "this node answers %u questions for contents already", contents->reader_count);
		return;
	}
	*reader = (struct md_contents_reader){.contents = contents,
					      .next = contents->readers,
					      .at = &contents->readers,
					      .exchange = exchange,
					      .content = content,
					      .manifest = manifest,
					      .end = manifest ? content->manifest.size : content->tree.bytes};
	if (reader->next)
		reader->next->at = &reader->next;
	contents->readers = reader;
	contents->reader_count++;
	content->holders++;
	if (range && !read_range(range, reader)) {
		free_reader(reader);
		md_reply_refused(exchange, 416, "Range: bytes=FIRST-LAST is wanted, within the content");
		return;
	}
	md_http_exchange_watch(exchange, &watching, reader);
	if (!strcmp(head->method, "HEAD") || reader->first == reader->end) {
		begin_answer(reader);
		end_answer(reader);
	} else {
		go_on(reader);
	}
}

/* Who is not proved to be a node learns nothing, not even what there is. */
bool md_contents_answer(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const struct md_http_head *head = md_http_exchange_head(exchange);
	struct md_contents *contents = worker->contents;
	char hash[MD_CONTENT_HASH_TEXT];
	size_t prefix = strlen(MD_CONTENT_PATH);
	if (strncmp(path, MD_CONTENT_PATH, prefix) != 0 || !contents ||
	    (strcmp(head->method, "GET") != 0 && strcmp(head->method, "HEAD") != 0))
		return false;
	if (!md_cluster_vouches(worker->cluster, head)) {
		contents->counts.refused++;
		md_reply_error(
		    exchange, MD_REPLY_FORBIDDEN, NULL,
		    "contents are for nodes that prove that they are of the cluster (medusa.cluster.tls or key_file)");
		return true;
	}
	snprintf(hash, sizeof(hash), "%s", path + prefix);
	const char *rest = path + prefix + strlen(hash);
	struct md_content *content = md_content_is_hash(hash) ? md_contents_whole(contents, hash) : NULL;
	if (!content || (*rest && strcmp(rest, "/manifest") != 0))
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "content_not_found", "this node has no content %.80s",
			       path + prefix);
	else
		serve(contents, exchange, content, *rest != '\0');
	return true;
}

/* Clients are gone; threads have a piece to read at most. */
void md_contents_serve_end(struct md_contents *contents)
{
	while (contents->readers) {
		md_loop_thread_destroy(contents->readers->thread);
		free_reader(contents->readers);
	}
}
