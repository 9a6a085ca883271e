/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_tls.h"

#include <ctype.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/forward.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define PASSWORD_MOST 1024u
#define DAY_S 86400
#define SOON_DAYS 14
#define LOOK_S 3600
#define SILENT_NS UINT64_C(10000000000) /* between two messages about strangers */

/* ---- passwords ---- */

static void forget_text(char *text)
{
	if (text)
		sodium_memzero(text, strlen(text));
	free(text);
}

/* In the environment as the system shows it, too. */
enum md_status md_cluster_password_take(const struct md_config_cluster *settings, char **password, struct md_error *err)
{
	const char *name = settings->etcd_password_env;
	*password = NULL;
	if (!name || !*name)
		return MD_OK;
	char *given = secure_getenv(name);
	if (!given || !*given)
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "medusa.cluster.etcd_password_env: the environment has no %.100s: etcd's user "
				    "needs its password there",
				    name);
	*password = strdup(given);
	sodium_memzero(given, strlen(given));
	unsetenv(name);
	return *password ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for etcd's password");
}

static enum md_status check_private(const char *key, const char *path, struct md_error *err)
{
	struct stat status;
	if (!stat(path, &status) && status.st_mode & (S_IRWXO | S_IWGRP))
		return md_error_set(err, MD_ERR_INVALID, "%s: others may read or change %.200s: chmod 600", key, path);
	return MD_OK;
}

static enum md_status read_password(const char *path, char **password, struct md_error *err)
{
	struct md_file_bytes file;
	MD_FORWARD(check_private("medusa.cluster.etcd_password_file", path, err));
	if (md_file_read(path, PASSWORD_MOST + 2, &file, err) != MD_OK)
		return md_error_prefix(err, "medusa.cluster.etcd_password_file");
	size_t size = strcspn((const char *)file.data, "\r\n");
	bool fits = size && size <= PASSWORD_MOST && size + 2 >= file.size;
	for (size_t i = 0; i < size; i++)
		fits = fits && !iscntrl(file.data[i]);
	*password = fits ? strndup((const char *)file.data, size) : NULL;
	sodium_memzero((void *)file.data, file.size);
	md_file_release(&file);
	if (!fits)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "medusa.cluster.etcd_password_file: %.200s: one line of 1 to %u bytes is wanted",
				    path, PASSWORD_MOST);
	return *password ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for etcd's password");
}

/* ---- files ---- */

static enum md_status note_expiry(struct md_cluster_secrets *secrets, const char *path, const char *use, bool ca,
				  struct md_error *err)
{
	struct md_cluster_certificate *noted = &secrets->certificates[secrets->count];
	if (!*path)
		return MD_OK;
	*noted = (struct md_cluster_certificate){.path = path, .use = use, .ca = ca};
	MD_FORWARD(md_http_trust_expiry(path, ca, &noted->expires, err));
	secrets->count++;
	return MD_OK;
}

static enum md_status read_tls(struct md_cluster_secrets *secrets, const char *key, const struct md_config_tls *files,
			       const char *use, struct md_error *err)
{
	const char *private = *files->key ? files->key : files->certificate;
	if (files->given && *private)
		MD_FORWARD(check_private(key, private, err));
	MD_FORWARD(note_expiry(secrets, files->ca, use, true, err));
	return note_expiry(secrets, files->certificate, use, false, err);
}

static struct md_config_tls files_of(const struct md_config_cluster *settings, const struct md_config_tls *own)
{
	struct md_config_tls common = {settings->ca, settings->certificate, settings->certificate_key, false};
	return own->given ? *own : common;
}

static enum md_status read_secrets(const struct md_config_cluster *settings, const char *node,
				   struct md_cluster_secrets *made, struct md_error *err)
{
	struct md_config_tls nodes = files_of(settings, &settings->tls), etcd = files_of(settings, &settings->etcd_tls);
	struct md_http_trust_files to_nodes = {nodes.ca, nodes.certificate, nodes.key},
				   to_etcd = {etcd.ca, etcd.certificate, etcd.key};
	MD_FORWARD(md_http_trust_create(&to_etcd, &made->etcd, err));
	MD_FORWARD(md_http_trust_create(&to_nodes, &made->nodes, err));
	if (nodes.given)
		MD_FORWARD(md_http_trust_serve(&to_nodes, &made->front, err));
	if (nodes.given && !md_http_trust_names(made->front, node))
		return md_error_set(err, MD_ERR_INVALID,
				    "medusa.cluster.tls.certificate: %.200s is not for node %.63s: its subjectAltName "
				    "needs DNS:%.63s",
				    nodes.certificate, node, node);
	MD_FORWARD(read_tls(made, "medusa.cluster.tls.key", &nodes, "nodes", err));
	if (etcd.given || nodes.given)
		MD_FORWARD(read_tls(made, "medusa.cluster.etcd_tls.key", &etcd, "etcd", err));
	if (*settings->etcd_password_file)
		MD_FORWARD(read_password(settings->etcd_password_file, &made->password, err));
	return MD_OK;
}

enum md_status md_cluster_secrets_read(const struct md_config_cluster *settings, const char *node,
				       struct md_cluster_secrets **made, struct md_error *err)
{
	struct md_cluster_secrets *secrets = calloc(1, sizeof(*secrets));
	if (!secrets)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the cluster's certificates");
	enum md_status status = read_secrets(settings, node, secrets, err);
	if (status == MD_OK)
		*made = secrets;
	else
		md_cluster_secrets_destroy(secrets);
	return status;
}

void md_cluster_secrets_destroy(struct md_cluster_secrets *secrets)
{
	if (!secrets)
		return;
	md_http_trust_destroy(secrets->etcd);
	md_http_trust_destroy(secrets->nodes);
	md_http_trust_destroy(secrets->front);
	forget_text(secrets->password);
	free(secrets);
}

enum md_status md_cluster_secrets_renew(const struct md_cluster *cluster, struct md_cluster_secrets **made,
					struct md_error *err)
{
	*made = NULL;
	return cluster ? md_cluster_secrets_read(&cluster->settings, cluster->name, made, err) : MD_OK;
}

/* ---- how long they last ---- */

static int64_t days_left(const struct md_cluster_certificate *certificate)
{
	int64_t left = certificate->expires - (int64_t)time(NULL);
	return left < 0 ? -1 : left / DAY_S;
}

static bool is_soon(const struct md_cluster_certificate *certificate)
{
	return days_left(certificate) < SOON_DAYS;
}

static const char *kind_of(const struct md_cluster_certificate *certificate)
{
	return certificate->ca ? "the authority" : "the certificate";
}

static void look_at_certificates(const struct md_cluster *cluster)
{
	for (unsigned i = 0; i < cluster->secrets->count; i++) {
		const struct md_cluster_certificate *one = &cluster->secrets->certificates[i];
		int64_t days = days_left(one);
		if (days < 0)
			md_error_log("cluster: %s %s (%s) has expired: put a new one there, and send SIGHUP",
				     kind_of(one), one->path, one->use);
		else if (is_soon(one))
			md_warn("cluster: %s %s (%s) expires in %" PRId64 " days: put a new one there, and send SIGHUP",
				kind_of(one), one->path, one->use, days);
	}
}

/* Every hour, but said once a day. */
static void on_expiry(evutil_socket_t fd, short what, void *context)
{
	struct md_cluster *cluster = context;
	(void)fd, (void)what;
	if (cluster->expiry_looks++ % (DAY_S / LOOK_S) == 0)
		look_at_certificates(cluster);
}

void md_cluster_secrets_use(struct md_cluster *cluster, struct md_cluster_secrets *secrets)
{
	if (!secrets)
		return;
	md_http_outside_trust(cluster->outside, md_steal_ptr(&secrets->etcd));
	md_http_outside_trust(cluster->nodes_outside, md_steal_ptr(&secrets->nodes));
	if (cluster->front)
		md_http_front_trust(cluster->front, md_steal_ptr(&secrets->front), &md_http_trust_ops);
	if (secrets->password && !md_etcd_use(cluster->etcd, cluster->settings.etcd_user, secrets->password))
		md_error_log("cluster: out of memory for etcd's password: the one before counts");
	md_cluster_secrets_destroy(cluster->secrets);
	cluster->secrets = secrets;
	look_at_certificates(cluster);
}

/* ---- the listener of other nodes ---- */

static void on_unproven(void *context, const char *peer, const char *why)
{
	struct md_cluster *cluster = ((struct md_worker *)context)->cluster;
	cluster->unproven++;
	if (md_clock_ns() < cluster->unproven_silent)
		return;
	cluster->unproven_silent = md_clock_ns() + SILENT_NS;
	md_warn("cluster: %s has not proved to be a node (%" PRIu64 " connections since the start): %s", peer,
		cluster->unproven, why);
}

enum md_status md_cluster_listen(struct md_cluster *cluster, const struct md_http_limits *limits,
				 const struct md_http_front_events *events, struct md_error *err)
{
	if (!cluster || !cluster->secrets->front)
		return MD_OK;
	struct timeval every = {.tv_sec = LOOK_S};
	cluster->front_events = *events;
	cluster->front_events.unproven = on_unproven;
	if (md_http_front_create(cluster->worker->base, cluster->settings.listen, limits, &cluster->front_events,
				 cluster->worker, &cluster->front, err) != MD_OK)
		return md_error_prefix(err, "medusa.cluster.listen");
	md_http_front_trust(cluster->front, md_steal_ptr(&cluster->secrets->front), &md_http_trust_ops);
	cluster->expiry = event_new(cluster->worker->base, -1, EV_PERSIST, on_expiry, cluster);
	if (!cluster->expiry || event_add(cluster->expiry, &every))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the cluster");
	return MD_OK;
}

void md_cluster_unlisten(struct md_cluster *cluster)
{
	if (!cluster)
		return;
	md_http_front_destroy(md_steal_ptr(&cluster->front));
	if (cluster->expiry)
		event_free(md_steal_ptr(&cluster->expiry));
}

void md_cluster_drain(struct md_cluster *cluster)
{
	if (cluster && cluster->front)
		md_http_front_drain(cluster->front);
}

unsigned md_cluster_connections(const struct md_cluster *cluster)
{
	return cluster && cluster->front ? md_http_front_connections(cluster->front) : 0;
}

/* ---- who is a node ---- */

/* With TLS, whose certificate has the name; with a key, who has the key; else who says so. */
static bool is_proved(const struct md_cluster *cluster, const struct md_http_head *head)
{
	const char *name = md_http_head_find(head, MD_FORWARD_NODE);
	if (cluster->settings.tls.given)
		return name && head->certificate && md_http_certificate_names(head->certificate, name);
	const char *key = cluster->key ? md_http_head_find(head, MD_FORWARD_NODE_KEY) : NULL;
	size_t size = key ? strlen(key) : 0;
	return key && size == strlen(cluster->key) && !sodium_memcmp(key, cluster->key, size);
}

bool md_cluster_vouches(const struct md_cluster *cluster, const struct md_http_head *head)
{
	return cluster && is_proved(cluster, head);
}

bool md_cluster_is_node(const struct md_cluster *cluster, const struct md_http_head *head)
{
	if (!cluster || !md_http_head_find(head, MD_FORWARD_NODE))
		return false;
	return (!cluster->key && !cluster->settings.tls.given) || is_proved(cluster, head);
}

/* ---- what is shown ---- */

static json_t *list_certificates(const struct md_cluster *cluster)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < cluster->secrets->count; i++) {
		const struct md_cluster_certificate *one = &cluster->secrets->certificates[i];
		struct tm at = {0};
		char text[32] = "";
		time_t expires = (time_t)one->expires;
		if (gmtime_r(&expires, &at))
			strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &at);
		json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:s, s:I, s:b}", "file", one->path, "use",
						      one->use, "authority", one->ca, "expires", text, "days",
						      (json_int_t)days_left(one), "soon", is_soon(one)));
	}
	return list;
}

static json_t *list_unreachable(const struct md_cluster *cluster)
{
	json_t *list = json_array();
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++)
		if (*nodes[i]->trouble)
			json_array_append_new(
			    list, json_pack("{s:s, s:s}", "node", nodes[i]->name, "why", nodes[i]->trouble));
	return list;
}

json_t *md_cluster_report_tls(const struct md_cluster *cluster)
{
	const char *user = cluster->settings.etcd_user;
	return json_pack("{s:b, s:b, s:o, s:I, s:o, s:o}", "nodes", cluster->settings.tls.given, "etcd",
			 !strncasecmp(md_etcd_endpoint(cluster->etcd), "https:", 6), "etcd_user",
			 *user ? json_string(user) : json_null(), "unproven", (json_int_t)cluster->unproven,
			 "certificates", list_certificates(cluster), "unreachable", list_unreachable(cluster));
}
