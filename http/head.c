/* SPDX-License-Identifier: Apache-2.0 */
#include "http/head.h"

#include <string.h>
#include <strings.h>

void md_http_head_init(struct md_http_head *head)
{
	*head = (struct md_http_head){.length = -1};
	md_buf_init(&head->text);
}

void md_http_head_finish(struct md_http_head *head)
{
	md_buf_finish(&head->text);
}

void md_http_head_clear(struct md_http_head *head)
{
	struct md_buf text = head->text;
	md_buf_clear(&text);
	*head = (struct md_http_head){.text = text, .length = -1};
}

static const char *text_at(const struct md_http_head *head, uint32_t offset)
{
	return (const char *)head->text.data + offset;
}

const char *md_http_head_target(const struct md_http_head *head)
{
	return text_at(head, head->target);
}

const char *md_http_head_name(const struct md_http_head *head, uint32_t header)
{
	return text_at(head, head->headers[header].name);
}

const char *md_http_head_value(const struct md_http_head *head, uint32_t header)
{
	return text_at(head, head->headers[header].value);
}

const char *md_http_head_find(const struct md_http_head *head, const char *name)
{
	for (uint32_t i = 0; i < head->count; i++)
		if (!strcasecmp(md_http_head_name(head, i), name))
			return md_http_head_value(head, i);
	return NULL;
}

static bool holds_word(const char *list, const char *word)
{
	size_t wanted = strlen(word);
	while (*list) {
		list += strspn(list, ", \t");
		size_t size = strcspn(list, ",");
		size_t trimmed = size;
		while (trimmed && (list[trimmed - 1] == ' ' || list[trimmed - 1] == '\t'))
			trimmed--;
		if (trimmed == wanted && !strncasecmp(list, word, wanted))
			return true;
		list += size;
	}
	return false;
}

bool md_http_head_says(const struct md_http_head *head, const char *name, const char *word)
{
	for (uint32_t i = 0; i < head->count; i++)
		if (!strcasecmp(md_http_head_name(head, i), name) && holds_word(md_http_head_value(head, i), word))
			return true;
	return false;
}

bool md_http_head_is_hop(const struct md_http_head *head, const char *name)
{
	static const char *const hops[] = {"Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade",
					   "TE",         "Trailer",    "Proxy-Connection",  "Content-Length"};
	for (size_t i = 0; i < sizeof(hops) / sizeof(*hops); i++)
		if (!strcasecmp(name, hops[i]))
			return true;
	return md_http_head_says(head, "Connection", name);
}
