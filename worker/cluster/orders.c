/* SPDX-License-Identifier: Apache-2.0 */
/* What users order of the cluster: a key is read, and written only if nobody has changed it since. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "worker/cluster/cluster_parts.h"

struct order {
	struct md_cluster *cluster;
	struct md_etcd_call *call;
	char *key, *value; /* value: NULL: the key is to be deleted */
	void (*done)(void *context, const struct md_error *err);
	void *context;
};

static void free_order(struct order *order)
{
	free(order->key);
	free(order->value);
	free(order);
}

static void end_order(struct order *order, const struct md_error *err)
{
	if (order->done)
		order->done(order->context, err);
	free_order(order);
}

/* Whether etcd has what is ordered. */
static bool stands(const struct order *order, const json_t *found)
{
	struct md_error ignored = {0};
	struct md_buf text = {0};
	if (!found || !order->value)
		return !found && !order->value;
	json_t *has = md_etcd_bytes(found, "value", &text)
			  ? md_record_read_state((const char *)text.data, text.size, &ignored)
			  : NULL;
	json_t *ordered = md_record_read_state(order->value, strlen(order->value), &ignored);
	bool same = has && ordered && json_equal(has, ordered);
	json_decref(has);
	json_decref(ordered);
	md_buf_finish(&text);
	return same;
}

/* Somebody else's order is not overwritten. One that was carried out, and whose answer was lost, stands there already. */
static void on_written(void *context, const json_t *answer, const struct md_error *err)
{
	struct order *order = context;
	struct md_error changed = {0};
	struct md_buf text = {0};
	const json_t *found = md_etcd_found(answer);
	if (!answer || md_etcd_succeeded(answer) || stands(order, found)) {
		end_order(order, answer ? NULL : err);
		return;
	}
	bool read = found && md_etcd_bytes(found, "value", &text);
	md_error_set(
	    &changed, MD_ERR_BUSY,
	    "%.200s has been changed meanwhile by somebody else%s%.100s: it was left so; look at it, and say it "
	    "again if it is still wanted",
	    order->key, read ? ", to " : ", who has removed it", read ? (const char *)text.data : "");
	md_buf_finish(&text);
	end_order(order, &changed);
}

static void on_read(void *context, const json_t *answer, const struct md_error *err)
{
	struct order *order = context;
	const json_t *found = json_array_get(json_object_get(answer, "kvs"), 0);
	struct md_etcd_pair pair = {order->key, order->value};
	struct md_error lacks = {0};
	order->call = NULL;
	if (!answer || (!found && !order->value)) {
		end_order(order, answer ? NULL : err);
		return;
	}
	order->call =
	    md_etcd_put_if(order->cluster->etcd, md_etcd_number(found, "mod_revision"), &pair, 1, 0, on_written, order);
	if (order->call)
		return;
	md_error_set(&lacks, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	end_order(order, &lacks);
}

/* value is taken over; NULL with `wanted`: out of memory. */
static void *begin(struct md_cluster *cluster, const char *folder, const char *name, char *value, bool wanted,
		   void (*done)(void *context, const struct md_error *err), void *context)
{
	struct order *order = wanted && !value ? NULL : calloc(1, sizeof(*order));
	if (!order) {
		free(value);
		return NULL;
	}
	*order = (struct order){.cluster = cluster, .value = value, .done = done, .context = context};
	if (asprintf(&order->key, "%s%s/%s", cluster->prefix, folder, name) < 0)
		order->key = NULL;
	order->call = order->key ? md_etcd_get(cluster->etcd, order->key, on_read, order) : NULL;
	if (order->call)
		return order;
	free_order(order);
	return NULL;
}

void md_cluster_forget(void *context)
{
	((struct order *)context)->done = NULL;
}

void *md_cluster_wish(struct md_cluster *cluster, const char *node, enum md_cluster_wish wanted,
		      void (*done)(void *context, const struct md_error *err), void *context)
{
	static const enum md_wish wishes[] = {MD_WISH_NONE, MD_WISH_CORDON, MD_WISH_DRAIN};
	bool wish = wishes[wanted] != MD_WISH_NONE;
	return begin(cluster, "wishes", node, wish ? md_wish_print(wishes[wanted]) : NULL, wish, done, context);
}

void *md_cluster_move(struct md_cluster *cluster, const char *model, const char *node,
		      void (*done)(void *context, const struct md_error *err), void *context)
{
	return begin(cluster, "pins", model, node ? md_wanted_print_pin(node) : NULL, node != NULL, done, context);
}

enum md_status md_cluster_can_move(const struct md_cluster *cluster, const char *model, const char *node,
				   struct md_error *err)
{
	if (!node)
		return json_object_get(md_wanted_pins(cluster->wanted), model)
			   ? MD_OK
			   : md_error_set(err, MD_ERR_NOT_FOUND, "model %.200s was not moved to a node", model);
	const struct md_view_node *there = md_view_find(cluster->view, node);
	const struct md_record_model *found = there && there->record ? md_record_find(there->record, model) : NULL;
	if (!there || !there->record)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the cluster has no node \"%.64s\"", node);
	if (!found)
		return md_error_set(err, MD_ERR_NOT_FOUND, "node %s has no model \"%.200s\" in its configuration", node,
				    model);
	if (strcmp(found->id, model) != 0 || found->base)
		return md_error_set(err, MD_ERR_INVALID, "%.200s is %s of %s, which is what can be moved", model,
				    found->base ? "an adapter" : "an alias", found->base ? found->base : found->id);
	if (!there->record->placed)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "node %s takes no part in placement: medusa.cluster.placement is false there",
				    node);
	return MD_OK;
}
