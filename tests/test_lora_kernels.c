/* SPDX-License-Identifier: Apache-2.0 */
/* The reference engine's kernels that serve adapters, on the device at hand, against the double-precision reference. */
#include "tests/kernel_device.h"

#include "models/llama/reference.c"

#define BOUND 1e-5
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SUMS(group, tokens) ((size_t)((tokens) * (group)->slices * (group)->parts * (group)->max_rank))

static CUlibrary library;

static void open_kernels(void)
{
	open_device();
	library = load_image("llama_kernels");
}

TestSuite(lora_kernels, .init = open_kernels);

static void launch(const char *name, int grid_x, int grid_y, int threads, size_t shared_bytes, void **params)
{
	CUfunction function = find_kernel(library, name, false);
	CU_OK(cuLaunchKernel, function, (unsigned)grid_x, (unsigned)grid_y, 1, (unsigned)threads, 1, 1,
	      (unsigned)shared_bytes, NULL, params, NULL);
}

static double *widened(const float *values, size_t n)
{
	double *wide = malloc(n * sizeof(*wide));
	for (size_t i = 0; i < n; i++)
		wide[i] = values[i];
	return wide;
}

static float *narrowed(const double *values, size_t n)
{
	float *narrow = malloc(n * sizeof(*narrow));
	for (size_t i = 0; i < n; i++)
		narrow[i] = (float)values[i];
	return narrow;
}

static void assert_output(const float *device, const double *want, size_t n, const char *what)
{
	float *got = downloaded(device, n * sizeof(float));
	assert_near(got, want, n, BOUND, what);
	free(got);
}

/* ---- groups -------------------- */

enum { SLOTS = 3, TOKENS = 5, PARTS = LLAMA_LORA_PARTS };

/* Two tokens of one slot, one without an adapter. */
static const int32_t adapters[TOKENS] = {2, -1, 1, 0, 2};

/* The ranks of each slot: below the highest one, none in a part, none at all. */
static const struct ranks {
	int32_t max_rank, of[SLOTS][PARTS];
} all_ranks[] = {
    {16, {{16, 16, 16}, {1, 0, 16}, {8, 8, 8}}},
    {64, {{64, 64, 64}, {0, 0, 0}, {33, 40, 1}}},
    {9, {{9, 1, 3}, {3, 0, 9}, {8, 9, 5}}},
    {1, {{1, 1, 1}, {0, 1, 0}, {1, 0, 1}}},
};

/* A group on the host and the same on the device; sums are there before. */
struct subject {
	struct llama_lora_group host, device;
};

static struct subject make_group(const struct ranks *ranks, uint64_t seed, int inputs, int slices, int parts,
				 const int32_t columns[PARTS])
{
	const size_t a = (size_t)(parts * ranks->max_rank * inputs);
	const size_t slot = a + (size_t)((columns[0] + columns[1] + columns[2]) * ranks->max_rank) + 8;
	struct llama_lora_entry *entries = calloc(SLOTS * PARTS, sizeof(*entries));
	uint16_t *weights = random_halves(SLOTS * slot, seed, 1);
	struct subject s = {.host = {.a = weights,
				     .b = weights + a,
				     .entries = entries,
				     .adapters = adapters,
				     .slot_elements = (int64_t)slot,
				     .slot_entries = PARTS,
				     .parts = parts,
				     .max_rank = ranks->max_rank,
				     .inputs = inputs,
				     .slices = slices,
				     .columns0 = columns[0],
				     .columns1 = columns[1],
				     .columns2 = columns[2]}};
	for (int i = 0; i < SLOTS * PARTS; i++)
		entries[i] = (struct llama_lora_entry){ranks->of[i / PARTS][i % PARTS], 0.5f + (float)(i / PARTS)};
	s.host.sums = random_floats(SUMS(&s.host, TOKENS), seed + 1, 1);
	s.device = s.host;
	s.device.a = uploaded(weights, SLOTS * slot * sizeof(*weights));
	s.device.b = s.device.a + a;
	s.device.entries = uploaded(entries, SLOTS * PARTS * sizeof(*entries));
	s.device.adapters = uploaded(adapters, sizeof(adapters));
	s.device.sums = uploaded(s.host.sums, SUMS(&s.host, TOKENS) * sizeof(float));
	return s;
}

static void drop_group(struct subject *s)
{
	release(s->device.a);
	release(s->device.entries);
	release(s->device.adapters);
	release(s->device.sums);
	free((void *)s->host.a);
	free((void *)s->host.entries);
	free(s->host.sums);
}

/* After a launch that read x, [TOKENS][inputs]; sums that no rank has stay as they were. */
static void assert_sums(const struct subject *s, const double *x, int slice, const char *what)
{
	const size_t n = SUMS(&s->host, TOKENS);
	double *want = widened(s->host.sums, n);
	llama_reference_lora_sums(want, &s->host, x, TOKENS, slice);
	assert_output(s->device.sums, want, n, what);
	free(want);
}

/* Of one token of the device's group alone. */
static struct llama_lora_group alone(const struct subject *s, int token)
{
	struct llama_lora_group group = s->device;
	group.adapters += token;
	group.sums += SUMS(&s->host, token);
	return group;
}

/* ---- kernels -------------------- */

static int norm_slices(void)
{
	return on_hostcuda ? 1 : LLAMA_LORA_BLOCKS;
}

static int norm_slice(int width)
{
	return on_hostcuda ? width : LLAMA_LORA_SLICE(width);
}

static void launch_norm(struct llama_adapted_norm *p, int tokens)
{
	launch("llama_adapted_norm", tokens, norm_slices(), 256, 4 * (size_t)LLAMA_LORA_SLICE(p->width),
	       (void *[]){&p->out, &p->x, &p->weight, &p->from, &p->to, &p->width, &p->epsilon});
}

/* The rows of tokens that are computed alone have the bits that they have beside others. */
static void check_norm_alone(const struct llama_adapted_norm *p, const struct subject *from, const struct subject *to,
			     const float *x)
{
	const size_t n = TOKENS * (size_t)p->width, sums = SUMS(&to->host, TOKENS);
	float *together = downloaded(p->out, n * sizeof(float)), *their_sums = downloaded(p->to.sums, sums * 4);
	struct llama_adapted_norm one = *p;
	for (int t = 0; t < TOKENS; t++) {
		one.out = (float *)poisoned(n * sizeof(float));
		one.x = (float *)uploaded(x + t * p->width, (size_t)p->width * sizeof(float));
		one.from = alone(from, t);
		one.to = alone(to, t);
		launch_norm(&one, 1);
		float *got = downloaded(one.out, n * sizeof(float));
		cr_assert_arr_eq(got, together + t * p->width, (size_t)p->width * sizeof(float), "token %d", t);
		free(got);
		release(one.out);
		release(one.x);
	}
	float *again = downloaded(p->to.sums, sums * 4);
	cr_assert_arr_eq(again, their_sums, sums * 4, "tokens alone have other sums than together");
	free(together), free(their_sums), free(again);
}

static void check_norm(const struct ranks *ranks, int32_t width, int parts)
{
	const size_t n = TOKENS * (size_t)width;
	struct subject from = make_group(ranks, 41, 4 * width, 27, 1, (int32_t[]){width, 0, 0});
	struct subject to = make_group(ranks, 43, width, norm_slices(), parts, (int32_t[]){8, 8, 8});
	float *x = random_floats(n, 45, 2);
	uint16_t *weight = random_halves((size_t)width, 46, 2);
	double *want_x = widened(x, n), *want = malloc(n * sizeof(double));
	struct llama_adapted_norm p = {.out = (float *)poisoned(n * sizeof(float)),
				       .x = (float *)uploaded(x, n * sizeof(float)),
				       .weight = (uint16_t *)uploaded(weight, (size_t)width * 2),
				       .from = from.device,
				       .to = to.device,
				       .width = width,
				       .epsilon = 1e-5f};
	launch_norm(&p, TOKENS);
	for (int t = 0; t < TOKENS; t++)
		llama_reference_lora_add(want_x + t * width, &from.host, t, 0);
	float *sum = narrowed(want_x, n);
	llama_reference_rms_norm(want, &(struct llama_rms_norm){NULL, sum, weight, width, 1e-5f}, TOKENS);
	assert_output(p.x, want_x, n, "x");
	assert_output(p.out, want, n, "normed");
	assert_sums(&to, want, norm_slice(width), "sums of normed");
	check_norm_alone(&p, &from, &to, x);
	drop_group(&from);
	drop_group(&to);
	release(p.out), release(p.x), release(p.weight);
	free(x), free(weight), free(want), free(want_x), free(sum);
}

Test(lora_kernels, norm_adds_what_is_left_and_sums_for_what_follows)
{
	const int32_t widths[] = {7, 64, 577, 2560, 8192};
	for (size_t i = 0; i < COUNT(all_ranks); i++)
		for (size_t j = 0; j < COUNT(widths); j++)
			check_norm(&all_ranks[i], widths[j], 1 + (int)(i + j) % PARTS);
}

Test(lora_kernels, norm_with_nothing_before)
{
	struct subject to = make_group(&all_ranks[0], 43, 64, norm_slices(), 3, (int32_t[]){8, 8, 8});
	float *x = random_floats(TOKENS * 64, 45, 2);
	uint16_t *weight = random_halves(64, 46, 2);
	double want[TOKENS * 64];
	struct llama_adapted_norm p = {.out = (float *)poisoned(TOKENS * 64 * 4),
				       .x = (float *)uploaded(x, TOKENS * 64 * 4),
				       .weight = (uint16_t *)uploaded(weight, 128),
				       .to = to.device,
				       .width = 64,
				       .epsilon = 1e-5f};
	launch_norm(&p, TOKENS);
	llama_reference_rms_norm(want, &(struct llama_rms_norm){NULL, x, weight, 64, 1e-5f}, TOKENS);
	assert_output(p.out, want, TOKENS * 64, "normed");
	assert_sums(&to, want, norm_slice(64), "sums of normed");
}

/* ---- around attention -------------------- */

enum { MAX_BLOCKS = 4, BLOCKS = TOKENS * MAX_BLOCKS };

/* A sequence for each token, with blocks of its own. */
struct cached {
	int32_t tables[TOKENS * MAX_BLOCKS], slots[TOKENS], positions[TOKENS];
	const int32_t *device_tables, *device_slots, *device_positions;
};

static const struct layout {
	int32_t heads, kv_heads, head_dim, block_size;
} layouts[] = {{4, 4, 8, 4}, {9, 3, 64, 16}, {6, 2, 80, 8}, {8, 1, 128, 16}, {2, 2, 6, 5}};

static void make_cached(struct cached *c, int32_t block_size)
{
	for (int i = 0; i < TOKENS * MAX_BLOCKS; i++)
		c->tables[i] = (7 * i + 5) % BLOCKS;
	for (int t = 0; t < TOKENS; t++) {
		c->slots[t] = (t + 2) % TOKENS;
		c->positions[t] = t ? MAX_BLOCKS * block_size - 1 - 3 * t : 0;
	}
	c->device_tables = uploaded(c->tables, sizeof(c->tables));
	c->device_slots = uploaded(c->slots, sizeof(c->slots));
	c->device_positions = uploaded(c->positions, sizeof(c->positions));
}

static size_t cache_floats(const struct layout *l)
{
	return (size_t)(2 * BLOCKS * l->kv_heads * l->block_size * l->head_dim);
}

static void check_rope(const struct ranks *ranks, const struct layout *l, int32_t interleaved)
{
	const int32_t query = l->heads * l->head_dim, key = l->kv_heads * l->head_dim, width = query + 2 * key;
	const size_t n = TOKENS * (size_t)width, cached = cache_floats(l);
	struct subject from = make_group(ranks, 51, 64, LLAMA_LORA_BLOCKS, 3, (int32_t[]){query, key, key});
	float *qkv = random_floats(n, 53, 2), *kv = random_floats(cached, 54, 1);
	double *added = widened(qkv, n), *want_kv = widened(kv, cached), *want = widened(qkv, n);
	struct cached c;
	make_cached(&c, l->block_size);
	struct llama_adapted_rope p = {(float *)uploaded(qkv, n * 4),
				       (float *)uploaded(kv, cached * 4),
				       c.device_positions,
				       c.device_slots,
				       c.device_tables,
				       from.device,
				       l->heads,
				       l->kv_heads,
				       l->head_dim,
				       l->block_size,
				       MAX_BLOCKS,
				       BLOCKS,
				       10000.0f,
				       interleaved};
	launch("llama_adapted_rope", TOKENS, l->heads + 2 * l->kv_heads, 64, 4 * (size_t)l->head_dim,
	       (void *[]){&p.qkv, &p.kv, &p.positions, &p.slots, &p.block_table, &p.from, &p.heads, &p.kv_heads,
			  &p.head_dim, &p.block_size, &p.max_blocks, &p.blocks, &p.theta, &p.interleaved});
	for (int t = 0; t < TOKENS; t++) {
		llama_reference_lora_add(added + t * width, &from.host, t, 0);
		llama_reference_lora_add(added + t * width + query, &from.host, t, 1);
		llama_reference_lora_add(added + t * width + query + key, &from.host, t, 2);
	}
	float *sum = narrowed(added, n);
	llama_reference_rope_store(added, want_kv,
				   &(struct llama_rope_store){sum, kv, c.positions, c.slots, c.tables, l->heads,
							      l->kv_heads, l->head_dim, l->block_size, MAX_BLOCKS,
							      BLOCKS, 10000.0f, interleaved},
				   TOKENS);
	for (int t = 0; t < TOKENS; t++) /* k and v stay in qkv as the product has made them */
		memcpy(want + t * width, added + t * width, (size_t)query * sizeof(double));
	assert_output(p.qkv, want, n, "q");
	assert_output(p.kv, want_kv, cached, "kv");
	drop_group(&from);
	release(p.qkv), release(p.kv);
	free(qkv), free(kv), free(added), free(want_kv), free(want), free(sum);
}

Test(lora_kernels, rope_adds_to_queries_keys_and_values)
{
	for (size_t i = 0; i < COUNT(all_ranks); i++)
		for (size_t j = 0; j < COUNT(layouts); j++)
			check_rope(&all_ranks[i], &layouts[j], (int32_t)(i + j) % 2);
}

static void check_attention(const struct ranks *ranks, const struct layout *l)
{
	const int32_t query = l->heads * l->head_dim, max_positions = MAX_BLOCKS * l->block_size + 1;
	const size_t n = TOKENS * (size_t)(query + 2 * l->kv_heads * l->head_dim), cached = cache_floats(l);
	struct subject to = make_group(ranks, 61, query, l->heads, 1, (int32_t[]){8, 0, 0});
	float *qkv = random_floats(n, 63, 1), *kv = random_floats(cached, 64, 1);
	double *want = malloc(TOKENS * (size_t)query * sizeof(double));
	struct cached c;
	make_cached(&c, l->block_size);
	struct llama_attention host = {NULL,       qkv,      kv,           c.positions, c.slots,
				       c.tables,   l->heads, l->kv_heads,  l->head_dim, l->block_size,
				       MAX_BLOCKS, BLOCKS,   max_positions};
	struct llama_adapted_attention p = {(float *)poisoned(TOKENS * (size_t)query * 4),
					    (float *)uploaded(qkv, n * 4),
					    (float *)uploaded(kv, cached * 4),
					    c.device_positions,
					    c.device_slots,
					    c.device_tables,
					    to.device,
					    l->heads,
					    l->kv_heads,
					    l->head_dim,
					    l->block_size,
					    MAX_BLOCKS,
					    BLOCKS,
					    max_positions};
	launch("llama_adapted_attention", TOKENS, l->heads, 128,
	       LLAMA_ADAPTED_ATTENTION_SHARED(max_positions, l->head_dim),
	       (void *[]){&p.out, &p.qkv, &p.kv, &p.positions, &p.slots, &p.block_table, &p.to, &p.heads, &p.kv_heads,
			  &p.head_dim, &p.block_size, &p.max_blocks, &p.blocks, &p.max_positions});
	llama_reference_attention(want, &host, TOKENS);
	assert_output(p.out, want, TOKENS * (size_t)query, "attention");
	assert_sums(&to, want, l->head_dim, "sums of attention");
	drop_group(&to);
	release(p.out), release(p.qkv), release(p.kv);
	free(qkv), free(kv), free(want);
}

Test(lora_kernels, attention_sums_for_the_output_projection)
{
	for (size_t i = 0; i < COUNT(all_ranks); i++)
		for (size_t j = 0; j < COUNT(layouts); j++)
			check_attention(&all_ranks[i], &layouts[j]);
}

/* ---- the feed-forward part, and the end -------------------- */

static void check_silu(const struct ranks *ranks, int32_t width)
{
	const size_t n = TOKENS * (size_t)width;
	const int slices = (width + LLAMA_ADAPTED_SILU_SLICE - 1) / LLAMA_ADAPTED_SILU_SLICE;
	struct subject from = make_group(ranks, 71, 64, LLAMA_LORA_BLOCKS, 2, (int32_t[]){width, width, 0});
	struct subject to = make_group(ranks, 73, width, slices, 1, (int32_t[]){8, 0, 0});
	float *gate = random_floats(n, 75, 3), *up = random_floats(n, 76, 2);
	double *want_gate = widened(gate, n), *want_up = widened(up, n), *want = malloc(n * sizeof(double));
	struct llama_adapted_silu p = {.gate = (float *)uploaded(gate, n * 4),
				       .up = (float *)uploaded(up, n * 4),
				       .from = from.device,
				       .to = to.device,
				       .width = width};
	p.out = (float *)p.gate; /* as the engine has it */
	launch("llama_adapted_silu", TOKENS, slices, LLAMA_ADAPTED_SILU_SLICE, 0,
	       (void *[]){&p.out, &p.gate, &p.up, &p.from, &p.to, &p.width});
	for (int t = 0; t < TOKENS; t++) {
		llama_reference_lora_add(want_gate + t * width, &from.host, t, 0);
		llama_reference_lora_add(want_up + t * width, &from.host, t, 1);
	}
	for (size_t i = 0; i < n; i++)
		want[i] = want_gate[i] / (1 + exp(-want_gate[i])) * want_up[i];
	assert_output(p.out, want, n, "silu");
	assert_sums(&to, want, LLAMA_ADAPTED_SILU_SLICE, "sums of silu");
	drop_group(&from);
	drop_group(&to);
	release(p.gate), release(p.up);
	free(gate), free(up), free(want_gate), free(want_up), free(want);
}

Test(lora_kernels, silu_adds_to_gate_and_up_and_sums_for_down)
{
	const int32_t widths[] = {1, 255, 256, 264, 1537, 6912};
	for (size_t i = 0; i < COUNT(all_ranks); i++)
		for (size_t j = 0; j < COUNT(widths); j++)
			check_silu(&all_ranks[i], widths[j]);
}

Test(lora_kernels, gather_adds_to_the_rows_that_it_picks)
{
	enum { WIDTH = 577 };
	const int32_t rows[] = {4, 2, 1, 4}, width = WIDTH;
	float *x = random_floats(TOKENS * WIDTH, 81, 1);
	double *sum = widened(x, TOKENS * WIDTH), want[4 * WIDTH];
	struct subject from = make_group(&all_ranks[2], 82, 1000, 4, 1, (int32_t[]){width, 0, 0});
	struct llama_adapted_gather p = {(float *)poisoned(sizeof(float) * 4 * WIDTH),
					 (float *)uploaded(x, sizeof(float) * TOKENS * WIDTH),
					 (int32_t *)uploaded(rows, sizeof(rows)), from.device, width};
	launch("llama_adapted_gather", 4, (width + 255) / 256, 256, 0,
	       (void *[]){&p.out, &p.x, &p.rows, &p.from, &p.width});
	for (int t = 0; t < TOKENS; t++)
		llama_reference_lora_add(sum + t * WIDTH, &from.host, t, 0);
	for (int row = 0; row < 4; row++)
		memcpy(want + row * WIDTH, sum + rows[row] * WIDTH, WIDTH * sizeof(double));
	assert_output(p.out, want, 4 * WIDTH, "gather");
	release(p.out), release(p.x), release(p.rows);
	drop_group(&from);
	free(x), free(sum);
}
