/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/worker_bill_read.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/tree_text.h"

#define MODEL_MAX 4096u                         /* bytes of a model's ID */
#define NUMBER_MAX INT64_C(1000000000000000000) /* of a row; a larger one is none */

struct md_bill_sums {
	bool by_node;
	sqlite3 *db;
	sqlite3_stmt *add, *list;
};

static const char *const names[MD_USAGE_KINDS] = MD_USAGE_NAMES;

/* A sum beyond 2^63 would become a real number, which is no sum: the CHECK refuses it. */
static const char making[] =
    "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;"
    "CREATE TABLE sums (node TEXT NOT NULL, model TEXT NOT NULL, key TEXT NOT NULL, requests INTEGER NOT NULL, "
    "untold INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, gpu_ns INTEGER NOT "
    "NULL, answer_bytes INTEGER NOT NULL, loads INTEGER NOT NULL, loaded_bytes INTEGER NOT NULL, "
    "PRIMARY KEY (node, model, key), CHECK (typeof(requests) = 'integer' AND typeof(untold) = 'integer' AND "
    "typeof(prompt_tokens) = 'integer' AND typeof(completion_tokens) = 'integer' AND typeof(gpu_ns) = 'integer' AND "
    "typeof(answer_bytes) = 'integer' AND typeof(loads) = 'integer' AND typeof(loaded_bytes) = 'integer')) "
    "WITHOUT ROWID;";

static const char adding[] =
    "INSERT INTO sums VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (node, model, key) DO UPDATE "
    "SET "
    "requests = requests + excluded.requests, untold = untold + excluded.untold, "
    "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
    "completion_tokens = completion_tokens + excluded.completion_tokens, gpu_ns = gpu_ns + excluded.gpu_ns, "
    "answer_bytes = answer_bytes + excluded.answer_bytes, loads = loads + excluded.loads, "
    "loaded_bytes = loaded_bytes + excluded.loaded_bytes";

static enum md_status fail(struct md_bill_sums *sums, struct md_error *err)
{
	return md_error_set(err, MD_ERR_IO, "adding up: %.200s",
			    sums->db ? sqlite3_errmsg(sums->db) : "out of memory for the sums");
}

enum md_status md_bill_sums_create(bool by_node, struct md_bill_sums **made, struct md_error *err)
{
	struct md_bill_sums *sums = calloc(1, sizeof(*sums));
	if (!sums)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
	sums->by_node = by_node;
	if (!sqlite3_open("", &sums->db) && !sqlite3_exec(sums->db, making, NULL, NULL, NULL) &&
	    !sqlite3_prepare_v2(sums->db, adding, -1, &sums->add, NULL) &&
	    !sqlite3_prepare_v2(sums->db, "SELECT * FROM sums ORDER BY node, model, key", -1, &sums->list, NULL)) {
		*made = sums;
		return MD_OK;
	}
	enum md_status status = fail(sums, err);
	md_bill_sums_destroy(sums);
	return status;
}

void md_bill_sums_destroy(struct md_bill_sums *sums)
{
	if (!sums)
		return;
	sqlite3_finalize(sums->add);
	sqlite3_finalize(sums->list);
	sqlite3_close(sums->db);
	free(sums);
}

/* ---- lines ---- */

/* The next line that is not empty, which is a JSON value; NULL: there is none, or it is none (err). */
static json_t *next_line(char **at, char *end, struct md_error *err)
{
	json_error_t error;
	while (*at < end && **at == '\n')
		++*at;
	if (*at == end)
		return NULL;
	char *begin = *at, *stop = memchr(begin, '\n', (size_t)(end - begin));
	*at = stop ? stop + 1 : end;
	json_t *line = stop ? md_jansson_parse(begin, (size_t)(stop - begin), JSON_REJECT_DUPLICATES, &error) : NULL;
	const char *said = json_string_value(json_object_get(line, "error"));
	if (!line)
		md_error_set(err, MD_ERR_CORRUPT, "it has said something that is no line of a bill: %.60s",
			     stop ? error.text : "its end is missing");
	else if (said)
		md_error_set(err, MD_ERR_CORRUPT, "%.200s", said);
	if (err->status == MD_OK)
		return line;
	json_decref(line);
	return NULL;
}

static bool is_id(const char *text)
{
	return text && strlen(text) == MD_BILL_ID_BYTES - 1 && strspn(text, "0123456789abcdef") == MD_BILL_ID_BYTES - 1;
}

/* False: it is not there, or no integer from 0 on. */
static bool take_number(const json_t *line, const char *key, uint64_t *number)
{
	const json_t *value = json_object_get(line, key);
	*number = (uint64_t)json_integer_value(value);
	return json_is_integer(value) && json_integer_value(value) >= 0;
}

static enum md_status check_head(const json_t *head, const char *node, int64_t since, struct md_bill_said *said,
				 struct md_error *err)
{
	const char *name = json_string_value(json_object_get(head, "node"));
	const char *identity = json_string_value(json_object_get(head, "identity"));
	const char *ledger = json_string_value(json_object_get(head, "ledger"));
	uint64_t format, begin, now;
	if (!take_number(head, "format", &format) || format != MD_BILL_FORMAT)
		return md_error_set(err, MD_ERR_CORRUPT, "its bill does not have format %d", MD_BILL_FORMAT);
	if (!name || strcmp(name, node) != 0)
		return md_error_set(err, MD_ERR_CORRUPT, "it says that it is node \"%.64s\"", name ? name : "");
	if (!is_id(identity) || !is_id(ledger) || !take_number(head, "since", &begin) ||
	    !take_number(head, "now", &now))
		return md_error_set(err, MD_ERR_CORRUPT,
				    "its bill does not begin with identity, ledger, since and now");
	if ((int64_t)begin != since - since % 60)
		return md_error_set(err, MD_ERR_CORRUPT, "its bill is of another time");
	*said = (struct md_bill_said){.now = (int64_t)now};
	memcpy(said->identity, identity, MD_BILL_ID_BYTES);
	memcpy(said->ledger, ledger, MD_BILL_ID_BYTES);
	return MD_OK;
}

enum md_status md_bill_read_head(char *text, size_t size, const char *node, int64_t since, struct md_bill_said *said,
				 struct md_error *err)
{
	struct md_error why = {0};
	json_t *head = next_line(&text, text + size, &why);
	enum md_status status = MD_OK;
	if (!head && why.status == MD_OK)
		md_error_set(&why, MD_ERR_CORRUPT, "it has said nothing");
	if (head)
		status = check_head(head, node, since, said, err);
	else
		status = md_error_set(err, why.status, "%s", why.message);
	json_decref(head);
	return status;
}

/* ---- rows ---- */

struct row {
	json_t *line;
	const char *model, *key;
	json_int_t numbers[MD_USAGE_KINDS];
};

static enum md_status check_row(struct row *row, const struct row *before, struct md_error *err)
{
	const json_t *line = row->line;
	row->model = json_string_value(json_array_get(line, 0));
	row->key = json_string_value(json_array_get(line, 1));
	if (json_array_size(line) != 2 + MD_USAGE_KINDS || !row->model || !*row->model || !row->key ||
	    strlen(row->model) > MODEL_MAX || strlen(row->key) >= MD_USAGE_KEY_BYTES)
		return md_error_set(err, MD_ERR_CORRUPT, "a row of its bill is not [MODEL, KEY, and %d numbers]",
				    MD_USAGE_KINDS);
	for (int kind = 0; kind < MD_USAGE_KINDS; kind++) {
		const json_t *number = json_array_get(line, (size_t)kind + 2);
		row->numbers[kind] = json_integer_value(number);
		if (!json_is_integer(number) || row->numbers[kind] < 0 || row->numbers[kind] > NUMBER_MAX)
			return md_error_set(err, MD_ERR_CORRUPT, "%s of model %.60s is no integer from 0 to 10^18",
					    names[kind], row->model);
	}
	if (row->numbers[MD_USAGE_UNTOLD] > row->numbers[MD_USAGE_REQUESTS])
		return md_error_set(err, MD_ERR_CORRUPT, "of model %.60s more requests are untold than there are",
				    row->model);
	int order = before->line ? strcmp(before->model, row->model) : -1;
	if (order > 0 || (!order && strcmp(before->key, row->key) >= 0))
		return md_error_set(err, MD_ERR_CORRUPT,
				    "the row of model %.60s and %.60s comes twice, or not in its order", row->model,
				    row->key);
	return MD_OK;
}

static enum md_status add_row(struct md_bill_sums *sums, const struct row *row, const char *node, struct md_error *err)
{
	sqlite3_stmt *add = sums->add;
	sqlite3_bind_text(add, 1, sums->by_node ? node : "", -1, SQLITE_STATIC);
	sqlite3_bind_text(add, 2, row->model, -1, SQLITE_STATIC);
	sqlite3_bind_text(add, 3, row->key, -1, SQLITE_STATIC);
	for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
		sqlite3_bind_int64(add, 4 + kind, row->numbers[kind]);
	sqlite3_step(add);
	int code = sqlite3_reset(add);
	if (code == SQLITE_CONSTRAINT)
		return md_error_set(
		    err, MD_ERR_CORRUPT,
		    "the numbers of model %.60s and %.60s are too large to be added to those of other nodes",
		    row->model, row->key);
	return code == SQLITE_OK ? MD_OK : fail(sums, err);
}

static enum md_status check_end(const json_t *line, const struct md_bill_said *said, uint64_t *lost,
				struct md_error *err)
{
	uint64_t rows;
	if (!take_number(line, "rows", &rows) || !take_number(line, "lost", lost))
		return md_error_set(err, MD_ERR_CORRUPT, "a line of its bill is neither a row nor its end");
	if (rows != said->rows)
		return md_error_set(err, MD_ERR_CORRUPT, "it says that its bill has %llu rows, and has sent %llu",
				    (unsigned long long)rows, (unsigned long long)said->rows);
	return MD_OK;
}

static enum md_status add_rows(struct md_bill_sums *sums, char *at, char *end, const char *node,
			       struct md_bill_said *said, struct md_error *err)
{
	struct row row = {0}, before = {0};
	struct md_error why = {0};
	enum md_status status = MD_OK;
	json_decref(next_line(&at, end, &why)); /* the head */
	bool ended = false;
	while (status == MD_OK && (row.line = next_line(&at, end, &why))) {
		if (ended)
			status = md_error_set(err, MD_ERR_CORRUPT, "it has said more than its bill");
		else if (json_is_array(row.line) && (status = check_row(&row, &before, err)) == MD_OK)
			status = add_row(sums, &row, node, err);
		else if (status == MD_OK && !json_is_array(row.line) &&
			 (status = check_end(row.line, said, &said->lost, err)) == MD_OK)
			ended = true;
		said->rows += !ended;
		json_decref(before.line);
		before = row;
	}
	json_decref(before.line);
	if (status == MD_OK && why.status != MD_OK)
		status = md_error_set(err, why.status, "%s", why.message);
	return status == MD_OK && !ended ? md_error_set(err, MD_ERR_CORRUPT, "the end of its bill is missing") : status;
}

enum md_status md_bill_sums_add(struct md_bill_sums *sums, char *text, size_t size, const char *node,
				struct md_bill_said *said, struct md_error *err)
{
	if (sqlite3_exec(sums->db, "BEGIN", NULL, NULL, NULL))
		return fail(sums, err);
	enum md_status status = add_rows(sums, text, text + size, node, said, err);
	if (status == MD_OK && sqlite3_exec(sums->db, "COMMIT", NULL, NULL, NULL))
		status = fail(sums, err);
	if (status != MD_OK)
		sqlite3_exec(sums->db, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

/* ---- the sums ---- */

/* NULL: out of memory. */
static json_t *describe(const struct md_bill_sums *sums)
{
	sqlite3_stmt *list = sums->list;
	json_t *row = json_object();
	if (sums->by_node)
		json_object_set_new(row, "node", json_string((const char *)sqlite3_column_text(list, 0)));
	json_object_set_new(row, "model", json_string((const char *)sqlite3_column_text(list, 1)));
	json_object_set_new(row, "key", json_string((const char *)sqlite3_column_text(list, 2)));
	for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
		json_object_set_new(row, names[kind], json_integer(sqlite3_column_int64(list, 3 + kind)));
	if (json_object_size(row) == 2u + sums->by_node + MD_USAGE_KINDS)
		return row;
	json_decref(row);
	return NULL;
}

enum md_status md_bill_sums_visit(struct md_bill_sums *sums, bool (*visit)(void *context, const json_t *row),
				  void *context, struct md_error *err)
{
	int code;
	bool good = true;
	while (good && (code = sqlite3_step(sums->list)) == SQLITE_ROW) {
		json_t *row = describe(sums);
		good = row && visit(context, row);
		json_decref(row);
	}
	sqlite3_reset(sums->list);
	if (!good)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
	return code == SQLITE_DONE ? MD_OK : fail(sums, err);
}
