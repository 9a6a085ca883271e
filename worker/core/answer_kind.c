/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/answer_kind.h"

#include <string.h>
#include <strings.h>

static bool is(const char *text, size_t size, const char *wanted)
{
	return size == strlen(wanted) && !strncasecmp(text, wanted, size);
}

const char *md_answer_encoding(const struct md_http_head *head)
{
	for (uint32_t i = 0; i < head->count; i++) {
		const char *value = md_http_head_value(head, i);
		if (!strcasecmp(md_http_head_name(head, i), "Content-Encoding") && *value &&
		    strcasecmp(value, "identity") != 0)
			return value;
	}
	return NULL;
}

enum md_answer_kind md_answer_kind(const struct md_http_head *head)
{
	const char *type = md_http_head_find(head, "Content-Type");
	size_t size = type ? strcspn(type, "; \t") : 0;
	if (!type || md_answer_encoding(head))
		return MD_ANSWER_OPAQUE;
	if (is(type, size, "text/event-stream"))
		return MD_ANSWER_EVENTS;
	bool json = is(type, size, "application/json") ||
		    (size > strlen("application/+json") && !strncasecmp(type, "application/", 12) &&
		     is(type + size - 5, 5, "+json"));
	return json ? MD_ANSWER_JSON : MD_ANSWER_OPAQUE;
}
