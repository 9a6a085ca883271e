/* SPDX-License-Identifier: Apache-2.0 */
/* medusa.cluster: the cluster that the node belongs to. */
#include <string.h>
#include <strings.h>

#include "http/address.h"
#include "worker/config/parts.h"

#define NAME_MAX_BYTES 63u
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

struct cluster_source {
	struct md_config_cluster cluster;
	struct md_tree *tls, *etcd_tls;
};

#define SOURCE(member) offsetof(struct cluster_source, member)
#define CLUSTER(member) offsetof(struct cluster_source, cluster.member)
#define TLS(member) offsetof(struct md_config_tls, member)

static const char *const fetches[] = {"demanded", "any", "off", NULL}; /* as enum md_config_fetch */

static const char *const prefixes[] = {"auto", "off", NULL}; /* as enum md_config_prefixes */

static const struct md_config_key cluster_keys[] = {
    MD_KEY("endpoints", MD_KEY_TEXTS, CLUSTER(endpoints), NULL),
    MD_KEY("node", MD_KEY_TEXT, CLUSTER(node), NULL),
    MD_KEY("advertise", MD_KEY_TEXT, CLUSTER(advertise), NULL),
    MD_KEY("prefix", MD_KEY_TEXT, CLUSTER(prefix), "/medusa"),
    MD_KEY("domain", MD_KEY_TEXT, CLUSTER(domain), NULL),
    MD_KEY("placement", MD_KEY_FLAG, CLUSTER(placement), "true"),
    MD_KEY("key_file", MD_KEY_TEXT, CLUSTER(key_file), NULL),
    MD_KEY("ca", MD_KEY_TEXT, CLUSTER(ca), NULL),
    MD_KEY("certificate", MD_KEY_TEXT, CLUSTER(certificate), NULL),
    MD_KEY("certificate_key", MD_KEY_TEXT, CLUSTER(certificate_key), NULL),
    MD_KEY("listen", MD_KEY_TEXT, CLUSTER(listen), NULL),
    MD_KEY("tls", MD_KEY_NODE, SOURCE(tls), NULL),
    MD_KEY("etcd_tls", MD_KEY_NODE, SOURCE(etcd_tls), NULL),
    MD_KEY("etcd_user", MD_KEY_TEXT, CLUSTER(etcd_user), NULL),
    MD_KEY("etcd_password_file", MD_KEY_TEXT, CLUSTER(etcd_password_file), NULL),
    MD_KEY("etcd_password_env", MD_KEY_TEXT, CLUSTER(etcd_password_env), NULL),
    MD_KEY("lease_grace", MD_KEY_TIME, CLUSTER(lease_grace_ns), "10s"),
    MD_KEY("quota_hold", MD_KEY_TIME, CLUSTER(quota_hold_ns), "60s", .low = 4000000000, .high = 1000000000000000,
	   .wanted = "4s to 1000000s are wanted"),
    MD_KEY("store", MD_KEY_TEXT, CLUSTER(store), NULL),
    MD_KEY("store_bytes", MD_KEY_BYTES, CLUSTER(store_bytes), "0"),
    MD_KEY("fetch", MD_KEY_CHOICE, CLUSTER(fetch), "demanded", .choices = fetches),
    MD_KEY("fetch_streams", MD_KEY_COUNT, CLUSTER(fetch_streams), "4", .low = 1, .high = 64),
    MD_KEY("fetch_rate", MD_KEY_BYTES, CLUSTER(fetch_rate), "0"),
    MD_KEY("signed_by", MD_KEY_TEXT, CLUSTER(signed_by), NULL),
    MD_KEY("prefixes", MD_KEY_CHOICE, CLUSTER(prefixes), "auto", .choices = prefixes),
    MD_KEY("prefix_blocks", MD_KEY_COUNT, CLUSTER(prefix_blocks), "65536", .low = 64, .high = 16777216),
    MD_KEY("prefix_age", MD_KEY_TIME, CLUSTER(prefix_age_ns), "10min"),
};
const struct md_config_keys md_config_cluster_keys = MD_KEYS("medusa.cluster.", cluster_keys, .strict = true);

static const struct md_config_key tls_keys[] = {
    MD_KEY("ca", MD_KEY_TEXT, TLS(ca), NULL),
    MD_KEY("certificate", MD_KEY_TEXT, TLS(certificate), NULL),
    MD_KEY("key", MD_KEY_TEXT, TLS(key), NULL),
};
const struct md_config_keys md_config_cluster_tls_keys = MD_KEYS("medusa.cluster.tls.", tls_keys, .strict = true);
const struct md_config_keys md_config_etcd_tls_keys = MD_KEYS("medusa.cluster.etcd_tls.", tls_keys, .strict = true);

bool md_config_is_node_name(const char *name)
{
	size_t size = strlen(name);
	return size && size <= NAME_MAX_BYTES && strspn(name, LETTERS ".-_") == size && strspn(name, LETTERS);
}

static bool is_prefix(const char *prefix)
{
	size_t size = strlen(prefix);
	return size > 1 && size < 256 && *prefix == '/' && prefix[size - 1] != '/' &&
	       strspn(prefix, LETTERS ".-_/") == size;
}

/* ---- TLS ---- */

static enum md_status check_tls(struct md_config_build *build, const struct md_tree *node,
				const struct md_config_cluster *cluster)
{
	const struct md_tree *tls = md_tree_find(node, "tls");
	if (!*cluster->tls.ca || !*cluster->tls.certificate)
		return md_tree_refuse_place(tls, build->err, "ca and certificate are needed, both");
	if (!*cluster->listen)
		return md_tree_refuse_place(
		    tls, build->err,
		    "medusa.cluster.listen is needed, too: ADDRESS:PORT, where other nodes are served");
	struct md_http_address address;
	struct md_error why = {0};
	if (md_http_address_parse(cluster->listen, &address, &why) != MD_OK || address.any.sa_family == AF_UNIX)
		return md_tree_refuse(md_tree_find(node, "listen"), build->err,
				      "ADDRESS:PORT, [ADDRESS]:PORT or :PORT is wanted");
	if (*cluster->key_file)
		return md_tree_refuse(md_tree_find(node, "key_file"), build->err,
				      "certificates (medusa.cluster.tls) say who is a node: remove it");
	if (*cluster->advertise && strncasecmp(cluster->advertise, "https:", 6) != 0)
		return md_tree_refuse(md_tree_find(node, "advertise"), build->err,
				      "https:// is wanted, because of medusa.cluster.tls");
	return MD_OK;
}

static enum md_status check_etcd(struct md_config_build *build, const struct md_tree *node,
				 const struct md_config_cluster *cluster)
{
	const char *file = cluster->etcd_password_file, *variable = cluster->etcd_password_env;
	if (*cluster->etcd_tls.key && !*cluster->etcd_tls.certificate)
		return md_tree_refuse_place(md_tree_find(node, "etcd_tls"), build->err,
					    "certificate is needed, too, because there is a key");
	if (*cluster->etcd_user && !*file == !*variable)
		return md_tree_refuse(md_tree_find(node, "etcd_user"), build->err,
				      "its password is needed, too: either etcd_password_file or etcd_password_env");
	if (!*cluster->etcd_user && (*file || *variable))
		return md_tree_refuse(md_tree_find(node, *file ? "etcd_password_file" : "etcd_password_env"),
				      build->err, "medusa.cluster.etcd_user is needed, too");
	for (uint32_t i = 0; cluster->etcd_tls.given && i < cluster->endpoints.count; i++)
		if (strncasecmp(cluster->endpoints.items[i], "https:", 6) != 0)
			return md_tree_refuse(md_tree_find(node, "endpoints"), build->err,
					      "https:// is wanted of all of them, because of medusa.cluster.etcd_tls");
	return MD_OK;
}

static enum md_status read_security(struct md_config_build *build, const struct cluster_source *source,
				    const struct md_tree *node, struct md_config_cluster *cluster)
{
	MD_FORWARD(md_keys_read(build, &md_config_cluster_tls_keys, source->tls, &cluster->tls));
	MD_FORWARD(md_keys_read(build, &md_config_etcd_tls_keys, source->etcd_tls, &cluster->etcd_tls));
	cluster->tls.given = source->tls;
	cluster->etcd_tls.given = source->etcd_tls;
	if (cluster->tls.given)
		MD_FORWARD(check_tls(build, node, cluster));
	else if (*cluster->listen)
		return md_tree_refuse(md_tree_find(node, "listen"), build->err,
				      "medusa.cluster.tls is needed, too: other nodes show certificates there");
	return check_etcd(build, node, cluster);
}

enum md_status md_config_read_cluster(struct md_config_build *build, struct md_tree *node,
				      struct md_config_cluster *cluster)
{
	struct cluster_source source = {.tls = NULL};
	MD_FORWARD(md_keys_read(build, &md_config_cluster_keys, node, &source));
	*cluster = source.cluster;
	const struct md_tree *list = node ? md_tree_find(node, "endpoints") : NULL, *at = list ? list->first : NULL;
	for (uint32_t i = 0; i < cluster->endpoints.count; i++, at = at ? at->next : NULL)
		MD_FORWARD(md_config_check_url(build, at ? at : list, cluster->endpoints.items[i]));
	if (*cluster->node && !md_config_is_node_name(cluster->node))
		return md_tree_refuse(
		    md_tree_find(node, "node"), build->err,
		    "up to 63 letters, digits, \".\", \"-\" and \"_\" are wanted, a letter or digit first");
	if (*cluster->advertise)
		MD_FORWARD(md_config_check_url(build, md_tree_find(node, "advertise"), cluster->advertise));
	if (!is_prefix(cluster->prefix))
		return md_tree_refuse(
		    md_tree_find(node, "prefix"), build->err,
		    "\"/\" and letters, digits, \".\", \"-\", \"_\" and \"/\" are wanted, without \"/\" at the end");
	if (*cluster->certificate_key && !*cluster->certificate)
		return md_tree_refuse(md_tree_find(node, "certificate_key"), build->err,
				      "medusa.cluster.certificate is needed, too");
	MD_FORWARD(read_security(build, &source, node, cluster));
	return md_config_check_store(build, node, cluster);
}
