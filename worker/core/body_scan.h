/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a JSON object once from its first byte to its last one (RFC 8259, strictly), without building a tree: where its
 * members are, or at which byte it is no JSON.
 */
#ifndef MD_WORKER_CORE_BODY_SCAN_H
#define MD_WORKER_CORE_BODY_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_BODY_LEVELS_MAX 10000u    /* of arrays and objects in one another */
#define MD_BODY_VALUES_MAX 10000000u /* in the whole text */
#define MD_BODY_MEMBERS_MAX 4096u    /* of the outermost object */

/* Offsets in the text. */
struct md_body_member {
	size_t key, key_size;     /* within the quotation marks, with its escapes */
	size_t value, value_size; /* with the marks of a text, the brackets of an array or object */
};

struct md_body_object {
	struct md_body_member *members; /* in their order; names may be there twice */
	uint32_t count, room;
	size_t open, close; /* where the brackets stand */
};

struct md_body_failure {
	size_t at;       /* the byte, counted from 0 */
	const char *why; /* without its end; static */
	bool no_memory;  /* the text may be good */
};

/*
 * A NUL must follow the text, which may hold others. True: md_body_object_finish frees the members; false: the failure
 * says why. Takes no memory but that of the members, and a time that grows with the size alone.
 */
bool md_body_scan(const char *text, size_t size, struct md_body_object *object, struct md_body_failure *failure);
void md_body_object_finish(struct md_body_object *object);

#endif
