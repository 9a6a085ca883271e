/* SPDX-License-Identifier: Apache-2.0 */
/* Files of models that travel between nodes: medusa.files and medusa.content of a model, and medusa.cluster's keys of them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "worker/config/parts.h"

#define FILES_MAX 256u
#define FOLDER_MAX 255u /* bytes of a folder's name */
#define HASH_DIGITS 64u
#define PLACES "models"

enum md_status md_config_check_store(const struct md_config_build *build, const struct md_tree *node,
				     const struct md_config_cluster *cluster)
{
	static const char *const keys[] = {"store_bytes", "fetch", "fetch_streams", "fetch_rate", "signed_by"};
	if (*cluster->store && cluster->fetch == MD_CONFIG_FETCH_ANY && !*cluster->key_file && !cluster->tls.given)
		return md_tree_refuse(
		    md_tree_find(node, "fetch"), build->err,
		    "medusa.cluster.tls or key_file is needed, too: without them nobody knows whose files these are");
	for (size_t i = 0; node && !*cluster->store && i < sizeof(keys) / sizeof(*keys); i++) {
		const struct md_tree *at = md_tree_find(node, keys[i]);
		if (at && at->kind != MD_TREE_NULL)
			return md_tree_refuse(at, build->err, "medusa.cluster.store is needed, too");
	}
	return MD_OK;
}

static bool is_plain(const char *id, size_t at)
{
	return isalnum((unsigned char)id[at]) || strchr("_-", id[at]) || (at && id[at] == '.');
}

enum md_status md_config_keep_store(struct md_config_build *build)
{
	const char *own = build->config->node.cluster.store;
	const char *store = build->previous ? build->previous->first_store : own ? own : "";
	size_t room = strlen(store) + 1;
	char *copy = md_config_take(build, room, 1);
	if (!copy)
		return MD_ERR_NO_MEMORY;
	memcpy(copy, store, room);
	build->config->first_store = copy;
	return MD_OK;
}

/* An ID may have any bytes: those that a folder's name had better not have are written as %XX. */
enum md_status md_config_content_place(struct md_config_build *build, const struct md_tree *model, const char **place)
{
	const char *wanted = build->config->node.cluster.store, *store = build->config->first_store, *id = model->key;
	size_t room, used;
	*place = NULL;
	if (!wanted || !*wanted || !*store)
		return MD_OK;
	room = strlen(store) + sizeof("/" PLACES "/") + 3 * strlen(id);
	char *made = md_config_take(build, room, 1);
	if (!made)
		return MD_ERR_NO_MEMORY;
	size_t before = used = (size_t)snprintf(made, room, "%s/" PLACES "/", store);
	for (size_t i = 0; id[i]; i++)
		used +=
		    (size_t)snprintf(made + used, room - used, is_plain(id, i) ? "%c" : "%%%02X", (unsigned char)id[i]);
	if (used - before <= FOLDER_MAX)
		*place = made; /* else it is refused where the model has files */
	return MD_OK;
}

static enum md_status check_hash(const struct md_config_build *build, const struct md_tree *medusa, const char *hash)
{
	if (strlen(hash) == HASH_DIGITS && strspn(hash, "0123456789abcdef") == HASH_DIGITS)
		return MD_OK;
	return md_tree_refuse(md_tree_find(medusa, "content"), build->err,
			      "%u hexadecimal digits are wanted, as `medusa-workerctl cluster models` shows them",
			      HASH_DIGITS);
}

/* The last part of a path, without slashes at its end. Empty: it has no name of its own. */
static void take_name(const char *path, const char **name, size_t *size)
{
	size_t end = strlen(path);
	while (end && path[end - 1] == '/')
		end--;
	size_t begin = end;
	while (begin && path[begin - 1] != '/')
		begin--;
	*name = path + begin;
	*size = end - begin;
	if ((*size == 1 && !strncmp(*name, ".", 1)) || (*size == 2 && !strncmp(*name, "..", 2)))
		*size = 0;
}

/* Two of them may not have one name, because they lie in one folder at their engine. */
static enum md_status check_names(const struct md_config_build *build, const struct md_tree *list,
				  const struct md_config_own *own)
{
	const char *name, *other;
	size_t size, other_size;
	for (uint32_t i = 0; i < own->sources.count; i++) {
		take_name(own->sources.items[i], &name, &size);
		if (!size)
			return md_tree_refuse_place(list, build->err,
						    "\"%.200s\" has no name: a file or a folder is wanted",
						    own->sources.items[i]);
		for (uint32_t j = 0; j < i; j++) {
			take_name(own->sources.items[j], &other, &other_size);
			if (size == other_size && !memcmp(name, other, size))
				return md_tree_refuse_place(
				    list, build->err,
				    "two of the model's files are called %.*s, and its engine finds them in one folder",
				    (int)size, name);
		}
	}
	return MD_OK;
}

/* The artifact is one of the model's files, and its engine gets it from there. */
static enum md_status add_artifact(struct md_config_build *build, const char *place, struct md_config_own *own)
{
	const char **items = md_config_take(build, own->sources.count + 1u, sizeof(*items)), *name;
	uint32_t count = 0;
	size_t size, room;
	if (!items)
		return MD_ERR_NO_MEMORY;
	items[count++] = own->artifact;
	for (uint32_t i = 0; i < own->sources.count; i++)
		if (strcmp(own->sources.items[i], own->artifact) != 0)
			items[count++] = own->sources.items[i];
	own->sources = (struct md_config_texts){items, count};
	take_name(own->artifact, &name, &size);
	room = strlen(place) + size + 2;
	char *path = md_config_take(build, room, 1);
	if (!path)
		return MD_ERR_NO_MEMORY;
	snprintf(path, room, "%s/%.*s", place, (int)size, name);
	own->artifact = path;
	return MD_OK;
}

enum md_status md_config_read_content(struct md_config_build *build, const struct md_tree *model, const char *place,
				      bool named, struct md_config_own *own)
{
	const struct md_tree *medusa = md_tree_find(model, "medusa");
	const struct md_tree *files = medusa ? md_tree_find(medusa, "files") : NULL;
	const char *store = build->config->node.cluster.store;
	own->place = NULL;
	bool later = store && *store && !*build->config->first_store;
	if (own->content && !*own->content)
		own->content = NULL;
	if (later && (own->sources.count || own->content))
		return md_tree_refuse_place(
		    model, build->err,
		    "medusa.files and content need medusa.cluster.store, which this daemon learns when it starts anew");
	if (!own->sources.count && !own->content)
		return named
			   ? md_tree_refuse_place(
				 model, build->err,
				 "${content} is the folder of the model's files: give medusa.files, or medusa.content")
			   : MD_OK;
	const struct md_tree *at = files ? files : md_tree_find(medusa, "content");
	if (!store || !*store)
		return md_tree_refuse_place(at, build->err, "medusa.cluster.store is needed, too");
	if (!place)
		return md_tree_refuse_place(model, build->err, "the ID is too long for the name of a folder");
	if (own->sources.count > FILES_MAX)
		return md_tree_refuse_place(at, build->err, "there are more than %u; name a folder", FILES_MAX);
	if (own->content)
		MD_FORWARD(check_hash(build, medusa, own->content));
	own->place = place;
	if (own->artifact)
		MD_FORWARD(add_artifact(build, place, own));
	return check_names(build, at, own);
}
