/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the configuration, described by tables: names, types, bounds, defaults, and where values are stored. */
#ifndef MD_WORKER_CONFIG_KEYS_H
#define MD_WORKER_CONFIG_KEYS_H

#include "worker/config/config.h"
#include "worker/config/macros.h"
#include "worker/config/tree.h"

/* ---- what is being built ---- */

struct md_config_inner;

struct md_config_build {
	struct md_worker_config *config;
	const struct md_worker_config *previous; /* whose ports are kept; NULL: none */
	struct md_config_inner *inner;
	struct md_forest *forest;
	struct md_config_note *notes; /* malloc'd */
	uint32_t note_count, note_room;
	struct md_macros macros; /* of the whole configuration */
	struct md_error *err;
};

/* Memory of the configuration, zeroed; NULL: err is set. */
void *md_config_take(struct md_config_build *build, size_t count, size_t item);
/* "FILE:LINE: PATH ..." for the daemon to say when it starts. Few notes are kept of a great many. */
enum md_status md_config_note(struct md_config_build *build, const struct md_tree *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- tables ---- */

enum md_key_type {
	MD_KEY_FLAG,      /* bool */
	MD_KEY_INTEGER,   /* int64_t */
	MD_KEY_COUNT,     /* uint32_t */
	MD_KEY_SECONDS,   /* uint64_t, ns; written as a whole number of seconds */
	MD_KEY_MEGABYTES, /* uint64_t, bytes; written as a whole number of MB */
	MD_KEY_REAL,      /* double */
	MD_KEY_DURATION,  /* uint64_t, ns; "5s", "1m30s" */
	MD_KEY_BYTES,     /* uint64_t; "12GB", "512MiB", or a whole number */
	MD_KEY_TIME,      /* uint64_t, ns; "800ms", "2min" */
	MD_KEY_TEXT,      /* const char * */
	MD_KEY_CHOICE,    /* an enum: the index in choices */
	MD_KEY_TEXTS,     /* struct md_config_texts */
	MD_KEY_JSON,      /* const json_t *, an object */
	MD_KEY_NODE,      /* struct md_tree *, for the caller; NULL: not there */
};

struct md_config_key {
	const char *name;
	enum md_key_type type;
	size_t offset;
	const char *standard;       /* the value of a key that is not there, as text; NULL: 0, nothing */
	int64_t low, high;          /* of numbers, as they are written; high 0: as much as there is room for */
	const char *const *choices; /* NULL-terminated */
	const char *wanted;         /* said about a value out of bounds; NULL: made of the bounds */
	const char *note;           /* said when the key is given: it has no effect */
	bool secret;                /* the value stands in no message */
};

struct md_config_keys {
	const char *path; /* as docs/worker-config.md writes it, with a dot at its end: "models.*."; "" at the top */
	const struct md_config_key *keys;
	size_t count;
	bool strict; /* unknown keys are errors: these are our own */
};

#define MD_KEY(word, kind, at, value, ...)                                                                             \
	{                                                                                                              \
		.name = (word), .type = (kind), .offset = (at), .standard = (value), __VA_ARGS__                       \
	}
#define MD_KEYS(at, table, ...)                                                                                        \
	{                                                                                                              \
		.path = (at), .keys = (table), .count = sizeof(table) / sizeof((table)[0]), __VA_ARGS__                \
	}

extern const struct md_config_keys md_config_top_keys, md_config_store_keys, md_config_ui_keys, md_config_activity_keys,
    md_config_performance_keys, md_config_upstream_keys, md_config_model_keys, md_config_compat_keys,
    md_config_capability_keys, md_config_filter_keys, md_config_peer_filter_keys, md_config_timeout_keys,
    md_config_peer_timeout_keys, md_config_node_keys, md_config_gpu_keys, md_config_policy_keys, md_config_tenant_keys,
    md_config_template_keys, md_config_backbone_keys, md_config_cluster_keys, md_config_cluster_tls_keys,
    md_config_etcd_tls_keys, md_config_own_keys, md_config_adapter_keys, md_config_routing_keys, md_config_router_keys,
    md_config_router_setting_keys, md_config_scheduler_keys, md_config_scheduler_setting_keys, md_config_fifo_keys,
    md_config_group_keys, md_config_hook_keys, md_config_startup_keys, md_config_matrix_keys, md_config_peer_keys,
    md_config_selector_keys, md_config_spillover_keys, md_config_profile_keys;
/* Every table there is, NULL at the end. */
extern const struct md_config_keys *const md_config_tables[];

/* Fills *out from a mapping; of a missing or empty one (NULL) with the defaults. */
enum md_status md_keys_read(struct md_config_build *build, const struct md_config_keys *table, struct md_tree *mapping,
			    void *out);

/* One value that is no key of a table. */
enum md_status md_keys_text(struct md_config_build *build, const struct md_tree *node, const char **text);
/* MD_ERR_CORRUPT unless it is a mapping, or nothing. */
enum md_status md_keys_mapping(const struct md_config_build *build, const struct md_tree *node);
const json_t *md_keys_json(struct md_config_build *build, const struct md_tree *node); /* NULL: err is set */

/* ---- the parts of a configuration, in the order in which they are read ---- */

/* What the tables of the top level leave to others. */
struct md_config_sections {
	struct md_tree *macros, *models, *groups, *matrix, *routing, *peers, *selectors, *profiles, *hooks, *upstream,
	    *medusa;
	int64_t start_port;
	uint64_t health_ns, ttl_ns, unload_ns;
	bool send_loading_state;
	struct md_tree **model_nodes; /* by the models' indexes */
};

enum md_status md_config_read_globals(struct md_config_build *build, struct md_tree *root,
				      struct md_config_sections *sections);
enum md_status md_config_read_models(struct md_config_build *build, struct md_config_sections *sections);

/* local: of a model, which has setParamsByID and strip_params as well. */
enum md_status md_config_read_filters(struct md_config_build *build, struct md_tree *node, bool local,
				      struct md_config_filters *filters);
enum md_status md_config_read_timeouts(struct md_config_build *build, struct md_tree *node, bool peer,
				       struct md_config_timeouts *timeouts);

/* ---- memory and indexes ---- */

enum md_config_rank { MD_NAME_ID, MD_NAME_ALIAS, MD_NAME_SELECTOR, MD_NAME_PEER, MD_NAME_BARE };

struct md_config_name {
	const char *name;
	struct md_config_target target;
	enum md_config_rank rank; /* the lowest one of a name counts */
};

struct md_config_inner {
	struct md_forest forest;
	json_t *kept;                 /* an array of all values that are JSON */
	struct md_config_name *names; /* sorted, each once */
	uint32_t name_count;
	void **patterns; /* of ignored_paths, compiled */
	uint32_t pattern_count;
};

#endif
