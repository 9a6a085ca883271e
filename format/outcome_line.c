/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of an artifact in one process, as one line of JSON. */
#include "format/outcome_line.h"

#include <string.h>

#include "base/json.h"

struct key {
	const char *name;
	size_t offset;
	enum md_json_kind kind;
};

#define AT(member) offsetof(struct md_outcome, member)
static const struct key keys[] = {
    {"process", AT(process), MD_JSON_NUMBER},
    {"total", AT(total), MD_JSON_NUMBER},
    {"restored", AT(restored), MD_JSON_NUMBER},
    {"refused", AT(refused), MD_JSON_NUMBER},
    {"handed_out", AT(handed_out), MD_JSON_NUMBER},
    {"denied", AT(denied), MD_JSON_NUMBER},
    {"settled", AT(settled), MD_JSON_BOOL},
    {"complete", AT(complete), MD_JSON_BOOL},
    {"whole", AT(whole), MD_JSON_BOOL},
    {"reason", AT(reason), MD_JSON_TEXT},
    {"graph", AT(graph), MD_JSON_TEXT},
    {"why", AT(why), MD_JSON_TEXT},
};
enum { KEYS = sizeof(keys) / sizeof(keys[0]), NEEDED = 9 };

void md_outcome_line_write(const struct md_outcome *outcome, FILE *out)
{
	struct md_json json;
	md_json_init_line(&json, out);
	md_json_object(&json, NULL);
	for (size_t i = 0; i < KEYS; i++) {
		const char *at = (const char *)outcome + keys[i].offset;
		if (keys[i].kind == MD_JSON_NUMBER)
			md_json_number(&json, keys[i].name, *(const uint32_t *)at);
		else if (keys[i].kind == MD_JSON_BOOL)
			md_json_bool(&json, keys[i].name, *(const bool *)at);
		else if (*(const char *const *)at)
			md_json_text(&json, keys[i].name, *(const char *const *)at);
	}
	md_json_end(&json);
}

static bool take(const struct md_json_field *field, struct md_outcome *out)
{
	for (size_t i = 0; i < KEYS; i++) {
		char *at = (char *)out + keys[i].offset;
		if (strcmp(keys[i].name, field->key))
			continue;
		if (keys[i].kind != field->kind || (field->kind == MD_JSON_NUMBER && field->number > UINT32_MAX))
			return false;
		if (field->kind == MD_JSON_NUMBER)
			*(uint32_t *)at = (uint32_t)field->number;
		else if (field->kind == MD_JSON_BOOL)
			*(bool *)at = field->number != 0;
		else
			*(const char **)at = field->text;
		return true;
	}
	return false;
}

enum md_status md_outcome_line_read(char *line, size_t size, struct md_outcome *out, struct md_error *err)
{
	struct md_json_field fields[KEYS + 3];
	struct md_outcome read = {0};
	size_t count = 0, needed = 0;
	MD_FORWARD(md_json_read_line(line, size, fields, KEYS + 3, &count, err));
	for (size_t i = 0; i < count; i++) {
		if (!take(&fields[i], &read))
			return md_error_set(err, MD_ERR_CORRUPT, "\"%s\" is not expected here", fields[i].key);
		needed += fields[i].kind != MD_JSON_TEXT;
	}
	if (needed != NEEDED)
		return md_error_set(err, MD_ERR_CORRUPT, "%zu of %d values are there", needed, NEEDED);
	*out = read;
	return MD_OK;
}
