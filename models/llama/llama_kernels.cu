/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's kernels for CUDA; kernels.h says what each of them computes and how it is launched. */
#include <stdint.h>

#include "models/llama/dependency.cuh"
#include "models/llama/random.h"

#define WARP 32
#define ALL_LANES 0xffffffffu
#define ATTENTION_THREADS 128

/* ---- sums and maxima over a block -------------------- */

struct sum_of {
	static __device__ float apply(float a, float b)
	{
		return a + b;
	}
};

struct largest_of {
	static __device__ float apply(float a, float b)
	{
		return fmaxf(a, b);
	}
};

/* The same order in every launch; the result is in every thread. Needs whole warps. */
template <typename Operation> static __device__ float block_reduce(float value, float neutral)
{
	__shared__ float warps[WARP];
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	for (int distance = WARP / 2; distance; distance /= 2)
		value = Operation::apply(value, __shfl_xor_sync(ALL_LANES, value, distance));
	__syncthreads();
	if (lane == 0)
		warps[warp] = value;
	__syncthreads();
	value = lane < blockDim.x / WARP ? warps[lane] : neutral;
	for (int distance = WARP / 2; distance; distance /= 2)
		value = Operation::apply(value, __shfl_xor_sync(ALL_LANES, value, distance));
	return value;
}

/* ---- the key-value cache -------------------- */

struct cache {
	const int32_t *table; /* the sequence's row of the block table */
	int32_t blocks, kv_heads, block_size, head_dim;
};

/* Offset in floats of one head's vector of one position; `plane` 0 for keys, 1 for values. */
static __device__ __forceinline__ size_t cache_offset(const cache &c, int plane, int32_t position, int32_t kv_head)
{
	const size_t block = (size_t)plane * c.blocks + c.table[position / c.block_size];
	return ((block * c.kv_heads + kv_head) * c.block_size + position % c.block_size) * c.head_dim;
}

/* ---- kernels -------------------- */

extern "C" __global__ void llama_embed(float *out, const uint16_t *table, const int32_t *tokens, int32_t width)
{
	wait_for_inputs();
	const uint16_t *row = table + (size_t)tokens[blockIdx.x] * width;

	for (int i = threadIdx.x; i < width; i += blockDim.x)
		out[(size_t)blockIdx.x * width + i] = bf16_value(row[i]);
}

extern "C" __global__ void llama_rms_norm(float *out, const float *x, const uint16_t *weight, int32_t width,
					  float epsilon)
{
	const size_t row = (size_t)blockIdx.x * width;
	float squares = 0;
	wait_for_inputs();
	for (int i = threadIdx.x; i < width; i += blockDim.x)
		squares += x[row + i] * x[row + i];
	squares = block_reduce<sum_of>(squares, 0);

	const float factor = 1.0f / sqrtf(squares / width + epsilon);

	for (int i = threadIdx.x; i < width; i += blockDim.x)
		out[row + i] = x[row + i] * factor * bf16_value(weight[i]);
}

/* The angle is made in double: at position p a float32 angle would be wrong by p * 2^-24. */
static __device__ void rotate(float *out, const float *in, int32_t position, int32_t head_dim, float theta,
			      int interleaved)
{
	const int half = head_dim / 2, step = interleaved ? 2 : 1, partner = interleaved ? 1 : half;
	const double exponent = -2.0 / head_dim * log2((double)theta);
	for (int i = threadIdx.x; i < half; i += blockDim.x) {
		double sine, cosine;
		sincos(position * exp2(exponent * i), &sine, &cosine);

		const float a = in[i * step], b = in[i * step + partner];

		out[i * step] = a * (float)cosine - b * (float)sine;
		out[i * step + partner] = a * (float)sine + b * (float)cosine;
	}
}

extern "C" __global__ void llama_rope_store(float *qkv, float *kv, const int32_t *positions, const int32_t *slots,
					    const int32_t *block_table, int32_t heads, int32_t kv_heads,
					    int32_t head_dim, int32_t block_size, int32_t max_blocks, int32_t blocks,
					    float theta, int32_t interleaved)
{
	wait_for_inputs();
	const int token = blockIdx.x, head = blockIdx.y, position = positions[token];
	const cache c = {block_table + (size_t)slots[token] * max_blocks, blocks, kv_heads, block_size, head_dim};
	float *in = qkv + ((size_t)token * (heads + 2 * kv_heads) + head) * head_dim;

	if (head < heads) {
		rotate(in, in, position, head_dim, theta, interleaved);
	} else if (head < heads + kv_heads) {
		rotate(kv + cache_offset(c, 0, position, head - heads), in, position, head_dim, theta, interleaved);
	} else {
		float *value = kv + cache_offset(c, 1, position, head - heads - kv_heads);
		for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
			value[i] = in[i];
	}
}

/* scores[i] = scale * q . key[i]: a warp has a position, its lanes divide the head's width. */
static __device__ void score_positions(float *scores, const float *q, const float *kv, const cache &c, int kv_head,
				       int length)
{
	const int lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
	const float scale = 1.0f / sqrtf((float)c.head_dim);
	for (int i = threadIdx.x / WARP; i < length; i += warps) {
		const float *key = kv + cache_offset(c, 0, i, kv_head);
		float sum = 0;
		for (int j = lane; j < c.head_dim; j += WARP)
			sum += q[j] * key[j];
		for (int distance = WARP / 2; distance; distance /= 2)
			sum += __shfl_xor_sync(ALL_LANES, sum, distance);
		if (lane == 0)
			scores[i] = scale * sum;
	}
}

/* Scores become exp(score - largest); their sum is returned in every thread. */
static __device__ float softmax_unscaled(float *scores, int length)
{
	float largest = -INFINITY, sum = 0;
	for (int i = threadIdx.x; i < length; i += blockDim.x)
		largest = fmaxf(largest, scores[i]);
	largest = block_reduce<largest_of>(largest, -INFINITY);
	for (int i = threadIdx.x; i < length; i += blockDim.x) {
		scores[i] = expf(scores[i] - largest);
		sum += scores[i];
	}
	return block_reduce<sum_of>(sum, 0);
}

/*
 * Threads beyond head_dim take every other (third, ...) position of an element; their sums meet in shared memory, in
 * fixed order. The scores are no longer needed by then, but the block's positions may be fewer than its threads, so the
 * meeting place is static.
 */
static __device__ void weigh_values(float *out, const float *scores, const float *kv, const cache &c, int kv_head,
				    int length, float total)
{
	__shared__ float meeting[ATTENTION_THREADS];
	const int groups = max(1, (int)blockDim.x / c.head_dim), group = threadIdx.x / c.head_dim;
	for (int base = 0; base < c.head_dim; base += blockDim.x) {
		const int element = base + (groups > 1 ? threadIdx.x % c.head_dim : threadIdx.x);
		const bool active = element < c.head_dim && (groups == 1 || group < groups);
		float sum = 0;
		for (int i = groups > 1 ? group : 0; active && i < length; i += groups)
			sum += scores[i] * kv[cache_offset(c, 1, i, kv_head) + element];
		meeting[threadIdx.x] = sum;
		__syncthreads();
		if (active && (groups == 1 || group == 0)) {
			for (int g = 1; g < groups; g++)
				sum += meeting[g * c.head_dim + threadIdx.x];
			out[element] = sum / total;
		}
		__syncthreads();
	}
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)
    llama_attention(float *out, const float *qkv, const float *kv, const int32_t *positions, const int32_t *slots,
		    const int32_t *block_table, int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t block_size,
		    int32_t max_blocks, int32_t blocks, int32_t max_positions)
{
	extern __shared__ float scores[]; /* [max_positions], then q [head_dim] */
	wait_for_inputs();
	const int token = blockIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads);
	/* shared memory holds max_positions scores: a position beyond is a caller's mistake that must not write past it
	 */
	const int length = min(positions[token] + 1, max_positions);
	const cache c = {block_table + (size_t)slots[token] * max_blocks, blocks, kv_heads, block_size, head_dim};
	float *q = scores + max_positions;

	for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
		q[i] = qkv[((size_t)token * (heads + 2 * kv_heads) + head) * head_dim + i];
	__syncthreads();
	score_positions(scores, q, kv, c, kv_head, length);
	__syncthreads();

	const float total = softmax_unscaled(scores, length);

	__syncthreads();
	weigh_values(out + ((size_t)token * heads + head) * head_dim, scores, kv, c, kv_head, length, total);
}

/*
 * Hidden on hostcuda. Here internal linkage would give a local symbol, but also a C++ mangled name, and the engine
 * looks for this one; so it is global, and enumeration finds it all the same. The matrix library's kernels are local.
 */
extern "C" __global__ void llama_silu_mul(float *out, const float *gate, const float *up, int32_t width)
{
	const int i = blockIdx.y * blockDim.x + threadIdx.x;
	const size_t at = (size_t)blockIdx.x * width + i;
	wait_for_inputs();
	if (i < width)
		out[at] = gate[at] / (1.0f + expf(-gate[at])) * up[at];
}

extern "C" __global__ void llama_add(float *x, const float *y, int32_t n)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	wait_for_inputs();
	if (i < n)
		x[i] += y[i];
}

/* The better of two candidates; the lower index on ties. */
static __device__ __forceinline__ void take_better(float &score, int &index, float other_score, int other_index)
{
	if (other_score > score || (other_score == score && other_index < index)) {
		score = other_score;
		index = other_index;
	}
}

static __device__ __forceinline__ void warp_best(float &score, int &index)
{
	for (int distance = WARP / 2; distance; distance /= 2)
		take_better(score, index, __shfl_xor_sync(ALL_LANES, score, distance),
			    __shfl_xor_sync(ALL_LANES, index, distance));
}

/* Hidden on hostcuda; see llama_silu_mul. */
extern "C" __global__ void llama_sample(int32_t *next, const float *logits, const int32_t *positions,
					int32_t vocabulary, float temperature, uint64_t seed)
{
	__shared__ float scores[WARP];
	__shared__ int indices[WARP];
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const float *row = logits + (size_t)blockIdx.x * vocabulary;
	float best = -INFINITY;
	int index = 0;
	wait_for_inputs();
	const uint64_t stream = (uint64_t)(uint32_t)positions[blockIdx.x];

	for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
		float score = row[i];
		/* Gumbel: the argmax of logit / temperature + noise is a draw from the softmax */
		if (temperature != 0)
			score = score / temperature - logf(-logf(random_unit(random_word(seed, stream, i))));
		if (score > best) {
			best = score;
			index = i;
		}
	}
	warp_best(best, index);
	if (lane == 0) {
		scores[warp] = best;
		indices[warp] = index;
	}
	__syncthreads();
	if (warp != 0)
		return;
	best = lane < blockDim.x / WARP ? scores[lane] : -INFINITY;
	index = lane < blockDim.x / WARP ? indices[lane] : 0;
	warp_best(best, index);
	if (lane == 0)
		next[blockIdx.x] = index;
}

/* Not contracted to a fused multiply-add: the weights are the same bits on both devices. */
extern "C" __global__ void llama_fill(uint16_t *w, uint64_t n, uint64_t seed, float scale, float offset)
{
	const uint64_t begin = (uint64_t)blockIdx.x * 1024, end = min(begin + 1024, n);
	wait_for_inputs();
	for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
		w[i] = bf16_round(__fadd_rn(offset, __fmul_rn(scale, random_signed(random_word(seed, 0, i)))));
}

extern "C" __global__ void llama_gather(float *out, const float *x, const int32_t *rows, int32_t width)
{
	wait_for_inputs();
	const float *row = x + (size_t)rows[blockIdx.x] * width;

	for (int i = threadIdx.x; i < width; i += blockDim.x)
		out[(size_t)blockIdx.x * width + i] = row[i];
}

/* ---- adapters -------------------- */

#define SHRINK_RANKS 8 /* of one block: a warp each */
#define VECTOR 8       /* bfloat16 numbers of one load */

struct lora_entry {
	int32_t rank;
	float scale;
};

static __device__ __forceinline__ bool is_aligned(const void *address)
{
	return ((size_t)address & 15) == 0;
}

/* Eight products; w and x are aligned to 16 bytes. */
static __device__ __forceinline__ float dot_vector(const uint16_t *w, const float *x)
{
	const uint4 words = *(const uint4 *)w;
	const float4 low = *(const float4 *)x, high = *(const float4 *)(x + 4);
	return __uint_as_float(words.x << 16) * low.x + __uint_as_float(words.x & 0xffff0000u) * low.y +
	       __uint_as_float(words.y << 16) * low.z + __uint_as_float(words.y & 0xffff0000u) * low.w +
	       __uint_as_float(words.z << 16) * high.x + __uint_as_float(words.z & 0xffff0000u) * high.y +
	       __uint_as_float(words.w << 16) * high.z + __uint_as_float(words.w & 0xffff0000u) * high.w;
}

/* The part of w . x that the elements begin, begin + step, ... (in vectors, where these are aligned) make. */
static __device__ __forceinline__ float dot_strided(const uint16_t *w, const float *x, int n, int begin, int step)
{
	float sum = 0;
	if (n % VECTOR == 0 && is_aligned(w) && is_aligned(x)) {
		for (int i = begin * VECTOR; i < n; i += step * VECTOR)
			sum += dot_vector(w + i, x + i);
	} else {
		for (int i = begin; i < n; i += step)
			sum += bf16_value(w[i]) * x[i];
	}
	return sum;
}

extern "C" __global__ void llama_lora_shrink(float *hidden, const float *x, const uint16_t *a,
					     const struct lora_entry *entries, const int32_t *adapters,
					     int64_t slot_elements, int32_t slot_entries, int32_t parts,
					     int32_t max_rank, int32_t inputs)
{
	wait_for_inputs();
	const int groups = (max_rank + SHRINK_RANKS - 1) / SHRINK_RANKS, lane = threadIdx.x % WARP;
	const int part = blockIdx.y / groups, rank = blockIdx.y % groups * SHRINK_RANKS + threadIdx.x / WARP;
	const size_t token = blockIdx.x;
	const int32_t slot = adapters[token];
	if (slot < 0)
		return;
	const struct lora_entry entry = entries[(size_t)slot * slot_entries + part];
	if (rank >= entry.rank)
		return;

	float sum = dot_strided(a + slot * slot_elements + ((size_t)part * max_rank + rank) * inputs,
				x + token * inputs, inputs, lane, WARP);

	for (int distance = WARP / 2; distance; distance /= 2)
		sum += __shfl_xor_sync(ALL_LANES, sum, distance);
	if (lane == 0)
		hidden[(token * parts + part) * max_rank + rank] = entry.scale * sum;
}

extern "C" __global__ void llama_lora_expand(float *out0, float *out1, float *out2, const float *hidden,
					     const uint16_t *b, const struct lora_entry *entries,
					     const int32_t *adapters, int64_t slot_elements, int32_t slot_entries,
					     int32_t parts, int32_t max_rank, int32_t stride, int32_t columns0,
					     int32_t columns1, int32_t columns2)
{
	wait_for_inputs();
	const int blocks0 = (columns0 + blockDim.x - 1) / blockDim.x, blocks1 = (columns1 + blockDim.x - 1) / blockDim.x;
	const int index = blockIdx.y, part = (index >= blocks0) + (index >= blocks0 + blocks1);
	const int column = (index - (part > 0 ? blocks0 : 0) - (part > 1 ? blocks1 : 0)) * blockDim.x + threadIdx.x;
	const size_t token = blockIdx.x, before = (part > 0 ? columns0 : 0) + (part > 1 ? columns1 : 0);
	const int32_t slot = adapters[token];
	if (slot < 0 || column >= (part == 0 ? columns0 : part == 1 ? columns1 : columns2))
		return;
	const int32_t rank = entries[(size_t)slot * slot_entries + part].rank;
	if (!rank)
		return;
	float *out = (part == 0 ? out0 : part == 1 ? out1 : out2) + token * stride + column;
	*out += dot_strided(b + slot * slot_elements + before * max_rank + (size_t)column * rank,
			    hidden + (token * parts + part) * max_rank, rank, 0, 1);
}
