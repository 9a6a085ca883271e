/* SPDX-License-Identifier: Apache-2.0 */
/* A small YAML document as a tree with line numbers; sizes are limited, because the file may be hostile. */
#ifndef MD_SIMULATOR_CONFIG_YAML_H
#define MD_SIMULATOR_CONFIG_YAML_H

#include "base/buf.h"

#define MD_SIM_YAML_BYTES_MAX (4u << 20)
#define MD_SIM_YAML_NODES_MAX 100000u
#define MD_SIM_YAML_DEPTH_MAX 12u
#define MD_SIM_YAML_SCALAR_MAX 4096u /* bytes */

enum md_sim_yaml_kind { MD_SIM_SCALAR, MD_SIM_SEQUENCE, MD_SIM_MAPPING };

/* Nodes are named by their index. 0 is the root, which is never a child or sibling, so 0 also means "none". */
struct md_sim_yaml_node {
	enum md_sim_yaml_kind kind;
	uint32_t line;
	uint32_t key, text; /* offsets in the text; a key only in mappings, text only of scalars */
	uint32_t first, next;
	uint32_t count; /* children */
};

struct md_sim_yaml {
	const char *name; /* of the file, borrowed */
	struct md_sim_yaml_node *nodes;
	uint32_t count, capacity;
	struct md_buf text; /* keys and scalars, each with its NUL */
};

/* Errors read "name:line: what". On success the root is a mapping. Aliases, anchors, tags and "<<" are refused. */
enum md_status md_sim_yaml_parse(const char *name, const char *text, size_t bytes, struct md_sim_yaml *yaml,
				 struct md_error *err);
void md_sim_yaml_finish(struct md_sim_yaml *yaml);

const char *md_sim_yaml_key(const struct md_sim_yaml *yaml, uint32_t node);
const char *md_sim_yaml_text(const struct md_sim_yaml *yaml, uint32_t node); /* of a scalar */

/* A whole regular file, with a NUL behind it; at most `max` bytes. */
enum md_status md_sim_file_read(const char *path, size_t max, char **text, size_t *bytes, struct md_error *err);

#endif
