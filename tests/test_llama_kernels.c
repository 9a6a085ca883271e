/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of the reference engine on the device at hand, against the double-precision reference. */
#include "tests/kernel_device.h"

#include "models/llama/reference.c"

#define BOUND 1e-5
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static CUlibrary library;

static void open_kernels(void)
{
	open_device();
	library = load_image("llama_kernels");
}

TestSuite(llama_kernels, .init = open_kernels);

static void launch(const char *name, unsigned int grid_x, unsigned int grid_y, unsigned int threads,
		   unsigned int shared_bytes, void **params)
{
	CUfunction function = find_kernel(library, name, false);
	if (shared_bytes > 40 * 1024 /* the kernel has some of its own */)
		CU_OK(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes);
	CU_OK(cuLaunchKernel, function, grid_x, grid_y, 1, threads, 1, 1, shared_bytes, NULL, params, NULL);
}

/* Downloads n floats and compares them. */
static void assert_output(const float *device, const double *want, size_t n, const char *what)
{
	float *got = downloaded(device, n * sizeof(float));
	assert_near(got, want, n, BOUND, what);
	free(got);
}

Test(llama_kernels, embed_widens_the_tokens_rows)
{
	const int32_t tokens[] = {5, 0, 16, 5}, widths[] = {1, 7, 64, 577};
	for (size_t i = 0; i < COUNT(widths); i++) {
		const int32_t width = widths[i];
		uint16_t *table = random_halves(17 * (size_t)width, 1, 3);
		struct llama_embed host = {NULL, table, tokens, width}, p = host;
		double *want = malloc(4 * (size_t)width * sizeof(*want));
		p.out = poisoned(4 * (size_t)width * sizeof(float));
		p.table = uploaded(table, 17 * (size_t)width * sizeof(*table));
		p.tokens = uploaded(tokens, sizeof(tokens));
		launch("llama_embed", 4, 1, 256, 0, (void *[]){&p.out, &p.table, &p.tokens, &p.width});
		llama_reference_embed(want, &host, 4);
		assert_output(p.out, want, 4 * (size_t)width, "embed");
		free(table);
		free(want);
	}
}

Test(llama_kernels, rms_norm_scales_each_row)
{
	const int32_t widths[] = {1, 3, 64, 576, 1001, 8960};
	for (size_t i = 0; i < COUNT(widths); i++) {
		const int32_t width = widths[i];
		const size_t n = 3 * (size_t)width;
		float *x = random_floats(n, 2, 5);
		uint16_t *weight = random_halves((size_t)width, 3, 2);
		struct llama_rms_norm host = {NULL, x, weight, width, 1e-5f}, p = host;
		double *want = malloc(n * sizeof(*want));
		p.out = poisoned(n * sizeof(float));
		p.x = uploaded(x, n * sizeof(float));
		p.weight = uploaded(weight, (size_t)width * sizeof(*weight));
		launch("llama_rms_norm", 3, 1, 256, 0, (void *[]){&p.out, &p.x, &p.weight, &p.width, &p.epsilon});
		llama_reference_rms_norm(want, &host, 3);
		assert_output(p.out, want, n, "rms_norm");
		free(x);
		free(weight);
		free(want);
	}
}

Test(llama_kernels, rms_norm_of_zeros_is_zero)
{
	float x[64] = {0};
	uint16_t *weight = random_halves(64, 3, 2);
	double want[64] = {0};
	struct llama_rms_norm p = {poisoned(sizeof(x)), uploaded(x, sizeof(x)), uploaded(weight, 128), 64, 1e-5f};
	launch("llama_rms_norm", 1, 1, 256, 0, (void *[]){&p.out, &p.x, &p.weight, &p.width, &p.epsilon});
	assert_output(p.out, want, 64, "rms_norm of zeros");
	free(weight);
}

/* ---- the paged cache -------------------- */

enum { SEQUENCES = 3, MAX_BLOCKS = 6, BLOCKS = 24 };

/* Three sequences of several tokens each, in an order that mixes them, and blocks that lie shuffled in the cache. */
static const struct layout {
	int32_t heads, kv_heads, head_dim, block_size;
} layouts[] = {
    {4, 4, 8, 4}, {9, 3, 64, 16}, {6, 2, 80, 8}, {8, 1, 128, 16}, {2, 2, 256, 8},
};

static const int32_t slots[] = {2, 0, 1, 2, 0, 2};

static void make_tables(int32_t *tables)
{
	for (int i = 0; i < SEQUENCES * MAX_BLOCKS; i++)
		tables[i] = (7 * i + 5) % BLOCKS; /* 7 and 24 have no common factor: all differ */
}

/* The i-th token stands i * 3 or so before the end of what its sequence's blocks can hold; the first one
 * at position 0. */
static void make_positions(int32_t *positions, int32_t block_size)
{
	for (size_t i = 0; i < COUNT(slots); i++)
		positions[i] = (int32_t)(i == 0 ? 0 : MAX_BLOCKS * block_size - 1 - 3 * (int32_t)i);
}

static size_t cache_floats(const struct layout *l)
{
	return (size_t)2 * BLOCKS * l->kv_heads * l->block_size * l->head_dim;
}

static void check_rope_store(const struct layout *l, int32_t interleaved, int32_t first_position)
{
	const size_t width = (size_t)(l->heads + 2 * l->kv_heads) * l->head_dim, n = COUNT(slots) * width;
	const size_t cached = cache_floats(l);
	int32_t tables[SEQUENCES * MAX_BLOCKS], positions[COUNT(slots)];
	float *qkv = random_floats(n, 4, 2), *kv = random_floats(cached, 5, 1);
	double *want_qkv = malloc(n * sizeof(double)), *want_kv = malloc(cached * sizeof(double));
	struct llama_rope_store host = {qkv,      kv,          positions,   slots,         tables,
					l->heads, l->kv_heads, l->head_dim, l->block_size, MAX_BLOCKS,
					BLOCKS,   10000.0f,    interleaved};
	struct llama_rope_store p = host;
	make_tables(tables);
	make_positions(positions, l->block_size);
	positions[0] = first_position;
	for (size_t i = 0; i < n; i++)
		want_qkv[i] = qkv[i];
	for (size_t i = 0; i < cached; i++)
		want_kv[i] = kv[i];
	p.qkv = uploaded(qkv, n * sizeof(float));
	p.kv = uploaded(kv, cached * sizeof(float));
	p.positions = uploaded(positions, sizeof(positions));
	p.slots = uploaded(slots, sizeof(slots));
	p.block_table = uploaded(tables, sizeof(tables));
	launch("llama_rope_store", COUNT(slots), (unsigned int)(l->heads + 2 * l->kv_heads), 64, 0,
	       (void *[]){&p.qkv, &p.kv, &p.positions, &p.slots, &p.block_table, &p.heads, &p.kv_heads, &p.head_dim,
			  &p.block_size, &p.max_blocks, &p.blocks, &p.theta, &p.interleaved});
	llama_reference_rope_store(want_qkv, want_kv, &host, COUNT(slots));
	assert_output(p.qkv, want_qkv, n, interleaved ? "interleaved q" : "q");
	assert_output(p.kv, want_kv, cached, interleaved ? "interleaved kv" : "kv");
	release(p.qkv);
	release(p.kv);
	free(qkv);
	free(kv);
	free(want_qkv);
	free(want_kv);
}

Test(llama_kernels, rope_store_rotates_and_files_keys_and_values)
{
	for (size_t i = 0; i < COUNT(layouts); i++)
		for (int32_t interleaved = 0; interleaved < 2; interleaved++)
			check_rope_store(&layouts[i], interleaved, 0);
}

/* A float32 angle would be off by 1e-3 there. */
Test(llama_kernels, rope_store_keeps_its_precision_at_far_positions)
{
	check_rope_store(&(struct layout){2, 1, 64, 8192}, 0, 40000);
}

/* What no token may see is NaN: blocks in no table, and positions behind each sequence's last token. */
static void poison_unseen(float *kv, const struct layout *l, const int32_t *tables, const int32_t *positions)
{
	const size_t cached = cache_floats(l);
	float *seen = malloc(cached * sizeof(float));
	memset(seen, POISON, cached * sizeof(float));
	for (size_t t = 0; t < COUNT(slots); t++)
		for (int plane = 0; plane < 2; plane++)
			for (int32_t position = 0; position <= positions[t]; position++)
				for (int32_t head = 0; head < l->kv_heads; head++) {
					size_t at = cache_index(tables + slots[t] * MAX_BLOCKS, BLOCKS, l->kv_heads,
								l->block_size, l->head_dim, plane, position, head);
					memcpy(seen + at, kv + at, sizeof(float) * (size_t)l->head_dim);
				}
	memcpy(kv, seen, cached * sizeof(float));
	free(seen);
}

static void check_attention(const struct layout *l, float scale, int32_t max_positions, double bound)
{
	const size_t width = (size_t)(l->heads + 2 * l->kv_heads) * l->head_dim, n = COUNT(slots) * width;
	const size_t outputs = COUNT(slots) * (size_t)l->heads * l->head_dim, cached = cache_floats(l);
	int32_t tables[SEQUENCES * MAX_BLOCKS], positions[COUNT(slots)];
	float *qkv = random_floats(n, 6, scale), *kv = random_floats(cached, 7, scale), *again, *got;
	double *want = malloc(outputs * sizeof(double));
	struct llama_attention host = {NULL,       qkv,      kv,           positions,   slots,
				       tables,     l->heads, l->kv_heads,  l->head_dim, l->block_size,
				       MAX_BLOCKS, BLOCKS,   max_positions};
	struct llama_attention p = host;
	void *params[] = {&p.out,      &p.qkv,      &p.kv,         &p.positions,  &p.slots,  &p.block_table,  &p.heads,
			  &p.kv_heads, &p.head_dim, &p.block_size, &p.max_blocks, &p.blocks, &p.max_positions};
	const unsigned int shared = 4 * (unsigned int)(max_positions + l->head_dim);
	make_tables(tables);
	make_positions(positions, l->block_size);
	poison_unseen(kv, l, tables, positions);
	p.out = poisoned(outputs * sizeof(float));
	p.qkv = uploaded(qkv, n * sizeof(float));
	p.kv = uploaded(kv, cached * sizeof(float));
	p.positions = uploaded(positions, sizeof(positions));
	p.slots = uploaded(slots, sizeof(slots));
	p.block_table = uploaded(tables, sizeof(tables));
	launch("llama_attention", COUNT(slots), (unsigned int)l->heads, 128, shared, params);
	got = downloaded(p.out, outputs * sizeof(float));
	llama_reference_attention(want, &host, COUNT(slots));
	assert_near(got, want, outputs, bound, "attention");
	launch("llama_attention", COUNT(slots), (unsigned int)l->heads, 128, shared, params);
	again = downloaded(p.out, outputs * sizeof(float));
	cr_assert_eq(memcmp(got, again, outputs * sizeof(float)), 0, "a repeated launch gave other bits");
	release(p.out);
	release(p.kv);
	free(qkv);
	free(kv);
	free(want);
	free(got);
	free(again);
}

Test(llama_kernels, attention_sees_its_sequence_up_to_its_position)
{
	for (size_t i = 0; i < COUNT(layouts); i++)
		check_attention(&layouts[i], 1, MAX_BLOCKS * layouts[i].block_size, BOUND);
}

/* Scores of several hundred: exp() of them is infinite, and their own rounding weighs a thousand times as much. */
Test(llama_kernels, attention_survives_large_scores)
{
	check_attention(&layouts[1], 20, MAX_BLOCKS * layouts[1].block_size, 1e-3);
}

Test(llama_kernels, attention_takes_more_than_48_KiB_of_shared_memory)
{
	check_attention(&layouts[1], 1, 16 * 1024, BOUND);
}

/* ---- elementwise -------------------- */

Test(llama_kernels, silu_mul_gates)
{
	const int32_t widths[] = {1, 255, 256, 257, 1536};
	for (size_t i = 0; i < COUNT(widths); i++) {
		const int32_t width = widths[i];
		const size_t n = 3 * (size_t)width;
		float *gate = random_floats(n, 8, 30), *up = random_floats(n, 9, 2);
		struct llama_silu_mul host = {NULL, gate, up, width}, p = host;
		double *want = malloc(n * sizeof(*want));
		p.out = poisoned(n * sizeof(float));
		p.gate = uploaded(gate, n * sizeof(float));
		p.up = uploaded(up, n * sizeof(float));
		launch("llama_silu_mul", 3, (unsigned int)(width + 255) / 256, 256, 0,
		       (void *[]){&p.out, &p.gate, &p.up, &p.width});
		llama_reference_silu_mul(want, &host, 3);
		assert_output(p.out, want, n, "silu_mul");
		free(gate);
		free(up);
		free(want);
	}
}

Test(llama_kernels, silu_mul_has_no_nan_at_the_ends)
{
	const float gate[] = {-200, 200, -88, 0}, up[] = {1, 1, 1, 1};
	const double want[] = {0, 200, -88 * exp(-88), 0};
	struct llama_silu_mul p = {poisoned(sizeof(gate)), uploaded(gate, sizeof(gate)), uploaded(up, sizeof(up)), 4};
	launch("llama_silu_mul", 1, 1, 256, 0, (void *[]){&p.out, &p.gate, &p.up, &p.width});
	assert_output(p.out, want, 4, "silu_mul");
}

Test(llama_kernels, add_adds_n_elements)
{
	const int32_t sizes[] = {1, 256, 1000};
	for (size_t i = 0; i < COUNT(sizes); i++) {
		const int32_t n = sizes[i];
		float *x = random_floats((size_t)n, 10, 2), *y = random_floats((size_t)n, 11, 2);
		struct llama_add host = {x, y, n}, p = host;
		double *want = malloc((size_t)n * sizeof(*want));
		p.x = uploaded(x, (size_t)n * sizeof(float));
		p.y = uploaded(y, (size_t)n * sizeof(float));
		launch("llama_add", (unsigned int)(n + 255) / 256, 1, 256, 0, (void *[]){&p.x, &p.y, &p.n});
		llama_reference_add(want, &host);
		assert_output(p.x, want, (size_t)n, "add");
		free(x);
		free(y);
		free(want);
	}
}

Test(llama_kernels, gather_picks_rows)
{
	const int32_t rows[] = {4, 4, 0}, width = 321;
	float *x = random_floats(5 * 321, 12, 1);
	struct llama_gather host = {NULL, x, rows, width}, p = host;
	double want[3 * 321];
	p.out = poisoned(sizeof(float) * 3 * 321);
	p.x = uploaded(x, sizeof(float) * 5 * 321);
	p.rows = uploaded(rows, sizeof(rows));
	launch("llama_gather", 3, 1, 256, 0, (void *[]){&p.out, &p.x, &p.rows, &p.width});
	llama_reference_gather(want, &host, 3);
	assert_output(p.out, want, 3 * 321, "gather");
	free(x);
}

/* ---- random numbers -------------------- */

Test(llama_kernels, fill_gives_the_same_bits_on_every_device)
{
	const uint64_t n = 5000;
	struct llama_fill p = {poisoned(n * 2), n, 0x123456789abcdefull, 0.07f, 1.0f};
	uint16_t *got;
	double mean = 0;
	launch("llama_fill", (unsigned int)((n + 1023) / 1024), 1, 256, 0,
	       (void *[]){&p.w, &p.n, &p.seed, &p.scale, &p.offset});
	got = downloaded(p.w, n * 2);
	for (uint64_t i = 0; i < n; i++) {
		const volatile float product = p.scale * random_signed(random_word(p.seed, 0, i));
		const uint16_t want = bf16_round(p.offset + product);
		cr_assert_eq(got[i], want, "element %d is %#x, should be %#x", (int)i, got[i], want);
		cr_assert(fabs(bf16_value(want) - llama_reference_fill(&p, i)) <= 1.08 / 256, "rounded too far");
		mean += bf16_value(got[i]) / (double)n;
	}
	cr_assert(fabs(mean - 1) < 0.07 / sqrt(3.0 * (double)n) * 5, "uniform around the offset: mean %g", mean);
	free(got);
}

static int32_t *sample(const struct llama_sample *host, int rows)
{
	struct llama_sample p = *host;
	int32_t *next;
	p.next = poisoned(4 * (size_t)rows);
	p.logits = uploaded(host->logits, sizeof(float) * (size_t)rows * host->vocabulary);
	p.positions = uploaded(host->positions, 4 * (size_t)rows);
	launch("llama_sample", (unsigned int)rows, 1, 256, 0,
	       (void *[]){&p.next, &p.logits, &p.positions, &p.vocabulary, &p.temperature, &p.seed});
	next = downloaded(p.next, 4 * (size_t)rows);
	release(p.next);
	release(p.logits);
	release(p.positions);
	return next;
}

Test(llama_kernels, sample_takes_the_largest_and_the_first_of_equals)
{
	const int32_t positions[] = {1, 2, 3}, vocabulary = 5003;
	float *logits = random_floats(3 * 5003, 13, 9);
	struct llama_sample p = {NULL, logits, positions, vocabulary, 0, 1};
	int32_t *next;
	logits[17] = logits[300] = logits[4999] = 50; /* row 0: equals in several warps */
	logits[2 * 5003 + 5002] = 60;                 /* row 2: the last one */
	for (int i = 0; i < 5003; i++)
		logits[5003 + i] = i == 700 ? -1e30f : -INFINITY; /* row 1: all others ruled out */
	next = sample(&p, 3);
	cr_assert_eq(next[0], 17, "got %d", next[0]);
	cr_assert_eq(next[1], 700, "got %d", next[1]);
	cr_assert_eq(next[2], 5002, "got %d", next[2]);
	free(next);
	free(logits);
}

/* The device's float logarithms may prefer a candidate that is as good to within their error, and none else. */
Test(llama_kernels, sample_draws_what_the_reference_draws)
{
	enum { ROWS = 16 };
	int32_t positions[ROWS];
	float *logits = random_floats(ROWS * 4097, 14, 4);
	struct llama_sample p = {NULL, logits, positions, 4097, 0.8f, 42};
	int32_t *next, same = 0;
	for (int i = 0; i < ROWS; i++)
		positions[i] = 100 * i;
	next = sample(&p, ROWS);
	for (int i = 0; i < ROWS; i++) {
		const int want = llama_reference_sample(&p, i);
		cr_assert(next[i] >= 0 && next[i] < 4097, "row %d: token %d", i, next[i]);
		cr_assert(llama_reference_score(&p, i, next[i]) >= llama_reference_score(&p, i, want) - 1e-4,
			  "row %d: token %d, should be %d", i, next[i], want);
		same += next[i] == want;
	}
	cr_assert_geq(same, ROWS - 1);
	free(next);
	free(logits);
}

/* 4000 draws from four logits: frequencies within five standard deviations of the softmax. */
Test(llama_kernels, sample_follows_the_softmax)
{
	enum { ROWS = 4000 };
	static int32_t positions[ROWS];
	static float logits[ROWS * 4];
	const double weights[] = {1, 2, 4, 9};
	struct llama_sample p = {NULL, logits, positions, 4, 0.5f, 7};
	int counts[4] = {0};
	int32_t *next;
	for (int i = 0; i < ROWS; i++) {
		positions[i] = i;
		for (int j = 0; j < 4; j++)
			logits[4 * i + j] = (float)(0.5 * log(weights[j])); /* divided by the temperature of 0.5 */
	}
	next = sample(&p, ROWS);
	for (int i = 0; i < ROWS; i++)
		counts[next[i] & 3]++;
	for (int j = 0; j < 4; j++) {
		const double share = weights[j] / 16, deviation = sqrt(ROWS * share * (1 - share));
		cr_assert(fabs(counts[j] - ROWS * share) < 5 * deviation, "token %d drawn %d times of %d", j, counts[j],
			  ROWS);
	}
	free(next);
}
