/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/log_page.h"

#include <stdlib.h>
#include <string.h>

#define HISTORY (100u << 10) /* bytes */

struct log {
	const char *name;
	uint64_t written; /* ns since 1970 */
};

/* Logs that were written last come first. */
static int compare(const void *a, const void *b)
{
	const struct log *one = a, *other = b;
	return (one->written < other->written) - (one->written > other->written);
}

static void add(struct log *logs, size_t *count, const char *directory, const struct md_model_row *row)
{
	uint64_t written = row->config->base == MD_CONFIG_NONE ? md_log_file_written(directory, row->config->id) : 0;
	if (written) /* an adapter has that of its engine */
		logs[(*count)++] = (struct log){.name = row->config->id, .written = written};
}

/* From its end on, which is filled first. */
static size_t fill(const struct log *logs, size_t count, const char *directory, char *bytes)
{
	size_t left = HISTORY;
	for (size_t i = 0; i < count && left; i++) {
		size_t got = md_log_file_tail(directory, logs[i].name, bytes, left);
		left -= got;
		memmove(bytes + left, bytes, got);
	}
	return left;
}

bool md_log_page_print(const struct md_model_rows *rows, const char *directory, FILE *out)
{
	struct log *logs = calloc((size_t)rows->count + rows->left_count + 1, sizeof(*logs));
	char *bytes = malloc(HISTORY);
	size_t count = 0;
	for (uint32_t i = 0; logs && i < rows->count; i++)
		add(logs, &count, directory, &rows->rows[i]);
	for (uint32_t i = 0; logs && i < rows->left_count; i++)
		add(logs, &count, directory, &rows->left[i]);
	if (logs && bytes) {
		qsort(logs, count, sizeof(*logs), compare);
		size_t from = fill(logs, count, directory, bytes);
		fwrite(bytes + from, 1, HISTORY - from, out);
	}
	bool done = logs && bytes;
	free(logs);
	free(bytes);
	return done;
}
