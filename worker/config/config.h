/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of medusa-worker: llama-swap's config.yaml with our own keys, as it was read. docs/worker-config.md */
#ifndef MD_WORKER_CONFIG_CONFIG_H
#define MD_WORKER_CONFIG_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "medusa/scheduler.h"

/*
 * One md_worker_config owns everything in it; readers only look. Texts are UTF-8 and never NULL unless it is said. Times
 * are in ns, memory is in bytes. An absent list has count 0 and may have NULL. Models are sorted by their IDs, and are
 * named by their index.
 */

#define MD_CONFIG_NONE UINT32_MAX /* no model, group, peer ... */
#define MD_CONFIG_MODELS_MAX 10000u
#define MD_CONFIG_DEFAULT_GROUP "(default)"
#define MD_CONFIG_NAME_MAX 255u   /* bytes of a name by which requests ask for a model */
#define MD_CONFIG_HOST_BYTES 256u /* of proxy's host and port, with a NUL */
#define MD_CONFIG_CONCURRENCY 10u /* concurrencyLimit of a model that has none */

struct md_config_texts {
	const char *const *items;
	uint32_t count;
};

/* What whoever runs the daemon should know: a key that has no effect, a name that means something else. */
struct md_config_note {
	const char *path; /* "models.qwen.ttl" */
	const char *file;
	uint32_t line;
	const char *text; /* a sentence without its end */
};

/* 0: no limit. */
struct md_config_timeouts {
	uint64_t connect_ns, keepalive_ns, response_header_ns, tls_handshake_ns, expect_continue_ns, idle_ns;
};

/* ---- what is changed in requests ---- */

struct md_config_param {
	const char *path; /* of keys, with dots between them: "chat_template_kwargs.enable_thinking" */
	const json_t *value;
};

/* In the order of the file; objects replace what is there, they are not united with it. */
struct md_config_params {
	const char *name; /* by_id: the requested name that they are for; else "" */
	const struct md_config_param *items;
	uint32_t count;
};

/* In this order: strip, set, by_id. The parameter "model" is in none of them. */
struct md_config_filters {
	struct md_config_texts strip;
	struct md_config_params set;
	const struct md_config_params *by_id;
	uint32_t by_id_count;
};

/* ---- models ---- */

enum md_config_medium { MD_CONFIG_TEXT = 1, MD_CONFIG_AUDIO = 2, MD_CONFIG_IMAGE = 4 };

struct md_config_capabilities {
	bool given;
	unsigned in, out; /* bits of enum md_config_medium */
	bool tools, reranker;
	uint64_t context; /* tokens; 0: not given */
};

enum md_config_swap { MD_CONFIG_SWAP_AUTO, MD_CONFIG_SWAP_OFF, MD_CONFIG_SWAP_ON, MD_CONFIG_SWAP_CHECKPOINT };
enum md_config_share { MD_CONFIG_SHARE_OFF, MD_CONFIG_SHARE_ON, MD_CONFIG_SHARE_AUTO };
enum md_config_neighbours { MD_CONFIG_NEIGHBOURS_OFF, MD_CONFIG_NEIGHBOURS_AUTO };

/* models.*.medusa; 0 and NULL: not given, so it is measured or the default of the daemon holds. */
struct md_config_own {
	const char *artifact; /* path of a .medusa; with `place`: in there */
	/* of a model whose files travel between nodes; else place is NULL: */
	const char *place;              /* folder by which its engine finds them, in medusa.cluster.store */
	const char *content;            /* the hash that they must have; NULL: any */
	struct md_config_texts sources; /* where this node's own ones are: the artifact, and what `files` lists */
	uint64_t memory_bytes, host_memory_bytes, kv_request_bytes;
	uint64_t slo_ns;
	enum medusa_sched_goal goal;
	int64_t priority; /* the higher, the earlier; also from routing.scheduler.settings.fifo.priority */
	bool pin;         /* never evicted once it is loaded */
	uint32_t min_replicas, max_batch;
	uint32_t min_nodes, max_nodes; /* of a cluster that are to have it on their GPUs; max_nodes: 0: any */
	enum md_config_swap swap;
	enum md_config_share share;
	enum md_config_neighbours gpu_neighbours; /* in over links of other GPUs, too */
	uint64_t start_ns, swap_ns;               /* first guesses */
	uint32_t tenant;                          /* index, or MD_CONFIG_NONE */
	uint32_t template;                        /* index, or MD_CONFIG_NONE */
	uint32_t backbone;                        /* the same; memory_bytes is what its engine needs beside it */
	uint32_t max_queue;
	uint64_t max_wait_ns, deadline_ns;
	bool adapted;           /* its engine takes adapters */
	uint32_t adapter_slots; /* so many at one time; 0: no limit */
};

/* Where something stands, for messages that can't be given before the daemon serves. */
struct md_config_place {
	const char *file;
	uint32_t line;
};

struct md_config_model {
	const char *id;
	struct md_config_place place, proxy_place, memory_place; /* the last two: as `place` if the key is not there */
	const char *const *argv;                                 /* ends with NULL; empty: nothing can be started */
	const char *const *stop_argv; /* the same; NULL: SIGTERM. "${PID}" in it stands for the process's ID */
	const char *cmd;              /* as it is shown: with macros replaced */
	struct md_config_texts env;   /* "NAME=VALUE", added to the daemon's environment */
	const char *proxy;            /* URL of the engine */
	const char *check; /* path that answers 200 when it is ready; NULL: ready when it takes connections */
	uint16_t port;     /* ${PORT}; 0: cmd does not use it */
	struct md_config_texts aliases; /* also the names of filters.by_id */
	uint64_t health_ns;             /* from its start until it must be ready */
	uint64_t ttl_ns;                /* idle time until it is unloaded; 0: never */
	uint64_t unload_ns;             /* from the wish to end until SIGKILL */
	bool unlisted;
	const char *use_model_name; /* sent to the engine as "model"; "": what the client sent */
	const char *name, *description;
	uint32_t concurrency; /* requests at most, with those that wait */
	struct md_config_filters filters;
	const json_t *metadata; /* an object; NULL: none */
	bool send_loading_state;
	struct md_config_timeouts timeouts;
	bool ignore_websockets;
	struct md_config_capabilities capabilities;
	uint32_t group; /* index; MD_CONFIG_NONE with a matrix */
	struct md_config_own own;
	/* of an adapter, which is a model whose requests go to another one's engine: */
	uint32_t base;    /* that model; MD_CONFIG_NONE: it is no adapter */
	const char *path; /* where its engine finds it */
	uint64_t bytes;   /* device memory that it takes, at least 1 */
};

/* ---- which models run together ---- */

struct md_config_members {
	const uint32_t *items; /* models, ascending */
	uint32_t count;
};

struct md_config_group {
	const char *name;
	bool swap;       /* one member at a time */
	bool exclusive;  /* its members evict other groups */
	bool persistent; /* others do not evict it */
	struct md_config_members members;
};

/* One combination that a set of the matrix allows. Sets that others refer to come first. */
struct md_config_combination {
	const char *set;
	struct md_config_members members;
};

struct md_config_matrix {
	const uint32_t *costs; /* of evicting a model, by its index */
	const struct md_config_combination *combinations;
	uint32_t combination_count;
};

/* ---- names that are no model of this node ---- */

struct md_config_peer {
	const char *id;
	const char *proxy, *api_key; /* "": none */
	struct md_config_texts models;
	struct md_config_filters filters;
	struct md_config_timeouts timeouts;
};

enum md_config_target_kind { MD_CONFIG_NOTHING, MD_CONFIG_MODEL, MD_CONFIG_PEER, MD_CONFIG_SELECTOR };

/* What a name means. */
struct md_config_target {
	enum md_config_target_kind kind;
	uint32_t index; /* of the model, peer or selector */
	const char
	    *name; /* of a peer: the model's name there; of a selector's model: as the selector lists it; else NULL */
};

enum md_config_strategy { MD_CONFIG_WARM, MD_CONFIG_PIN, MD_CONFIG_SPILLOVER };

struct md_config_selector {
	const char *id;
	enum md_config_strategy strategy;
	const struct md_config_target *targets; /* models and peers */
	uint32_t target_count;
	uint32_t spillover; /* requests of a target from which on the next one is used */
	const char *name, *description;
	bool unlisted;
	const json_t *metadata; /* an object; NULL: none */
};

struct md_config_pin {
	const char *name;
	const char *target; /* NULL: the name is disabled */
};

struct md_config_profile {
	const char *id, *description;
	const struct md_config_pin *pins;
	uint32_t pin_count;
};

/* ---- medusa: ---- */

struct md_config_gpu {
	const char *uuid;      /* NULL: the next one in the driver's order */
	uint64_t memory_bytes; /* 0: all of it */
	uint32_t slots;        /* 0: the scheduler's default */
};

struct md_config_tenant {
	const char *name;
	struct md_config_texts keys; /* API keys that stand for it */
	double weight;
	uint32_t max_running, max_waiting;                 /* on this node; 0: no limit */
	uint32_t cluster_max_running, cluster_max_waiting; /* on all nodes of the cluster together; 0: no limit */
};

/* A process that is started ahead and forks engines. */
struct md_config_template {
	const char *name;
	const char *const *argv; /* ends with NULL */
	const char *cmd;
	struct md_config_texts env;
};

/* Weights that engines of several models have once in device memory (medusa_share). */
struct md_config_backbone {
	const char *name;
	uint64_t bytes;
};

/* NULL: the scheduler's own. */
struct md_config_policies {
	const char *queueing, *placement, *eviction, *batching, *preloading;
};

/* Paths of PEM files, as of struct md_http_trust_files; "": not given. */
struct md_config_tls {
	const char *ca, *certificate, *key;
	bool given;
};

/* What of a model's files is fetched from other nodes. */
enum md_config_fetch {
	MD_CONFIG_FETCH_DEMANDED, /* what the model's configuration demands by its hash */
	MD_CONFIG_FETCH_ANY,      /* else what the other nodes have for it, if it is the same on all of them */
	MD_CONFIG_FETCH_OFF,
};

/* Whether requests go where a prefix of their prompt is cached. */
enum md_config_prefixes { MD_CONFIG_PREFIXES_AUTO, MD_CONFIG_PREFIXES_OFF };

/* The cluster that the node belongs to. */
struct md_config_cluster {
	struct md_config_texts endpoints; /* URLs of etcd; none: the node is alone */
	const char *node;                 /* its name; "": the machine's */
	const char *advertise;            /* the URL by which other nodes reach it; "": where it listens */
	const char *prefix;               /* of all keys in etcd, without "/" at its end */
	const char *domain;               /* of failures: nodes that fail together have one; "": the node is its own */
	bool placement;                   /* it does what the cluster's leader places, and may be the leader */
	const char *key_file;             /* of the key by which nodes know each other; "": there is none */
	const char *ca, *certificate,
	    *certificate_key;          /* of TLS, to etcd and to nodes; as of struct md_http_trust_files */
	const char *listen;            /* where other nodes alone are served, by TLS; "": where everybody is */
	struct md_config_tls tls;      /* of that, and of calls to other nodes */
	struct md_config_tls etcd_tls; /* of calls to etcd */
	const char *etcd_user;         /* "": none */
	const char *etcd_password_file, *etcd_password_env; /* "": the other one */
	uint64_t lease_grace_ns;                            /* a node whose lease has ended stays known for so long */
	uint64_t
	    quota_hold_ns; /* without etcd the node starts requests of tenants with a quota for so long; what runs, for twice as long */
	const char *store;    /* folder of what is fetched; "": models' files are each node's own */
	uint64_t store_bytes; /* the most that it holds; 0: as much as there is room for */
	enum md_config_fetch fetch;
	uint32_t fetch_streams; /* blocks that are fetched at one time, for all models together */
	uint64_t fetch_rate;    /* bytes a second; 0: as fast as it goes */
	const char *signed_by;  /* public keys, one of which must have signed an artifact that is fetched; "": any */
	enum md_config_prefixes prefixes;
	uint32_t prefix_blocks; /* of prompts that are remembered */
	uint64_t prefix_age_ns; /* for so long */
};

struct md_config_node {
	const struct md_config_gpu *gpus;
	uint32_t gpu_count; /* 0: "auto", all that the driver has */
	uint64_t host_memory_bytes;
	struct md_config_policies policies;
	const struct md_config_tenant *tenants;
	uint32_t tenant_count;
	const struct md_config_template *templates;
	uint32_t template_count;
	const struct md_config_backbone *backbones;
	uint32_t backbone_count;
	uint32_t retries;          /* of a request whose engine failed before it sent a byte */
	uint64_t adopt_ns;         /* engines wait so long for the next daemon if this one is killed */
	const char *cgroup;        /* "auto", "off" or the path of a folder of cgroups, for those of engines */
	const char *listen;        /* "": the command line's */
	const char *state;         /* path of SQLite's file; "": none is kept */
	uint64_t trace_ns;         /* single requests are kept there for so long; 0: not at all */
	const char *control;       /* path of the Unix socket; "": the default */
	uint64_t pool_bytes;       /* host memory for swapped engines together; 0: each has its own */
	const char *spill;         /* folder for the file behind it; "": none */
	uint64_t spill_bytes;      /* the most that the file takes; 0: half of what is free there */
	bool measure_memory;       /* what GPUs have in use counts */
	uint64_t body_limit;       /* bytes of a request's body */
	uint64_t bodies_limit;     /* bytes of the bodies of all requests that are there */
	uint32_t connection_limit; /* of HTTP */
	struct md_config_cluster cluster;
	uint64_t write_ns, write_waiting_ns; /* a client may take nothing of its answer; the same while requests wait */
};

/* ---- all of it ---- */

enum md_config_log_level { MD_CONFIG_LOG_DEBUG, MD_CONFIG_LOG_INFO, MD_CONFIG_LOG_WARN, MD_CONFIG_LOG_ERROR };
enum md_config_log_to { MD_CONFIG_LOG_PROXY, MD_CONFIG_LOG_UPSTREAM, MD_CONFIG_LOG_BOTH, MD_CONFIG_LOG_NONE };

struct md_worker_config {
	const struct md_config_note *notes;
	uint32_t note_count;

	enum md_config_log_level log_level;
	const char *log_time_format; /* a name of Go's layouts, lower case; "": none */
	enum md_config_log_to log_to;
	bool log_requests, include_aliases;
	uint32_t metrics_in_memory;
	uint64_t capture_bytes; /* 0: none */
	const char *store;      /* "": none */
	struct md_config_texts session_headers;
	bool performance;
	uint64_t performance_ns; /* from one sample to the next */
	struct md_config_texts api_keys;
	struct md_config_texts ignored_paths; /* patterns, see md_config_ignores_path */

	const struct md_config_model *models;
	uint32_t model_count;
	const char *first_store; /* medusa.cluster.store when the daemon began, which counts until it ends; "": none */
	uint16_t start_port;     /* from which on ${PORT} is given out */
	const struct md_config_group *groups; /* none with a matrix */
	uint32_t group_count;
	const struct md_config_matrix *matrix; /* NULL: groups */
	const struct md_config_peer *peers;
	uint32_t peer_count;
	const struct md_config_selector *selectors;
	uint32_t selector_count;
	const struct md_config_profile *profiles;
	uint32_t profile_count;
	struct md_config_members preload; /* in the order of the file */
	struct md_config_node node;

	struct md_config_inner *inner; /* memory, and indexes of names */
};

/*
 * Reads a file, then the *.yml and *.yaml of a folder in the order of their names; either may be NULL. NULL on failure:
 * the error names file, line and key. MD_ERR_NOT_FOUND, MD_ERR_IO, MD_ERR_CORRUPT, MD_ERR_TOO_LARGE, MD_ERR_NO_MEMORY.
 */
const struct md_worker_config *md_worker_config_create(const char *file, const char *folder, struct md_error *err);
/*
 * The same, for a daemon that serves `previous`: a model that had a port keeps it, and no other model gets that one,
 * because an engine may still use it. Files of models stay in the store of the daemon's start.
 */
const struct md_worker_config *md_worker_config_renew(const char *file, const char *folder,
						      const struct md_worker_config *previous, struct md_error *err);
/* As md_worker_config_create, of a text; name stands in messages. */
const struct md_worker_config *md_worker_config_parse(const char *name, const char *text, size_t bytes,
						      struct md_error *err);
void md_worker_config_destroy(const struct md_worker_config *config); /* NULL is fine */

/* The model with this ID, else with this alias; NULL: none. */
const struct md_config_model *md_config_find_model(const struct md_worker_config *config, const char *name);
/* What a requested name means: a model, a selector, or "peer/model" (or "model", if one peer alone has it). */
struct md_config_target md_config_find(const struct md_worker_config *config, const char *name);
/* NULL: none. */
const struct md_config_profile *md_config_find_profile(const struct md_worker_config *config, const char *id);
/* The pin of a name in a profile, NULL: none. */
const struct md_config_pin *md_config_find_pin(const struct md_config_profile *profile, const char *name);
/* Whether a path behind /upstream/NAME must not start an engine. */
bool md_config_ignores_path(const struct md_worker_config *config, const char *path);

/* Whether a node of a cluster may be called so. */
bool md_config_is_node_name(const char *name);

/* The model that has the engine: of an adapter its base, else itself. */
uint32_t md_config_engine_of(const struct md_worker_config *config, uint32_t model);
/* Whether the files say which models run together, by groups or a matrix. If not, memory decides. */
bool md_config_is_ruled(const struct md_worker_config *config);
/* How many models may be there at once at most, if this one is. */
uint32_t md_config_most_together(const struct md_worker_config *config, uint32_t model);
/*
 * What must stop so that `target` may run: evict[i] is set for such models. running and evict have an element for each
 * model. Returns how many they are.
 */
uint32_t md_config_evict(const struct md_worker_config *config, uint32_t target, const bool *running, bool *evict);
/* Whether all of these models may run at once. */
bool md_config_together(const struct md_worker_config *config, const uint32_t *models, uint32_t count);

#endif
