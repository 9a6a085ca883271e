/* SPDX-License-Identifier: Apache-2.0 */
/* peers: other nodes, and the models that they serve. */
#include <string.h>

#include "worker/config/parts.h"

#define PEERS_MAX 1000u
#define KEY_MAX 8000u        /* bytes; worker/core/forward.c has room for them */
#define MODELS_MAX 100000u   /* of all peers */
#define NAME_MAX_BYTES 1000u /* encoded in a target it is three times as long */

struct peer_source {
	struct md_config_peer peer;
	struct md_tree *filters, *timeouts;
};

#define SOURCE(member) offsetof(struct peer_source, member)
#define PEER(member) offsetof(struct peer_source, peer.member)

static const struct md_config_key peer_keys[] = {
    MD_KEY("proxy", MD_KEY_TEXT, PEER(proxy), NULL),         MD_KEY("models", MD_KEY_TEXTS, PEER(models), NULL),
    MD_KEY("apiKey", MD_KEY_TEXT, PEER(api_key), NULL),      MD_KEY("filters", MD_KEY_NODE, SOURCE(filters), NULL),
    MD_KEY("timeouts", MD_KEY_NODE, SOURCE(timeouts), NULL),
};
const struct md_config_keys md_config_peer_keys = MD_KEYS("peers.*.", peer_keys);

static enum md_status check_models(struct md_config_build *build, const struct md_tree *node,
				   const struct md_config_texts *models)
{
	if (!models->count)
		return md_tree_refuse_place(node, build->err, "models is missing: a list of at least one is wanted");
	for (uint32_t i = 0; i < models->count; i++) {
		size_t size = strlen(models->items[i]);
		if (!size)
			return md_tree_refuse_place(node, build->err, "a model has no name");
		if (size > NAME_MAX_BYTES)
			return md_tree_refuse_place(
			    md_tree_find(node, "models"), build->err,
			    "the name of a model has at most %u bytes, and \"%.60s...\" has %zu", NAME_MAX_BYTES,
			    models->items[i], size);
	}
	return MD_OK;
}

/* What a header can't have would be left out of it, and the request would go without its key. */
static enum md_status check_key(struct md_config_build *build, const struct md_tree *node, const char *key)
{
	if (key && strlen(key) > KEY_MAX)
		return md_tree_refuse_place(md_tree_find(node, "apiKey"), build->err, "the key has more than %u bytes",
					    KEY_MAX);
	for (; key && *key; key++)
		if ((unsigned char)*key < ' ' || *key == 0x7f)
			return md_tree_refuse_place(
			    md_tree_find(node, "apiKey"), build->err,
			    "the key has a line end or another control character in it, as a text "
			    "behind | has at its end");
	return MD_OK;
}

/* As addresses of OpenAI's API are often given. */
static enum md_status note_path(struct md_config_build *build, const struct md_tree *proxy, const char *url)
{
	size_t size = strlen(url);
	size -= size && url[size - 1] == '/';
	if (size < 3 || strncmp(url + size - 3, "/v1", 3) != 0)
		return MD_OK;
	return md_config_note(build, proxy,
			      "requests bring /v1 themselves, so the peer is asked for /v1/v1/...: leave /v1 out");
}

static enum md_status read_peer(struct md_config_build *build, struct md_tree *node, struct md_config_peer *out)
{
	struct md_macro_scope scope = {.forest = build->forest, .global = &build->macros};
	struct peer_source source = {.peer.id = node->key};
	const struct md_tree *proxy;
	if (!*node->key)
		return md_tree_refuse_place(node, build->err, "the peer has no name");
	MD_FORWARD(md_macros_expand(&scope, node, build->err));
	MD_FORWARD(md_keys_read(build, &md_config_peer_keys, node, &source));
	proxy = md_tree_find(node, "proxy");
	if (!proxy || !*source.peer.proxy)
		return md_tree_refuse_place(node, build->err, "proxy is missing: the peer's URL");
	MD_FORWARD(md_config_check_url(build, proxy, source.peer.proxy));
	MD_FORWARD(note_path(build, proxy, source.peer.proxy));
	MD_FORWARD(check_key(build, node, source.peer.api_key));
	MD_FORWARD(check_models(build, node, &source.peer.models));
	MD_FORWARD(md_config_read_filters(build, source.filters, false, &source.peer.filters));
	MD_FORWARD(md_config_read_timeouts(build, source.timeouts, true, &source.peer.timeouts));
	*out = source.peer;
	return MD_OK;
}

enum md_status md_config_read_peers(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_tree *mapping = sections->peers;
	struct md_config_peer *peers;
	uint64_t models = 0;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping)
		return MD_OK;
	if (mapping->count > PEERS_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u peers", PEERS_MAX);
	peers = md_config_take(build, mapping->count, sizeof(*peers));
	if (!peers)
		return MD_ERR_NO_MEMORY;
	build->config->peers = peers;
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		MD_FORWARD(read_peer(build, at, &peers[build->config->peer_count]));
		models += peers[build->config->peer_count++].models.count;
		if (models > MODELS_MAX)
			return md_tree_refuse_place(at, build->err, "peers have more than %u models", MODELS_MAX);
	}
	return MD_OK;
}
