/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a JSON object, made in its text: members are removed, or get another value. All other bytes stay what they
 * are, numbers above all.
 */
#ifndef MD_WORKER_CORE_BODY_EDIT_H
#define MD_WORKER_CORE_BODY_EDIT_H

#include <jansson.h>

#include "base/buf.h"
#include "worker/core/body_scan.h"

/*
 * What becomes of one member, and of members of its object. A path "a.b" is the member b of the object a. Where the text
 * has a name twice, both are changed.
 */
struct md_body_edit {
	char *key; /* NULL: the whole object */
	enum { MD_BODY_INSIDE, MD_BODY_REMOVE, MD_BODY_SET } what;
	json_t *value;              /* of MD_BODY_SET */
	bool met;                   /* the object that is being written has it */
	struct md_body_edit *first; /* of MD_BODY_INSIDE: what becomes of its members */
	struct md_body_edit *next;
};

/* Later ones count more. False: out of memory. */
bool md_body_edit_remove(struct md_body_edit *edit, const char *path);
/* Objects on the path that are not there are made; another value is replaced by one. The value is borrowed. */
bool md_body_edit_set(struct md_body_edit *edit, const char *path, const json_t *value);
/* Puts the changed text behind what `out` holds; `object` is what md_body_scan has read from the text. */
bool md_body_edit_apply(struct md_body_edit *edit, const char *text, size_t size, const struct md_body_object *object,
			struct md_buf *out, struct md_body_failure *failure);
void md_body_edit_finish(struct md_body_edit *edit); /* frees what it holds, and not itself */

#endif
