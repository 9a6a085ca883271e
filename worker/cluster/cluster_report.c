/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/metrics_text.h"
#include "worker/core/worker.h"

/* ---- this node ---- */

static const char *state_of(const struct md_cluster *cluster)
{
	static const char *const names[] = {
	    [MD_MEMBER_JOINING] = "joining", [MD_MEMBER_JOINED] = "joined", [MD_MEMBER_CLASHES] = "clashes"};
	return names[md_member_state(cluster->member)];
}

static uint32_t count_nodes(const struct md_cluster *cluster)
{
	uint32_t count, there = 0;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++)
		there += md_view_has_lease(nodes[i]);
	return there;
}

/* Names of nodes whose lease has ended. */
static json_t *list_ended(const struct md_cluster *cluster)
{
	json_t *list = json_array();
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++)
		if (nodes[i]->ended)
			json_array_append_new(list, json_string(nodes[i]->name));
	return list;
}

static uint32_t count_ended(const struct md_cluster *cluster)
{
	uint32_t count, ended = 0;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++)
		ended += nodes[i]->ended != 0;
	return ended;
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

json_t *md_cluster_report(const struct md_cluster *cluster)
{
	if (!cluster)
		return json_null();
	struct md_member_counts counts = md_member_counts_of(cluster->member);
	const char *lack = md_cluster_lack(cluster);
	struct md_leader_state leader = md_leader_state_of(cluster->leader);
	json_t *made = json_pack(
	    "{s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "node", cluster->name, "url",
	    cluster->url, "state", state_of(cluster), "etcd", md_etcd_endpoint(cluster->etcd), "reached",
	    cluster->reached, "current", md_view_is_current(cluster->view), "lack", text_or_null(lack), "nodes",
	    (json_int_t)count_nodes(cluster), "lease_ended", list_ended(cluster), "wish",
	    text_or_null(md_wish_name(cluster->wish)), "writes", (json_int_t)counts.writes, "leases",
	    (json_int_t)counts.leases, "changes", (json_int_t)md_view_changes(cluster->view), "passed",
	    (json_int_t)cluster->passed, "retries", (json_int_t)cluster->retries);
	json_t *placing = json_pack("{s:b, s:o, s:b, s:I, s:I, s:I}", "placement", cluster->settings.placement,
				    "leader", text_or_null(md_wanted_leader(cluster->wanted)), "leads", leader.leads,
				    "elections", (json_int_t)leader.elections, "rounds", (json_int_t)leader.rounds,
				    "placements", (json_int_t)leader.writes);
	json_object_update(made, placing);
	json_decref(placing);
	json_object_set_new(made, "prefixes", md_prefixes_report(cluster->prefixes));
	json_object_set_new(made, "tls", md_cluster_report_tls(cluster));
	json_object_set_new(made, "tenants_differ", md_cluster_report_differences(cluster));
	return made;
}

/* ---- all nodes ---- */

static const char *describe_state(const struct md_view_node *node)
{
	if (*node->why)
		return "unreadable";
	if (!node->record)
		return "gone";
	if (node->ended)
		return "lease ended";
	return node->draining ? "draining" : node->cordoned ? "cordoned" : "ready";
}

static json_t *describe_node(const struct md_cluster *cluster, const struct md_view_node *node)
{
	const struct md_record *record = node->record;
	return json_pack("{s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "node", node->name, "self",
			 !strcmp(node->name, cluster->name), "state", describe_state(node), "wish",
			 text_or_null(md_wish_name(node->wish)), "url", text_or_null(record ? record->url : NULL),
			 "version", text_or_null(record ? record->version : NULL), "why", text_or_null(node->why),
			 "gpus", (json_int_t)(record ? record->gpu_count : 0), "gpu_bytes",
			 (json_int_t)(record ? record->gpu_bytes : 0), "models",
			 (json_int_t)(record ? record->count : 0), "open", (json_int_t)md_view_open(node));
}

json_t *md_cluster_report_nodes(const struct md_cluster *cluster)
{
	json_t *list = json_array();
	uint32_t count = 0;
	struct md_view_node *const *nodes = cluster ? md_view_nodes(cluster->view, &count) : NULL;
	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(list, describe_node(cluster, nodes[i]));
	return list;
}

/* ---- all models ---- */

/* A model on a node. */
struct place {
	uint32_t model, node; /* offsets in the texts */
	double expected_s;
	struct md_standing standing;
	char placed[8]; /* "kept", "wanted"; "": the leader has not placed it there */
	bool moved;     /* by a user, to there */
	/* Files that travel: as the node says, and of this node more; offsets in the texts. */
	uint32_t hash, why;
	const char *files; /* their state; NULL: not of this node, or it has none that travel */
	uint64_t done, of;
};

struct md_cluster_models {
	struct md_buf texts;
	struct place *places;
	size_t count, room;
};

static uint32_t put_text(struct md_buf *buf, const char *text)
{
	size_t at = buf->size;
	md_buf_put(buf, text, strlen(text) + 1);
	return (uint32_t)at;
}

static void copy_files(struct md_cluster_models *copy, const struct md_cluster *cluster,
		       const struct md_view_node *node, const char *model, struct place *place)
{
	const struct md_contents *contents = cluster->worker->contents;
	const char *hash = md_contents_of(contents, node->name, model), *why = "";
	if (!strcmp(node->name, cluster->name)) {
		struct md_contents_row row = md_contents_row_of(contents, model);
		place->files = row.state;
		place->done = row.done;
		place->of = row.of;
		hash = row.hash;
		why = row.state ? row.why : "";
	}
	place->hash = put_text(&copy->texts, hash ? hash : "");
	place->why = put_text(&copy->texts, why);
}

static bool copy_node(struct md_cluster_models *copy, const struct md_cluster *cluster, const struct md_view_node *node)
{
	const json_t *placement = md_wanted_placement(cluster->wanted, node->name),
		     *pins = md_wanted_pins(cluster->wanted);
	uint32_t name = put_text(&copy->texts, node->name);
	for (uint32_t i = 0; node->record && i < node->record->count; i++) {
		const struct md_record_model *model = &node->record->models[i];
		if (!MD_ARRAY_GROW(copy->places, copy->count, copy->room))
			return false;
		const char *placed = json_string_value(json_object_get(placement, model->id));
		const char *pin = json_string_value(json_object_get(pins, model->id));
		struct place *place = &copy->places[copy->count++];
		*place = (struct place){.model = put_text(&copy->texts, model->id),
					.node = name,
					.standing = model->standing,
					.expected_s = md_standing_expected_s(&model->standing, node->record->loads),
					.moved = pin && !strcmp(pin, node->name)};
		snprintf(place->placed, sizeof(place->placed), "%s", placed ? placed : "");
		copy_files(copy, cluster, node, model->id, place);
	}
	return !copy->texts.failed;
}

struct md_cluster_models *md_cluster_copy_models(const struct md_cluster *cluster)
{
	struct md_cluster_models *copy = calloc(1, sizeof(*copy));
	uint32_t count = 0;
	struct md_view_node *const *nodes = cluster ? md_view_nodes(cluster->view, &count) : NULL;
	for (uint32_t i = 0; copy && i < count; i++)
		if (!copy_node(copy, cluster, nodes[i])) {
			md_cluster_free_models(copy);
			return NULL;
		}
	return copy;
}

void md_cluster_free_models(struct md_cluster_models *copy)
{
	if (!copy)
		return;
	md_buf_finish(&copy->texts);
	free(copy->places);
	free(copy);
}

static const char *text_at(const struct md_cluster_models *copy, uint32_t at)
{
	return (const char *)copy->texts.data + at;
}

static json_t *describe_place(const struct md_cluster_models *copy, const struct place *place)
{
	double expected_s = place->expected_s;
	json_t *made = json_pack("{s:s, s:s, s:o, s:I, s:I, s:o, s:b, s:o}", "node", text_at(copy, place->node),
				 "place", md_place_name(place->standing.place), "expected_s",
				 expected_s < MD_STANDING_NEVER ? json_real(expected_s) : json_null(), "waiting",
				 (json_int_t)place->standing.waiting, "running", (json_int_t)place->standing.running,
				 "placed", text_or_null(place->placed), "moved", place->moved, "content",
				 text_or_null(text_at(copy, place->hash)));
	if (!place->files)
		return made;
	json_object_set_new(made, "files",
			    json_pack("{s:s, s:I, s:I, s:o}", "state", place->files, "done", (json_int_t)place->done,
				      "of", (json_int_t)place->of, "why", text_or_null(text_at(copy, place->why))));
	return made;
}

json_t *md_cluster_report_models(const struct md_cluster_models *copy)
{
	json_t *models = json_object(), *list = json_array(), *places;
	const char *id;
	for (size_t i = 0; i < copy->count; i++) {
		id = text_at(copy, copy->places[i].model);
		places = json_object_get(models, id);
		if (!places) {
			places = json_array();
			json_object_set_new(models, id, places);
		}
		json_array_append_new(places, describe_place(copy, &copy->places[i]));
	}
	json_object_foreach(models, id, places)
	    json_array_append_new(list, json_pack("{s:s, s:O}", "model", id, "nodes", places));
	json_decref(models);
	return list;
}

/* ---- names ---- */

static bool is_other(const struct md_cluster *cluster, const struct md_view_node *node)
{
	return node->record && strcmp(node->name, cluster->name) != 0;
}

static void put_names(const struct md_view_node *node, bool aliases, struct md_buf *buf)
{
	const struct md_record *record = node->record;
	for (uint32_t n = 0; n < record->name_count; n++) {
		const struct md_record_model *model = &record->models[record->names[n].model];
		bool alias = record->names[n].name != model->id;
		if (model->unlisted || (alias && !aliases))
			continue;
		put_text(buf, record->names[n].name);
		put_text(buf, node->name);
	}
}

/* Nodes whose lease has ended come last: whoever is asked stands first. */
bool md_cluster_list_names(const struct md_cluster *cluster, bool aliases, struct md_cluster_names *names)
{
	struct md_buf buf = {0};
	uint32_t count = 0;
	struct md_view_node *const *nodes = cluster ? md_view_nodes(cluster->view, &count) : NULL;
	for (int ended = 0; ended < 2; ended++)
		for (uint32_t i = 0; i < count; i++)
			if (is_other(cluster, nodes[i]) && (nodes[i]->ended != 0) == ended)
				put_names(nodes[i], aliases, &buf);
	if (buf.failed) {
		md_buf_finish(&buf);
		return false;
	}
	*names = (struct md_cluster_names){.bytes = (char *)buf.data, .size = buf.size};
	return true;
}

const char *md_cluster_node_of(const struct md_cluster *cluster, const char *name)
{
	uint32_t count = 0;
	struct md_view_node *const *nodes = cluster ? md_view_nodes(cluster->view, &count) : NULL;
	for (int ended = 0; ended < 2; ended++)
		for (uint32_t i = 0; i < count; i++)
			if (is_other(cluster, nodes[i]) && (nodes[i]->ended != 0) == ended &&
			    md_record_find(nodes[i]->record, name))
				return nodes[i]->name;
	return NULL;
}

/* ---- metrics ---- */

static void put(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	md_metrics_text_begin(out, "medusa_worker_", name, type, help);
	fprintf(out, "medusa_worker_%s %" PRIu64 "\n", name, value);
}

static const struct {
	const char *name, *type, *help;
	size_t at;
} node_counters[] = {
    {"cluster_requests_total", "counter", "Requests that were passed on to the node.",
     offsetof(struct md_peer_counts, taken)},
    {"cluster_requests_served_total", "counter", "Of them, those whose answer has ended.",
     offsetof(struct md_peer_counts, served)},
    {"cluster_requests_failed_total", "counter",
     "Of them, those that the node did not answer, or not to the end; they may have been tried elsewhere.",
     offsetof(struct md_peer_counts, failed)},
    {"cluster_requests_cancelled_total", "counter", "Of them, those whose client left before.",
     offsetof(struct md_peer_counts, cancelled)},
    {"cluster_requests_refused_total", "counter", "Of them, those that were not passed on.",
     offsetof(struct md_peer_counts, refused)},
};

static void put_node(FILE *out, const char *name, const struct md_view_node *node, uint64_t value)
{
	fprintf(out, "medusa_worker_%s{node=\"", name);
	md_metrics_text_label(out, node->name);
	fprintf(out, "\"} %" PRIu64 "\n", value);
}

static void put_nodes(const struct md_cluster *cluster, FILE *out)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	md_metrics_text_begin(out, "medusa_worker_", "cluster_requests_open", "gauge",
			      "Requests that were passed on to the node and have not ended.");
	for (uint32_t i = 0; i < count; i++)
		if (is_other(cluster, nodes[i]))
			put_node(out, "cluster_requests_open", nodes[i], md_view_open(nodes[i]));
	for (size_t c = 0; c < sizeof(node_counters) / sizeof(*node_counters); c++) {
		md_metrics_text_begin(out, "medusa_worker_", node_counters[c].name, node_counters[c].type,
				      node_counters[c].help);
		for (uint32_t i = 0; i < count; i++)
			if (is_other(cluster, nodes[i]))
				put_node(out, node_counters[c].name, nodes[i],
					 *(const uint64_t *)((const char *)&nodes[i]->counts + node_counters[c].at));
	}
}

void md_cluster_print_metrics(const struct md_cluster *cluster, FILE *out)
{
	if (!cluster)
		return;
	struct md_member_counts counts = md_member_counts_of(cluster->member);
	put(out, "cluster_etcd_reached", "gauge", "1: etcd answers; 0: the node goes on with what it knew last.",
	    cluster->reached);
	put(out, "cluster_joined", "gauge", "1: this node's record was put into etcd.",
	    md_member_state(cluster->member) == MD_MEMBER_JOINED);
	put(out, "cluster_current", "gauge", "1: all of the cluster was read, and its changes are watched.",
	    md_view_is_current(cluster->view));
	put(out, "cluster_nodes", "gauge", "Nodes of the cluster, as far as this one knows.", count_nodes(cluster));
	put(out, "cluster_nodes_lease_ended", "gauge", "Nodes that are still known, although their lease has ended.",
	    count_ended(cluster));
	put(out, "cluster_writes_total", "counter", "Writes of this node's keys.", counts.writes);
	put(out, "cluster_leases_total", "counter", "Leases that this node was given; more than 1: one has ended.",
	    counts.leases);
	put(out, "cluster_changes_total", "counter", "Keys that were read, or that have changed.",
	    md_view_changes(cluster->view));
	put(out, "cluster_passed_total", "counter", "Requests of this node's clients that went to other nodes.",
	    cluster->passed);
	struct md_leader_state leader = md_leader_state_of(cluster->leader);
	put(out, "cluster_leads", "gauge", "1: this node leads, and places the cluster's models.", leader.leads);
	put(out, "cluster_elections_total", "counter", "Elections that this node has won.", leader.elections);
	put(out, "cluster_rounds_total", "counter", "Plans that this node has made as the leader.", leader.rounds);
	put(out, "cluster_placements_total", "counter", "Placements that this node has written as the leader.",
	    leader.writes);
	put(out, "cluster_retries_total", "counter",
	    "Requests that another node did not answer, and that were given to somebody else.", cluster->retries);
	put(out, "cluster_unproven_total", "counter",
	    "Connections to the listener of nodes that have not proved to be a node's.", cluster->unproven);
	md_prefixes_print_metrics(cluster->prefixes, out);
	put(out, "cluster_quota_writes_total", "counter",
	    "Quotas and weights of tenants that this node has ordered to be written as the leader.",
	    md_quota_leader_writes(cluster->quota_leader));
	put_nodes(cluster, out);
	md_cluster_print_tenants(cluster, out);
}
