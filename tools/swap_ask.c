/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one command to medusa-swap run, and prints the answer. Each command has a connection of its own. */
#include "tools/swap_ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/plain.h"
#include "swap/wire.h"
#include "tools/swap_place.h"

#define STATUS_MS 10000
#define REST_MS 700000 /* after the deadline: longer than medusa-swap run waits for engines */

/* ---- asking ---- */

static enum md_status put_question(const struct md_swap_question *question, int fd, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_swap", MD_SWAP_PROTOCOL);
	md_json_text(&letter.json, "role", "command");
	md_json_text(&letter.json, "do", question->verb);
	md_json_number(&letter.json, "deadline_ms", question->deadline_ms);
	md_json_bool(&letter.json, "verify", question->verify);
	md_json_bool(&letter.json, "overlap", question->overlap);
	return md_swap_letter_send(&letter, fd, -1, err);
}

static enum md_status converse(const struct md_swap_question *question, int fd, struct md_swap_message *answer,
			       struct md_error *err)
{
	struct md_swap_wire wire;
	bool quick = !strcmp(question->verb, "status");
	md_swap_wire_init(&wire, fd);
	enum md_status status = put_question(question, fd, err);
	if (status == MD_OK)
		status =
		    md_swap_wire_await(&wire, quick ? STATUS_MS : REST_MS + (int)question->deadline_ms, answer, err);
	md_swap_wire_finish(&wire);
	if (status == MD_ERR_TRUNCATED)
		return md_error_set(err, status, "%s: medusa-swap run ended before it answered", question->name);
	if (status != MD_OK)
		return md_error_prefix(err, "%s", question->name);
	uint64_t refused = md_swap_message_number(answer, "status");
	if (md_swap_message_number(answer, "ok"))
		return MD_OK;
	return md_error_set(err, refused && refused < 100 ? (enum md_status)refused : MD_ERR_CORRUPT, "%s: %s",
			    question->name, md_swap_message_text(answer, "message"));
}

static enum md_status get_answer(const struct md_swap_question *question, struct md_swap_message *answer,
				 struct md_error *err)
{
	char path[PATH_MAX];
	struct md_error why = {0};
	int fd = -1;
	MD_FORWARD(md_swap_place_socket(question->name, path, err));
	enum md_status status = md_swap_wire_connect(path, &fd, &why);
	if (status == MD_ERR_NOT_FOUND)
		return md_error_set(err, status, "no engine called %s runs (%s)", question->name, why.message);
	if (status != MD_OK)
		return md_error_set(err, status, "%s", why.message);
	return converse(question, fd, answer, err);
}

/* ---- printing ---- */

static void put_all(struct md_json *json, const struct md_swap_message *answer)
{
	md_json_object(json, NULL);
	for (size_t i = 0; i < answer->count; i++) {
		const struct md_json_field *field = &answer->fields[i];
		if (field->kind == MD_JSON_TEXT)
			md_json_text(json, field->key, field->text);
		else if (field->kind == MD_JSON_BOOL)
			md_json_bool(json, field->key, field->number != 0);
		else
			md_json_number(json, field->key, field->number);
	}
	md_json_end(json);
}

static const char *size_of(const struct md_swap_message *answer, const char *key, char text[32])
{
	double bytes = (double)md_swap_message_number(answer, key);
	if (bytes >= 1e9)
		snprintf(text, 32, "%.1f GB", bytes / 1e9);
	else
		snprintf(text, 32, "%.1f MB", bytes / 1e6);
	return text;
}

static void print_state(const struct md_swap_message *answer)
{
	char can[32], stays[32], pool[32], held[32], cached[32];
	uint64_t engines = md_swap_message_number(answer, "engines");
	md_plain_line(stdout,
		      "%s: %s; %" PRIu64 " process%s, %s can go, %s stay; pool: %s, of which %s held, %s cached",
		      md_swap_message_text(answer, "name"), md_swap_message_text(answer, "state"), engines,
		      engines == 1 ? "" : "es", size_of(answer, "swappable", can), size_of(answer, "stays", stays),
		      size_of(answer, "pool_bytes", pool), size_of(answer, "pool_held", held),
		      size_of(answer, "pool_cached", cached));
}

static void print_swap(const struct md_swap_question *question, const struct md_swap_message *answer)
{
	char bytes[32], copied[32], stays[32];
	double ms = (double)md_swap_message_number(answer, "ns_total") / 1e6;
	md_plain_line(stdout, "%s: %s: %s in %.1f ms, %s of them copied; %s stay on the GPU", question->name,
		      question->verb, size_of(answer, "bytes", bytes), ms, size_of(answer, "copied", copied),
		      size_of(answer, "stays", stays));
}

enum md_status md_swap_ask(const struct md_swap_question *question, struct md_error *err)
{
	static struct md_swap_message answer; /* large */
	struct md_json json;
	MD_FORWARD(get_answer(question, &answer, err));
	md_json_init(&json, stdout);
	if (question->json)
		put_all(&json, &answer);
	else if (!strcmp(question->verb, "status"))
		print_state(&answer);
	else if (!strcmp(question->verb, "release"))
		md_plain_line(stdout, "%s: released", question->name);
	else
		print_swap(question, &answer);
	return MD_OK;
}

/* Leaves out engines that have ended meanwhile, or were killed. */
enum md_status md_swap_ask_all(bool as_json, struct md_error *err)
{
	static struct md_swap_message answer; /* large */
	struct md_argument_list names = {0};
	struct md_json json;
	MD_FORWARD(md_swap_place_names(&names, err));
	md_json_init(&json, stdout);
	if (as_json)
		md_json_list(&json, NULL);
	for (uint32_t i = 0; i < names.count; i++) {
		struct md_swap_question question = {.verb = "status", .name = names.items[i].text};
		struct md_error why = {0};
		enum md_status status = get_answer(&question, &answer, &why);
		if (status == MD_OK && as_json)
			put_all(&json, &answer);
		else if (status == MD_OK)
			print_state(&answer);
		else if (status != MD_ERR_NOT_FOUND && status != MD_ERR_TRUNCATED)
			md_plain_line(stderr, "%s", why.message);
	}
	if (as_json)
		md_json_end(&json);
	md_arguments_finish(&names);
	return MD_OK;
}
