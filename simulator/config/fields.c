/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the fields of a configuration as a table describes them. */
#include "simulator/config/fields.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h> /* fmod is exact */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND_BYTES 40

enum md_status md_sim_fields_refuse(const struct md_sim_yaml *yaml, uint32_t node, const char *path, const char *field,
				    struct md_error *err, const char *format, ...)
{
	char message[320];
	va_list args;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return md_error_set(err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s%s%.60s%s%s", yaml->name, yaml->nodes[node].line,
			    path, *path && field ? "." : "", field ? field : "", *path || field ? ": " : "", message);
}

/* ---- one value ---- */

static const char *parse_count(const char *text, uint32_t *count)
{
	size_t length = strspn(text, "0123456789");
	unsigned long value = length > 0 && length <= 10 ? strtoul(text, NULL, 10) : ULONG_MAX;
	if (length == 0 || text[length])
		return "a whole number is expected";
	if (value > UINT32_MAX)
		return "a whole number up to 4294967295 is expected";
	*count = (uint32_t)value;
	return NULL;
}

static const char *parse_counts(const char *text, struct md_sim_counts *counts)
{
	static const char missing[] = "a whole number or two are expected, such as 20 or 20..50";
	const char *dots = strstr(text, "..");
	char low[16];
	size_t length = dots ? (size_t)(dots - text) : 0;
	if (parse_count(dots ? dots + 2 : text, &counts->high) || length >= sizeof(low))
		return missing;
	counts->low = counts->high;
	memcpy(low, text, length);
	low[length] = '\0';
	if (dots && parse_count(low, &counts->low))
		return missing;
	return counts->low <= counts->high ? NULL : "the first number is greater than the second";
}

static const char *parse_flag(const char *text, int *flag)
{
	bool yes = strcmp(text, "true") == 0;
	if (!yes && strcmp(text, "false"))
		return "true or false is expected";
	*flag = yes;
	return NULL;
}

static const char *parse_choice(const char *text, const char *const *choices, int *choice)
{
	static _Thread_local char message[128];
	size_t used = 0;
	for (int i = 0; choices[i]; i++) {
		if (strcmp(text, choices[i]) == 0) {
			*choice = i;
			return NULL;
		}
		used += (size_t)snprintf(message + used, sizeof(message) - used, "%s%s", i ? " or " : "", choices[i]);
		assert(used < sizeof(message) - 16);
	}
	snprintf(message + used, sizeof(message) - used, " is expected");
	return message;
}

static const char *parse_text(const char *text, char **out)
{
	char *copy;
	if (!*text)
		return "a text is expected, not nothing";
	copy = strdup(text);
	if (!copy)
		return "out of memory for a text";
	free(*out);
	*out = copy;
	return NULL;
}

static const char *parse_value(const struct md_sim_field *field, const char *text, void *out)
{
	switch (field->type) {
	case MD_SIM_TEXT:
		return parse_text(text, out);
	case MD_SIM_BYTES:
		return md_units_bytes(text, out);
	case MD_SIM_TIME:
		return md_units_time(text, out);
	case MD_SIM_SPEED:
		return md_units_speed(text, out);
	case MD_SIM_NUMBER:
		return md_units_number(text, out);
	case MD_SIM_COUNT:
		return parse_count(text, out);
	case MD_SIM_COUNTS:
		return parse_counts(text, out);
	case MD_SIM_RATE:
		return md_units_rate(text, out);
	case MD_SIM_FLAG:
		return parse_flag(text, out);
	case MD_SIM_CHOICE:
		return parse_choice(text, field->choices, out);
	default:
		return "not a single value";
	}
}

/* The value just read, where bounds make sense. */
static bool numeric_value(const struct md_sim_field *field, const void *out, double *value)
{
	switch (field->type) {
	case MD_SIM_BYTES:
	case MD_SIM_TIME:
		*value = (double)*(const uint64_t *)out;
		return true;
	case MD_SIM_SPEED:
	case MD_SIM_NUMBER:
		*value = *(const double *)out;
		return true;
	case MD_SIM_COUNT:
		*value = *(const uint32_t *)out;
		return true;
	case MD_SIM_COUNTS:
		*value = ((const struct md_sim_counts *)out)->high;
		return true;
	case MD_SIM_RATE:
		*value = ((const struct md_units_range *)out)->high;
		return true;
	default:
		return false;
	}
}

struct unit {
	const char *name;
	double factor;
};

/* The bound in the greatest unit in which it is a whole number, as users write it: as a percentage if `value` is one. */
static const char *bound_text(enum md_sim_field_type type, double bound, const char *value, char text[BOUND_BYTES])
{
	static const struct unit times[] = {{"h", 3.6e12}, {"min", 6e10}, {"s", 1e9},
					    {"ms", 1e6},   {"us", 1e3},   {"ns", 1}},
				 bytes[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}},
				 none[] = {{"", 1}};
	bool is_bytes = type == MD_SIM_BYTES || type == MD_SIM_SPEED;
	const struct unit *unit = type == MD_SIM_TIME ? times : is_bytes ? bytes : none;
	while (unit->factor > 1 && (bound < unit->factor || fmod(bound, unit->factor) > 0))
		unit++;
	if (type == MD_SIM_NUMBER && strchr(value, '%')) {
		snprintf(text, BOUND_BYTES, "%.15g%%", bound * 100);
		return text;
	}
	snprintf(text, BOUND_BYTES, "%.15g%s%s", bound / unit->factor, unit->name,
		 type == MD_SIM_SPEED  ? "/s"
		 : type == MD_SIM_RATE ? "/min"
				       : "");
	return text;
}

static enum md_status check_bounds(const struct md_sim_fields *fields, const struct md_sim_field *field, uint32_t node,
				   const char *path, const void *out, struct md_error *err)
{
	char bound[BOUND_BYTES];
	const char *text = md_sim_yaml_text(fields->yaml, node);
	double value;
	if (!numeric_value(field, out, &value) || (field->low == 0 && field->high == 0))
		return MD_OK;
	if (value < field->low)
		return md_sim_fields_refuse(fields->yaml, node, path, field->name, err, "%s is less than %s", text,
					    bound_text(field->type, field->low, text, bound));
	if (field->high != 0 && value > field->high)
		return md_sim_fields_refuse(fields->yaml, node, path, field->name, err, "%s is more than %s", text,
					    bound_text(field->type, field->high, text, bound));
	return MD_OK;
}

static enum md_status read_field(const struct md_sim_fields *fields, const struct md_sim_field *field, uint32_t node,
				 const char *path, char *out, struct md_error *err)
{
	const struct md_sim_yaml *yaml = fields->yaml;
	const char *wrong;
	if (field->type == MD_SIM_NESTED) {
		*(uint32_t *)(void *)(out + field->offset) = node;
		return MD_OK;
	}
	if (yaml->nodes[node].kind != MD_SIM_SCALAR)
		return md_sim_fields_refuse(yaml, node, path, field->name, err, "a single value is expected");
	wrong = parse_value(field, md_sim_yaml_text(yaml, node), out + field->offset);
	if (wrong)
		return md_sim_fields_refuse(yaml, node, path, field->name, err, "'%.60s': %s",
					    md_sim_yaml_text(yaml, node), wrong);
	return check_bounds(fields, field, node, path, out + field->offset, err);
}

/* ---- all of them ---- */

static enum md_status refuse_unknown(const struct md_sim_fields *fields, uint32_t node, const char *path,
				     struct md_error *err)
{
	char known[280];
	size_t used = 0;
	*known = '\0';
	for (size_t i = 0; i < fields->count && used + 40 < sizeof(known); i++)
		used +=
		    (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", fields->fields[i].name);
	return md_sim_fields_refuse(fields->yaml, node, path, md_sim_yaml_key(fields->yaml, node), err,
				    "there is no such field; there are %s%s", known,
				    used + 40 < sizeof(known) ? "" : " ...");
}

enum md_status md_sim_fields_read(const struct md_sim_fields *fields, uint32_t node, const char *path, void *out,
				  uint64_t *seen, struct md_error *err)
{
	const struct md_sim_yaml *yaml = fields->yaml;
	uint64_t here = 0;
	assert(fields->count <= MD_SIM_FIELDS_MAX);
	if (yaml->nodes[node].kind != MD_SIM_MAPPING)
		return md_sim_fields_refuse(yaml, node, path, NULL, err, "fields are expected, \"name: value\"");
	for (uint32_t child = yaml->nodes[node].first; child; child = yaml->nodes[child].next) {
		const char *key = md_sim_yaml_key(yaml, child);
		size_t i = 0;
		while (i < fields->count && strcmp(fields->fields[i].name, key))
			i++;
		if (i == fields->count)
			return refuse_unknown(fields, child, path, err);
		if (here >> i & 1)
			return md_sim_fields_refuse(yaml, child, path, key, err, "it is given twice");
		here |= UINT64_C(1) << i;
		MD_FORWARD(read_field(fields, &fields->fields[i], child, path, out, err));
	}
	*seen |= here;
	return MD_OK;
}

enum md_status md_sim_fields_require(const struct md_sim_fields *fields, uint32_t node, const char *path, uint64_t seen,
				     struct md_error *err)
{
	for (size_t i = 0; i < fields->count; i++)
		if (fields->fields[i].required && !(seen >> i & 1))
			return md_sim_fields_refuse(fields->yaml, node, path, fields->fields[i].name, err,
						    "it is missing");
	return MD_OK;
}
