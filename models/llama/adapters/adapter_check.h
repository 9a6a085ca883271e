/* SPDX-License-Identifier: Apache-2.0 */
/* llama-engine --check-adapter: reads an adapter as serving it would, and says what is in it. */
#ifndef LLAMA_ADAPTER_CHECK_H
#define LLAMA_ADAPTER_CHECK_H

#include "models/llama/adapters/adapter.h"

/* Prints to stdout. */
enum md_status adapter_check(const char *path, const struct llama_shape *shape, struct md_error *err);

#endif
