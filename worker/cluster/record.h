/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node says of itself in etcd, as JSON: what it has (PREFIX/nodes/NAME), which changes with its configuration, and how it
 * stands (PREFIX/states/NAME), which changes while it works; and what a user wants of it (PREFIX/wishes/NAME). docs/cluster.md has the formats.
 */
#ifndef MD_WORKER_CLUSTER_RECORD_H
#define MD_WORKER_CLUSTER_RECORD_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"
#include "worker/cluster/standing.h"

struct md_worker;

#define MD_RECORD_FORMAT 1 /* a reader leaves out a node with another one, and keys that it does not know */

/* ---- writing: of this node ---- */

struct md_record_self {
	const char *identity, *url;
	const char *domain; /* of failures; "": its own */
	bool placed;        /* it does what the leader places */
};
/* A text for free(). NULL: out of memory. */
char *md_record_print(const struct md_worker *worker, const struct md_record_self *self);

struct md_record_state {
	bool cordoned, draining;
	bool left;             /* the node leaves by itself */
	struct md_loads loads; /* rounded */
	/* Rounded, of all models of the configuration, by their indexes: as they are, and as md_standing_unused has them. */
	const struct md_standing *standings, *unused;
	json_t *tenants; /* of md_quotas_tell; NULL: none */
};
char *md_record_print_state(const struct md_worker *worker, const char *identity, const struct md_record_state *state);

/* ---- reading: of any node ---- */

struct md_record_model {
	const char *id, *base; /* base: of an adapter; else NULL */
	const json_t *aliases; /* an array of texts */
	bool unlisted;
	uint64_t bytes;                /* on the node's GPUs; 0: not known */
	uint32_t parallel;             /* requests at one time; 0: not known */
	uint32_t min_nodes, max_nodes; /* that are to have it; max_nodes: 0: any */
	double first_s[MD_STARTS];     /* before anything was measured */
	struct md_standing standing;
};

struct md_record_name {
	const char *name;
	uint32_t model;
};

/* Everything in it lives as long as it. */
struct md_record {
	json_t *root;
	const char *identity, *url, *version;
	const char *domain; /* NULL: its own */
	bool placed;
	uint32_t gpu_count;
	uint64_t gpu_bytes;       /* of all of them, at most INT64_MAX; 0: not known */
	uint64_t *each_gpu_bytes; /* owned; 0: not known */
	struct md_record_model *models;
	uint32_t count;
	struct md_record_name *names; /* IDs and aliases, sorted, each once: an ID comes before an alias */
	uint32_t name_count;
	struct md_loads loads; /* as the state says */
};

/* What is to be done about a value in etcd that could not be read so. ordered: users write it, and nobody else. */
const char *md_record_remedy(enum md_status status, bool ordered);

/* MD_ERR_VERSION: another format; MD_ERR_CORRUPT: what is wrong stands in err; MD_ERR_NO_MEMORY. */
enum md_status md_record_read(const char *text, size_t size, struct md_record **read, struct md_error *err);
void md_record_free(struct md_record *record); /* NULL is fine */
struct md_record_model *md_record_find(const struct md_record *record,
				       const char *name); /* by ID or alias; NULL: none */

/*
 * Puts what a state says into the record's models, and *cordoned and *draining. What does not fit the record is left out. root:
 * of the text, which md_record_read_state has read; NULL: as if nothing had been said.
 */
void md_record_apply(struct md_record *record, const json_t *root, bool *cordoned, bool *draining);
bool md_record_says_left(const json_t *state); /* the node leaves by itself; NULL: it does not */
/* NULL: err has MD_ERR_CORRUPT, MD_ERR_VERSION or MD_ERR_NO_MEMORY. The caller has the reference. */
json_t *md_record_read_state(const char *text, size_t size, struct md_error *err);

/* ---- wishes ---- */

enum md_wish { MD_WISH_NONE, MD_WISH_CORDON, MD_WISH_DRAIN };
const char *md_wish_name(enum md_wish wish); /* "" of none, "cordon", "drain" */
/* {"format": 1, "wish": "cordon"}, for free(); NULL: out of memory. */
char *md_wish_print(enum md_wish wish);
/* Errors as of md_record_read; a wish that this version does not know is MD_ERR_CORRUPT. */
enum md_status md_wish_read(const char *text, size_t size, enum md_wish *wish, struct md_error *err);

#endif
