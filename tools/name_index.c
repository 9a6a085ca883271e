/* SPDX-License-Identifier: Apache-2.0 */
/* Finds numbers by text: a hash table of fixed size, whose entries know the first and the last of each text. */
#include "tools/name_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct md_name {
	char *text; /* owned */
	uint64_t hash;
	uint32_t number;
	uint32_t next;  /* the next name in the bucket, of another text */
	uint32_t later; /* the next name of the same text */
	/*
	 * in the first name of a text: the first that has not been taken, and the last, to which the next one is
	 * appended
	 */
	uint32_t first, last;
};

bool md_names_init(struct md_names *names, uint32_t room)
{
	*names = (struct md_names){.room = room};
	names->names = malloc(((size_t)room + 1) * sizeof(*names->names));
	names->heads = malloc(((size_t)room + 1) * sizeof(*names->heads));
	for (size_t i = 0; names->heads && i <= room; i++)
		names->heads[i] = MD_NAMES_NONE;
	return names->names && names->heads;
}

void md_names_finish(struct md_names *names)
{
	for (uint32_t i = 0; i < names->count; i++)
		free(names->names[i].text);
	free(names->names);
	free(names->heads);
	*names = (struct md_names){0};
}

/* The first name of the text, which holds its list. */
static struct md_name *find(const struct md_names *names, const char *text, uint64_t hash)
{
	uint32_t at = names->heads[hash % ((size_t)names->room + 1)];
	while (at != MD_NAMES_NONE && (names->names[at].hash != hash || strcmp(names->names[at].text, text) != 0))
		at = names->names[at].next;
	return at == MD_NAMES_NONE ? NULL : &names->names[at];
}

bool md_names_add(struct md_names *names, char *text, uint32_t number)
{
	if (!text || names->count == names->room) {
		free(text);
		return false;
	}
	uint64_t hash = md_hash_checksum(text, strlen(text));
	uint32_t index = names->count++, *head = &names->heads[hash % ((size_t)names->room + 1)];
	struct md_name *known = find(names, text, hash);
	names->names[index] = (struct md_name){text, hash, number, *head, MD_NAMES_NONE, index, index};
	if (!known) {
		*head = index;
		return true;
	}
	if (known->first == MD_NAMES_NONE)
		known->first = index;
	else
		names->names[known->last].later = index;
	known->last = index;
	return true;
}

uint32_t md_names_first(const struct md_names *names, const char *text)
{
	const struct md_name *known = find(names, text, md_hash_checksum(text, strlen(text)));
	return known && known->first != MD_NAMES_NONE ? names->names[known->first].number : MD_NAMES_NONE;
}

uint32_t md_names_take(struct md_names *names, const char *text)
{
	struct md_name *known = find(names, text, md_hash_checksum(text, strlen(text)));
	if (!known || known->first == MD_NAMES_NONE)
		return MD_NAMES_NONE;
	const struct md_name *taken = &names->names[known->first];
	known->first = taken->later;
	return taken->number;
}
