/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two artifacts, by meaning: places in tables and bytes of files are nobody's concern. */
#ifndef MD_TOOLS_DIFF_H
#define MD_TOOLS_DIFF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "format/artifact.h"

struct md_difference {
	const char *section; /* as in the format: "fingerprint", "graphs" ... */
	char *item;          /* owned: "fact torch", "decode/8"; "" for the section itself */
	const char *what;    /* "nodes"; NULL when the whole item is there only once */
	char *a, *b;         /* owned; NULL on the side that has none */
	uint64_t count;      /* of many equal ones, of which a and b are the first; else 0 */
	char *first;         /* owned: where that is */
	bool chance;         /* told, but the artifacts may be equal all the same: see md_diff_chance */
};

struct md_diff {
	const struct md_artifact *a, *b;
	struct md_difference *list; /* owned */
	size_t count, capacity;
	size_t real;           /* of the list, those that are not chance: equal artifacts have none */
	bool failed;           /* out of memory: the list lacks something */
	uint32_t *kernel_of_b; /* by kernel of b: that of a it corresponds to, or MD_NONE; owned */
	uint32_t *alloc_of_a;  /* by private allocation of a: that of b, once a pointer showed it; owned */
	uint32_t *alloc_of_b;  /* and back */
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
/* For what there are many of: the first one is kept with its place, further ones are counted. */
struct md_diff_tally {
	uint64_t count;
	char first[256], a[128], b[128];
};
void md_diff_tally(struct md_diff *diff, const char *section, const char *item, const char *what,
		   const struct md_diff_tally *tally);

/* What was added from `before` on is chance: two captures of one engine may differ in it. */
void md_diff_chance(struct md_diff *diff, size_t before);

/* diff_graphs.c: graphs, and then contents, whose places the graphs' pointers have shown. */
void md_diff_graphs(struct md_diff *diff);

#endif
