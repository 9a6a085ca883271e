/* SPDX-License-Identifier: Apache-2.0 */
/* Tables in private memory: what bounds them, and what the captures saved of them. */
#ifndef MD_ANALYZE_TABLES_H
#define MD_ANALYZE_TABLES_H

#include "analyze/analysis.h"

/* Kinds of walls, in the order of walls at one address. Addresses are the first capture's; a group has its own. */
enum md_wall_kind {
	MD_WALL_EDGE, /* of the group; edges and cuts have no length */
	MD_WALL_CUT,  /* an address that a graph has */
	MD_WALL_NEEDED,
	MD_WALL_WRITTEN,
	MD_WALL_BOUND,
};

struct md_wall {
	uint32_t group;
	enum md_wall_kind kind;
	uint64_t start, end;
};

struct md_table_part { /* of a record, without bytes that a later record has or that are contents */
	uint32_t group, alloc;
	uint64_t start, end;
	const struct md_trace_unread *from;
};

struct md_table_place { /* saved by the second capture; data is NULL for zeros */
	uint32_t alloc;
	uint64_t offset, size, sequence;
	const uint8_t *data;
};

struct md_tables {
	struct md_analysis *analysis;
	uint8_t *wanted, *holds;          /* per group: graphs have addresses in it; contents of it are held */
	struct md_map cuts;               /* addresses that have a wall */
	struct md_interval_index *copied; /* per allocation: ranges that the engine has copied there */
	struct md_wall *walls;
	uint32_t wall_count, wall_room;
	struct md_table_part *parts;
	uint32_t part_count, part_room;
	struct md_table_place *places;
	uint32_t place_count;
	uint32_t held_room;
	const struct md_findings *more; /* pointers in what an earlier round has kept */
};

void md_tables_finish(struct md_tables *tables);
uint64_t md_tables_address(const struct md_analysis *analysis, const struct md_target *target);
uint64_t md_tables_key(const struct md_tables *tables, const struct md_target *target); /* key of the target in cuts */
/* The end of the part of [at, end) that begins at `at` and is known throughout, or is not known throughout (*is). */
uint64_t md_tables_known(const struct md_interval_index *known, uint64_t at, uint64_t end, bool *is);
/* Walls, in order; and what the captures saved. */
enum md_status md_tables_list(struct md_tables *tables, struct md_error *err);

#endif
