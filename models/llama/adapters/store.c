/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/adapters/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "models/llama/unicode.h"

/* ---- names ---- */

static const char *text_wrong(const char *text)
{
	for (size_t left = strlen(text); left;) {
		uint32_t code;
		size_t length = unicode_decode(text, left, &code);
		if (code == UNICODE_INVALID)
			return "is not valid UTF-8";
		if (code < 0x20 || (code >= 0x7f && code < 0xa0))
			return "has a control character";
		text += length;
		left -= length;
	}
	return NULL;
}

const char *lora_name_wrong(const char *name, const char *base)
{
	if (!*name)
		return "is empty";
	if (strlen(name) > LORA_NAME_BYTES)
		return "has more than 256 bytes";
	if (base && !strcmp(name, base))
		return "is that of the base model";
	return text_wrong(name);
}

const char *lora_path_wrong(const char *path)
{
	if (!*path)
		return "is empty";
	return strlen(path) > LORA_PATH_BYTES ? "has more than 4095 bytes" : text_wrong(path);
}

static struct lora_name **place_of(const struct lora_store *store, const char *name)
{
	struct lora_name **at = (struct lora_name **)&store->names;
	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

const struct lora_name *lora_store_find(const struct lora_store *store, const char *name)
{
	return *place_of(store, name);
}

/* ---- weights ---- */

static void drop_unused(struct lora_store *store, struct lora_weights *weights)
{
	struct lora_weights **at = &store->weights;
	if (weights->users || weights->named)
		return;
	while (*at != weights)
		at = &(*at)->next;
	*at = weights->next;
	store->bytes -= weights->adapter.bytes;
	lora_adapter_finish(&weights->adapter);
	free(weights);
}

static void take_name(struct lora_store *store, struct lora_name *name)
{
	struct lora_weights *weights = name->weights;
	name->weights = NULL;
	if (!weights)
		return;
	weights->named = false;
	drop_unused(store, weights);
}

/* Weights could be forgotten that no request uses. */
static struct lora_name *least_asked(const struct lora_store *store, const struct lora_name *except)
{
	struct lora_name *least = NULL;
	for (struct lora_name *name = store->names; name; name = name->next)
		if (name != except && !name->pinned && name->weights && !name->weights->users &&
		    (!least || name->asked < least->asked))
			least = name;
	return least;
}

/* Bytes that could be had for the name `own`, or any (NULL). */
static size_t room_for(const struct lora_store *store, const struct lora_name *own)
{
	size_t kept = store->bytes;
	for (const struct lora_name *name = store->names; name; name = name->next)
		if (name->weights && !name->weights->users && (name == own || !name->pinned))
			kept -= name->weights->adapter.bytes;
	return kept < store->max_bytes ? store->max_bytes - kept : 0;
}

static struct lora_weights *add_weights(struct lora_store *store, struct lora_adapter *adapter)
{
	struct lora_weights *weights = calloc(1, sizeof(*weights));
	if (!weights)
		return NULL;
	weights->adapter = *adapter;
	weights->version = ++store->last_version;
	weights->next = store->weights;
	store->weights = weights;
	store->bytes += adapter->bytes;
	*adapter = (struct lora_adapter){0};
	return weights;
}

struct lora_weights *lora_store_put_unnamed(struct lora_store *store, struct lora_adapter *adapter)
{
	return add_weights(store, adapter);
}

static struct lora_name *new_name(const char *name, const char *path)
{
	struct lora_name *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->name = strdup(name);
	made->path = strdup(path);
	if (made->name && made->path)
		return made;
	free(made->name);
	free(made->path);
	free(made);
	return NULL;
}

static void destroy_name(struct lora_name *name)
{
	free(name->name);
	free(name->path);
	free(name);
}

enum md_status lora_store_put(struct lora_store *store, const char *name, const char *path, bool pinned,
			      struct lora_adapter *adapter, struct md_error *err)
{
	struct lora_name **at = place_of(store, name), *old = *at;
	size_t bytes = adapter->bytes, room = room_for(store, old);
	if (bytes > room)
		return md_error_set(
		    err, MD_ERR_NO_MEMORY,
		    "the adapter takes %zu bytes of host memory; %zu of --lora-bytes %zu are neither pinned "
		    "nor in use",
		    bytes, room, store->max_bytes);
	struct lora_name *made = new_name(name, path);
	struct lora_weights *weights = made ? add_weights(store, adapter) : NULL;
	if (!weights) {
		if (made)
			destroy_name(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an adapter");
	}
	weights->named = true;
	made->weights = weights;
	made->pinned = pinned;
	made->asked = ++store->clock;
	made->next = old ? old->next : NULL;
	*at = made;
	store->name_count += !old;
	if (old) {
		take_name(store, old);
		destroy_name(old);
	}
	for (struct lora_name *least; store->bytes > store->max_bytes && (least = least_asked(store, made));
	     store->forgotten++)
		take_name(store, least);
	return MD_OK;
}

void lora_store_remove(struct lora_store *store, const char *name)
{
	struct lora_name **at = place_of(store, name), *gone = *at;
	if (!gone)
		return;
	*at = gone->next;
	store->name_count--;
	take_name(store, gone);
	destroy_name(gone);
}

/* ---- users ---- */

struct lora_weights *lora_store_take(struct lora_store *store, const char *name)
{
	struct lora_name *found = *place_of(store, name);
	if (!found)
		return NULL;
	found->asked = ++store->clock;
	if (found->weights)
		lora_store_use(found->weights);
	return found->weights;
}

void lora_store_use(struct lora_weights *weights)
{
	weights->users++;
}

void lora_store_leave(struct lora_store *store, struct lora_weights *weights)
{
	assert(weights->users);
	weights->users--;
	drop_unused(store, weights);
}

void lora_store_init(struct lora_store *store, size_t max_bytes)
{
	*store = (struct lora_store){.max_bytes = max_bytes};
}

void lora_store_finish(struct lora_store *store)
{
	while (store->names)
		lora_store_remove(store, store->names->name);
	while (store->weights) {
		store->weights->users = 0;
		drop_unused(store, store->weights);
	}
}
