/* SPDX-License-Identifier: Apache-2.0 */
/* Differences of two artifacts in meaning; indices and bytes of files do not count. */
#ifndef MD_TOOLS_DIFF_H
#define MD_TOOLS_DIFF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "format/artifact/artifact.h"

struct md_difference {
	const char *section; /* as in the format: "fingerprint", "graphs" ... */
	char *item;          /* owned: "fact torch", "decode/8"; "" for the section itself */
	const char *what;    /* "nodes"; NULL when only one side has the item */
	char *a, *b;         /* owned; NULL on the side that has none */
	uint64_t count;      /* how many equal differences a and b stand for; 0: one */
	char *first;         /* owned: where the first of them is */
	bool chance;         /* reported, although the artifacts may be equal: see md_diff_chance */
};

struct md_diff {
	const struct md_artifact *a, *b;
	struct md_difference *list; /* owned */
	size_t count, capacity;
	size_t real;            /* differences that are not chance; equal artifacts have none */
	bool failed;            /* out of memory: the list is incomplete */
	uint32_t *kernel_of_b;  /* by kernel of b: the corresponding kernel of a, or MD_NONE; owned */
	uint32_t *binding_of_b; /* by binding of b: the binding of a with that name, or MD_NONE; owned */
	/* by private allocation of a: the allocation of b, once a pointer has shown it; owned */
	uint32_t *alloc_of_a;
	uint32_t *alloc_of_b; /* the other way round */
	/* While graphs are compared: by number of a kernel, on either side, or type of node; owned. */
	uint32_t *node_of_key, *nodes_of_key;
};

/* Compares all but provenance and signature. False when out of memory; finish in any case. */
bool md_diff_artifacts(const struct md_artifact *a, const struct md_artifact *b, struct md_diff *out);
void md_diff_finish(struct md_diff *diff);

void md_diff_print(const struct md_diff *diff, const char *path_a, const char *path_b, FILE *out);
void md_diff_print_json(const struct md_diff *diff, const char *path_a, const char *path_b, FILE *out);

/* ---- between the parts ---- */

/* Adds a difference if there is one. Texts may be NULL: nothing on that side. */
void md_diff_text(struct md_diff *diff, const char *section, const char *item, const char *what, const char *a,
		  const char *b);
void md_diff_number(struct md_diff *diff, const char *section, const char *item, const char *what, int64_t a,
		    int64_t b);
/* Counts differences of one kind: the first one is kept with its place, further ones are counted. */
struct md_diff_tally {
	uint64_t count;
	char first[256], a[128], b[128];
};
void md_diff_tally(struct md_diff *diff, const char *section, const char *item, const char *what,
		   const struct md_diff_tally *tally);

/* Like asprintf; NULL when out of memory. */
char *md_diff_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Marks the differences from `before` on as chance: two captures of one engine may differ in these. */
void md_diff_chance(struct md_diff *diff, size_t before);

/* The items of one side, which are identified by their names. */
struct md_diff_table {
	uint32_t count;
	const void *owner;
	char *(*name)(const void *owner, uint32_t index); /* malloc'd; NULL: out of memory */
};
typedef void md_diff_compare(struct md_diff *diff, const char *name, uint32_t a, uint32_t b);

/*
 * Calls back for each name of either side; MD_NONE: that side does not have it. A name that appears twice is compared
 * once.
 */
void md_diff_tables(struct md_diff *diff, const struct md_diff_table *a, const struct md_diff_table *b,
		    md_diff_compare *compare);

/* True if an allocation of a and one of b are paired, or may be paired now; and a place as text. */
bool md_diff_same_alloc(struct md_diff *diff, uint32_t a, uint32_t b);
void md_diff_place_text(const struct md_artifact *artifact, uint32_t alloc, int64_t offset, char *out, size_t room);

void md_diff_graphs(struct md_diff *diff);
/* Compares refusals and contents; call it after the graphs, whose pointers have shown which allocations correspond. */
void md_diff_contents(struct md_diff *diff);
void md_diff_caches(struct md_diff *diff);

#endif
