/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the keys of a mapping as a table describes them. */
#include "worker/config/keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/units.h"

#define NOTES_MAX 1000u
#define SECONDS_MAX INT64_C(1000000000) /* over 30 years */
#define MEGABYTES_MAX INT64_C(1000000000)

static enum md_status out_of_memory(const struct md_config_build *build)
{
	return md_error_set(build->err, MD_ERR_NO_MEMORY, "out of memory for the configuration");
}

void *md_config_take(struct md_config_build *build, size_t count, size_t item)
{
	void *taken = md_arena_take_array(&build->forest->arena, count, item);
	if (!taken)
		out_of_memory(build);
	return taken;
}

static const char *keep(struct md_config_build *build, const char *text)
{
	const char *copy = md_arena_copy(&build->forest->arena, text, strlen(text));
	if (!copy)
		out_of_memory(build);
	return copy;
}

enum md_status md_config_note(struct md_config_build *build, const struct md_tree *node, const char *format, ...)
{
	char text[320], path[MD_TREE_PATH_MAX];
	struct md_config_note *note;
	va_list args;
	if (build->note_count == NOTES_MAX)
		return MD_OK;
	if (!MD_ARRAY_GROW(build->notes, build->note_count, build->note_room))
		return out_of_memory(build);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	md_tree_path(node, path);
	note = &build->notes[build->note_count];
	note->file = node->file;
	note->line = node->line;
	note->path = keep(build, path);
	note->text = note->path
			 ? keep(build, build->note_count + 1 == NOTES_MAX ? "more notes than these are left out" : text)
			 : NULL;
	if (!note->text)
		return MD_ERR_NO_MEMORY;
	build->note_count++;
	return MD_OK;
}

/* ---- numbers ---- */

static void bounds(const struct md_config_key *key, int64_t most, int64_t *low, int64_t *high)
{
	*low = key->low;
	*high = key->high ? key->high : most;
}

/* Also of numbers that no integer can hold. */
static bool is_over(const struct md_tree *node, int64_t high)
{
	struct md_tree plain = {.text = node->text};
	if (node->kind == MD_TREE_LIST || node->kind == MD_TREE_MAPPING || !node->text)
		return false;
	md_tree_resolve(&plain);
	return (plain.kind == MD_TREE_INTEGER && plain.integer > high) ||
	       (plain.kind == MD_TREE_REAL && plain.real > (double)high);
}

static enum md_status refuse_number(const struct md_config_build *build, const struct md_tree *node,
				    const struct md_config_key *key, int64_t most)
{
	int64_t low, high;
	bounds(key, most, &low, &high);
	if (key->wanted && !strncmp(key->wanted, "at least ", 9) && is_over(node, high))
		return md_tree_refuse(node, build->err, "at most %" PRId64 " is wanted", high);
	if (key->wanted)
		return md_tree_refuse(node, build->err, "%s", key->wanted);
	return md_tree_refuse(node, build->err, "a whole number from %" PRId64 " to %" PRId64 " is wanted", low, high);
}

/* Whole numbers; also those that are written as a text, or with ".0". */
static bool take_integer(const struct md_tree *node, int64_t *value)
{
	struct md_tree plain = {.text = node->text};
	if (node->kind == MD_TREE_LIST || node->kind == MD_TREE_MAPPING || !node->text)
		return false;
	md_tree_resolve(&plain);
	if (plain.kind == MD_TREE_INTEGER)
		*value = plain.integer;
	else if (plain.kind == MD_TREE_REAL && fabs(plain.real) < 9e15 && plain.real == floor(plain.real))
		*value = (int64_t)plain.real;
	else
		return false;
	return true;
}

static enum md_status read_integer(const struct md_config_build *build, const struct md_tree *node,
				   const struct md_config_key *key, int64_t most, int64_t *value)
{
	int64_t low, high;
	bounds(key, most, &low, &high);
	if (!take_integer(node, value) || *value < low || *value > high)
		return refuse_number(build, node, key, most);
	return MD_OK;
}

static enum md_status read_scaled(const struct md_config_build *build, const struct md_tree *node,
				  const struct md_config_key *key, int64_t most, uint64_t unit, uint64_t *out)
{
	int64_t value;
	MD_FORWARD(read_integer(build, node, key, most, &value));
	*out = (uint64_t)value * unit;
	return MD_OK;
}

static enum md_status read_count(const struct md_config_build *build, const struct md_tree *node,
				 const struct md_config_key *key, uint32_t *out)
{
	int64_t value;
	MD_FORWARD(read_integer(build, node, key, UINT32_MAX - 1, &value));
	*out = (uint32_t)value;
	return MD_OK;
}

static enum md_status read_real(const struct md_config_build *build, const struct md_tree *node,
				const struct md_config_key *key, double *out)
{
	if (node->kind != MD_TREE_INTEGER && node->kind != MD_TREE_REAL)
		return md_tree_refuse(node, build->err, "a number is wanted");
	*out = node->kind == MD_TREE_INTEGER ? (double)node->integer : node->real;
	if (!isfinite(*out) || *out < (double)key->low || (key->high && *out > (double)key->high))
		return md_tree_refuse(node, build->err, "%s",
				      key->wanted ? key->wanted : "the number is out of bounds");
	return MD_OK;
}

/* ---- times and bytes ---- */

static double go_unit(const char *text, size_t length)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 6e10}, {"h", 3.6e12}};
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strlen(units[i].name) == length && !strncmp(units[i].name, text, length))
			return units[i].ns;
	return 0;
}

/* "1m30s", as Go writes times. */
static bool take_duration(const char *text, uint64_t *ns)
{
	double sum = 0;
	*ns = 0;
	if (!strcmp(text, "0"))
		return true;
	while (*text) {
		char digits[32];
		size_t length = strspn(text, "0123456789."), unit;
		double factor;
		if (length == 0 || length >= sizeof(digits))
			return false;
		memcpy(digits, text, length);
		digits[length] = '\0';
		if (!strpbrk(digits, "0123456789") || strchr(digits, '.') != strrchr(digits, '.'))
			return false;
		text += length;
		unit = strcspn(text, "0123456789.");
		factor = go_unit(text, unit);
		if (factor == 0)
			return false;
		sum += strtod(digits, NULL) * factor;
		text += unit;
	}
	if (!(sum > 0 && sum < 9e18))
		return false;
	*ns = (uint64_t)sum;
	return true;
}

static enum md_status read_duration(const struct md_config_build *build, const struct md_tree *node,
				    const struct md_config_key *key, uint64_t *ns)
{
	if (!node->text || !take_duration(node->text, ns))
		return md_tree_refuse(node, build->err, "a time is wanted, such as 5s or 1m30s");
	if (key->low && *ns < (uint64_t)key->low)
		return md_tree_refuse(node, build->err, "%s", key->wanted);
	return MD_OK;
}

static enum md_status read_units(const struct md_config_build *build, const struct md_tree *node,
				 const struct md_config_key *key, const char *(*parse)(const char *, uint64_t *),
				 uint64_t *out)
{
	const char *wrong = "a single value is wanted";
	if (node->kind == MD_TREE_INTEGER && node->integer >= 0 && key->type == MD_KEY_BYTES)
		*out = (uint64_t)node->integer;
	else if (!node->text || (wrong = parse(node->text, out)))
		return md_tree_refuse(node, build->err, "%s", wrong);
	if (key->low && *out < (uint64_t)key->low)
		return md_tree_refuse(node, build->err, "%s", key->wanted);
	return MD_OK;
}

/* ---- other values ---- */

static enum md_status read_flag(const struct md_config_build *build, const struct md_tree *node, bool *out)
{
	static const char *const yes[] = {"true", "yes", "on", "y"}, *const no[] = {"false", "no", "off", "n"};
	if (node->kind == MD_TREE_FLAG) {
		*out = node->flag;
		return MD_OK;
	}
	for (size_t i = 0; node->text && i < sizeof(yes) / sizeof(yes[0]); i++)
		if (!strcasecmp(node->text, yes[i]) || !strcasecmp(node->text, no[i])) {
			*out = !strcasecmp(node->text, yes[i]);
			return MD_OK;
		}
	return md_tree_refuse(node, build->err, "true or false is wanted");
}

enum md_status md_keys_text(struct md_config_build *build, const struct md_tree *node, const char **text)
{
	if (node->kind == MD_TREE_LIST || node->kind == MD_TREE_MAPPING)
		return md_tree_refuse(node, build->err, "a text is wanted");
	*text = node->kind == MD_TREE_NULL ? "" : node->text;
	return MD_OK;
}

static enum md_status read_texts(struct md_config_build *build, const struct md_tree *node, bool secret,
				 struct md_config_texts *texts)
{
	const char **items;
	if (node->kind != MD_TREE_LIST)
		return (secret ? md_tree_refuse_place : md_tree_refuse)(node, build->err, "a list of texts is wanted");
	items = md_config_take(build, node->count, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	*texts = (struct md_config_texts){.items = items};
	for (const struct md_tree *at = node->first; at; at = at->next)
		MD_FORWARD(md_keys_text(build, at, &items[texts->count++]));
	return MD_OK;
}

static enum md_status read_choice(const struct md_config_build *build, const struct md_tree *node,
				  const struct md_config_key *key, int *out)
{
	char known[160];
	size_t used = 0;
	const char *text = node->text;
	for (int i = 0; key->choices[i]; i++) {
		if (text && !strcmp(text, key->choices[i])) {
			*out = i;
			return MD_OK;
		}
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
					 i == 0                ? ""
					 : key->choices[i + 1] ? ", "
							       : " or ",
					 key->choices[i]);
		if (used >= sizeof(known))
			break;
	}
	return md_tree_refuse(node, build->err, "%s is wanted", known);
}

enum md_status md_keys_mapping(const struct md_config_build *build, const struct md_tree *node)
{
	if (!node || node->kind == MD_TREE_NULL || node->kind == MD_TREE_MAPPING)
		return MD_OK;
	return md_tree_refuse(node, build->err, "a mapping is wanted, \"name: value\"");
}

const json_t *md_keys_json(struct md_config_build *build, const struct md_tree *node)
{
	json_t *value = md_tree_json(node);
	if (!value) {
		md_tree_refuse_place(node, build->err, "it holds a number that JSON does not have");
		return NULL;
	}
	if (json_array_append_new(build->inner->kept, value)) {
		out_of_memory(build);
		return NULL;
	}
	return value;
}

static enum md_status read_json(struct md_config_build *build, const struct md_tree *node, const json_t **out)
{
	MD_FORWARD(md_keys_mapping(build, node));
	*out = md_keys_json(build, node);
	return *out ? MD_OK : build->err->status;
}

/* ---- all of them ---- */

static enum md_status read_value(struct md_config_build *build, const struct md_tree *node,
				 const struct md_config_key *key, void *out)
{
	switch (key->type) {
	case MD_KEY_FLAG:
		return read_flag(build, node, out);
	case MD_KEY_INTEGER:
		return read_integer(build, node, key, INT64_MAX, out);
	case MD_KEY_COUNT:
		return read_count(build, node, key, out);
	case MD_KEY_SECONDS:
		return read_scaled(build, node, key, SECONDS_MAX, 1000000000, out);
	case MD_KEY_MEGABYTES:
		return read_scaled(build, node, key, MEGABYTES_MAX, 1000000, out);
	case MD_KEY_REAL:
		return read_real(build, node, key, out);
	case MD_KEY_DURATION:
		return read_duration(build, node, key, out);
	case MD_KEY_BYTES:
		return read_units(build, node, key, md_units_bytes, out);
	case MD_KEY_TIME:
		return read_units(build, node, key, md_units_time, out);
	case MD_KEY_TEXT:
		return md_keys_text(build, node, out);
	case MD_KEY_CHOICE:
		return read_choice(build, node, key, out);
	case MD_KEY_TEXTS:
		return read_texts(build, node, key->secret, out);
	default:
		return read_json(build, node, out);
	}
}

/* What a text in a table stands for goes the way of values in files. */
static enum md_status set_standard(struct md_config_build *build, const struct md_config_key *key, void *out)
{
	struct md_tree value = {.file = "default", .plain = true, .text = key->standard};
	if (key->type == MD_KEY_TEXT) {
		*(const char **)out = key->standard ? key->standard : "";
		return MD_OK;
	}
	if (!key->standard)
		return MD_OK;
	md_tree_resolve(&value);
	return read_value(build, &value, key, out);
}

static const struct md_config_key *find(const struct md_config_keys *table, const char *name)
{
	for (size_t i = 0; i < table->count; i++)
		if (!strcmp(table->keys[i].name, name))
			return &table->keys[i];
	return NULL;
}

static enum md_status unknown(struct md_config_build *build, const struct md_config_keys *table,
			      const struct md_tree *at)
{
	char known[240];
	size_t used = 0;
	if (!table->strict)
		return md_config_note(build, at,
				      "the key is not known and has no effect; llama-swap ignores it as well");
	*known = '\0';
	for (size_t i = 0; i < table->count && used + 40 < sizeof(known); i++)
		used +=
		    (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", table->keys[i].name);
	return md_tree_refuse_place(at, build->err, "there is no such key; there are %s%s", known,
				    used + 40 < sizeof(known) ? "" : " ...");
}

static enum md_status read_key(struct md_config_build *build, const struct md_config_key *key, struct md_tree *at,
			       char *out)
{
	void *field = out + key->offset;
	if (at->kind == MD_TREE_NULL)
		return MD_OK;
	if (key->type == MD_KEY_NODE)
		*(struct md_tree **)field = at;
	else
		MD_FORWARD(read_value(build, at, key, field));
	return key->note ? md_config_note(build, at, "%s", key->note) : MD_OK;
}

enum md_status md_keys_read(struct md_config_build *build, const struct md_config_keys *table, struct md_tree *mapping,
			    void *out)
{
	MD_FORWARD(md_keys_mapping(build, mapping));
	for (size_t i = 0; i < table->count; i++)
		MD_FORWARD(set_standard(build, &table->keys[i], (char *)out + table->keys[i].offset));
	if (!mapping)
		return MD_OK;
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		const struct md_config_key *key = find(table, at->key);
		MD_FORWARD(key ? read_key(build, key, at, out) : unknown(build, table, at));
	}
	return MD_OK;
}
