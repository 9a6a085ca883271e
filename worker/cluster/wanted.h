/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wanted in the cluster, as etcd has it: which models each node is to have (PREFIX/placements/NAME, the leader's), where users
 * want a model (PREFIX/pins/MODEL), and who leads (PREFIX/leader/..., etcd's election).
 */
#ifndef MD_WORKER_CLUSTER_WANTED_H
#define MD_WORKER_CLUSTER_WANTED_H

#include <jansson.h>

#include "base/buf.h"

struct md_wanted;

struct md_wanted *md_wanted_create(void);         /* NULL: out of memory */
void md_wanted_destroy(struct md_wanted *wanted); /* NULL is fine */

/* All keys are read anew: until md_wanted_end they are collected, and what was known before counts. */
void md_wanted_begin(struct md_wanted *wanted);
/*
 * A key without the prefix; value: NULL: it is not there any more; pair: etcd's, with its create_revision. Keys that are none of
 * these are ignored, and so are values that this version can't read.
 */
void md_wanted_take(struct md_wanted *wanted, const char *key, const json_t *pair, const struct md_buf *value);
void md_wanted_end(struct md_wanted *wanted);

/* Borrowed until the next key: {"MODEL": "kept" or "wanted"}; NULL: nothing is placed there. */
const json_t *md_wanted_placement(const struct md_wanted *wanted, const char *node);
const json_t *md_wanted_placements(const struct md_wanted *wanted); /* {"NODE": {...}} */
const json_t *md_wanted_pins(const struct md_wanted *wanted);       /* {"MODEL": "NODE"} */
const char *md_wanted_leader(const struct md_wanted *wanted); /* a node's name; NULL: nobody, as far as is known */

/* Values for free(); NULL: out of memory. */
char *md_wanted_print_placement(const json_t *models);
char *md_wanted_print_pin(const char *node);

#endif
