/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a configuration, which config.c has read in this order; each needs those before it. */
#ifndef MD_WORKER_CONFIG_PARTS_H
#define MD_WORKER_CONFIG_PARTS_H

#include "worker/config/keys.h"

/* medusa: GPUs, policies, tenants, templates. */
enum md_status md_config_read_node(struct md_config_build *build, struct md_config_sections *sections);
/* medusa.cluster; node may be NULL. */
enum md_status md_config_read_cluster(struct md_config_build *build, struct md_tree *node,
				      struct md_config_cluster *cluster);
/* models.*.medusa; node may be NULL. */
enum md_status md_config_read_own(struct md_config_build *build, struct md_tree *node, struct md_config_own *own);
enum md_status md_config_find_tenant(
    struct md_config_build *build, struct md_tree *node, const char *name,
    uint32_t *tenant); /* "": MD_CONFIG_NONE, and *tenant stays; node: has the key `tenant` */
/* Models and adapters, by their IDs. A name that is there twice is refused. */
struct md_config_entry {
	struct md_tree *node, *model; /* model: of which it is an adapter; NULL: it is a model */
};
enum md_status md_config_list_entries(struct md_config_build *build, struct md_tree *models,
				      struct md_config_entry **entries, uint32_t *count);
/* The adapters among them; the models have been read. */
enum md_status md_config_read_adapters(struct md_config_build *build, const struct md_config_entry *entries,
				       struct md_config_model *models, uint32_t count);
/* MD_ERR_CORRUPT if it is an adapter, where a model with an engine is wanted. */
enum md_status md_config_want_engine(struct md_config_build *build, const struct md_tree *at, uint32_t model);
/* Makes names known to md_config_find: of models and aliases, then of peers' models, then of selectors. */
enum md_status md_config_name_models(struct md_config_build *build, const struct md_config_sections *sections);
enum md_status md_config_name_peers(struct md_config_build *build);
enum md_status md_config_name_selectors(struct md_config_build *build);
enum md_status md_config_read_routing(struct md_config_build *build, struct md_config_sections *sections);
enum md_status md_config_read_matrix(struct md_config_build *build, struct md_tree *node);
enum md_status md_config_read_peers(struct md_config_build *build, struct md_config_sections *sections);
enum md_status md_config_read_selectors(struct md_config_build *build, struct md_config_sections *sections);
enum md_status md_config_read_profiles(struct md_config_build *build, struct md_config_sections *sections);
enum md_status md_config_read_hooks(struct md_config_build *build, struct md_config_sections *sections);

/* MD_ERR_CORRUPT unless it begins with http:// or https:// and a host. */
enum md_status md_config_check_url(const struct md_config_build *build, const struct md_tree *node, const char *url);
/* The same of an engine's URL, which begins with http:// and has nothing but a host, a port and a path. */
enum md_status md_config_check_engine_url(const struct md_config_build *build, const struct md_tree *node,
					  const char *url);
/* Notes engines whose address another engine has, too. */
enum md_status md_config_note_shared(struct md_config_build *build, const struct md_config_sections *sections);
/* Notes what min_replicas and pin make useless or impossible. */
enum md_status md_config_note_kept(struct md_config_build *build, const struct md_config_sections *sections);
/* MD_ERR_CORRUPT if a model states more memory than any GPU of medusa.gpus, all of which state theirs. */
enum md_status md_config_check_memory(struct md_config_build *build, const struct md_config_sections *sections);
/* medusa.cluster: what its keys of contents say together. */
enum md_status md_config_check_store(const struct md_config_build *build, const struct md_tree *node,
				     const struct md_config_cluster *cluster);
/* first_store, for the models: medusa.cluster has been read. */
enum md_status md_config_keep_store(struct md_config_build *build);
/* The folder by which the engine of a model finds its files: *place; NULL: there is no medusa.cluster.store. */
enum md_status md_config_content_place(struct md_config_build *build, const struct md_tree *model, const char **place);
/* medusa.files and medusa.content of a model; `named`: a value of it has ${content}. */
enum md_status md_config_read_content(struct md_config_build *build, const struct md_tree *model, const char *place,
				      bool named, struct md_config_own *own);

/* The model with this ID, not with this alias; MD_CONFIG_NONE: none. */
uint32_t md_config_find_id(const struct md_worker_config *config, const char *id);

#endif
