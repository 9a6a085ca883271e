/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/swap_order.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "json/tree_text.h"
#include "worker/engine/process.h"

#define ANSWER_MOST 16384u /* it lists up to 256 processes */

void md_swap_order_words(struct md_swap_order *order, const char *verb, char *words[MD_SWAP_ORDER_WORDS])
{
	size_t used = 0;
	words[used++] = (char *)order->command;
	words[used++] = (char *)verb;
	if (order->name) {
		words[used++] = (char *)order->name;
		if (order->neighbours && !strcmp(verb, "in"))
			words[used++] = (char *)"--gpu-neighbours";
	} else {
		snprintf(order->texts[0], sizeof(order->texts[0]), "%d", (int)order->pid);
		words[used++] = (char *)"--method";
		words[used++] = (char *)"checkpoint";
		words[used++] = order->texts[0];
		words[used++] = (char *)"--json";
	}
	if (!strcmp(verb, "out")) { /* the deadline is for the end of the engine's work, so "in" has none */
		snprintf(order->texts[1], sizeof(order->texts[1]), "%" PRIu64, order->deadline_s);
		words[used++] = (char *)"--deadline";
		words[used++] = order->texts[1];
	}
	words[used] = NULL;
}

int md_swap_order_answer(void)
{
	return memfd_create("medusa-swap-answer", MFD_CLOEXEC);
}

/* The JSON of the answer begins a line; messages for people stand before or behind it. */
static json_t *find_json(const char *text)
{
	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		json_t *json = *at == '{' ? md_jansson_parse(at, strlen(at), JSON_DISABLE_EOF_CHECK, NULL) : NULL;
		if (json)
			return json;
	}
	return NULL;
}

/*
 * Adds what was printed to the log (-1: none), and closes the answer (-1 is fine). why: the reason of a refusal, a sentence
 * without its end; "": none was found. True: the driver cannot do what was asked for.
 */
static bool read_answer(int answer, int log, char *why, size_t size)
{
	char text[ANSWER_MOST + 1];
	const char *status = "", *message = "";
	*why = '\0';
	if (answer < 0)
		return false;
	ssize_t got = pread(answer, text, ANSWER_MOST, 0);
	close(answer);
	if (got <= 0)
		return false;
	text[got] = '\0';
	if (log >= 0 && write(log, text, (size_t)got) < 0)
		log = -1; /* as of what an engine prints: it is lost */
	json_t *json = find_json(text);
	if (json && !json_unpack(json, "{s:s, s:s}", "status", &status, "message", &message))
		snprintf(why, size, "%s", message);
	bool unsupported = !strcmp(status, "unsupported");
	json_decref(json);
	return unsupported;
}

void md_swap_order_failed(const char *verb, const char *model, int status, int answer, int output, char *why,
			  size_t size)
{
	char what[96], said[400] = "";
	bool unsupported = read_answer(answer, output, said, sizeof(said));
	md_engine_process_describe(status, what, sizeof(what));
	if (unsupported)
		snprintf(
		    why, size,
		    "cannot be swapped, because this CUDA driver cannot checkpoint it: set models.%.100s.medusa.swap "
		    "to on or off (medusa-swap %s: %s)",
		    model, verb, said);
	else
		snprintf(why, size, "medusa-swap %s %s%s%s", verb, what, *said ? ": " : "", said);
}
