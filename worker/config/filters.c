/* SPDX-License-Identifier: Apache-2.0 */
/* What is changed in requests: stripParams, setParams, setParamsByID; and the timeouts of connections. */
#include <string.h>

#include "worker/config/keys.h"

struct filter_nodes {
	const char *strip, *older_strip;
	struct md_tree *set, *by_id;
};

static const struct md_config_key filter_keys[] = {
    MD_KEY("stripParams", MD_KEY_TEXT, offsetof(struct filter_nodes, strip), NULL),
    MD_KEY("strip_params", MD_KEY_TEXT, offsetof(struct filter_nodes, older_strip), NULL),
    MD_KEY("setParams", MD_KEY_NODE, offsetof(struct filter_nodes, set), NULL),
    MD_KEY("setParamsByID", MD_KEY_NODE, offsetof(struct filter_nodes, by_id), NULL),
};
const struct md_config_keys md_config_filter_keys = MD_KEYS("models.*.filters.", filter_keys);
/* Filters of peers are the same, but for two keys. */
static const struct md_config_key peer_filter_keys[] = {
    MD_KEY("stripParams", MD_KEY_TEXT, offsetof(struct filter_nodes, strip), NULL),
    MD_KEY("setParams", MD_KEY_NODE, offsetof(struct filter_nodes, set), NULL),
};
const struct md_config_keys md_config_peer_filter_keys = MD_KEYS("peers.*.filters.", peer_filter_keys);

/* The names in "temperature, top_p"; "model" is never among them. */
static enum md_status read_strip(struct md_config_build *build, const struct md_tree *node, const char *list,
				 struct md_config_texts *strip)
{
	static const char between[] = ", \t\r\n";
	const char **items;
	size_t most = 1;
	for (const char *at = list; (at = strchr(at, ',')); at++)
		most++;
	items = md_config_take(build, most, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	*strip = (struct md_config_texts){.items = items};
	while (*(list += strspn(list, between))) {
		size_t length = strcspn(list, ","), kept = length;
		while (strchr(between, list[kept - 1]))
			kept--;
		if (kept == 5 && !strncmp(list, "model", 5)) {
			MD_FORWARD(md_config_note(build, node, "\"model\" is not stripped: requests need it"));
		} else {
			items[strip->count] = md_arena_copy(&build->forest->arena, list, kept);
			if (!items[strip->count++])
				return md_tree_memory(node->file, build->err);
		}
		list += length;
	}
	return MD_OK;
}

static enum md_status read_params(struct md_config_build *build, struct md_tree *node, struct md_config_params *params)
{
	struct md_config_param *items;
	MD_FORWARD(md_keys_mapping(build, node));
	items = md_config_take(build, node->count, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	params->items = items;
	for (const struct md_tree *at = node->first; at; at = at->next) {
		if (!strcmp(at->key, "model")) {
			MD_FORWARD(md_config_note(build, at, "\"model\" is not set by filters; use useModelName"));
			continue;
		}
		if (!*at->key)
			return md_tree_refuse_place(at, build->err, "the parameter has no name");
		items[params->count].path = at->key;
		items[params->count].value = md_keys_json(build, at);
		if (!items[params->count].value)
			return build->err->status;
		params->count++;
	}
	return MD_OK;
}

static enum md_status read_by_id(struct md_config_build *build, struct md_tree *node, struct md_config_filters *filters)
{
	struct md_config_params *by_id;
	MD_FORWARD(md_keys_mapping(build, node));
	by_id = md_config_take(build, node->count, sizeof(*by_id));
	if (!by_id)
		return MD_ERR_NO_MEMORY;
	filters->by_id = by_id;
	for (struct md_tree *at = node->first; at; at = at->next) {
		by_id[filters->by_id_count].name = at->key;
		MD_FORWARD(read_params(build, at, &by_id[filters->by_id_count]));
		filters->by_id_count++;
	}
	return MD_OK;
}

enum md_status md_config_read_filters(struct md_config_build *build, struct md_tree *node, bool local,
				      struct md_config_filters *filters)
{
	struct filter_nodes nodes = {.older_strip = ""};
	*filters = (struct md_config_filters){.set.name = ""};
	MD_FORWARD(md_keys_read(build, local ? &md_config_filter_keys : &md_config_peer_filter_keys, node, &nodes));
	if (!*nodes.strip)
		nodes.strip = nodes.older_strip;
	if (*nodes.strip)
		MD_FORWARD(read_strip(build, node, nodes.strip, &filters->strip));
	if (nodes.set)
		MD_FORWARD(read_params(build, nodes.set, &filters->set));
	return nodes.by_id ? read_by_id(build, nodes.by_id, filters) : MD_OK;
}

/* ---- timeouts ---- */

#define TIMEOUT(member) offsetof(struct md_config_timeouts, member)
/* What differs is how long an answer may take. */
#define TIMEOUT_KEYS(answer)                                                                                           \
	MD_KEY("connect", MD_KEY_SECONDS, TIMEOUT(connect_ns), "30"),                                                  \
	    MD_KEY("keepalive", MD_KEY_SECONDS, TIMEOUT(keepalive_ns), "30"),                                          \
	    MD_KEY("tlsHandshake", MD_KEY_SECONDS, TIMEOUT(tls_handshake_ns), "10"),                                   \
	    MD_KEY("expectContinue", MD_KEY_SECONDS, TIMEOUT(expect_continue_ns), "1"),                                \
	    MD_KEY("idleConn", MD_KEY_SECONDS, TIMEOUT(idle_ns), "90"),                                                \
	    MD_KEY("responseHeader", MD_KEY_SECONDS, TIMEOUT(response_header_ns), answer)

static const struct md_config_key timeout_keys[] = {TIMEOUT_KEYS("0")};
const struct md_config_keys md_config_timeout_keys = MD_KEYS("models.*.timeouts.", timeout_keys);
static const struct md_config_key peer_timeout_keys[] = {TIMEOUT_KEYS("60")};
const struct md_config_keys md_config_peer_timeout_keys = MD_KEYS("peers.*.timeouts.", peer_timeout_keys);

enum md_status md_config_read_timeouts(struct md_config_build *build, struct md_tree *node, bool peer,
				       struct md_config_timeouts *timeouts)
{
	return md_keys_read(build, peer ? &md_config_peer_timeout_keys : &md_config_timeout_keys, node, timeouts);
}
