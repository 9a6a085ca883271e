/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/ledger_file.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

#define VERSION "1" /* user_version of the file */
#define PATIENCE_MS 2000

struct md_ledger_file {
	sqlite3 *db;
	sqlite3_stmt *add, *sum;
};

static const char *const names[MD_USAGE_KINDS] = MD_USAGE_NAMES;

static const char making[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "CREATE TABLE IF NOT EXISTS usage (minute INTEGER NOT NULL, model TEXT NOT NULL, key TEXT "
    "NOT NULL, requests INTEGER NOT NULL, untold INTEGER NOT NULL, prompt_tokens INTEGER NOT "
    "NULL, completion_tokens INTEGER NOT NULL, gpu_ns INTEGER NOT NULL, answer_bytes INTEGER NOT "
    "NULL, loads INTEGER NOT NULL, loaded_bytes INTEGER NOT NULL, PRIMARY KEY (minute, model, "
    "key)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS ledger (identity TEXT NOT NULL);"
    "INSERT INTO ledger SELECT lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT * FROM ledger);"
    "PRAGMA user_version=" VERSION;

static const char adding[] =
    "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO UPDATE SET "
    "requests = requests + excluded.requests, untold = untold + excluded.untold, "
    "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
    "completion_tokens = completion_tokens + excluded.completion_tokens, gpu_ns = gpu_ns + excluded.gpu_ns, "
    "answer_bytes = answer_bytes + excluded.answer_bytes, loads = loads + excluded.loads, "
    "loaded_bytes = loaded_bytes + excluded.loaded_bytes";

static const char summing[] =
    "SELECT model, key, sum(requests), sum(untold), sum(prompt_tokens), sum(completion_tokens), sum(gpu_ns), "
    "sum(answer_bytes), sum(loads), sum(loaded_bytes) FROM usage WHERE minute >= ?1 GROUP BY model, key "
    "ORDER BY model, key";

static enum md_status fail(const struct md_ledger_file *file, const char *what, struct md_error *err)
{
	int code = file->db ? sqlite3_errcode(file->db) : SQLITE_NOMEM;
	bool bad = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR;
	return md_error_set(err, bad ? MD_ERR_CORRUPT : MD_ERR_OUTPUT, "%s: %s", what,
			    file->db ? sqlite3_errmsg(file->db) : "out of memory for a ledger");
}

void md_ledger_file_close(struct md_ledger_file *file)
{
	if (!file)
		return;
	sqlite3_finalize(file->add);
	sqlite3_finalize(file->sum);
	sqlite3_close(file->db);
	free(file);
}

static bool check_version(sqlite3 *db)
{
	sqlite3_stmt *asked = NULL;
	bool good = !sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &asked, NULL) &&
		    sqlite3_step(asked) == SQLITE_ROW && sqlite3_column_int(asked, 0) <= atoi(VERSION);
	sqlite3_finalize(asked);
	return good;
}

enum md_status md_ledger_file_open(const char *path, struct md_ledger_file **file, struct md_error *err)
{
	struct md_ledger_file *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the ledger %.200s", path);
	struct md_error none;
	int fd = -1;
	if (md_file_create(path, 0600, &fd, &none) == MD_OK) /* else it is there, or SQLite says why not */
		close(fd);
	bool opened = !sqlite3_open_v2(path, &made->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) &&
		      !sqlite3_busy_timeout(made->db, PATIENCE_MS) && check_version(made->db) &&
		      !sqlite3_exec(made->db, making, NULL, NULL, NULL) &&
		      !sqlite3_exec(made->db, md_ledger_requests_making, NULL, NULL, NULL) &&
		      !sqlite3_prepare_v2(made->db, adding, -1, &made->add, NULL) &&
		      !sqlite3_prepare_v2(made->db, summing, -1, &made->sum, NULL);
	if (opened) {
		*file = made;
		return MD_OK;
	}
	enum md_status status = fail(made, path, err);
	md_ledger_file_close(made);
	return status;
}

bool md_ledger_file_has_moved(const struct md_ledger_file *file)
{
	int moved = 0;
	return sqlite3_file_control(file->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || moved;
}

static bool add_row(struct md_ledger_file *file, const struct md_ledger_row *row)
{
	sqlite3_stmt *add = file->add;
	sqlite3_bind_int64(add, 1, row->minute);
	sqlite3_bind_text(add, 2, row->model, -1, SQLITE_STATIC);
	sqlite3_bind_text(add, 3, row->key, -1, SQLITE_STATIC);
	for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
		sqlite3_bind_int64(add, 4 + kind, (sqlite3_int64)row->usage.of[kind]);
	bool done = sqlite3_step(add) == SQLITE_DONE;
	return sqlite3_reset(add) == SQLITE_OK && done;
}

enum md_status md_ledger_file_add(struct md_ledger_file *file, const struct md_ledger_rows *rows, int64_t keep_from_us,
				  struct md_error *err)
{
	bool good = !sqlite3_exec(file->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	for (size_t i = 0; good && i < rows->count; i++)
		good = add_row(file, &rows->items[i]);
	good = good && md_ledger_requests_add(file->db, rows->requests, rows->request_count, keep_from_us);
	if (good && !sqlite3_exec(file->db, "COMMIT", NULL, NULL, NULL))
		return MD_OK;
	enum md_status status = fail(file, "writing", err);
	sqlite3_exec(file->db, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

/* NULL: out of memory. */
static json_t *row_of(sqlite3_stmt *sum)
{
	json_t *row = json_pack("{s:s, s:s}", "model", (const char *)sqlite3_column_text(sum, 0), "key",
				(const char *)sqlite3_column_text(sum, 1));
	for (int kind = 0; row && kind < MD_USAGE_KINDS; kind++)
		if (json_object_set_new(row, names[kind], json_integer(sqlite3_column_int64(sum, 2 + kind)))) {
			json_decref(row);
			return NULL;
		}
	return row;
}

enum md_status md_ledger_file_sum(struct md_ledger_file *file, int64_t since, json_t **sums, struct md_error *err)
{
	sqlite3_stmt *sum = file->sum;
	json_t *list = json_array();
	int code, lost = 0;
	sqlite3_bind_int64(sum, 1, since - since % 60);
	while ((code = sqlite3_step(sum)) == SQLITE_ROW && !lost)
		lost = json_array_append_new(list, row_of(sum));
	enum md_status status = lost ? md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill")
				: code == SQLITE_DONE ? MD_OK
						      : fail(file, "reading", err);
	sqlite3_reset(sum);
	if (status == MD_OK)
		*sums = list;
	else
		json_decref(list);
	return status;
}
