/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are handed pointers in every way there is. */
#include <string.h>

#include "hostcuda/kernel.h"

struct nodes_step {
	float *out;
	const float *in;
	float factor;
	int32_t n;
};

/* out += factor * in: each block adds to elements of its own, as blocks run at the same time. */
static void step(const struct hostcuda_block *block, const struct nodes_step *p)
{
	for (int32_t i = (int32_t)block->block_idx[0]; i < p->n; i += (int32_t)block->grid_dim[0])
		p->out[i] += p->factor * p->in[i];
}

HOSTCUDA_KERNEL(nodes_step, struct nodes_step, HOSTCUDA_PARAM(struct nodes_step, out),
		HOSTCUDA_PARAM(struct nodes_step, in), HOSTCUDA_PARAM(struct nodes_step, factor),
		HOSTCUDA_PARAM(struct nodes_step, n))
{
	step(block, p);
}

/* The same, for functions that are told something. */
HOSTCUDA_KERNEL(nodes_told, struct nodes_step, HOSTCUDA_PARAM(struct nodes_step, out),
		HOSTCUDA_PARAM(struct nodes_step, in), HOSTCUDA_PARAM(struct nodes_step, factor),
		HOSTCUDA_PARAM(struct nodes_step, n))
{
	step(block, p);
}

HOSTCUDA_KERNEL(nodes_cached, struct nodes_step, HOSTCUDA_PARAM(struct nodes_step, out),
		HOSTCUDA_PARAM(struct nodes_step, in), HOSTCUDA_PARAM(struct nodes_step, factor),
		HOSTCUDA_PARAM(struct nodes_step, n))
{
	step(block, p);
}

/* All in one struct; `end` lies one past the end of what `in` points to. */
struct nodes_range_all {
	int32_t odd, rows;
	float *out;
	int32_t more[2];
	const float *in, *end;
};
struct nodes_range {
	struct nodes_range_all all;
};

HOSTCUDA_KERNEL(nodes_range, struct nodes_range, HOSTCUDA_PARAM(struct nodes_range, all))
{
	for (const float *at = p->all.in; at != p->all.end; at++)
		p->all.out[(at - p->all.in) % p->all.rows] += *at;
}

struct nodes_origin {
	float *out;
	const float *origin; /* what is read lies `first` floats behind it */
	const float *in;
	int64_t first;
	int32_t n;
};

HOSTCUDA_KERNEL(nodes_origin, struct nodes_origin, HOSTCUDA_PARAM(struct nodes_origin, out),
		HOSTCUDA_PARAM(struct nodes_origin, origin), HOSTCUDA_PARAM(struct nodes_origin, in),
		HOSTCUDA_PARAM(struct nodes_origin, first), HOSTCUDA_PARAM(struct nodes_origin, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->origin[p->first + i] + p->in[i];
}

struct nodes_mapped {
	unsigned char map[128] __attribute__((aligned(64)));
	float *out;
	int32_t n;
};

static void add_mapped(float *out, const unsigned char *map, int32_t n)
{
	const float *in;
	memcpy(&in, map, sizeof(in));
	for (int32_t i = 0; i < n; i++)
		out[i] += 3 * in[i];
}

HOSTCUDA_KERNEL(nodes_mapped, struct nodes_mapped, HOSTCUDA_PARAM(struct nodes_mapped, map),
		HOSTCUDA_PARAM(struct nodes_mapped, out), HOSTCUDA_PARAM(struct nodes_mapped, n))
{
	add_mapped(p->out, p->map, p->n);
}

/* The map lies in device memory. */
struct nodes_mapped_there {
	const unsigned char *map;
	float *out;
	int32_t n;
};

HOSTCUDA_KERNEL(nodes_mapped_there, struct nodes_mapped_there, HOSTCUDA_PARAM(struct nodes_mapped_there, map),
		HOSTCUDA_PARAM(struct nodes_mapped_there, out), HOSTCUDA_PARAM(struct nodes_mapped_there, n))
{
	/* As an H200 does: a map that a kernel of a graph has read is read anew behind a launch that is in no graph. */
	static struct {
		const unsigned char *address;
		uint64_t lone_ops;
		unsigned char map[128];
	} cached;
	if (cached.address != p->map || cached.lone_ops != block->lone_ops)
		memcpy(cached.map, p->map, sizeof(cached.map));
	cached.address = p->map;
	cached.lone_ops = block->lone_ops;
	/* And what is no map is an illegal address. */
	unsigned differ = 0;
	for (int i = 16; i < 128; i++)
		differ |= cached.map[i] ^ cached.map[8 + i % 4];
	add_mapped(differ ? p->out : NULL, cached.map, p->n);
}

/* As libraries that split a sum: whoever counts to the last one sums up, and leaves the counter at zero. */
struct nodes_counted {
	float *out;
	const float *in;
	int32_t *counter;
	int32_t n;
};

HOSTCUDA_KERNEL(nodes_counted, struct nodes_counted, HOSTCUDA_PARAM(struct nodes_counted, out),
		HOSTCUDA_PARAM(struct nodes_counted, in), HOSTCUDA_PARAM(struct nodes_counted, counter),
		HOSTCUDA_PARAM(struct nodes_counted, n))
{
	for (int32_t i = 0; i < p->n; i++)
		if (++*p->counter == p->n)
			for (int32_t k = 0; k < p->n; k++)
				p->out[k] += p->in[k];
	if (*p->counter == p->n)
		*p->counter = 0;
}

/* As a generator in a graph: its seed and offset are read where the engine leaves them before each replay. */
struct nodes_drawn {
	float *out;
	const uint64_t *seed, *offset;
	int32_t n;
};

HOSTCUDA_KERNEL(nodes_drawn, struct nodes_drawn, HOSTCUDA_PARAM(struct nodes_drawn, out),
		HOSTCUDA_PARAM(struct nodes_drawn, seed), HOSTCUDA_PARAM(struct nodes_drawn, offset),
		HOSTCUDA_PARAM(struct nodes_drawn, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += (float)((*p->seed * 6364136223846793005u + *p->offset + (uint64_t)i) % 1021);
}

/* The number is that of a texture object, which is read through on a GPU alone. */
struct nodes_numbered {
	float *out;
	uint64_t number;
	int32_t n;
};

HOSTCUDA_KERNEL(nodes_numbered, struct nodes_numbered, HOSTCUDA_PARAM(struct nodes_numbered, out),
		HOSTCUDA_PARAM(struct nodes_numbered, number), HOSTCUDA_PARAM(struct nodes_numbered, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->number != 0;
}
