/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters by name in host memory, within a limit of bytes: those that were asked for longest ago are forgotten first. */
#ifndef LLAMA_ADAPTERS_STORE_H
#define LLAMA_ADAPTERS_STORE_H

#include <stdbool.h>

#include "models/llama/adapters/adapter.h"

#define LORA_NAME_BYTES 256u
#define LORA_PATH_BYTES 4095u

/* The weights of one loading of an adapter. */
struct lora_weights {
	struct lora_adapter adapter;
	uint64_t version; /* > 0; no other weights of this process ever have the same */
	unsigned users;
	bool named; /* some name stands for them */
	struct lora_weights *next;
};

struct lora_name {
	char *name, *path;
	bool pinned;                  /* its weights stay */
	struct lora_weights *weights; /* NULL: forgotten, to be read from the path again */
	uint64_t asked;               /* larger: later */
	struct lora_name *next;
};

/* One thread's. */
struct lora_store {
	size_t max_bytes;
	size_t bytes; /* of all weights, also those that only users hold any more */
	struct lora_name *names;
	struct lora_weights *weights;
	size_t name_count;
	uint64_t last_version, clock;
	uint64_t forgotten; /* weights, for lack of room */
};

void lora_store_init(struct lora_store *store, size_t max_bytes);
void lora_store_finish(struct lora_store *store); /* also on a zeroed one */

/* NULL, or what is wrong with a name that an adapter of the model `base` is to get, or with its path. */
const char *lora_name_wrong(const char *name, const char *base);
const char *lora_path_wrong(const char *path);

const struct lora_name *lora_store_find(const struct lora_store *store, const char *name);
/*
 * The name stands for this adapter from now on, instead of the weights that it may have stood for. The adapter is the
 * store's, and *adapter is zeroed. An error leaves everything as it was.
 */
enum md_status lora_store_put(struct lora_store *store, const char *name, const char *path, bool pinned,
			      struct lora_adapter *adapter, struct md_error *err);
/* Weights that no name stands for: its users' alone. NULL: out of memory. */
struct lora_weights *lora_store_put_unnamed(struct lora_store *store, struct lora_adapter *adapter);
void lora_store_remove(struct lora_store *store, const char *name); /* its weights go with their last user */

/* One user more of what the name stands for. NULL: there is no such name, or its weights were forgotten. */
struct lora_weights *lora_store_take(struct lora_store *store, const char *name);
void lora_store_use(struct lora_weights *weights); /* one more of weights that somebody uses */
void lora_store_leave(struct lora_store *store, struct lora_weights *weights);

#endif
