/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/target.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* plus: "+" stands for a space. */
static bool decode(const char *text, size_t size, bool plus, char *out, size_t room)
{
	size_t used = 0;
	for (size_t i = 0; i < size; i++) {
		char byte = text[i] == '+' && plus ? ' ' : text[i];
		if (byte == '%') {
			int high = i + 2 < size ? digit(text[i + 1]) : -1, low = high >= 0 ? digit(text[i + 2]) : -1;
			if (low < 0 || !(high * 16 + low))
				return false;
			byte = (char)(high * 16 + low);
			i += 2;
		}
		if (used + 1 >= room)
			return false;
		out[used++] = byte;
	}
	out[used] = '\0';
	return true;
}

const char *md_target_local(const char *target)
{
	const char *scheme = strstr(target, "://");
	if (*target == '/' || !scheme)
		return target;
	const char *path = strchr(scheme + 3, '/');
	return path ? path : "/";
}

const char *md_target_query(const char *target)
{
	const char *mark = strchr(target, '?');
	return mark ? mark + 1 : "";
}

bool md_target_path(const char *target, char *path, size_t size)
{
	const char *local = md_target_local(target);
	return *local == '/' && decode(local, strcspn(local, "?#"), false, path, size);
}

/* The value of the key, which is `*size` bytes long; NULL: the key is not there. */
static const char *find_value(const char *query, const char *key, size_t *size)
{
	size_t wanted = strlen(key);
	while (*query) {
		size_t part = strcspn(query, "&#");
		if (part > wanted && !strncmp(query, key, wanted) && query[wanted] == '=') {
			*size = part - wanted - 1;
			return query + wanted + 1;
		}
		query += part;
		query += *query == '&';
		if (*query == '#')
			return NULL;
	}
	return NULL;
}

bool md_target_value(const char *query, const char *key, char *value, size_t size)
{
	size_t there;
	const char *found = find_value(query, key, &there);
	if (found && !decode(found, there, true, value, size))
		*value = '\0';
	return found;
}

char *md_target_replace(const char *target, const char *key, const char *value)
{
	size_t there, used;
	const char *found = find_value(md_target_query(target), key, &there);
	if (!found)
		return strdup(target);
	size_t room = strlen(target) + 3 * strlen(value) + 1;
	char *made = malloc(room);
	if (!made)
		return NULL;
	used = (size_t)snprintf(made, room, "%.*s", (int)(found - target), target);
	for (; *value; value++) {
		bool plain = isalnum((unsigned char)*value) || strchr("-._~", *value);
		used += (size_t)snprintf(made + used, room - used, plain ? "%c" : "%%%02X", (unsigned char)*value);
	}
	snprintf(made + used, room - used, "%s", found + there);
	return made;
}

bool md_target_climbs(const char *target)
{
	char path[MD_TARGET_MAX];
	if (!md_target_path(target, path, sizeof(path)))
		return false;
	for (const char *at = path; *at;) {
		size_t size = strcspn(at, "/\\"); /* some servers take both */
		if (size == 2 && !memcmp(at, "..", 2))
			return true;
		at += size;
		at += *at != '\0';
	}
	return false;
}
