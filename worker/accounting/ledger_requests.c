/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/ledger_requests.h"

#include <stdio.h>
#include <unistd.h>

#define PATIENCE_MS 2000

const char md_ledger_requests_making[] =
    "CREATE TABLE IF NOT EXISTS request (arrived_us INTEGER NOT NULL, model TEXT NOT NULL, tenant TEXT NOT NULL, "
    "outcome INTEGER NOT NULL, streamed INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER "
    "NOT NULL, waited_us INTEGER NOT NULL, first_us INTEGER NOT NULL, total_us INTEGER NOT NULL);"
    "CREATE INDEX IF NOT EXISTS request_arrived ON request (arrived_us);";

static const char adding[] = "INSERT INTO request VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
static const char removing[] = "DELETE FROM request WHERE arrived_us < ?1";
static const char reading[] = "SELECT arrived_us, model, tenant, outcome, streamed, prompt_tokens, completion_tokens, "
			      "waited_us, first_us, total_us "
			      "FROM request WHERE arrived_us >= ?1 ORDER BY arrived_us";

/* ---- writing ---- */

static bool add_request(sqlite3_stmt *add, const struct md_ledger_request *request)
{
	const int64_t values[] = {request->outcome,
				  request->streamed,
				  (int64_t)request->prompt_tokens,
				  (int64_t)request->completion_tokens,
				  (int64_t)request->waited_us,
				  (int64_t)request->first_us,
				  (int64_t)request->total_us};
	sqlite3_bind_int64(add, 1, request->arrived_us);
	sqlite3_bind_text(add, 2, request->model, -1, SQLITE_STATIC);
	sqlite3_bind_text(add, 3, request->tenant, -1, SQLITE_STATIC);
	for (int i = 0; i < (int)(sizeof(values) / sizeof(values[0])); i++)
		sqlite3_bind_int64(add, 4 + i, values[i]);
	bool done = sqlite3_step(add) == SQLITE_DONE;
	return sqlite3_reset(add) == SQLITE_OK && done;
}

static bool remove_old(sqlite3 *db, int64_t from_us)
{
	sqlite3_stmt *remove = NULL;
	bool done = !sqlite3_prepare_v2(db, removing, -1, &remove, NULL) && !sqlite3_bind_int64(remove, 1, from_us) &&
		    sqlite3_step(remove) == SQLITE_DONE;
	return sqlite3_finalize(remove) == SQLITE_OK && done;
}

bool md_ledger_requests_add(sqlite3 *db, const struct md_ledger_request *requests, size_t count, int64_t from_us)
{
	sqlite3_stmt *add = NULL;
	if (!count)
		return true;
	bool good = !sqlite3_prepare_v2(db, adding, -1, &add, NULL);
	for (size_t i = 0; good && i < count; i++)
		good = add_request(add, &requests[i]);
	return sqlite3_finalize(add) == SQLITE_OK && good && remove_old(db, from_us);
}

/* ---- reading ---- */

static void read_row(sqlite3_stmt *row, struct md_ledger_request *request)
{
	*request = (struct md_ledger_request){
	    .arrived_us = sqlite3_column_int64(row, 0),
	    .model = (char *)(uintptr_t)sqlite3_column_text(row, 1),
	    .outcome = (enum md_ledger_outcome)sqlite3_column_int(row, 3),
	    .streamed = sqlite3_column_int(row, 4) != 0,
	    .prompt_tokens = (uint64_t)sqlite3_column_int64(row, 5),
	    .completion_tokens = (uint64_t)sqlite3_column_int64(row, 6),
	    .waited_us = (uint64_t)sqlite3_column_int64(row, 7),
	    .first_us = (uint64_t)sqlite3_column_int64(row, 8),
	    .total_us = (uint64_t)sqlite3_column_int64(row, 9),
	};
	const unsigned char *tenant = sqlite3_column_text(row, 2);
	snprintf(request->tenant, sizeof(request->tenant), "%s", tenant ? (const char *)tenant : "");
}

enum md_status md_ledger_requests_read(const char *path, int64_t from_us,
				       bool (*visit)(void *context, const struct md_ledger_request *request),
				       void *context, struct md_error *err)
{
	struct md_ledger_request request;
	sqlite3_stmt *row = NULL;
	sqlite3 *db = NULL;
	enum md_status status = MD_OK;
	int code = SQLITE_DONE;
	if (access(path, F_OK))
		return md_error_set(err, MD_ERR_NOT_FOUND, "%.300s: there is no such file", path);
	/* a reader of a file with a write-ahead log writes its index, so read-only would not do */
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) || sqlite3_busy_timeout(db, PATIENCE_MS) ||
	    sqlite3_prepare_v2(db, reading, -1, &row, NULL) || sqlite3_bind_int64(row, 1, from_us))
		status = MD_ERR_CORRUPT;
	while (status == MD_OK && (code = sqlite3_step(row)) == SQLITE_ROW) {
		read_row(row, &request);
		if (!request.model)
			status = MD_ERR_NO_MEMORY;
		else if (!visit(context, &request))
			break;
	}
	if (status == MD_OK && code != SQLITE_DONE && code != SQLITE_ROW)
		status = MD_ERR_CORRUPT;
	if (status != MD_OK)
		md_error_set(err, status, "%.300s: %s", path, db ? sqlite3_errmsg(db) : "out of memory for a ledger");
	sqlite3_finalize(row);
	sqlite3_close(db);
	return status;
}
