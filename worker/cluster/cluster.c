/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define KEY_LEAST 16u /* bytes */
#define KEY_MOST 512u
#define JOIN_MS 15000u
#define LEAVE_MS 1000u
#define DRAIN_MS 30000u /* until requests that wait are refused */
#define IDENTITY_BYTES 16u

/* ---- etcd ---- */

static void on_reached(void *context, const char *why)
{
	struct md_cluster *cluster = context;
	bool again = cluster->known && !why;
	cluster->known = true;
	cluster->reached = !why;
	snprintf(cluster->why, sizeof(cluster->why), "%s", why ? why : "");
	if (why)
		md_warn("cluster: etcd %s, so this node goes on with what it knew last, and changes nothing: %s",
			md_etcd_refuses(cluster->etcd) ? "refuses this node" : "cannot be reached", why);
	else if (again)
		md_warn("cluster: etcd is reached again");
	if (again)
		md_view_doubt(cluster->view);
}

static void on_moved(void *context)
{
	struct md_cluster *cluster = context;
	if (cluster->view)
		md_view_doubt(cluster->view);
	md_leader_moved(cluster->leader);
}

static const struct md_etcd_events etcd_events = {.reached = on_reached, .moved = on_moved};

/* ---- the view ---- */

static void on_node_gone(void *context, struct md_view_node *node)
{
	struct md_cluster *cluster = context;
	if (node->left)
		md_quota_leader_left(cluster->quota_leader, node->name);
	if (md_view_open(node) > 1) /* whoever tells this holds it, too */
		md_probe_begin(cluster, node);
}

static void on_wished(void *context, enum md_wish wish)
{
	struct md_cluster *cluster = context;
	struct md_drain *drain = cluster->worker->drain;
	if (wish == cluster->wish)
		return;
	cluster->wish = wish;
	md_warn("cluster: %s%s", wish == MD_WISH_NONE ? "no wish for this node is left" : "this node is wanted to ",
		md_wish_name(wish));
	md_member_mark(cluster->member, wish != MD_WISH_NONE);
	if (wish == MD_WISH_DRAIN) {
		md_drain_begin(drain, DRAIN_MS, false, false);
		cluster->drained = true;
	} else if (cluster->drained) {
		md_drain_undo(drain);
		cluster->drained = false;
	}
}

static void on_missing(void *context)
{
	struct md_cluster *cluster = context;
	md_member_missing(cluster->member);
}

static void on_reads(void *context)
{
	struct md_cluster *cluster = context;
	md_wanted_begin(cluster->wanted);
	md_quotas_begin(cluster->quotas);
	md_contents_begin(cluster->worker->contents);
	md_ledgers_reads(cluster->ledgers);
}

static void on_has_read(void *context)
{
	struct md_cluster *cluster = context;
	md_wanted_end(cluster->wanted);
	md_quotas_end(cluster->quotas);
	md_contents_end(cluster->worker->contents);
	md_ledgers_has_read(cluster->ledgers);
}

static void on_other(void *context, const char *key, const json_t *pair, const struct md_buf *value)
{
	struct md_cluster *cluster = context;
	md_wanted_take(cluster->wanted, key, pair, value);
	md_quotas_take(cluster->quotas, key, pair, value);
	md_contents_take(cluster->worker->contents, key, value);
	md_ledgers_take(cluster->ledgers, key, pair, value);
}

static const struct md_view_events view_events = {.gone = on_node_gone,
						  .wished = on_wished,
						  .missing = on_missing,
						  .reads = on_reads,
						  .has_read = on_has_read,
						  .other = on_other};

/* ---- what the leader has placed here ---- */

/* While etcd is not reached, what was placed last stays as it is, and nothing is loaded for it. */
static void on_obey(evutil_socket_t fd, short what, void *context)
{
	struct md_cluster *cluster = context;
	(void)fd, (void)what;
	if (md_reload_changes(cluster->worker->reload))
		return;
	md_obey_look(cluster->obey, md_wanted_placement(cluster->wanted, cluster->name),
		     cluster->reached && cluster->wish == MD_WISH_NONE && !md_drain_is_on(cluster->worker->drain));
}

/* ---- settings ---- */

static enum md_status split_endpoints(struct md_cluster *cluster, const char *text, struct md_error *err)
{
	uint32_t count = 1;
	for (const char *at = text; *at; at++)
		count += *at == ',';
	cluster->endpoints = strdup(text);
	cluster->endpoint_list = calloc(count, sizeof(*cluster->endpoint_list));
	if (!cluster->endpoints || !cluster->endpoint_list)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for etcd's endpoints");
	char *rest = cluster->endpoints, *one;
	for (uint32_t i = 0; i < count; i++) {
		one = strsep(&rest, ",");
		cluster->endpoint_list[i] = one;
	}
	cluster->settings.endpoints = (struct md_config_texts){cluster->endpoint_list, count};
	return MD_OK;
}

static enum md_status name_node(struct md_cluster *cluster, const char *given, struct md_error *err)
{
	char host[65] = "";
	if (given && !md_config_is_node_name(given))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "--node \"%.100s\": up to 63 letters, digits, \".\", \"-\" and \"_\" are wanted, and one "
		    "letter or digit",
		    given);
	gethostname(host, sizeof(host) - 1);
	const char *name = given ? given : *cluster->settings.node ? cluster->settings.node : host;
	if (!md_config_is_node_name(name))
		return md_error_set(err, MD_ERR_INVALID,
				    "the machine's name \"%.60s\" can't be that of a node: say --node NAME", name);
	snprintf(cluster->name, sizeof(cluster->name), "%s", name);
	return MD_OK;
}

/* "0.0.0.0:1", "[::]:1", ":1" and paths of sockets say nothing to other machines. */
static bool is_reachable(const char *listen)
{
	return strncmp(listen, "unix:", 5) != 0 && *listen != ':' && strncmp(listen, "0.0.0.0:", 8) != 0 &&
	       strncmp(listen, "[::]:", 5) != 0;
}

static enum md_status choose_url(struct md_cluster *cluster, const struct md_cluster_options *options,
				 struct md_error *err)
{
	struct md_http_remote remote;
	char prefix[256], host[272];
	const char *given = options->advertise ? options->advertise : cluster->settings.advertise;
	bool tls = cluster->settings.tls.given;
	const char *listen = tls ? cluster->settings.listen : options->listen;
	cluster->url_given = *given;
	if (*given && !md_http_remote_read(given, &remote, prefix, host))
		return md_error_set(err, MD_ERR_INVALID,
				    "--advertise \"%.200s\": http://HOST[:PORT][/PATH] is wanted, or with https",
				    given);
	if (*given && tls && !remote.tls)
		return md_error_set(err, MD_ERR_INVALID,
				    "--advertise \"%.200s\": https:// is wanted, because of medusa.cluster.tls", given);
	if (!*given && !is_reachable(listen))
		return md_error_set(err, MD_ERR_INVALID,
				    "other nodes can't reach this one at \"%.200s\": say --advertise URL, or "
				    "medusa.cluster.advertise",
				    listen);
	snprintf(cluster->url, sizeof(cluster->url), "%s", *given ? given : listen);
	return MD_OK;
}

/* The port may have been chosen by the system. */
static void complete_url(struct md_cluster *cluster, unsigned port)
{
	char host[280];
	if (cluster->url_given)
		return;
	snprintf(host, sizeof(host), "%.*s", (int)(strrchr(cluster->url, ':') - cluster->url), cluster->url);
	snprintf(cluster->url, sizeof(cluster->url), "http%s://%s:%u", cluster->front ? "s" : "", host,
		 cluster->front ? md_http_front_port(cluster->front) : port);
}

static enum md_status read_key(struct md_cluster *cluster, struct md_error *err)
{
	const char *path = cluster->settings.key_file;
	struct md_file_bytes file;
	struct stat status;
	if (!*path)
		return MD_OK;
	if (!stat(path, &status) && status.st_mode & (S_IRWXO | S_IWGRP))
		return md_error_set(err, MD_ERR_INVALID,
				    "medusa.cluster.key_file: others may read or change %.200s: chmod 600", path);
	if (md_file_read(path, KEY_MOST + 2, &file, err) != MD_OK)
		return md_error_prefix(err, "medusa.cluster.key_file");
	size_t size = strcspn((const char *)file.data, "\r\n");
	bool fits = size >= KEY_LEAST && size <= KEY_MOST && size + 2 >= file.size;
	for (size_t i = 0; i < size; i++)
		fits = fits && isgraph(file.data[i]);
	cluster->key = fits ? strndup((const char *)file.data, size) : NULL;
	md_file_release(&file);
	if (!fits)
		return md_error_set(
		    err, MD_ERR_CORRUPT,
		    "medusa.cluster.key_file: %.200s: one line of %u to %u letters, digits and marks is "
		    "wanted, such as `openssl rand -hex 32` makes",
		    path, KEY_LEAST, KEY_MOST);
	return cluster->key ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the cluster's key");
}

/* ---- the identity: by it the node knows a record of its own when it begins anew ---- */

static bool is_identity(const char *text)
{
	return strlen(text) == 2 * IDENTITY_BYTES && strspn(text, "0123456789abcdef") == 2 * IDENTITY_BYTES;
}

static enum md_status write_identity(const char *path, const char *identity, struct md_error *err)
{
	char *temporary;
	int fd;
	MD_FORWARD(md_file_create_beside(path, &temporary, &fd, err));
	enum md_status status = md_file_write(fd, identity, strlen(identity), path, err);
	if (status == MD_OK)
		status = md_file_publish(fd, temporary, path, err);
	if (status != MD_OK)
		unlink(temporary);
	close(fd);
	free(temporary);
	return status;
}

static enum md_status find_identity(struct md_cluster *cluster, const char *state, struct md_error *err)
{
	char path[PATH_MAX];
	unsigned char random[IDENTITY_BYTES];
	struct md_file_bytes file;
	struct md_error missing = {0};
	if (snprintf(path, sizeof(path), "%s/cluster-identity", state) >= (int)sizeof(path))
		return md_error_set(err, MD_ERR_INVALID, "--state %.100s...: the path is too long", state);
	enum md_status status = md_file_read(path, sizeof(cluster->identity) - 1, &file, &missing);
	if (status == MD_OK) {
		snprintf(cluster->identity, sizeof(cluster->identity), "%s", (const char *)file.data);
		md_file_release(&file);
		return is_identity(cluster->identity)
			   ? MD_OK
			   : md_error_set(
				 err, MD_ERR_CORRUPT,
				 "%.300s: %u hexadecimal digits are wanted: remove the file, and the node gets "
				 "another identity",
				 path, 2 * IDENTITY_BYTES);
	}
	if (status != MD_ERR_NOT_FOUND)
		return md_error_set(err, status, "%s", missing.message);
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(cluster->identity, sizeof(cluster->identity), random, sizeof(random));
	return write_identity(path, cluster->identity, err);
}

/* ---- making it ---- */

static enum md_status check_endpoints(const struct md_cluster *cluster, struct md_error *err)
{
	const struct md_config_cluster *settings = &cluster->settings;
	for (uint32_t i = 0; settings->etcd_tls.given && i < settings->endpoints.count; i++)
		if (strncasecmp(settings->endpoints.items[i], "https:", 6) != 0)
			return md_error_set(err, MD_ERR_INVALID,
					    "--cluster \"%.200s\": https:// is wanted of all endpoints, because of "
					    "medusa.cluster.etcd_tls",
					    settings->endpoints.items[i]);
	return MD_OK;
}

static enum md_status read_settings(struct md_cluster *cluster, const struct md_cluster_options *options,
				    struct md_error *err)
{
	if (options->endpoints)
		MD_FORWARD(split_endpoints(cluster, options->endpoints, err));
	MD_FORWARD(check_endpoints(cluster, err));
	MD_FORWARD(name_node(cluster, options->node, err));
	MD_FORWARD(choose_url(cluster, options, err));
	MD_FORWARD(read_key(cluster, err));
	MD_FORWARD(md_cluster_secrets_read(&cluster->settings, cluster->name, &cluster->secrets, err));
	snprintf(cluster->prefix, sizeof(cluster->prefix), "%s/", cluster->settings.prefix);
	return find_identity(cluster, options->state, err);
}

static bool has_quotas(const struct md_config_node *node)
{
	bool has = false;
	for (uint32_t i = 0; i < node->tenant_count; i++)
		has |= node->tenants[i].cluster_max_running || node->tenants[i].cluster_max_waiting;
	return has;
}

/* Quotas need a leader, where nobody places models, too. */
static bool may_lead(const struct md_cluster *cluster)
{
	return has_quotas(&cluster->worker->config->node) || cluster->settings.placement;
}

static struct md_leader *make_leader(struct md_cluster *cluster)
{
	struct md_leader_options options = {.base = cluster->worker->base,
					    .etcd = cluster->etcd,
					    .member = cluster->member,
					    .view = cluster->view,
					    .wanted = cluster->wanted,
					    .prefix = cluster->prefix,
					    .name = cluster->name};
	return md_leader_create(&options);
}

/* password: of the environment; NULL: a file has it, or there is no user. */
static enum md_status make_etcd(struct md_cluster *cluster, const char *password, struct md_error *err)
{
	struct event_base *base = cluster->worker->base;
	struct md_cluster_secrets *secrets = cluster->secrets;
	const char *user = cluster->settings.etcd_user;
	password = secrets->password ? secrets->password : password;
	MD_FORWARD(md_http_outside_create(base, md_steal_ptr(&secrets->etcd), &cluster->outside, err));
	MD_FORWARD(md_http_outside_create(base, md_steal_ptr(&secrets->nodes), &cluster->nodes_outside, err));
	MD_FORWARD(md_etcd_create(base, cluster->outside, &cluster->settings.endpoints, &etcd_events, cluster,
				  &cluster->etcd, err));
	for (uint32_t i = 0; *user && i < cluster->settings.endpoints.count; i++)
		if (strncasecmp(cluster->settings.endpoints.items[i], "https:", 6) != 0)
			md_warn("cluster: the password of etcd's user %.60s goes to %.200s without TLS: say https",
				user, cluster->settings.endpoints.items[i]);
	if (*user && !md_etcd_use(cluster->etcd, user, password ? password : ""))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for etcd's user");
	return MD_OK;
}

static enum md_status make_parts(struct md_cluster *cluster, struct md_error *err)
{
	struct event_base *base = cluster->worker->base;
	if (!(cluster->quotas = md_quotas_create(cluster)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for quotas of the cluster");
	struct md_member_options member = {.worker = cluster->worker,
					   .etcd = cluster->etcd,
					   .prefix = cluster->prefix,
					   .name = cluster->name,
					   .identity = cluster->identity,
					   .url = cluster->url,
					   .domain = cluster->settings.domain,
					   .placed = cluster->settings.placement,
					   .quotas = cluster->quotas};
	struct md_view_options view = {.base = base,
				       .etcd = cluster->etcd,
				       .outside = cluster->nodes_outside,
				       .tls = cluster->settings.tls.given,
				       .prefix = cluster->prefix,
				       .self = cluster->name,
				       .node_key = cluster->key,
				       .grace_ns = cluster->settings.lease_grace_ns,
				       .again = md_route_again};
	cluster->member = md_member_create(&member);
	cluster->view = md_view_create(&view, &view_events, cluster);
	cluster->wanted = md_wanted_create();
	cluster->ledgers = md_ledgers_create(cluster);
	cluster->obey = md_obey_create(cluster->worker);
	cluster->obeys = event_new(base, -1, EV_PERSIST, on_obey, cluster);
	bool made =
	    cluster->member && cluster->view && cluster->wanted && cluster->ledgers && cluster->obey && cluster->obeys;
	if (made && cluster->settings.tls.given)
		made = (cluster->check = md_node_check_create(cluster)) != NULL;
	if (made && cluster->settings.prefixes != MD_CONFIG_PREFIXES_OFF)
		made = (cluster->prefixes = md_prefixes_create(cluster)) != NULL;
	if (made && may_lead(cluster))
		made = (cluster->leader = make_leader(cluster)) != NULL;
	if (made && cluster->leader)
		made = (cluster->quota_leader = md_quota_leader_create(cluster)) != NULL;
	return made ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the cluster");
}

enum md_status md_cluster_create(struct md_worker *worker, const struct md_cluster_options *options,
				 struct md_cluster **made, struct md_error *err)
{
	const struct md_config_cluster *settings = &worker->config->node.cluster;
	*made = NULL;
	if (!options->endpoints && !settings->endpoints.count && has_quotas(&worker->config->node))
		md_warn("medusa.tenants: cluster_max_running and cluster_max_waiting mean nothing here, because this "
			"node is in no "
			"cluster");
	if (!options->endpoints && !settings->endpoints.count)
		return options->node || options->advertise
			   ? md_error_set(err, MD_ERR_INVALID,
					  "--node and --advertise have a meaning with --cluster URL alone, or with "
					  "medusa.cluster.endpoints")
			   : MD_OK;
	struct md_cluster *cluster = calloc(1, sizeof(*cluster));
	if (!cluster)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the cluster");
	cluster->worker = worker;
	cluster->settings = *settings;
	enum md_status status = read_settings(cluster, options, err);
	if (status == MD_OK)
		status = make_etcd(cluster, options->etcd_password, err);
	if (status == MD_OK)
		status = make_parts(cluster, err);
	if (status == MD_OK)
		*made = cluster;
	else
		md_cluster_destroy(cluster);
	return status;
}

void md_cluster_destroy(struct md_cluster *cluster)
{
	if (!cluster)
		return;
	md_node_check_destroy(cluster->check);
	md_probe_end_all(cluster);
	md_prefixes_destroy(cluster->prefixes);
	if (cluster->obeys)
		event_free(cluster->obeys);
	md_obey_destroy(cluster->obey);
	md_quota_leader_destroy(cluster->quota_leader);
	md_leader_destroy(cluster->leader);
	md_wanted_destroy(cluster->wanted);
	md_ledgers_destroy(cluster->ledgers);
	md_member_destroy(cluster->member);
	md_quotas_destroy(cluster->quotas);
	md_view_destroy(cluster->view);
	md_etcd_destroy(cluster->etcd);
	md_http_outside_destroy(cluster->outside);
	md_http_outside_destroy(cluster->nodes_outside);
	md_cluster_unlisten(cluster);
	md_cluster_secrets_destroy(cluster->secrets);
	if (cluster->key)
		sodium_memzero(cluster->key, strlen(cluster->key));
	free(cluster->key);
	free(cluster->endpoint_list);
	free(cluster->endpoints);
	free(cluster);
}

/* ---- beginning and leaving ---- */

static bool is_settled(const struct md_cluster *cluster)
{
	enum md_member_state state = md_member_state(cluster->member);
	bool joined = state == MD_MEMBER_JOINED && md_ledgers_settled(cluster->ledgers);
	return joined || state == MD_MEMBER_CLASHES || (cluster->known && !cluster->reached);
}

enum md_status md_cluster_join(struct md_cluster *cluster, unsigned port, struct md_error *err)
{
	if (!cluster)
		return MD_OK;
	struct event_base *base = cluster->worker->base;
	uint64_t until = md_clock_ns() + JOIN_MS * UINT64_C(1000000);
	complete_url(cluster, port);
	md_member_begin(cluster->member);
	md_view_begin(cluster->view);
	md_ledgers_begin(cluster->ledgers);
	md_quotas_run(cluster->quotas);
	if (cluster->leader) {
		md_leader_begin(cluster->leader);
		md_quota_leader_begin(cluster->quota_leader);
	}
	if (cluster->settings.placement)
		event_add(cluster->obeys, &(struct timeval){.tv_sec = 1});
	while (!is_settled(cluster) && md_clock_ns() < until && !event_base_got_break(base))
		event_base_loop(base, EVLOOP_ONCE);
	if (md_member_state(cluster->member) == MD_MEMBER_CLASHES)
		return md_error_set(
		    err, MD_ERR_BUSY,
		    "another node, at %.200s, has the name %s in the cluster: say --node NAME with another "
		    "one, or end that node",
		    md_member_rival(cluster->member), cluster->name);
	md_ledgers_serve(cluster->ledgers);
	return MD_OK;
}

void md_cluster_leave(struct md_cluster *cluster)
{
	if (!cluster)
		return;
	uint64_t until = md_clock_ns() + LEAVE_MS * UINT64_C(1000000);
	md_quota_leader_end(cluster->quota_leader);
	md_leader_end(cluster->leader);
	event_del(cluster->obeys);
	md_ledgers_leave(cluster->ledgers);
	md_member_leave(cluster->member);
	while (!(md_member_has_left(cluster->member) && md_ledgers_has_left(cluster->ledgers)) && md_clock_ns() < until)
		event_base_loop(cluster->worker->base, EVLOOP_ONCE);
}

/* ---- what is told of it ---- */

const char *md_cluster_lack(const struct md_cluster *cluster)
{
	if (!cluster)
		return NULL;
	char *lack = ((struct md_cluster *)cluster)->lack;
	if (md_member_state(cluster->member) == MD_MEMBER_CLASHES)
		snprintf(lack, sizeof(cluster->lack), "not in the cluster: another node, at %s, has the name %s",
			 md_member_rival(cluster->member), cluster->name);
	else if (!cluster->reached)
		snprintf(lack, sizeof(cluster->lack), "the cluster is as it was known last: %s",
			 *cluster->why ? cluster->why : "etcd was not reached yet");
	else
		return NULL;
	return lack;
}

/* ---- what is known of nodes ---- */

bool md_cluster_has(const struct md_cluster *cluster, const char *node)
{
	return cluster && md_view_find(cluster->view, node);
}
