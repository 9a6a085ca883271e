/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of an adapter's files. */
#ifndef LLAMA_ADAPTER_JSON_H
#define LLAMA_ADAPTER_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* An object, in which no key stands twice; the caller has the reference. Errors name the line and the byte. */
enum md_status adapter_json_parse(const char *text, size_t size, json_t **root, struct md_error *err);

#endif
