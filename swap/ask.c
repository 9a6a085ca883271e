/* SPDX-License-Identifier: Apache-2.0 */
#include "swap/ask.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/environment.h"
#include "swap/swap_place.h"

#define SILENCE_MS 15000 /* medusa-swap run says each second that it goes on */

static enum md_status put_question(const struct md_swap_question *question, int fd, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_swap", MD_SWAP_PROTOCOL);
	md_json_text(&letter.json, "role", "command");
	md_json_text(&letter.json, "do", question->verb);
	md_json_number(&letter.json, "deadline_ms", question->deadline_ms);
	md_json_number(&letter.json, "process", (uint64_t)question->process);
	md_json_bool(&letter.json, "verify", question->verify);
	md_json_bool(&letter.json, "overlap", question->overlap);
	md_json_bool(&letter.json, "neighbours", question->neighbours);
	md_json_bool(&letter.json, "peers", question->peers);
	md_json_bool(&letter.json, "full", question->full);
	md_json_bool(&letter.json, "pulse", true);
	md_json_text(&letter.json, "gpu", question->gpu ? question->gpu : "");
	return md_swap_letter_ask(&letter, fd, -1, err);
}

/* A question about the state is answered at once, so that pulses are no reason to wait on. */
static enum md_status await_answer(struct md_swap_wire *wire, bool at_once, struct md_swap_message *answer,
				   struct md_error *err)
{
	uint64_t until = md_clock_ns() + SILENCE_MS * 1000000ull;
	do {
		if (at_once && md_clock_ns() >= until)
			return md_error_set(err, MD_ERR_TIMEOUT, "pulses, and no answer, for %d ms", SILENCE_MS);
		MD_FORWARD(md_swap_wire_await(wire, SILENCE_MS, answer, err));
	} while (md_swap_message_number(answer, "pulse"));
	return MD_OK;
}

/* What lacks these is no answer of medusa-swap run. */
static enum md_status check_answer(const struct md_swap_message *answer, struct md_error *err)
{
	const char *lacking = !md_swap_message_has(answer, "ok") ? "ok" : NULL;
	if (md_swap_message_number(answer, "ok") && !md_swap_message_is_text(answer, "state"))
		lacking = "state";
	if (!md_swap_message_number(answer, "ok") && !*md_swap_message_text(answer, "message"))
		lacking = lacking ? lacking : "message";
	if (!lacking)
		return MD_OK;
	return md_error_set(err, MD_ERR_CORRUPT, "the answer has no \"%s\", so it is none of medusa-swap run", lacking);
}

/* Closes the connection. */
static enum md_status converse(int fd, const char *whom, const struct md_swap_question *question,
			       struct md_swap_message *answer, struct md_error *err)
{
	struct md_swap_wire wire;
	md_swap_wire_init(&wire, fd);
	enum md_status status = put_question(question, fd, err);
	if (status == MD_OK)
		status = await_answer(&wire, !strcmp(question->verb, "status"), answer, err);
	if (status == MD_OK)
		status = check_answer(answer, err);
	md_swap_wire_finish(&wire);
	if (status == MD_ERR_TRUNCATED)
		return md_error_set(err, status, "%s: medusa-swap run ended before it answered", whom);
	if (status == MD_ERR_TIMEOUT)
		return md_error_set(err, status,
				    "%s: medusa-swap run has not answered for %d seconds: continue it if it is stopped "
				    "(SIGSTOP, a debugger, the freezer)",
				    whom, SILENCE_MS / 1000);
	if (status != MD_OK)
		return md_error_prefix(err, "%s", whom);
	uint64_t refused = md_swap_message_number(answer, "status");
	if (md_swap_message_number(answer, "ok"))
		return MD_OK;
	return md_error_set(err, refused && refused < 100 ? (enum md_status)refused : MD_ERR_CORRUPT, "%s: %s", whom,
			    md_swap_message_text(answer, "message"));
}

enum md_status md_swap_ask_engine(const char *name, const struct md_swap_question *question,
				  struct md_swap_message *answer, struct md_error *err)
{
	char path[PATH_MAX];
	struct md_error why = {0};
	int fd = -1;
	MD_FORWARD(md_swap_place_socket(name, path, err));
	enum md_status status = md_swap_wire_connect_to_ask(path, &fd, &why);
	if (status == MD_ERR_NOT_FOUND)
		return md_error_set(err, status, "no engine called %s runs (%s)", name, why.message);
	if (status == MD_ERR_BUSY)
		return md_error_set(
		    err, MD_ERR_TIMEOUT,
		    "%s: medusa-swap run takes no connections: continue it if it is stopped (SIGSTOP, a "
		    "debugger, the freezer)",
		    name);
	if (status != MD_OK)
		return md_error_set(err, status, "%s", why.message);
	return converse(fd, name, question, answer, err);
}

enum md_status md_swap_ask_own(const struct md_swap_question *question, struct md_swap_message *answer,
			       struct md_error *err)
{
	char path[PATH_MAX];
	struct md_error why = {0};
	int fd = -1;
	if (!md_environment_path("MEDUSA_SWAP_CONTROL", path, sizeof(path)))
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "this process was not started by medusa-swap run, which sets MEDUSA_SWAP_CONTROL");
	enum md_status status = md_swap_wire_connect(path, &fd, &why);
	if (status == MD_ERR_NOT_FOUND)
		return md_error_set(err, status, "the medusa-swap run of this process has ended (%s)", why.message);
	if (status != MD_OK)
		return md_error_set(err, status, "%s", why.message);
	return converse(fd, path, question, answer, err);
}
