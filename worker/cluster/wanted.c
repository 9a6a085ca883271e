/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/wanted.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/cluster/etcd.h"
#include "worker/cluster/record.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

struct keys {
	json_t *placements, *pins;
	json_t *candidates; /* {"KEY": {"node": "...", "since": its create_revision}} */
};

struct md_wanted {
	struct keys known, coming; /* coming: all NULL: no reading is under way */
};

static bool begin(struct keys *keys)
{
	*keys = (struct keys){json_object(), json_object(), json_object()};
	return keys->placements && keys->pins && keys->candidates;
}

static void drop(struct keys *keys)
{
	json_decref(keys->placements);
	json_decref(keys->pins);
	json_decref(keys->candidates);
	*keys = (struct keys){0};
}

struct md_wanted *md_wanted_create(void)
{
	struct md_wanted *wanted = calloc(1, sizeof(*wanted));
	if (wanted && begin(&wanted->known))
		return wanted;
	md_wanted_destroy(wanted);
	return NULL;
}

void md_wanted_destroy(struct md_wanted *wanted)
{
	if (!wanted)
		return;
	drop(&wanted->known);
	drop(&wanted->coming);
	free(wanted);
}

void md_wanted_begin(struct md_wanted *wanted)
{
	drop(&wanted->coming);
	if (!begin(&wanted->coming))
		drop(&wanted->coming);
}

void md_wanted_end(struct md_wanted *wanted)
{
	if (!wanted->coming.placements)
		return;
	drop(&wanted->known);
	wanted->known = wanted->coming;
	wanted->coming = (struct keys){0};
}

/* ---- values ---- */

static json_t *read_value(const char *key, const struct md_buf *value, bool ordered)
{
	struct md_error err = {0};
	json_t *root = md_record_read_state((const char *)value->data, value->size, &err);
	if (!root)
		md_warn("cluster: %.200s is left out: %s: %s", key, err.message, md_record_remedy(err.status, ordered));
	return root;
}

static void set(json_t *keys, const char *name, json_t *value)
{
	if (value)
		json_object_set_new(keys, name, value);
	else
		json_object_del(keys, name);
}

static json_t *read_placement(const char *key, const struct md_buf *value)
{
	json_t *root = read_value(key, value, false), *models = json_object_get(root, "models");
	if (root && !json_is_object(models))
		md_warn("cluster: %.200s is left out: models: an object is wanted: %s", key,
			md_record_remedy(MD_ERR_CORRUPT, false));
	models = json_is_object(models) ? json_incref(models) : NULL;
	json_decref(root);
	return models;
}

static json_t *read_pin(const char *key, const struct md_buf *value)
{
	json_t *root = read_value(key, value, true), *node = json_object_get(root, "node");
	bool named = json_is_string(node) && md_config_is_node_name(json_string_value(node));
	if (root && !named)
		md_warn("cluster: %.200s is left out: node: the name of a node is wanted: %s", key,
			md_record_remedy(MD_ERR_CORRUPT, true));
	node = named ? json_incref(node) : NULL;
	json_decref(root);
	return node;
}

/* The value is what the node has campaigned with: its name. */
static json_t *read_candidate(const json_t *pair, const struct md_buf *value)
{
	const char *name = (const char *)value->data;
	if (strlen(name) != value->size || !md_config_is_node_name(name))
		return NULL;
	return json_pack("{s:s, s:I}", "node", name, "since", (json_int_t)md_etcd_number(pair, "create_revision"));
}

static const char *behind(const char *key, const char *folder)
{
	size_t size = strlen(folder);
	return !strncmp(key, folder, size) && key[size] ? key + size : NULL;
}

void md_wanted_take(struct md_wanted *wanted, const char *key, const json_t *pair, const struct md_buf *value)
{
	struct keys *keys = wanted->coming.placements ? &wanted->coming : &wanted->known;
	const char *name;
	if ((name = behind(key, "placements/")) && md_config_is_node_name(name))
		set(keys->placements, name, value ? read_placement(key, value) : NULL);
	else if ((name = behind(key, "pins/")))
		set(keys->pins, name, value ? read_pin(key, value) : NULL);
	else if ((name = behind(key, "leader/")))
		set(keys->candidates, name, value ? read_candidate(pair, value) : NULL);
}

/* ---- what is known ---- */

const json_t *md_wanted_placement(const struct md_wanted *wanted, const char *node)
{
	return json_object_get(wanted->known.placements, node);
}

const json_t *md_wanted_placements(const struct md_wanted *wanted)
{
	return wanted->known.placements;
}

const json_t *md_wanted_pins(const struct md_wanted *wanted)
{
	return wanted->known.pins;
}

/* Of etcd's election, whoever stands longest. */
const char *md_wanted_leader(const struct md_wanted *wanted)
{
	const char *key, *leader = NULL;
	json_int_t first = 0;
	json_t *candidate;
	json_object_foreach(wanted->known.candidates, key, candidate)
	{
		json_int_t since = json_integer_value(json_object_get(candidate, "since"));
		if (leader && since >= first)
			continue;
		first = since;
		leader = json_string_value(json_object_get(candidate, "node"));
	}
	return leader;
}

/* ---- printing ---- */

static char *print(json_t *value)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(value);
	return text;
}

char *md_wanted_print_placement(const json_t *models)
{
	return print(json_pack("{s:i, s:O}", "format", MD_RECORD_FORMAT, "models", models));
}

char *md_wanted_print_pin(const char *node)
{
	return print(json_pack("{s:i, s:s}", "format", MD_RECORD_FORMAT, "node", node));
}
