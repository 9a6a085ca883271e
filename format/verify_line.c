/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of verify reports: JSON, written and read; docs/format.md is normative. */
#include "format/verify_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char *const verdicts[] = {"skipped", "pass",  "fail",  "nondeterministic",
				       "begun",   "end",   "noise", "begins",
				       "dropped", "until", "owed",  "settled"};

/* Verdicts about a process and not about a graph. */
static bool is_alone(enum md_verdict verdict)
{
	return verdict == MD_VERDICT_END || verdict == MD_VERDICT_UNTIL;
}

#define VERDICTS (sizeof(verdicts) / sizeof(verdicts[0]))

const char *md_verdict_name(enum md_verdict verdict)
{
	return (size_t)verdict < VERDICTS ? verdicts[verdict] : "unknown";
}

static void put_line(const struct md_verify_line *line, FILE *out)
{
	struct md_json json;
	md_json_init_line(&json, out);
	md_json_object(&json, NULL);
	md_json_text(&json, "verdict", md_verdict_name(line->verdict));
	if (!is_alone(line->verdict)) {
		md_json_text(&json, "label", line->label);
		md_json_number(&json, "batch", line->batch);
		md_json_number(&json, "bytes", line->bytes);
		md_json_text(&json, "reason", line->reason);
	}
	md_json_end(&json);
}

enum md_status md_verify_line_write(const struct md_verify_line *line, char **text, size_t *size, struct md_error *err)
{
	char *made = NULL;
	FILE *out = open_memstream(&made, size);
	bool failed = !out;
	if (out) {
		put_line(line, out);
		failed = ferror(out) != 0;
		failed |= fclose(out) != 0;
	}
	if (failed) {
		free(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a line");
	}
	*text = made;
	return MD_OK;
}

/* ---- reading ---- */

#define FIELDS 5

static const struct md_json_field *find(const struct md_json_field *fields, const char *key, enum md_json_kind kind)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (fields[i].key && !strcmp(fields[i].key, key) && fields[i].kind == kind)
			return &fields[i];
	return NULL;
}

static bool take_verdict(const struct md_json_field *field, struct md_verify_line *line)
{
	for (size_t i = 0; field && i < VERDICTS; i++)
		if (!strcmp(field->text, verdicts[i])) {
			line->verdict = (enum md_verdict)i;
			return true;
		}
	return false;
}

enum md_status md_verify_line_read(char *text, size_t size, struct md_verify_line *line, struct md_error *err)
{
	struct md_json_field fields[FIELDS] = {{0}};
	size_t count;
	*line = (struct md_verify_line){0};
	MD_FORWARD(md_json_read_line(text, size, fields, FIELDS, &count, err));
	const struct md_json_field *label = find(fields, "label", MD_JSON_TEXT),
				   *batch = find(fields, "batch", MD_JSON_NUMBER),
				   *bytes = find(fields, "bytes", MD_JSON_NUMBER),
				   *reason = find(fields, "reason", MD_JSON_TEXT);
	if (!take_verdict(find(fields, "verdict", MD_JSON_TEXT), line))
		return md_error_set(err, MD_ERR_CORRUPT, "the verdict is missing or unknown");
	if (is_alone(line->verdict))
		return count == 1 ? MD_OK
				  : md_error_set(err, MD_ERR_CORRUPT,
						 "the line of the verdict \"%s\" has more fields than it may have",
						 md_verdict_name(line->verdict));
	if (!label || !batch || !bytes || !reason || batch->number > UINT32_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "expected verdict, label, batch, bytes and reason");
	line->label = label->text;
	line->batch = (uint32_t)batch->number;
	line->bytes = bytes->number;
	line->reason = reason->text;
	return MD_OK;
}
