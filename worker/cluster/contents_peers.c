/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say of their contents in etcd: PREFIX/contents/NAME, which goes with the node's lease. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/cluster/contents_parts.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define FOLDER "contents/"
#define VALUE_MAX (1u << 20) /* etcd takes 1.5 MB */
#define ENTRY_ROOM 400u /* bytes of an entry at most, with an ID whose letters are all escaped: more for the longest */
#define AGAIN_NS UINT64_C(1000000000)

enum md_status md_contents_peers_begin(struct md_contents *contents, struct md_error *err)
{
	const struct md_cluster *cluster = contents->worker->cluster;
	contents->nodes = json_object();
	if (cluster && asprintf(&contents->key, "%s" FOLDER "%s", cluster->prefix, cluster->name) < 0)
		contents->key = NULL;
	return contents->nodes && (contents->key || !cluster)
		   ? MD_OK
		   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what nodes have");
}

void md_contents_peers_finish(struct md_contents *contents)
{
	md_etcd_cancel(contents->writing);
	json_decref(contents->nodes);
	json_decref(contents->coming);
	free(contents->key);
	free(contents->written);
}

/* ---- reading ---- */

void md_contents_begin(struct md_contents *contents)
{
	if (!contents)
		return;
	json_decref(contents->coming);
	contents->coming = json_object();
}

void md_contents_end(struct md_contents *contents)
{
	if (!contents || !contents->coming)
		return;
	json_decref(contents->nodes);
	contents->nodes = contents->coming;
	contents->coming = NULL;
}

/* What is no content is left out: readers rely on the rest. {"models": as they were said, "hashes": {HASH: its bytes}}: blocks are looked for by hash. */
static json_t *read_models(const char *key, const struct md_buf *value)
{
	struct md_error err = {0};
	json_t *root = md_record_read_state((const char *)value->data, value->size, &err), *model;
	json_t *models = json_object_get(root, "models"), *made = json_object(), *hashes = json_object();
	const char *id;
	if (!root)
		md_warn("cluster: %.200s is left out: %s: %s", key, err.message, md_record_remedy(err.status, false));
	json_object_foreach(models, id, model)
	{
		const char *hash = json_string_value(json_object_get(model, "content"));
		const json_t *bytes = json_object_get(model, "bytes");
		if (!hash || !md_content_is_hash(hash) || !json_is_integer(bytes) || json_integer_value(bytes) < 0)
			continue;
		json_object_set(made, id, model);
		json_object_set(hashes, hash, json_object_get(model, "bytes"));
	}
	json_decref(root);
	return json_pack("{s:o, s:o}", "models", made, "hashes", hashes);
}

void md_contents_take(struct md_contents *contents, const char *key, const struct md_buf *value)
{
	size_t folder = strlen(FOLDER);
	if (!contents || strncmp(key, FOLDER, folder) != 0 || !md_config_is_node_name(key + folder))
		return;
	json_t *nodes = contents->coming ? contents->coming : contents->nodes;
	const char *name = key + folder;
	json_t *models = value ? read_models(key, value) : NULL;
	if (models)
		json_object_set_new(nodes, name, models);
	else
		json_object_del(nodes, name);
	if (!strcmp(name, contents->worker->cluster->name) && !value)
		contents->changed = true; /* somebody has removed it */
}

/* ---- what is known ---- */

const char *md_contents_of(const struct md_contents *contents, const char *node, const char *model)
{
	const json_t *models = contents ? json_object_get(json_object_get(contents->nodes, node), "models") : NULL;
	return json_string_value(json_object_get(json_object_get(models, model), "content"));
}

/* The bytes of a content, as the node says; NULL: the node does not have it. */
static const json_t *find_content(const struct md_contents *contents, const struct md_view_node *node, const char *hash)
{
	return json_object_get(json_object_get(json_object_get(contents->nodes, node->name), "hashes"), hash);
}

static bool can_be_asked(const struct md_cluster *cluster, const struct md_view_node *node)
{
	return md_view_has_lease(node) && strcmp(node->name, cluster->name) != 0;
}

uint32_t md_contents_sources(void *context, const char *hash, struct md_view_node **list, uint32_t most)
{
	const struct md_contents *contents = context;
	const struct md_cluster *cluster = contents->worker->cluster;
	uint32_t count, used = 0;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count && used < most; i++)
		if (can_be_asked(cluster, nodes[i]) && find_content(contents, nodes[i], hash))
			list[used++] = nodes[i];
	return used;
}

bool md_contents_agreed(const struct md_contents *contents, const char *model, char hash[MD_CONTENT_HASH_TEXT],
			char *why, size_t size)
{
	const struct md_cluster *cluster = contents->worker->cluster;
	uint32_t count;
	const char *first = NULL, *found = NULL;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	*why = '\0';
	for (uint32_t i = 0; i < count; i++) {
		const char *there =
		    can_be_asked(cluster, nodes[i]) ? md_contents_of(contents, nodes[i]->name, model) : NULL;
		if (there && found && strcmp(there, found) != 0) {
			snprintf(why, size,
				 "nodes have different files for it (%.60s: %.12s..., %.60s: %.12s...): say which one "
				 "in medusa.content",
				 first, found, nodes[i]->name, there);
			return false;
		}
		if (there && !found) {
			found = there;
			first = nodes[i]->name;
		}
	}
	if (found)
		snprintf(hash, MD_CONTENT_HASH_TEXT, "%s", found);
	return found;
}

uint64_t md_contents_bytes_of(const struct md_contents *contents, const char *hash)
{
	const struct md_cluster *cluster = contents->worker->cluster;
	struct md_view_node *node;
	if (!cluster || !md_contents_sources((void *)contents, hash, &node, 1))
		return 0;
	uint64_t bytes = (uint64_t)json_integer_value(find_content(contents, node, hash));
	return bytes ? bytes : 1;
}

/* ---- writing ---- */

static char *print(const struct md_contents *contents)
{
	json_t *models = json_object();
	size_t size = 0;
	for (uint32_t i = 0; i < contents->count; i++) {
		const struct md_contents_entry *entry = &contents->entries[i];
		if (!entry->content)
			continue;
		size += ENTRY_ROOM + strlen(entry->id);
		if (size > VALUE_MAX) {
			md_warn("cluster: this node has the contents of more models than a key of etcd takes: others "
				"don't learn of %s and those behind it",
				entry->id);
			break;
		}
		json_object_set_new(models, entry->id,
				    json_pack("{s:s, s:I}", "content", entry->content->hash, "bytes",
					      (json_int_t)entry->content->tree.bytes));
	}
	json_t *root = json_pack("{s:i, s:o}", "format", MD_RECORD_FORMAT, "models", models);
	char *text = root ? md_jansson_print(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

static void on_written(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_contents *contents = context;
	(void)err;
	contents->writing = NULL;
	if (md_etcd_succeeded(answer)) {
		contents->stands = md_etcd_revision(answer);
		return;
	}
	contents->changed = true;
	contents->writing_rests = md_clock_ns() + AGAIN_NS;
	if (answer)
		contents->stands = md_etcd_number(md_etcd_found(answer), "mod_revision");
}

/* As the node's state: only in the place of what this node has put before. */
void md_contents_tell(struct md_contents *contents)
{
	struct md_cluster *cluster = contents->worker->cluster;
	int64_t lease = cluster ? md_member_lease(cluster->member) : 0;
	if (!lease || contents->writing || md_clock_ns() < contents->writing_rests ||
	    (lease == contents->lease && !contents->changed))
		return;
	char *text = print(contents);
	if (!text)
		return;
	struct md_etcd_pair pair = {contents->key, text};
	contents->writing = md_etcd_put_if(cluster->etcd, contents->stands, &pair, 1, lease, on_written, contents);
	if (contents->writing) {
		contents->lease = lease;
		contents->changed = false;
	}
	free(text);
}
