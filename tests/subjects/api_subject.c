/* SPDX-License-Identifier: Apache-2.0 */
/* Calls every function of medusa.h wrongly in every way that there is, and prints what each call answers and why. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "medusa/medusa.h"

#define LONG_NAME 257
#define LONG_VALUE 4097
#define LONG_WHY 1025
#define LONG_NOTE 65537

static char long_text[LONG_NOTE];

static const char *text_of(size_t bytes)
{
	memset(long_text, 'x', bytes);
	long_text[bytes] = '\0';
	return long_text;
}

static void say(const char *what, int result)
{
	printf("%s: %d: %s\n", what, result, medusa_reason());
}

static int never(void *user)
{
	(void)user;
	return 1;
}

static void wrong_names(void)
{
	void *exec = NULL;
	unsigned batch = 1;
	medusa_deviceptr address;
	size_t bytes;
	const void *data;
	for (int empty = 0; empty < 2; empty++) {
		const char *name = empty ? "" : NULL;
		say("bind name", medusa_bind(name, 4096, 64, MEDUSA_BIND_STATE));
		say("fact name", medusa_fingerprint_add(name, "value"));
		say("get label", medusa_graph_get(name, 1, 0, &exec));
		say("want label", medusa_graph_want(name, &batch, 1));
		say("label label", medusa_graph_label(NULL, name, 1));
		say("refuse why", medusa_graph_refuse(NULL, name));
		say("output_get label", medusa_graph_output_get(name, 1, 0, &address, &bytes));
		say("note_get label", medusa_graph_note_get(name, 1, &data, &bytes));
		say("trigger name", medusa_trigger(name, never, NULL));
		say("mark name", medusa_mark(name));
		say("stage name", medusa_stage(name, 1));
		printf("ready: %d\n", medusa_graph_ready(name, 1));
	}
}

static void wrong_values(void)
{
	struct medusa_stats stats = {.size = 4};
	medusa_deviceptr address;
	size_t bytes;
	const void *data;
	say("bind @", medusa_bind("@allocation.1", 4096, 64, MEDUSA_BIND_STATE));
	say("bind address", medusa_bind("weights", 0, 64, MEDUSA_BIND_STATE));
	say("bind bytes", medusa_bind("weights", 4096, 0, MEDUSA_BIND_STATE));
	say("bind end", medusa_bind("weights", UINT64_MAX - 8, 64, MEDUSA_BIND_STATE));
	say("bind role", medusa_bind("weights", 4096, 64, (enum medusa_role)9));
	say("fact long name", medusa_fingerprint_add(text_of(LONG_NAME), "value"));
	say("fact value", medusa_fingerprint_add("name", NULL));
	say("fact long value", medusa_fingerprint_add("name", text_of(LONG_VALUE)));
	say("get exec", medusa_graph_get("decode", 1, 0, NULL));
	say("want batches", medusa_graph_want("decode", NULL, 2));
	say("output index", medusa_graph_output(NULL, 4096, 4096, 64));
	say("output address", medusa_graph_output(NULL, 0, 0, 64));
	say("output bytes", medusa_graph_output(NULL, 0, 4096, 0));
	say("note data", medusa_graph_note(NULL, NULL, 3));
	say("note bytes", medusa_graph_note(NULL, long_text, LONG_NOTE));
	say("refuse long", medusa_graph_refuse(NULL, text_of(LONG_WHY)));
	say("scratch address", medusa_graph_scratch(0, 64));
	say("scratch bytes", medusa_graph_scratch(4096, 0));
	say("scratch end", medusa_graph_scratch(UINT64_MAX - 8, 64));
	say("discardable address", medusa_swap_discardable(0, 64));
	say("discardable bytes", medusa_swap_discardable(4096, 0));
	say("needed end", medusa_swap_needed(UINT64_MAX - 8, 64));
	say("output_get address", medusa_graph_output_get("decode", 1, 0, NULL, &bytes));
	say("output_get bytes", medusa_graph_output_get("decode", 1, 0, &address, NULL));
	say("note_get data", medusa_graph_note_get("decode", 1, NULL, &bytes));
	say("note_get bytes", medusa_graph_note_get("decode", 1, &data, NULL));
	say("trigger run", medusa_trigger("layer", NULL, NULL));
	say("stats out", medusa_stats_read(NULL));
	say("stats size", medusa_stats_read(&stats));
	say("kv request", medusa_kv_capacity(NULL, NULL));
}

/* What is accepted in every mode, whatever it does there; medusa_reason() is empty then. */
static void right(void)
{
	const unsigned batches[] = {8, 1};
	say("want", medusa_graph_want("decode", batches, 2));
	say("want none", medusa_graph_want("decode", NULL, 0));
	say("trigger", medusa_trigger("layer", never, NULL));
	say("scratch", medusa_graph_scratch(4096, 64));
	say("discardable", medusa_swap_discardable(4096, 64));
	say("needed", medusa_swap_needed(4096, 64));
	say("mark", medusa_mark("loaded"));
	say("stage", medusa_stage("weights", 1000));
	medusa_release();
}

int main(void)
{
	wrong_names();
	wrong_values();
	right();
	return 0;
}
