/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of an adapter's files: a text is parsed into memory that is there before the parser begins. */
#ifndef LLAMA_ADAPTER_JSON_H
#define LLAMA_ADAPTER_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct adapter_json {
	json_t *root; /* and all below it: valid until adapter_json_finish, which belongs to the same thread */
	uint8_t *memory;
	size_t size, used;
};

/* An object, in which no key stands twice. Errors name the line and the byte; MD_ERR_NO_MEMORY: there is too little. */
enum md_status adapter_json_parse(struct adapter_json *json, const char *text, size_t size, struct md_error *err);
void adapter_json_finish(struct adapter_json *json); /* also of a zeroed one */

#endif
