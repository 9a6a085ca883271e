/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what prefixes of prompts cost a request at a node of a cluster: their hashes, looking them up, choosing a node, and noting who has
 * computed them; beside them, reading the body as every request is read. Prints bench/results/cluster-prefixes.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "bench/machine.h"
#include "scheduler/cluster/prefix_choice.h"
#include "scheduler/cluster/prefix_table.h"
#include "worker/cluster/prefix_text.h"
#include "worker/core/rewrite.h"

#define ROUNDS 201
#define BLOCKS 65536u
#define NODES 16u

enum step { READ, HASH, LOOK, CHOOSE, NOTE, STEPS };

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static char *make_body(size_t prompt, const char *piece, uint64_t seed)
{
	size_t size = strlen(piece), room = prompt + 100;
	char *body = malloc(room);
	if (!body)
		exit(1);
	int used = snprintf(body, room, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%016llx",
			    (unsigned long long)md_random_next(&seed));
	for (size_t at = 0; at + size <= prompt; at += size)
		memcpy(body + used + at, piece, size);
	snprintf(body + used + prompt / size * size, 8, "\"}]}");
	return body;
}

/* As nodes are that are all equal, of which one has the prompt. */
static void choose(const struct md_prefix_chain *chain)
{
	struct md_prefix_candidate list[NODES];
	for (uint32_t i = 0; i < NODES; i++)
		list[i] = (struct md_prefix_candidate){.index = i,
						       .seconds = 0.1,
						       .prefill_s = 1e-6,
						       .cached = i ? 0 : (double)chain->bytes,
						       .rank = chain->blocks[0] * (2 * i + 1)};
	if (md_prefix_choose(list, NODES, &(struct md_prefix_prompt){.bytes = (double)chain->bytes}) >= NODES &&
	    chain->bytes > 10000)
		exit(1);
}

static void measure(struct md_prefix_table *table, const char *body, size_t size, uint64_t took[STEPS])
{
	static const unsigned char key[MD_PREFIX_KEY_BYTES] = "key";
	const struct md_prefix_seed seed = {.key = key, .model = "m", .client = ""};
	struct md_prefix_hit hits[MD_PREFIX_HITS];
	struct md_rewrite_body read;
	struct md_prefix_chain chain;
	uint64_t at[STEPS + 1];
	at[READ] = md_clock_ns();
	if (!md_rewrite_read(body, size, &read))
		exit(1);
	at[HASH] = md_clock_ns();
	md_prefix_text_read("/v1/chat/completions", body, &read.object, &seed, &chain);
	at[LOOK] = md_clock_ns();
	md_prefix_table_look(table, chain.blocks, chain.count, at[LOOK], hits);
	at[CHOOSE] = md_clock_ns();
	choose(&chain);
	at[NOTE] = md_clock_ns();
	md_prefix_table_note(table, chain.blocks, chain.count, 1, at[LOOK]);
	at[STEPS] = md_clock_ns();
	for (int i = 0; i < STEPS; i++)
		took[i] = at[i + 1] - at[i];
	md_rewrite_finish(&read);
}

/* The table is full of what other requests had. */
static struct md_prefix_table *fill(void)
{
	struct md_prefix_table *table = md_prefix_table_create(BLOCKS, UINT64_C(600000000000));
	uint64_t random = 1, chain[MD_PREFIX_BLOCKS];
	for (uint32_t i = 0; table && i < BLOCKS; i += MD_PREFIX_BLOCKS) {
		for (uint32_t k = 0; k < MD_PREFIX_BLOCKS; k++)
			chain[k] = md_random_next(&random);
		md_prefix_table_note(table, chain, MD_PREFIX_BLOCKS, 2, md_clock_ns());
	}
	return table;
}

static void print_size(struct md_prefix_table *table, const char *what, size_t prompt, const char *piece)
{
	static uint64_t took[STEPS][ROUNDS];
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint64_t one[STEPS];
		char *body = make_body(prompt, piece, round);
		measure(table, body, strlen(body), one);
		free(body);
		for (int i = 0; i < STEPS; i++)
			took[i][round] = one[i];
	}
	printf("| %s |", what);
	for (int i = 0; i < STEPS; i++) {
		qsort(took[i], ROUNDS, sizeof(**took), compare);
		printf(" %.2f |", (double)took[i][ROUNDS / 2] * 1e-3);
	}
	printf("\n");
}

int main(void)
{
	struct md_prefix_table *table = fill();
	if (!table)
		return 1;
	printf("# What prefixes of prompts cost a request\n\nMade by `bench/worker_prefix_times`: medians of %d "
	       "requests, each with another "
	       "prompt, in microseconds of one thread; a table of %u blocks that is full; %u nodes. Reading the body "
	       "is what\n"
	       "every request costs, with or without a cluster; at most the first %u KiB of a prompt are hashed.\n\n",
	       ROUNDS, BLOCKS, NODES, MD_PREFIX_BYTES >> 10);
	print_machine();
	printf("\n| prompt | reading the body | hashes | looking them up | choosing | noting "
	       "|\n|---|---|---|---|---|---|\n");
	print_size(table, "500 bytes", 500, "text that stands for itself, ");
	print_size(table, "4 KB", 4000, "text that stands for itself, ");
	print_size(table, "16 KB", 16000, "text that stands for itself, ");
	print_size(table, "64 KB", 64000, "text that stands for itself, ");
	print_size(table, "240 KB", 240000, "text that stands for itself, ");
	print_size(table, "4 MB", 4000000, "text that stands for itself, ");
	print_size(table, "240 KB, of characters that are not ASCII", 240000, "\xe6\x96\x87\xe5\xad\x97");
	print_size(table, "240 KB, all of it escaped", 240000, "\\u6587");
	md_prefix_table_destroy(table);
	return 0;
}
