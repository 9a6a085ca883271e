/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what medusa-swap run answers to a command. */
#include "tools/swap_ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/plain.h"
#include "swap/swap_place.h"

/* ---- printing ---- */

/* "GPU-... BYTES GPU-... BYTES" as an object. */
static void put_links(struct md_json *json, const char *text)
{
	char gpu[64];
	uint64_t bytes;
	int size;
	md_json_object(json, "links");
	for (; sscanf(text, " %63[-0-9A-Za-z] %" SCNu64 "%n", gpu, &bytes, &size) == 2; text += size)
		md_json_number(json, gpu, bytes);
	md_json_end(json);
}

static void put_all(struct md_json *json, const struct md_swap_message *answer)
{
	md_json_object(json, NULL);
	for (size_t i = 0; i < answer->count; i++) {
		const struct md_json_field *field = &answer->fields[i];
		if (!strcmp(field->key, "links"))
			put_links(json, field->text);
		else if (!strcmp(field->key, "status"))
			md_json_text(json, field->key, md_status_name((enum md_status)field->number));
		else if (field->kind == MD_JSON_TEXT)
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
	char can[32], stays[32], pool[32], held[32], cached[32], file[32], full[32];
	uint64_t engines = md_swap_message_number(answer, "engines");
	uint64_t silent = md_swap_message_number(answer, "engines_silent");
	char quiet[64] = "", behind[128] = "";
	if (silent)
		snprintf(quiet, sizeof(quiet), ", of which %" PRIu64 " %s not answer", silent,
			 silent == 1 ? "does" : "do");
	if (md_swap_message_number(answer, "spill_bytes"))
		snprintf(behind, sizeof(behind), "; spill file: %s, of which %s held",
			 size_of(answer, "spill_bytes", file), size_of(answer, "spill_held", full));
	md_plain_line(
	    stdout, "%s: %s%s; %" PRIu64 " process%s%s, %s can go, %s stay; pool: %s, of which %s held, %s cached%s",
	    md_swap_message_text(answer, "name"), md_swap_message_text(answer, "state"),
	    md_swap_message_number(answer, "full") ? " (full)" : "", engines, engines == 1 ? "" : "es", quiet,
	    size_of(answer, "swappable", can), size_of(answer, "stays", stays), size_of(answer, "pool_bytes", pool),
	    size_of(answer, "pool_held", held), size_of(answer, "pool_cached", cached), behind);
}

static void print_swap(const char *name, const char *verb, const struct md_swap_message *answer)
{
	char bytes[32], copied[32], stays[32];
	double ms = (double)md_swap_message_number(answer, "ns_total") / 1e6;
	md_plain_line(stdout, "%s: %s: %s in %.1f ms, %s of them copied; %s stay on the GPU", name, verb,
		      size_of(answer, "bytes", bytes), ms, size_of(answer, "copied", copied),
		      size_of(answer, "stays", stays));
	if (md_swap_message_number(answer, "copied_by_neighbours"))
		md_plain_line(stdout, "%s: %s of them came over links of other GPUs", name,
			      size_of(answer, "copied_by_neighbours", bytes));
	if (md_swap_message_number(answer, "copied_by_peers"))
		md_plain_line(stdout, "%s: %s of them came from engines on other GPUs", name,
			      size_of(answer, "copied_by_peers", bytes));
	if (!strcmp(verb, "in") && *md_swap_message_text(answer, "peers_because"))
		md_plain_line(stdout, "%s: engines on other GPUs: %s", name,
			      md_swap_message_text(answer, "peers_because"));
	if (*md_swap_message_text(answer, "neighbours_because"))
		md_plain_line(stdout, "%s: other GPUs' links: %s", name,
			      md_swap_message_text(answer, "neighbours_because"));
}

enum md_status md_swap_ask(const char *name, const struct md_swap_question *question, bool as_json,
			   struct md_error *err)
{
	static struct md_swap_message answer; /* large */
	struct md_json json;
	MD_FORWARD(md_swap_ask_engine(name, question, &answer, err));
	md_json_init(&json, stdout);
	if (as_json)
		put_all(&json, &answer);
	else if (!strcmp(question->verb, "status"))
		print_state(&answer);
	else if (md_swap_message_number(&answer, "already"))
		md_plain_line(stdout, "%s: %s", name, md_swap_message_text(&answer, "message"));
	else if (!strcmp(question->verb, "release"))
		md_plain_line(stdout, "%s: released", name);
	else
		print_swap(name, question->verb, &answer);
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
		struct md_swap_question question = {.verb = "status"};
		struct md_error why = {0};
		enum md_status status = md_swap_ask_engine(names.items[i].text, &question, &answer, &why);
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
