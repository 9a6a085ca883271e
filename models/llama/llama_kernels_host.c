/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's kernels for hostcuda: each function does one thread block's work. */
#include <math.h>
#include <string.h>

#include "hostcuda/kernel.h"
#include "models/llama/kernels.h"
#include "models/llama/random.h"
#include "models/llama/vector_host.h"

#define WHOLE(n) ((n) / LANES * LANES)

/* ---- inner loops -------------------- */

VECTOR_CLONES static float dot(const float *a, const float *b, int32_t n)
{
	float_lanes sums = {0};
	int32_t i = 0;
	for (; i < WHOLE(n); i += LANES)
		sums += float_load(a + i) * float_load(b + i);
	if (i < n)
		sums += float_load_part(a + i, n - i) * float_load_part(b + i, n - i);
	return float_lanes_sum(&sums);
}

/* sum[i] += factor * v[i] */
VECTOR_CLONES static void add_scaled(float *sum, const float *v, float factor, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		sum[i] += factor * v[i];
}

VECTOR_CLONES static void add_to(float *x, const float *y, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		x[i] += y[i];
}

VECTOR_CLONES static void scale_by(float *out, const float *x, const llama_bf16 *weight, float factor, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = x[i] * factor * bf16_value(weight[i]);
}

VECTOR_CLONES static void widen(float *out, const llama_bf16 *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = bf16_value(x[i]);
}

VECTOR_CLONES static float dot_half(const llama_bf16 *w, const float *x, int32_t n)
{
	const int32_t whole = n / PAIR * PAIR;
	float_lanes sums = {0};
	for (int32_t i = 0; i < whole; i += PAIR) {
		const struct float_pair a = bf16_load_pair(w + i), b = float_load_pair(x + i);
		sums += a.even * b.even;
		sums += a.odd * b.odd;
	}
	if (whole < n) {
		const struct float_pair a = bf16_load_pair_part(w + whole, n - whole);
		const struct float_pair b = float_load_pair_part(x + whole, n - whole);
		sums += a.even * b.even;
		sums += a.odd * b.odd;
	}
	return float_lanes_sum(&sums);
}

static int32_t smaller(int64_t a, int64_t b)
{
	return (int32_t)(a < b ? a : b);
}

/* ---- the key-value cache -------------------- */

/* Offset in floats of one head's vector of one position; `plane` 0 for keys, 1 for values. */
struct cache {
	const int32_t *table; /* the sequence's row of the block table */
	int32_t blocks, kv_heads, block_size, head_dim;
};

static size_t cache_offset(const struct cache *c, int plane, int32_t position, int32_t kv_head)
{
	size_t block = (size_t)plane * c->blocks + c->table[position / c->block_size];
	return ((block * c->kv_heads + kv_head) * c->block_size + position % c->block_size) * c->head_dim;
}

/* ---- kernels -------------------- */

HOSTCUDA_KERNEL(llama_embed, struct llama_embed, HOSTCUDA_PARAM(struct llama_embed, out),
		HOSTCUDA_PARAM(struct llama_embed, table), HOSTCUDA_PARAM(struct llama_embed, tokens),
		HOSTCUDA_PARAM(struct llama_embed, width))
{
	const size_t token = block->block_idx[0];
	widen(p->out + token * p->width, p->table + (size_t)p->tokens[token] * p->width, p->width);
}

HOSTCUDA_KERNEL(llama_rms_norm, struct llama_rms_norm, HOSTCUDA_PARAM(struct llama_rms_norm, out),
		HOSTCUDA_PARAM(struct llama_rms_norm, x), HOSTCUDA_PARAM(struct llama_rms_norm, weight),
		HOSTCUDA_PARAM(struct llama_rms_norm, width), HOSTCUDA_PARAM(struct llama_rms_norm, epsilon))
{
	const float *x = p->x + (size_t)block->block_idx[0] * p->width;
	float mean = dot(x, x, p->width) / (float)p->width;
	scale_by(p->out + (size_t)block->block_idx[0] * p->width, x, p->weight, 1.0f / sqrtf(mean + p->epsilon),
		 p->width);
}

/*
 * The angle is made in double: at position p a float32 angle would be wrong by p * 2^-24. One power for a head, then
 * multiplied on.
 */
static void rotate(float *out, const float *in, int32_t position, int32_t head_dim, float theta, int interleaved)
{
	const int32_t half = head_dim / 2, step = interleaved ? 2 : 1, partner = interleaved ? 1 : half;
	const double ratio = pow(theta, -2.0 / head_dim);
	double frequency = 1;
	for (int32_t i = 0; i < half; i++, frequency *= ratio) {
		const double angle = position * frequency;
		const float cosine = (float)cos(angle), sine = (float)sin(angle);
		const float a = in[i * step], b = in[i * step + partner];
		out[i * step] = a * cosine - b * sine;
		out[i * step + partner] = a * sine + b * cosine;
	}
}

HOSTCUDA_KERNEL(llama_rope_store, struct llama_rope_store, HOSTCUDA_PARAM(struct llama_rope_store, qkv),
		HOSTCUDA_PARAM(struct llama_rope_store, kv), HOSTCUDA_PARAM(struct llama_rope_store, positions),
		HOSTCUDA_PARAM(struct llama_rope_store, slots), HOSTCUDA_PARAM(struct llama_rope_store, block_table),
		HOSTCUDA_PARAM(struct llama_rope_store, heads), HOSTCUDA_PARAM(struct llama_rope_store, kv_heads),
		HOSTCUDA_PARAM(struct llama_rope_store, head_dim), HOSTCUDA_PARAM(struct llama_rope_store, block_size),
		HOSTCUDA_PARAM(struct llama_rope_store, max_blocks), HOSTCUDA_PARAM(struct llama_rope_store, blocks),
		HOSTCUDA_PARAM(struct llama_rope_store, theta), HOSTCUDA_PARAM(struct llama_rope_store, interleaved))
{
	const int32_t token = (int32_t)block->block_idx[0], head = (int32_t)block->block_idx[1];
	const int32_t position = p->positions[token], kv_head = (head - p->heads) % p->kv_heads;
	float *in = p->qkv + ((size_t)token * (p->heads + 2 * p->kv_heads) + head) * p->head_dim;
	const struct cache cache = {p->block_table + (size_t)p->slots[token] * p->max_blocks, p->blocks, p->kv_heads,
				    p->block_size, p->head_dim};
	if (head < p->heads)
		rotate(in, in, position, p->head_dim, p->theta, p->interleaved);
	else if (head < p->heads + p->kv_heads)
		rotate(p->kv + cache_offset(&cache, 0, position, kv_head), in, position, p->head_dim, p->theta,
		       p->interleaved);
	else
		memcpy(p->kv + cache_offset(&cache, 1, position, kv_head), in, sizeof(float) * p->head_dim);
}

/* Scores become exp(score - largest); their sum is returned. */
static float softmax_unscaled(float *scores, int32_t n)
{
	float largest = scores[0], sum = 0;
	for (int32_t i = 1; i < n; i++)
		largest = scores[i] > largest ? scores[i] : largest;
	for (int32_t i = 0; i < n; i++) {
		scores[i] = expf(scores[i] - largest);
		sum += scores[i];
	}
	return sum;
}

/* What llama_attention does. */
static void attend(const struct hostcuda_block *block, const struct llama_attention *p)
{
	const int32_t token = (int32_t)block->block_idx[0], head = (int32_t)block->block_idx[1];
	const int32_t kv_head = head / (p->heads / p->kv_heads);
	/* shared memory holds max_positions scores: a position beyond is a caller's mistake that must not
	 * write past it */
	const int32_t length = smaller((int64_t)p->positions[token] + 1, p->max_positions);
	const float *q = p->qkv + ((size_t)token * (p->heads + 2 * p->kv_heads) + head) * p->head_dim;
	const struct cache cache = {p->block_table + (size_t)p->slots[token] * p->max_blocks, p->blocks, p->kv_heads,
				    p->block_size, p->head_dim};
	const float scale = 1.0f / sqrtf((float)p->head_dim);
	float *scores = block->shared, *sum = scores + p->max_positions, total;
	for (int32_t i = 0; i < length; i++)
		scores[i] = scale * dot(q, p->kv + cache_offset(&cache, 0, i, kv_head), p->head_dim);
	total = softmax_unscaled(scores, length);
	memset(sum, 0, sizeof(float) * p->head_dim);
	for (int32_t i = 0; i < length; i++)
		add_scaled(sum, p->kv + cache_offset(&cache, 1, i, kv_head), scores[i], p->head_dim);
	for (int32_t i = 0; i < p->head_dim; i++)
		p->out[((size_t)token * p->heads + head) * p->head_dim + i] = sum[i] / total;
}

HOSTCUDA_KERNEL(llama_attention, struct llama_attention, HOSTCUDA_PARAM(struct llama_attention, out),
		HOSTCUDA_PARAM(struct llama_attention, qkv), HOSTCUDA_PARAM(struct llama_attention, kv),
		HOSTCUDA_PARAM(struct llama_attention, positions), HOSTCUDA_PARAM(struct llama_attention, slots),
		HOSTCUDA_PARAM(struct llama_attention, block_table), HOSTCUDA_PARAM(struct llama_attention, heads),
		HOSTCUDA_PARAM(struct llama_attention, kv_heads), HOSTCUDA_PARAM(struct llama_attention, head_dim),
		HOSTCUDA_PARAM(struct llama_attention, block_size), HOSTCUDA_PARAM(struct llama_attention, max_blocks),
		HOSTCUDA_PARAM(struct llama_attention, blocks), HOSTCUDA_PARAM(struct llama_attention, max_positions))
{
	attend(block, p);
}

HOSTCUDA_HIDDEN_KERNEL(llama_silu_mul, struct llama_silu_mul, HOSTCUDA_PARAM(struct llama_silu_mul, out),
		       HOSTCUDA_PARAM(struct llama_silu_mul, gate), HOSTCUDA_PARAM(struct llama_silu_mul, up),
		       HOSTCUDA_PARAM(struct llama_silu_mul, width))
{
	const int64_t begin = (int64_t)block->block_idx[1] * block->block_dim[0];
	const int32_t end = smaller(begin + block->block_dim[0], p->width);
	const size_t row = (size_t)block->block_idx[0] * p->width;
	for (int32_t i = (int32_t)begin; i < end; i++) {
		float gate = p->gate[row + i];
		p->out[row + i] = gate / (1.0f + expf(-gate)) * p->up[row + i];
	}
}

HOSTCUDA_KERNEL(llama_add, struct llama_add, HOSTCUDA_PARAM(struct llama_add, x), HOSTCUDA_PARAM(struct llama_add, y),
		HOSTCUDA_PARAM(struct llama_add, n))
{
	const int64_t begin = (int64_t)block->block_idx[0] * block->block_dim[0];
	add_to(p->x + begin, p->y + begin, smaller(block->block_dim[0], p->n - begin));
}

HOSTCUDA_HIDDEN_KERNEL(llama_sample, struct llama_sample, HOSTCUDA_PARAM(struct llama_sample, next),
		       HOSTCUDA_PARAM(struct llama_sample, logits), HOSTCUDA_PARAM(struct llama_sample, positions),
		       HOSTCUDA_PARAM(struct llama_sample, vocabulary),
		       HOSTCUDA_PARAM(struct llama_sample, temperature), HOSTCUDA_PARAM(struct llama_sample, seed))
{
	const size_t row = block->block_idx[0];
	const float *logits = p->logits + row * p->vocabulary;
	const uint64_t stream = (uint64_t)(uint32_t)p->positions[row];
	float best = -INFINITY;
	int32_t next = 0;
	for (int32_t i = 0; i < p->vocabulary; i++) {
		float score = logits[i];
		/* Gumbel: the argmax of logit / temperature + noise is a draw from the softmax */
		if (p->temperature != 0)
			score = score / p->temperature -
				logf(-logf(random_unit(random_word(p->seed, stream, (uint64_t)i))));
		if (score > best) {
			best = score;
			next = i;
		}
	}
	p->next[row] = next;
}

HOSTCUDA_KERNEL(llama_fill, struct llama_fill, HOSTCUDA_PARAM(struct llama_fill, w),
		HOSTCUDA_PARAM(struct llama_fill, n), HOSTCUDA_PARAM(struct llama_fill, seed),
		HOSTCUDA_PARAM(struct llama_fill, scale), HOSTCUDA_PARAM(struct llama_fill, offset))
{
	const uint64_t begin = (uint64_t)block->block_idx[0] * 1024;
	const uint64_t end = begin + 1024 < p->n ? begin + 1024 : p->n;
	for (uint64_t i = begin; i < end; i++)
		p->w[i] = bf16_round(p->offset + p->scale * random_signed(random_word(p->seed, 0, i)));
}

HOSTCUDA_KERNEL(llama_gather, struct llama_gather, HOSTCUDA_PARAM(struct llama_gather, out),
		HOSTCUDA_PARAM(struct llama_gather, x), HOSTCUDA_PARAM(struct llama_gather, rows),
		HOSTCUDA_PARAM(struct llama_gather, width))
{
	const size_t row = block->block_idx[0];
	memcpy(p->out + row * p->width, p->x + (size_t)p->rows[row] * p->width, sizeof(float) * p->width);
}

/* ---- adapters -------------------- */

/* A token's adapter in a group of projections; entry is NULL where there is none. */
struct here {
	const struct llama_lora_entry *entry;
	const llama_bf16 *a, *b;
};

static struct here find_adapter(const struct llama_lora_group *g, size_t token)
{
	const int32_t slot = g->adapters ? g->adapters[token] : -1;
	if (slot < 0)
		return (struct here){0};
	return (struct here){g->entries + (size_t)slot * g->slot_entries, g->a + slot * g->slot_elements,
			     g->b + slot * g->slot_elements};
}

/* Inputs begin to begin + n, of which x is the first one. */
static void sum_slice(const struct llama_lora_group *g, size_t token, int32_t slice, const float *x, int32_t begin,
		      int32_t n)
{
	const struct here here = find_adapter(g, token);
	float *sums = g->sums + (token * g->slices + slice) * g->parts * g->max_rank;
	for (int32_t part = 0; here.entry && part < g->parts; part++, sums += g->max_rank) {
		const llama_bf16 *a = here.a + (size_t)part * g->max_rank * g->inputs + begin;
		for (int32_t r = 0; r < here.entry[part].rank; r++)
			sums[r] = dot_half(a + (size_t)r * g->inputs, x, n);
	}
}

/* Columns first to first + n of a part, of which out is the first one. */
static void add_adapter(float *out, const struct llama_lora_group *g, size_t token, int32_t part, int32_t first,
			int32_t n)
{
	const int32_t columns[] = {g->columns0, g->columns1, g->columns2};
	const struct here here = find_adapter(g, token);
	const int32_t rank = here.entry ? here.entry[part].rank : 0, stride = g->parts * g->max_rank;
	const float *sums = g->sums + token * g->slices * stride + part * g->max_rank;
	float hidden[LLAMA_LORA_MAX_RANK];
	size_t before = 0;
	if (!rank)
		return;
	for (int32_t i = 0; i < part; i++)
		before += (size_t)columns[i];
	for (int32_t r = 0; r < rank; r++) {
		hidden[r] = 0;
		for (int32_t slice = 0; slice < g->slices; slice++)
			hidden[r] += sums[(size_t)slice * stride + r];
		hidden[r] *= here.entry[part].scale;
	}
	const llama_bf16 *b = here.b + before * g->max_rank + (size_t)first * rank;
	for (int32_t i = 0; i < n; i++)
		out[i] += dot_half(b + (size_t)i * rank, hidden, rank);
}

HOSTCUDA_KERNEL(llama_adapted_norm, struct llama_adapted_norm, HOSTCUDA_PARAM(struct llama_adapted_norm, out),
		HOSTCUDA_PARAM(struct llama_adapted_norm, x), HOSTCUDA_PARAM(struct llama_adapted_norm, weight),
		HOSTCUDA_PARAM(struct llama_adapted_norm, from), HOSTCUDA_PARAM(struct llama_adapted_norm, to),
		HOSTCUDA_PARAM(struct llama_adapted_norm, width), HOSTCUDA_PARAM(struct llama_adapted_norm, epsilon))
{
	const size_t token = block->block_idx[0];
	const int32_t width = p->width;
	float *x = p->x + token * width, *out = p->out + token * width;
	add_adapter(x, &p->from, token, 0, 0, width);
	scale_by(out, x, p->weight, 1.0f / sqrtf(dot(x, x, width) / (float)width + p->epsilon), width);
	sum_slice(&p->to, token, 0, out, 0, width);
}

HOSTCUDA_KERNEL(llama_adapted_rope, struct llama_adapted_rope, HOSTCUDA_PARAM(struct llama_adapted_rope, qkv),
		HOSTCUDA_PARAM(struct llama_adapted_rope, kv), HOSTCUDA_PARAM(struct llama_adapted_rope, positions),
		HOSTCUDA_PARAM(struct llama_adapted_rope, slots),
		HOSTCUDA_PARAM(struct llama_adapted_rope, block_table), HOSTCUDA_PARAM(struct llama_adapted_rope, from),
		HOSTCUDA_PARAM(struct llama_adapted_rope, heads), HOSTCUDA_PARAM(struct llama_adapted_rope, kv_heads),
		HOSTCUDA_PARAM(struct llama_adapted_rope, head_dim),
		HOSTCUDA_PARAM(struct llama_adapted_rope, block_size),
		HOSTCUDA_PARAM(struct llama_adapted_rope, max_blocks),
		HOSTCUDA_PARAM(struct llama_adapted_rope, blocks), HOSTCUDA_PARAM(struct llama_adapted_rope, theta),
		HOSTCUDA_PARAM(struct llama_adapted_rope, interleaved))
{
	const int32_t token = (int32_t)block->block_idx[0], head = (int32_t)block->block_idx[1];
	const int32_t part = (head >= p->heads) + (head >= p->heads + p->kv_heads);
	const int32_t first = head - (part == 0 ? 0 : p->heads + (part - 1) * p->kv_heads);
	const int32_t position = p->positions[token];
	float *in = p->qkv + ((size_t)token * (p->heads + 2 * p->kv_heads) + head) * p->head_dim;
	float *values = block->shared;
	const struct cache cache = {p->block_table + (size_t)p->slots[token] * p->max_blocks, p->blocks, p->kv_heads,
				    p->block_size, p->head_dim};
	memcpy(values, in, sizeof(float) * p->head_dim);
	add_adapter(values, &p->from, (size_t)token, part, first * p->head_dim, p->head_dim);
	if (part == 2)
		memcpy(p->kv + cache_offset(&cache, 1, position, first), values, sizeof(float) * p->head_dim);
	else
		rotate(part == 0 ? in : p->kv + cache_offset(&cache, 0, position, first), values, position, p->head_dim,
		       p->theta, p->interleaved);
}

HOSTCUDA_KERNEL(
    llama_adapted_attention, struct llama_adapted_attention, HOSTCUDA_PARAM(struct llama_adapted_attention, out),
    HOSTCUDA_PARAM(struct llama_adapted_attention, qkv), HOSTCUDA_PARAM(struct llama_adapted_attention, kv),
    HOSTCUDA_PARAM(struct llama_adapted_attention, positions), HOSTCUDA_PARAM(struct llama_adapted_attention, slots),
    HOSTCUDA_PARAM(struct llama_adapted_attention, block_table), HOSTCUDA_PARAM(struct llama_adapted_attention, to),
    HOSTCUDA_PARAM(struct llama_adapted_attention, heads), HOSTCUDA_PARAM(struct llama_adapted_attention, kv_heads),
    HOSTCUDA_PARAM(struct llama_adapted_attention, head_dim),
    HOSTCUDA_PARAM(struct llama_adapted_attention, block_size),
    HOSTCUDA_PARAM(struct llama_adapted_attention, max_blocks), HOSTCUDA_PARAM(struct llama_adapted_attention, blocks),
    HOSTCUDA_PARAM(struct llama_adapted_attention, max_positions))
{
	const struct llama_attention plain = {p->out,         p->qkv,    p->kv,           p->positions, p->slots,
					      p->block_table, p->heads,  p->kv_heads,     p->head_dim,  p->block_size,
					      p->max_blocks,  p->blocks, p->max_positions};
	const size_t token = block->block_idx[0];
	const int32_t head = (int32_t)block->block_idx[1];
	attend(block, &plain);
	sum_slice(&p->to, token, head, p->out + (token * p->heads + head) * p->head_dim, head * p->head_dim,
		  p->head_dim);
}

HOSTCUDA_KERNEL(llama_adapted_silu, struct llama_adapted_silu, HOSTCUDA_PARAM(struct llama_adapted_silu, out),
		HOSTCUDA_PARAM(struct llama_adapted_silu, gate), HOSTCUDA_PARAM(struct llama_adapted_silu, up),
		HOSTCUDA_PARAM(struct llama_adapted_silu, from), HOSTCUDA_PARAM(struct llama_adapted_silu, to),
		HOSTCUDA_PARAM(struct llama_adapted_silu, width))
{
	const size_t token = block->block_idx[0], row = token * p->width;
	const int32_t slice = (int32_t)block->block_idx[1], begin = slice * LLAMA_ADAPTED_SILU_SLICE;
	const int32_t n = smaller(LLAMA_ADAPTED_SILU_SLICE, p->width - begin);
	float gate[LLAMA_ADAPTED_SILU_SLICE], up[LLAMA_ADAPTED_SILU_SLICE];
	memcpy(gate, p->gate + row + begin, sizeof(float) * n);
	memcpy(up, p->up + row + begin, sizeof(float) * n);
	add_adapter(gate, &p->from, token, 0, begin, n);
	add_adapter(up, &p->from, token, 1, begin, n);
	for (int32_t i = 0; i < n; i++)
		p->out[row + begin + i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
	sum_slice(&p->to, token, slice, p->out + row + begin, begin, n);
}

HOSTCUDA_KERNEL(llama_adapted_gather, struct llama_adapted_gather, HOSTCUDA_PARAM(struct llama_adapted_gather, out),
		HOSTCUDA_PARAM(struct llama_adapted_gather, x), HOSTCUDA_PARAM(struct llama_adapted_gather, rows),
		HOSTCUDA_PARAM(struct llama_adapted_gather, from), HOSTCUDA_PARAM(struct llama_adapted_gather, width))
{
	const size_t row = (size_t)p->rows[block->block_idx[0]];
	const int32_t begin = (int32_t)block->block_idx[1] * 256, n = smaller(256, p->width - begin);
	float *out = p->out + (size_t)block->block_idx[0] * p->width + begin;
	memcpy(out, p->x + row * p->width + begin, sizeof(float) * n);
	add_adapter(out, &p->from, row, 0, begin, n);
}
