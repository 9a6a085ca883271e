/* SPDX-License-Identifier: Apache-2.0 */
/* Ledgers that bills are no longer to miss: their keys are removed, one after the other, each as it was when that was said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cluster/cluster_ledgers.h"
#include "worker/cluster/cluster_parts.h"

static const char *text_of(const json_t *entry, const char *key)
{
	const char *text = json_string_value(json_object_get(entry, key));
	return text ? text : "";
}

static int64_t number_of(const json_t *entry, const char *key)
{
	return json_integer_value(json_object_get(entry, key));
}

struct forget_order {
	struct md_cluster *cluster;
	struct md_etcd_call *call;
	json_t *left; /* [[ID, revision], ...], of which the last one is being removed */
	void (*done)(void *context, const struct md_error *err); /* NULL: nobody waits */
	void *context;
};

static void end_order(struct forget_order *order, const struct md_error *err)
{
	if (order->done)
		order->done(order->context, err);
	json_decref(order->left);
	free(order);
}

/* True: it has begun. */
static bool remove_next(struct forget_order *order);

static void on_removed(void *context, const json_t *answer, const struct md_error *err)
{
	struct forget_order *order = context;
	struct md_error why = {0};
	order->call = NULL;
	const json_t *last = json_array_get(order->left, json_array_size(order->left) - 1);
	if (answer && !md_etcd_succeeded(answer) && md_etcd_found(answer))
		md_error_set(&why, MD_ERR_BUSY,
			     "the key of ledger %s has been changed meanwhile, maybe because its node is back: it was "
			     "left so; look at it, and say it again if it is still wanted",
			     json_string_value(json_array_get(last, 0)));
	else if (!answer)
		why = *err;
	json_array_remove(order->left, json_array_size(order->left) - 1);
	if (why.status == MD_OK && json_array_size(order->left) && !remove_next(order))
		md_error_set(&why, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	if (!order->call)
		end_order(order, why.status == MD_OK ? NULL : &why);
}

static bool remove_next(struct forget_order *order)
{
	const json_t *last = json_array_get(order->left, json_array_size(order->left) - 1);
	char key[400];
	snprintf(key, sizeof(key), "%sledgers/%s", order->cluster->prefix, json_string_value(json_array_get(last, 0)));
	struct md_etcd_pair pair = {key, NULL};
	order->call = md_etcd_put_if(order->cluster->etcd, json_integer_value(json_array_get(last, 1)), &pair, 1, 0,
				     on_removed, order);
	return order->call;
}

/* The last one that the folder of its --state has had. */
static bool is_newest(const json_t *known, const json_t *asked)
{
	const char *id;
	json_t *entry;
	json_object_foreach((json_t *)known, id,
			    entry) if (!strcmp(text_of(entry, "identity"), text_of(asked, "identity")) &&
				       number_of(entry, "first") > number_of(asked, "first")) return false;
	return true;
}

static const struct md_view_node *find_owner(const struct md_cluster *cluster, const char *identity)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++)
		if (nodes[i]->record && !strcmp(nodes[i]->record->identity, identity))
			return nodes[i];
	return NULL;
}

static void list_named(const json_t *known, const char *name, json_t *list)
{
	const char *id;
	json_t *entry;
	json_object_foreach((json_t *)known, id, entry) if (!strcmp(text_of(entry, "node"), name))
	    json_array_append_new(list, json_pack("[s, I]", id, (json_int_t)number_of(entry, "revision")));
}

static enum md_status list_wanted(const struct md_cluster *cluster, const char *name, json_t *list,
				  struct md_error *err)
{
	const json_t *known = md_ledgers_known(cluster->ledgers);
	const struct md_view_node *node = md_view_find(cluster->view, name);
	const json_t *entry = json_object_get(known, name);
	list_named(known, name, list);
	if (json_array_size(list) && node && (node->record || *node->why))
		return md_error_set(
		    err, MD_ERR_BUSY,
		    "node %s is there%s: what it has used is in bills; of an earlier ledger of it say the ID, as "
		    "cluster bill names it",
		    name, node->ended ? ", although its lease has ended" : "");
	if (json_array_size(list))
		return MD_OK;
	if (!entry)
		return md_error_set(
		    err, MD_ERR_NOT_FOUND,
		    "no bill misses \"%.64s\": the name of a node that is gone, or the ID of a ledger, is wanted",
		    name);
	node = find_owner(cluster, text_of(entry, "identity"));
	if (node && is_newest(known, entry) &&
	    !json_object_get(entry, "copy_of")) /* a copy is put again, if the node has it */
		return md_error_set(err, MD_ERR_BUSY,
				    "node %s, whose ledger it is, is there: what it has used is in bills", node->name);
	json_array_append_new(list, json_pack("[s, I]", name, (json_int_t)number_of(entry, "revision")));
	return MD_OK;
}

void *md_ledgers_forget(struct md_cluster *cluster, const char *name,
			void (*done)(void *context, const struct md_error *err), void *context, struct md_error *err)
{
	struct forget_order *order = calloc(1, sizeof(*order));
	json_t *list = json_array();
	if (!order || !list)
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the order");
	else if (list_wanted(cluster, name, list, err) == MD_OK) {
		*order = (struct forget_order){.cluster = cluster, .left = list, .done = done, .context = context};
		if (remove_next(order))
			return order;
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	}
	json_decref(list);
	free(order);
	return NULL;
}

void md_ledgers_leave_order(void *context)
{
	((struct forget_order *)context)->done = NULL;
}
