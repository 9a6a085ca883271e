/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as columns: what is read is what was written, whatever the numbers of their kernels. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/splitmix.h"
#include "format/codec/columns.h"

enum { GRAPHS = 20, NODES = 30, PARAMS = 24 };
#define GOLDEN 0x19ef132a4cd64089ull

static struct md_node nodes[GRAPHS][NODES];
static uint8_t params[GRAPHS][NODES][PARAMS];

static void make_nodes(uint64_t seed)
{
	static const uint32_t kernels[] = {0, 1, 4094, 4095, 4096, 4097, 100000, MD_NONE - 1};
	for (uint32_t g = 0; g < GRAPHS; g++) {
		for (uint32_t i = 0; i < NODES; i++) {
			uint64_t random = md_random_next(&seed);
			bool empty = random % 9 == 0;
			nodes[g][i] = (struct md_node){.type = empty ? MD_NODE_EMPTY : MD_NODE_KERNEL,
						       .kernel = empty ? MD_NONE : kernels[random >> 8 & 7],
						       .grid = {1 + (uint32_t)(random >> 16 & 3), 1, 1},
						       .block = {32, 1, 1},
						       .params_size = empty ? 0 : PARAMS,
						       .params = empty ? NULL : params[g][i]};
			for (uint32_t at = 0; at < PARAMS; at++)
				params[g][i][at] = (uint8_t)(random >> 24 & 1 ? at : random >> (at % 40));
		}
	}
}

static void assert_same(const struct md_node *was, const struct md_node *is, uint32_t graph, uint32_t node)
{
	cr_assert(is->type == was->type && is->kernel == was->kernel, "node %u of graph %u: kernel %u", node, graph,
		  is->kernel);
	cr_assert(!memcmp(is->grid, was->grid, sizeof(is->grid)), "node %u of graph %u: grid", node, graph);
	cr_assert(is->params_size == was->params_size &&
		      (!is->params_size || !memcmp(is->params, was->params, is->params_size)),
		  "node %u of graph %u: parameters", node, graph);
}

static void read_back(struct md_columns *in, const uint32_t *bases)
{
	struct md_budget budget = {.left = 64 << 20};
	void *arena = NULL;
	in->pool = &arena;
	for (uint32_t g = 0; g < GRAPHS; g++) {
		struct md_columns_view view = {.node_count = NODES};
		struct md_error err = {0};
		cr_assert(md_columns_get_graph(in, &view, bases[g], &arena, &budget, &err) == MD_OK, "graph %u: %s", g,
			  err.message);
		for (uint32_t i = 0; i < NODES; i++)
			assert_same(&nodes[g][i], &view.nodes[i], g, i);
	}
	md_arena_free(&arena);
}

/* The bytes of graphs in the file, which readers of other versions expand, too. */
static uint64_t checksum_of(const struct md_columns *out)
{
	uint64_t sum = 0;
	for (int c = 0; c < MD_COLUMN_COUNT; c++)
		sum =
		    sum * 31 + md_hash_checksum(out->out[c].data ? out->out[c].data : (uint8_t *)"", out->out[c].size);
	return sum;
}

Test(columns, graphs_are_read_as_they_were_written)
{
	uint64_t sum = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct md_columns out, in;
		uint32_t bases[GRAPHS];
		md_columns_init(&out, false);
		md_columns_init(&in, false);
		make_nodes(seed);
		for (uint32_t g = 0; g < GRAPHS; g++) {
			struct md_columns_view view = {.nodes = nodes[g], .node_count = NODES};
			bases[g] = g % 3 == 2 ? g - 1 : MD_NO_BASE;
			cr_assert(md_columns_put_graph(&out, &view, bases[g]), "memory");
		}
		sum += checksum_of(&out);
		for (int c = 0; c < MD_COLUMN_COUNT; c++)
			md_reader_init(&in.in[c], out.out[c].data, out.out[c].size);
		read_back(&in, bases);
		md_columns_finish(&in);
		md_columns_finish(&out);
	}
	cr_assert_eq(sum, GOLDEN, "the bytes are others than those of Medusa 0.2.0: 0x%llx", (unsigned long long)sum);
}
