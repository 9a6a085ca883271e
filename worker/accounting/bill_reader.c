/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/bill_reader.h"

#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "json/tree_text.h"

#define PIECE (64u << 10)
#define PATIENCE_MS 2000

struct md_bill_reader {
	struct md_ledger *ledger;
	char node[72], identity[40];
	int64_t since;
	const struct md_bill_reader_events *events;
	void *context;
	bool working, left; /* left: nobody wants the rest */
	/* of the ledger's thread while it works */
	sqlite3 *db;
	sqlite3_stmt *rows;
	struct md_buf text;
	uint64_t count;
	bool last;
};

static const char summing[] =
    "SELECT model, key, sum(requests), sum(untold), sum(prompt_tokens), sum(completion_tokens), sum(gpu_ns), "
    "sum(answer_bytes), sum(loads), sum(loaded_bytes) FROM usage WHERE minute >= ?1 GROUP BY model, key "
    "ORDER BY model, key";

/* ---- on the thread ---- */

static enum md_status fail(sqlite3 *db, const char *path, struct md_error *err)
{
	return md_error_set(err, MD_ERR_CORRUPT, "%.200s: %.200s", path,
			    db ? sqlite3_errmsg(db) : "out of memory for a ledger");
}

/* A file with a write-ahead log writes its index, so that read-only would not do. */
static enum md_status open_ledger(const char *path, sqlite3 **db, struct md_error *err)
{
	if (!sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE, NULL) && !sqlite3_busy_timeout(*db, PATIENCE_MS))
		return MD_OK;
	return fail(*db, path, err);
}

static enum md_status read_identity(sqlite3 *db, const char *path, char ledger[MD_BILL_ID_BYTES], struct md_error *err)
{
	sqlite3_stmt *asked = NULL;
	enum md_status status = MD_OK;
	const char *found = NULL;
	if (!sqlite3_prepare_v2(db, "SELECT identity FROM ledger", -1, &asked, NULL) &&
	    sqlite3_step(asked) == SQLITE_ROW)
		found = (const char *)sqlite3_column_text(asked, 0);
	if (!found)
		status = fail(db, path, err);
	else if (strlen(found) != MD_BILL_ID_BYTES - 1 || strspn(found, "0123456789abcdef") != MD_BILL_ID_BYTES - 1)
		status =
		    md_error_set(err, MD_ERR_CORRUPT, "%.200s: the identity of the ledger is not %u hexadecimal digits",
				 path, MD_BILL_ID_BYTES - 1);
	else
		snprintf(ledger, MD_BILL_ID_BYTES, "%s", found);
	sqlite3_finalize(asked);
	return status;
}

enum md_status md_bill_read_ledger(const char *path, char ledger[MD_BILL_ID_BYTES], struct md_error *err)
{
	sqlite3 *db = NULL;
	enum md_status status = open_ledger(path, &db, err);
	if (status == MD_OK)
		status = read_identity(db, path, ledger, err);
	sqlite3_close(db);
	return status;
}

/* Takes over the reference. */
static enum md_status put_line(struct md_bill_reader *reader, json_t *line, struct md_error *err)
{
	MD_AUTO_FREE char *text = line ? md_jansson_print(line, JSON_COMPACT) : NULL;
	json_decref(line);
	if (text) {
		md_buf_put(&reader->text, text, strlen(text));
		md_buf_put(&reader->text, "\n", 1);
	}
	return text && !reader->text.failed ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
}

static enum md_status begin(struct md_bill_reader *reader, const char *path, struct md_error *err)
{
	char ledger[MD_BILL_ID_BYTES];
	MD_FORWARD(open_ledger(path, &reader->db, err));
	MD_FORWARD(read_identity(reader->db, path, ledger, err));
	if (sqlite3_prepare_v2(reader->db, summing, -1, &reader->rows, NULL) ||
	    sqlite3_bind_int64(reader->rows, 1, reader->since))
		return fail(reader->db, path, err);
	return put_line(reader,
			json_pack("{s:i, s:s, s:s, s:s, s:I, s:I}", "format", MD_BILL_FORMAT, "node", reader->node,
				  "identity", reader->identity, "ledger", ledger, "since", (json_int_t)reader->since,
				  "now", (json_int_t)time(NULL)),
			err);
}

static json_t *row_of(sqlite3_stmt *rows)
{
	json_t *row =
	    json_pack("[s, s]", (const char *)sqlite3_column_text(rows, 0), (const char *)sqlite3_column_text(rows, 1));
	for (int kind = 0; row && kind < MD_USAGE_KINDS; kind++)
		json_array_append_new(row, json_integer(sqlite3_column_int64(rows, 2 + kind)));
	return row;
}

/* Of a file that has many minutes, the first row takes long: SQLite adds up before, and keeps what it has sorted where it has room. */
static enum md_status go_on(struct md_bill_reader *reader, const char *path, struct md_error *err)
{
	int code = SQLITE_ROW;
	while (reader->text.size < PIECE && (code = sqlite3_step(reader->rows)) == SQLITE_ROW) {
		MD_FORWARD(put_line(reader, row_of(reader->rows), err));
		reader->count++;
	}
	if (code == SQLITE_ROW)
		return MD_OK;
	if (code != SQLITE_DONE)
		return fail(reader->db, path, err);
	reader->last = true;
	return put_line(reader,
			json_pack("{s:I, s:I}", "rows", (json_int_t)reader->count, "lost",
				  (json_int_t)md_ledger_lost(reader->ledger)),
			err);
}

static void work(void *context, const char *path, struct md_error *err)
{
	struct md_bill_reader *reader = context;
	md_buf_clear(&reader->text);
	if (reader->db)
		go_on(reader, path, err);
	else
		begin(reader, path, err);
}

/* ---- in the loop ---- */

static void free_reader(struct md_bill_reader *reader)
{
	sqlite3_finalize(reader->rows);
	sqlite3_close(reader->db);
	md_buf_finish(&reader->text);
	free(reader);
}

static void on_worked(void *context, char *none, const struct md_error *err)
{
	struct md_bill_reader *reader = context;
	const struct md_bill_reader_events *events = reader->events;
	void *user = reader->context;
	(void)none;
	reader->working = false;
	if (reader->left) {
		free_reader(reader);
	} else if (err->status != MD_OK) {
		free_reader(reader);
		events->failed(user, err);
	} else if (reader->last) {
		struct md_buf text = reader->text;
		reader->text = (struct md_buf){0};
		free_reader(reader);
		events->piece(user, (const char *)text.data, text.size, true);
		md_buf_finish(&text);
	} else {
		events->piece(user, (const char *)reader->text.data, reader->text.size, false);
	}
}

/* False: out of memory. */
static bool ask(struct md_bill_reader *reader)
{
	reader->working = md_ledger_work(reader->ledger, work, on_worked, reader);
	return reader->working;
}

struct md_bill_reader *md_bill_reader_begin(struct md_ledger *ledger, const char *node, const char *identity,
					    int64_t since, const struct md_bill_reader_events *events, void *context)
{
	struct md_bill_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		return NULL;
	*reader = (struct md_bill_reader){
	    .ledger = ledger, .since = since - since % 60, .events = events, .context = context};
	snprintf(reader->node, sizeof(reader->node), "%s", node);
	snprintf(reader->identity, sizeof(reader->identity), "%s", identity);
	if (ask(reader))
		return reader;
	free_reader(reader);
	return NULL;
}

void md_bill_reader_more(struct md_bill_reader *reader)
{
	struct md_error err = {0};
	if (ask(reader))
		return;
	const struct md_bill_reader_events *events = reader->events;
	void *context = reader->context;
	free_reader(reader);
	md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for the bill");
	events->failed(context, &err);
}

void md_bill_reader_end(struct md_bill_reader *reader)
{
	if (!reader)
		return;
	reader->left = true;
	if (!reader->working)
		free_reader(reader);
}
