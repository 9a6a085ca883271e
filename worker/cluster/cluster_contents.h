/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of models that travel between nodes: which of them this node has, which others have, and what is fetched. All of it is
 * there only with medusa.cluster.store; else the daemon's `contents` is NULL, which all of these take.
 */
#ifndef MD_WORKER_CLUSTER_CLUSTER_CONTENTS_H
#define MD_WORKER_CLUSTER_CLUSTER_CONTENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/status.h"

struct md_contents;
struct md_http_exchange;
struct md_model;
struct md_worker;

/* After md_cluster_create. state: the folder of --state. MD_ERR_BUSY: another daemon has the store; MD_ERR_OUTPUT, MD_ERR_NO_MEMORY. */
enum md_status md_contents_create(struct md_worker *worker, const char *state, struct md_contents **made,
				  struct md_error *err);
/* Waits for threads, which end soon. No exchange is open. */
void md_contents_destroy(struct md_contents *contents);

/* ---- for whoever loads models ---- */

enum md_contents_state {
	MD_CONTENTS_HERE, /* its engine finds all its files, or it has none that travel */
	MD_CONTENTS_COMES,
	MD_CONTENTS_LACKS, /* they can't be had now: md_contents_why */
};
/*
 * The model is to be loaded: what is missing is fetched from now on. When that has an end, jobs that wait arrive (md_jobs_unpark),
 * and the worker's models are looked at.
 */
enum md_contents_state md_contents_want(struct md_model *model);
const char *md_contents_why(const struct md_model *model); /* a sentence without its end */
/* Seconds until its files are here, as far as is known; MD_STANDING_NEVER: nobody has them. */
double md_contents_missing_s(const struct md_model *model);

/* ---- the cluster's keys ---- */

/* As of md_wanted_begin, md_wanted_take and md_wanted_end, of PREFIX/contents/NODE. */
void md_contents_begin(struct md_contents *contents);
void md_contents_take(struct md_contents *contents, const char *key, const struct md_buf *value);
void md_contents_end(struct md_contents *contents);

/* ---- pages ---- */

/* False: it is none of its paths. */
bool md_contents_answer(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);

/* ---- what is shown ---- */

/* Of a node's model: the hash of what it has; NULL: nothing is known. Borrowed until the loop goes on. */
const char *md_contents_of(const struct md_contents *contents, const char *node, const char *model);
struct md_contents_row {
	const char *state; /* "here", "fetching" ...; NULL: the model has no files that travel */
	const char *hash;  /* that it has, or that is fetched; "" */
	const char *why;   /* "": nothing is wrong */
	uint64_t done, of;
};
struct md_contents_row md_contents_row_of(const struct md_contents *contents, const char *model); /* of this node */
void md_contents_print_metrics(const struct md_contents *contents, FILE *out);

#endif
