/* SPDX-License-Identifier: Apache-2.0 */
/* Functions from a trace that names models and adapters: one for each pair, made from the model. */
#include "simulator/workload/trace_functions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "simulator/config/functions_yaml.h"
#include "simulator/workload/builder.h"
#include "simulator/workload/laws.h"
#include "simulator/workload/trace_rows.h"

#define NONE UINT32_MAX

struct finder {
	const char *name; /* of the trace */
	struct md_sim_functions *made;
	uint32_t capacity;
	uint32_t *slots, slot_count; /* a hash table of functions, by name; at least half of it is NONE */
	uint32_t *used;              /* functions so far, by model */
	struct md_error *err;
};

static enum md_status no_memory(const struct finder *finder)
{
	return md_error_set(finder->err, MD_ERR_NO_MEMORY, "%s: out of memory for its functions", finder->name);
}

/* ---- pairs that have been seen ---- */

static uint64_t hash(const char *text, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	return hash ^ hash >> 32;
}

/* The slot of the name, or the free one where it belongs. */
static uint32_t *slot_of(const struct finder *finder, const char *text, size_t bytes)
{
	uint32_t at = (uint32_t)hash(text, bytes) & (finder->slot_count - 1);
	for (;; at = (at + 1) & (finder->slot_count - 1)) {
		uint32_t function = finder->slots[at];
		const char *name = function == NONE ? NULL : finder->made->functions[function].name;
		if (!name || (strncmp(name, text, bytes) == 0 && !name[bytes]))
			return &finder->slots[at];
	}
}

static bool grow(struct finder *finder)
{
	if (finder->slot_count > 2 * finder->made->count)
		return true;
	uint32_t count = finder->slot_count ? 2 * finder->slot_count : 64;
	uint32_t *slots = malloc(count * sizeof(*slots));
	if (!slots)
		return false;
	memset(slots, 0xff, count * sizeof(*slots)); /* NONE */
	free(finder->slots);
	finder->slots = slots;
	finder->slot_count = count;
	for (uint32_t i = 0; i < finder->made->count; i++)
		*slot_of(finder, finder->made->functions[i].name, strlen(finder->made->functions[i].name)) = i;
	return true;
}

/* ---- making functions ---- */

static enum md_status find_model(const struct finder *finder, uint32_t line, const struct md_sim_row *row,
				 uint32_t *model)
{
	const struct md_sim_functions *made = finder->made;
	for (*model = 0; *model < made->model_count; ++*model)
		if (strlen(made->models[*model]) == row->model_bytes &&
		    memcmp(made->models[*model], row->model, row->model_bytes) == 0)
			return MD_OK;
	return md_error_set(finder->err, MD_ERR_CORRUPT,
			    "%s:%" PRIu32 ": model: there is no model '%.*s' in the file of functions", finder->name,
			    line, row->model_bytes < 60 ? (int)row->model_bytes : 60, row->model);
}

static enum md_status take_row(struct finder *finder, uint32_t line, const struct md_sim_row *row)
{
	struct md_sim_functions *made = finder->made;
	uint32_t model;
	if (!grow(finder))
		return no_memory(finder);
	uint32_t *slot = slot_of(finder, row->function, row->function_bytes);
	if (*slot != NONE)
		return MD_OK;
	MD_FORWARD(find_model(finder, line, row, &model));
	if (made->count == MD_SIM_FUNCTIONS_MAX)
		return md_error_set(finder->err, MD_ERR_TOO_LARGE, "%s:%" PRIu32 ": more than %u models with adapters",
				    finder->name, line, MD_SIM_FUNCTIONS_MAX);
	if (!MD_ARRAY_GROW(made->functions, made->count, finder->capacity) ||
	    !md_sim_config_add_function(made, model, finder->used[model]++,
					strndup(row->function, row->function_bytes)))
		return no_memory(finder);
	*slot = made->count - 1;
	return MD_OK;
}

/* Up to the first line that is wrong: that is found when the trace is read. */
static enum md_status take_rows(struct finder *finder, struct md_sim_rows *rows)
{
	struct md_sim_row row;
	struct md_sim_row_error wrong;
	while (md_sim_rows_next(rows, &row, &wrong) == MD_SIM_ROWS_ROW && rows->models)
		MD_FORWARD(take_row(finder, rows->line, &row));
	return MD_OK;
}

enum md_status md_sim_functions_of_text(const char *name, const char *text, size_t bytes,
					struct md_sim_functions *functions, bool *made, struct md_error *err)
{
	struct md_sim_functions now = *functions; /* shares all but the functions */
	struct finder finder = {.name = name, .made = &now, .err = err};
	struct md_sim_rows rows;
	now.functions = NULL;
	now.count = 0;
	*made = false;
	finder.used = calloc((size_t)functions->model_count + 1, sizeof(*finder.used));
	if (!finder.used)
		return no_memory(&finder);
	md_sim_rows_init(&rows, text, bytes);
	enum md_status status = take_rows(&finder, &rows);
	free(finder.slots);
	free(finder.used);
	*made = rows.models && status == MD_OK && now.count;
	if (!*made) {
		md_sim_config_free_functions(now.functions, now.count);
		return status;
	}
	md_sim_config_free_functions(functions->functions, functions->count);
	*functions = now;
	return MD_OK;
}

enum md_status md_sim_functions_of_trace(const char *path, struct md_sim_functions *functions, bool *made,
					 struct md_error *err)
{
	MD_AUTO_FREE char *text = NULL;
	size_t bytes = 0;
	*made = false;
	if (md_sim_law_find(path))
		return MD_OK;
	MD_FORWARD(md_sim_file_read(path, MD_SIM_TRACE_BYTES_MAX, &text, &bytes, err));
	return md_sim_functions_of_text(path, text, bytes, functions, made, err);
}
