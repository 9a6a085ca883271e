/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of contents share. */
#ifndef MD_WORKER_CLUSTER_CONTENTS_PARTS_H
#define MD_WORKER_CLUSTER_CONTENTS_PARTS_H

#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/content_fetch.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/core/loop_thread.h"

/* A content that lies on this node, whole. Whoever reads it holds it. */
struct md_content {
	unsigned holders;
	char hash[MD_CONTENT_HASH_TEXT];
	struct md_buf manifest;
	struct md_content_tree tree;
};
void md_content_let_go(struct md_content *content); /* NULL is fine */

enum md_entry_state {
	MD_ENTRY_NEW,    /* nobody has looked for its files yet */
	MD_ENTRY_UNREAD, /* they are this node's own, and their hash is not known yet */
	MD_ENTRY_HERE,
	MD_ENTRY_MISSING,
	MD_ENTRY_BROKEN, /* what this node has of its own can't be used: why */
};

/* A model with files that travel. */
struct md_contents_entry {
	uint64_t number;             /* no other entry has had it */
	char *id, *place, *demanded; /* demanded: "" where any content will do */
	char **sources;
	uint32_t source_count;
	enum md_entry_state state;
	bool ready; /* its engine finds its files */
	bool wanted;
	bool fresh;                 /* what it waits for has just come, and was verified */
	bool foreign;               /* what this node has of its own is not what is demanded */
	struct md_content *content; /* HERE; NULL */
	uint32_t failures;          /* of fetches, one after the other */
	uint64_t rests;             /* md_clock_ns(): nothing is fetched before */
	uint64_t look_rests;        /* the same: its files are not looked for again before */
	uint64_t lonely_since;      /* the same: since then no node has anything for it; 0: one has */
	double missing_s;           /* of md_contents_missing_s */
	char missing[200];          /* which of its files this node does not have of its own; "": none is named */
	char why[400];
	char hint[MD_CONTENT_HASH_TEXT]; /* what was fetched for it where nothing is demanded; "" */
};

/* An entry's files are looked for, or read; on a thread. */
struct md_contents_look;

struct md_contents_reader; /* another node's question */

struct md_contents {
	struct md_worker *worker;
	const struct md_config_cluster *settings;
	const struct md_worker_config *config; /* of the entries */
	char *state;
	int lock;
	struct md_contents_entry *entries; /* by their IDs */
	uint32_t count;
	struct md_contents_look *look; /* NULL: none is under way */
	atomic_uint_fast64_t read;     /* bytes that it has read */
	atomic_bool ends;
	struct md_content_fetch *fetch; /* NULL: none is under way */
	char fetched[MD_CONTENT_HASH_TEXT];
	uint64_t fetch_began, next_number;
	char **needed; /* by the fetch, see md_content_room */
	struct event *tick;
	json_t *nodes,
	    *coming; /* {"NODE": {"models": {"MODEL": {"content": HASH, "bytes": N}}, "hashes": {HASH: N}}}; coming: NULL: no reading is under way */
	/* What is written of this node: */
	char *key;
	char *written; /* the value in etcd; NULL: none */
	int64_t lease, stands;
	bool changed;
	struct md_etcd_call *writing;
	uint64_t writing_rests;
	double bytes_s; /* learned */
	struct md_content_counts counts;
	struct md_contents_reader *readers;
	uint32_t reader_count;
};

struct md_contents_entry *md_contents_find(const struct md_contents *contents, const char *id); /* NULL: none */
/* The first entry's content with this hash; NULL: none. */
struct md_content *md_contents_whole(const struct md_contents *contents, const char *hash);
/* A file of it was changed: it is looked for anew. */
void md_contents_doubt(struct md_contents *contents, const struct md_content *content, const char *why);
void md_contents_changed(struct md_contents *contents, struct md_contents_entry *entry); /* whoever waits is told */

/* ---- contents_look.c ---- */

void md_contents_look_begin(const char *state); /* its folder of manifests */

void md_contents_look_next(struct md_contents *contents); /* begins with an entry that wants it, if none is under way */
void md_contents_look_end(struct md_contents *contents);

/* ---- contents_peers.c ---- */

enum md_status md_contents_peers_begin(struct md_contents *contents, struct md_error *err);
void md_contents_peers_finish(struct md_contents *contents);
void md_contents_tell(struct md_contents *contents); /* writes what has changed */
uint32_t md_contents_sources(void *contents, const char *hash, struct md_view_node **nodes, uint32_t most);
/* What the nodes have for a model. False: nothing, or not the same (why: a sentence, "" of nothing). */
bool md_contents_agreed(const struct md_contents *contents, const char *model, char hash[MD_CONTENT_HASH_TEXT],
			char *why, size_t size);
uint64_t md_contents_bytes_of(const struct md_contents *contents,
			      const char *hash); /* as nodes say; 0: nobody has it */

/* ---- contents_serve.c ---- */

void md_contents_serve_end(struct md_contents *contents);

#endif
