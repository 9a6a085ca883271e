/* SPDX-License-Identifier: Apache-2.0 */
/* medusa.cluster: the cluster that the node belongs to. */
#include <string.h>

#include "worker/config/parts.h"

#define NAME_MAX_BYTES 63u
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

#define CLUSTER(member) offsetof(struct md_config_cluster, member)

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
    MD_KEY("lease_grace", MD_KEY_TIME, CLUSTER(lease_grace_ns), "10s"),
};
const struct md_config_keys md_config_cluster_keys = MD_KEYS("medusa.cluster.", cluster_keys, .strict = true);

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

enum md_status md_config_read_cluster(struct md_config_build *build, struct md_tree *node,
				      struct md_config_cluster *cluster)
{
	MD_FORWARD(md_keys_read(build, &md_config_cluster_keys, node, cluster));
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
	return MD_OK;
}
