/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what a node answers when it is asked for its bill, taken once more as the answer of another node. All of an answer is added, or nothing; a refusal
 * says why; sums are in order, each once, and those of two nodes are twice those of one.
 */
#include <string.h>

#include "json/tree_text.h"
#include "tests/fuzz/fuzz.h"
#include "tools/worker_bill_read.h"

#define NODE "a"
#define SINCE 1700000045

bool fuzz_accepted;

static const char *const names[MD_USAGE_KINDS] = MD_USAGE_NAMES;

static void check_refusal(enum md_status status, const struct md_error *err)
{
	json_t *told = md_jansson_text(err->message); /* a name in it may be cut within a character */
	FUZZ_REQUIRE(status == MD_ERR_CORRUPT && err->status == status, "refused with status %d", status);
	FUZZ_REQUIRE(told && *err->message, "the reason is no text: \"%s\"", err->message);
	json_decref(told);
}

/* Of the sums, in their order. */
struct seen {
	json_t *rows;
};

static bool see(void *context, const json_t *row)
{
	struct seen *seen = context;
	return !json_array_append_new(seen->rows, json_deep_copy(row));
}

static json_t *list_rows(struct md_bill_sums *sums)
{
	struct seen seen = {json_array()};
	struct md_error err = {0};
	FUZZ_REQUIRE(md_bill_sums_visit(sums, see, &seen, &err) == MD_OK, "%s", err.message);
	return seen.rows;
}

static const char *text_of(const json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));
	FUZZ_REQUIRE(text, "a row without its %s", key);
	return text;
}

static void check_rows(const json_t *rows, uint64_t count)
{
	size_t i;
	const json_t *row, *before = NULL;
	FUZZ_REQUIRE(json_array_size(rows) == count, "%zu rows of %llu", json_array_size(rows),
		     (unsigned long long)count);
	json_array_foreach(rows, i, row)
	{
		int order = before ? strcmp(text_of(before, "model"), text_of(row, "model")) : -1;
		FUZZ_REQUIRE(order < 0 || (!order && strcmp(text_of(before, "key"), text_of(row, "key")) < 0),
			     "row %zu is out of order", i);
		for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
			FUZZ_REQUIRE(json_integer_value(json_object_get(row, names[kind])) >= 0, "%s", names[kind]);
		before = row;
	}
}

/* The answer of a second node that has used as much. */
static void check_twice(const json_t *once, const json_t *twice)
{
	size_t i;
	const json_t *row;
	FUZZ_REQUIRE(json_array_size(once) == json_array_size(twice), "%zu rows", json_array_size(twice));
	json_array_foreach(once, i, row) for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
	    FUZZ_REQUIRE(json_integer_value(json_object_get(json_array_get(twice, i), names[kind])) ==
			     2 * json_integer_value(json_object_get(row, names[kind])),
			 "row %zu is not twice as much", i);
}

static json_int_t find_greatest(const json_t *rows)
{
	size_t i;
	const json_t *row;
	json_int_t greatest = 0;
	json_array_foreach(rows, i, row) for (int kind = 0; kind < MD_USAGE_KINDS; kind++)
	{
		json_int_t number = json_integer_value(json_object_get(row, names[kind]));
		greatest = number > greatest ? number : greatest;
	}
	return greatest;
}

/* The text is changed where it is read: each time, a copy that ends where nobody may read. */
static enum md_status add(struct md_bill_sums *sums, const uint8_t *data, size_t size, struct md_bill_said *said,
			  struct md_error *err)
{
	char *text = malloc(size ? size : 1);
	FUZZ_REQUIRE(text, "memory");
	if (size)
		memcpy(text, data, size);
	enum md_status status = md_bill_read_head(text, size, NODE, SINCE, said, err);
	if (status == MD_OK)
		status = md_bill_sums_add(sums, text, size, NODE, said, err);
	free(text);
	return status;
}

/* So many nodes that no sum holds them: the answer that is one too many adds nothing. */
static void check_too_much(struct md_bill_sums *sums, const uint8_t *data, size_t size)
{
	enum md_status status = MD_OK;
	struct md_bill_said said;
	struct md_error err = {0};
	for (unsigned i = 0; i < 12 && status == MD_OK; i++) {
		json_t *before = list_rows(sums);
		status = add(sums, data, size, &said, &err);
		json_t *after = list_rows(sums);
		if (status != MD_OK) {
			check_refusal(status, &err);
			FUZZ_REQUIRE(json_equal(before, after), "refused, and a part was added");
		}
		json_decref(before);
		json_decref(after);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_bill_sums *sums;
	struct md_bill_said said = {.rows = 0}, again = {.rows = 0};
	struct md_error err = {0};
	FUZZ_REQUIRE(md_bill_sums_create(false, &sums, &err) == MD_OK, "%s", err.message);
	enum md_status status = add(sums, data, size, &said, &err);
	fuzz_accepted = status == MD_OK;
	json_t *once = list_rows(sums);
	check_rows(once, fuzz_accepted ? said.rows : 0);
	if (fuzz_accepted) {
		FUZZ_REQUIRE(add(sums, data, size, &again, &err) == MD_OK && again.rows == said.rows &&
				 again.lost == said.lost && again.now == said.now,
			     "the same is refused: %s", err.message);
		json_t *twice = list_rows(sums);
		check_twice(once, twice);
		if (find_greatest(once) > INT64_MAX / 12)
			check_too_much(sums, data, size);
		json_decref(twice);
	} else {
		check_refusal(status, &err);
	}
	json_decref(once);
	md_bill_sums_destroy(sums);
	return 0;
}
