/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements of the engine from before it uses the device. They
 * are kept for the process that uses it, which may be a child.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "capture/api/early.h"
#include "capture/capture.h"

static struct early {
	enum md_capture_early kind;
	char *name, *value; /* owned */
	uint64_t ns;
} * early;
static size_t early_count;
static bool early_over;

bool md_capture_said_early(enum md_capture_early kind, const char *name, const char *value, uint64_t ns)
{
	bool kept;
	char *copies[2] = {strdup(name), strdup(value ? value : "")};
	md_capture_lock();
	kept = !early_over && copies[0] && copies[1] && MD_ARRAY_EXTEND(early, early_count);
	if (kept)
		early[early_count++] = (struct early){kind, copies[0], copies[1], ns};
	bool over = early_over;
	md_capture_unlock();
	if (!kept) {
		free(copies[0]);
		free(copies[1]);
	}
	return !over;
}

static void put_early(const struct early *said) MD_CAPTURE_HELD
{
	struct md_stage_time stage = {.ns = said->ns};
	switch (said->kind) {
	case MD_EARLY_FACT:
		md_trace_put_fact(md_capture.writer, md_capture_next(), said->name, said->value);
		break;
	case MD_EARLY_MARK:
		md_trace_put_mark(md_capture.writer, md_capture_next(), said->name);
		break;
	case MD_EARLY_STAGE:
		snprintf(stage.name, sizeof(stage.name), "%s", said->name);
		md_trace_put_stage(md_capture.writer, md_capture_next(), &stage);
		break;
	}
}

void md_capture_put_early(void)
{
	md_capture_lock();
	for (size_t i = 0; i < early_count; i++) {
		if (md_capture.writer)
			put_early(&early[i]);
		free(early[i].name);
		free(early[i].value);
	}
	free(early);
	early = NULL;
	early_count = 0;
	early_over = true;
	md_capture_unlock();
}
