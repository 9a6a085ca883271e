/* SPDX-License-Identifier: Apache-2.0 */
/* Finds numbers by text, for items that are identified by names, in constant time however many there are. */
#ifndef MD_TOOLS_NAME_INDEX_H
#define MD_TOOLS_NAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of one text are in the order in which they came. */
struct md_names {
	struct md_name *names; /* owned */
	uint32_t *heads;       /* owned; of each bucket its first name, or MD_NAMES_NONE */
	uint32_t count, room;
};

#define MD_NAMES_NONE UINT32_MAX

/* Makes an index of at most room names; false when out of memory. Call finish in any case. */
bool md_names_init(struct md_names *names, uint32_t room);
void md_names_finish(struct md_names *names);
/* Takes the text over; it must have come from malloc. False for NULL, and when there is no room. */
bool md_names_add(struct md_names *names, char *text, uint32_t number);
/* The first number of the text, or MD_NAMES_NONE. */
uint32_t md_names_first(const struct md_names *names, const char *text);
/* The same, and removes it: the next call finds the next number. */
uint32_t md_names_take(struct md_names *names, const char *text);

#endif
