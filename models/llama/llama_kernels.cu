/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's kernels for CUDA; kernels.h says what each of them computes and how it is launched. */
#include <stdint.h>
#include <cooperative_groups.h>

#include "models/llama/dependency.cuh"
#include "models/llama/kernels.h"
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
 * meeting place is static. copy, if it is not NULL, gets the same in shared memory.
 */
static __device__ void weigh_values(float *out, const float *scores, const float *kv, const cache &c, int kv_head,
				    int length, float total, float *copy)
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
			if (copy)
				copy[element] = sum / total;
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
	weigh_values(out + ((size_t)token * heads + head) * head_dim, scores, kv, c, kv_head, length, total, NULL);
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

#define VECTOR 8 /* bfloat16 numbers of one load */
#define LORA_THREADS 256
#define SLICE_LANES 8 /* that add up the slices of one row */
#define LINE 64       /* bfloat16 numbers */
#if __CUDA_ARCH__ >= 900
#define IN_CLUSTERS __cluster_dims__(1, LLAMA_LORA_BLOCKS, 1)
#else
#define IN_CLUSTERS
#endif

/* Of each part, and together. */
struct lora_ranks {
	int first, second, third, all;
};

/* Values of the parts; in registers, where an array with a variable index is not. */
static __device__ __forceinline__ int of_part(int part, int first, int second, int third)
{
	return part == 0 ? first : part == 1 ? second : third;
}

static __device__ __forceinline__ int part_of(const lora_ranks &ranks, int &row)
{
	const int part = (row >= ranks.first) + (row >= ranks.first + ranks.second);
	row -= of_part(part, 0, ranks.first, ranks.first + ranks.second);
	return part;
}

static __device__ __forceinline__ bool is_aligned(const void *address)
{
	return ((size_t)address & 15) == 0;
}

/* Eight products; x is aligned to 16 bytes. */
static __device__ __forceinline__ float dot_vector(const uint4 &words, const float *x)
{
	const float4 low = *(const float4 *)x, high = *(const float4 *)(x + 4);
	return __uint_as_float(words.x << 16) * low.x + __uint_as_float(words.x & 0xffff0000u) * low.y +
	       __uint_as_float(words.y << 16) * low.z + __uint_as_float(words.y & 0xffff0000u) * low.w +
	       __uint_as_float(words.z << 16) * high.x + __uint_as_float(words.z & 0xffff0000u) * high.y +
	       __uint_as_float(words.w << 16) * high.z + __uint_as_float(words.w & 0xffff0000u) * high.w;
}

/* A token's adapter in one group of projections; ranks.all is 0 where there is none. */
struct lora_here {
	const uint16_t *a, *b;
	lora_ranks ranks;
	float scale0, scale1, scale2;
};

static __device__ __forceinline__ float scale_of_part(const lora_here &here, int part)
{
	return part == 0 ? here.scale0 : part == 1 ? here.scale1 : here.scale2;
}

static __device__ __forceinline__ lora_here find_adapter(const struct llama_lora_group &g, int token)
{
	lora_here here = {};
	const int32_t slot = g.adapters ? g.adapters[token] : -1;
	if (slot < 0)
		return here;
	const struct llama_lora_entry *entries = g.entries + (size_t)slot * g.slot_entries;
	const struct llama_lora_entry none = {0, 0}, first = entries[0];
	const struct llama_lora_entry second = g.parts > 1 ? entries[1] : none, third = g.parts > 2 ? entries[2] : none;
	here.a = g.a + slot * g.slot_elements;
	here.b = g.b + slot * g.slot_elements;
	here.ranks = {first.rank, second.rank, third.rank, first.rank + second.rank + third.rank};
	here.scale0 = first.scale;
	here.scale1 = second.scale;
	here.scale2 = third.scale;
	return here;
}

/* Leaves one part alone. */
static __device__ __forceinline__ void keep_part(lora_here &here, int part)
{
	here.ranks.first = part == 0 ? here.ranks.first : 0;
	here.ranks.second = part == 1 ? here.ranks.second : 0;
	here.ranks.third = part == 2 ? here.ranks.third : 0;
	here.ranks.all = here.ranks.first + here.ranks.second + here.ranks.third;
}

/*
 * hidden[part][row] = scale * (a x)[row]. The sums are read from the second-level cache: the kernel that wrote them is complete,
 * but this one may have begun beside the one behind it. Needs a block of whole warps, and a barrier behind it.
 */
static __device__ __forceinline__ void add_slices(float (*hidden)[LLAMA_LORA_MAX_RANK],
						  const struct llama_lora_group &g, const lora_here &here, int token)
{
	const int lane = threadIdx.x % SLICE_LANES, step = blockDim.x / SLICE_LANES, stride = g.parts * g.max_rank;
	for (int base = 0; base < here.ranks.all; base += step) {
		int row = base + threadIdx.x / SLICE_LANES;
		const bool used = row < here.ranks.all;
		const int part = part_of(here.ranks, row);
		const float *sums = g.sums + (size_t)token * g.slices * stride + part * g.max_rank + row;
		float sum = 0;
		if (used)
#pragma unroll 4
			for (int slice = lane; slice < g.slices; slice += SLICE_LANES)
				sum += __ldcg(sums + (size_t)slice * stride);
		for (int distance = SLICE_LANES / 2; distance; distance /= 2)
			sum += __shfl_xor_sync(ALL_LANES, sum, distance);
		if (used && lane == 0)
			hidden[part][row] = scale_of_part(here, part) * sum;
	}
}

/* The column's row of b; columns are counted within their part. */
static __device__ __forceinline__ const uint16_t *lora_column_of(const struct llama_lora_group &g,
								 const lora_here &here, int part, int column)
{
	const int before = of_part(part, 0, g.columns0, g.columns0 + g.columns1);
	const int rank = of_part(part, here.ranks.first, here.ranks.second, here.ranks.third);
	return here.b + (size_t)before * g.max_rank + (size_t)column * rank;
}

static __device__ __forceinline__ float column_delta(const struct llama_lora_group &g, const lora_here &here,
						     const float (*hidden)[LLAMA_LORA_MAX_RANK], int part, int column)
{
	const int rank = of_part(part, here.ranks.first, here.ranks.second, here.ranks.third);
	const uint16_t *b = lora_column_of(g, here, part, column);
	float delta = 0;
	if (rank % VECTOR == 0 && is_aligned(b)) {
#pragma unroll 2
		for (int r = 0; r < rank; r += VECTOR)
			delta += dot_vector(__ldg((const uint4 *)(b + r)), hidden[part] + r);
	} else {
		for (int r = 0; r < rank; r++)
			delta += bf16_value(b[r]) * hidden[part][r];
	}
	return delta;
}

static __device__ __forceinline__ void prefetch(const void *address)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/* The columns' part of b; several columns of a low rank are in one line, which is asked for once more then. */
static __device__ __forceinline__ void prefetch_column(const struct llama_lora_group &g, const lora_here &here,
						       int part, int column)
{
	if (of_part(part, here.ranks.first, here.ranks.second, here.ranks.third))
		prefetch(lora_column_of(g, here, part, column));
}

static __device__ __forceinline__ const uint16_t *lora_row_of(const struct llama_lora_group &g, const lora_here &here,
							      int row)
{
	const int part = part_of(here.ranks, row);
	return here.a + ((size_t)part * g.max_rank + row) * g.inputs;
}

/* What sum_slice will read. */
static __device__ __forceinline__ void prefetch_slice(const struct llama_lora_group &g, const lora_here &here,
						      int begin, int n)
{
	const int lines = (n + LINE - 1) / LINE;
	for (int i = threadIdx.x; i < here.ranks.all * lines; i += blockDim.x)
		prefetch(lora_row_of(g, here, i / lines) + begin + i % lines * LINE);
}

/* sums[i] = rows[i] . x, n elements in shared memory. All loads of a step are under way before the first one is used. */
template <int ROWS>
static __device__ __forceinline__ void dot_rows_of(float (&sums)[ROWS], const uint16_t *const (&rows)[ROWS],
						   const float *x, int n, bool aligned)
{
	const int lane = threadIdx.x % WARP;
#pragma unroll
	for (int i = 0; i < ROWS; i++)
		sums[i] = 0;
	if (aligned) {
		for (int at = lane * VECTOR; at < n; at += WARP * VECTOR) {
			uint4 words[ROWS];
#pragma unroll
			for (int i = 0; i < ROWS; i++)
				words[i] = __ldg((const uint4 *)(rows[i] + at));
#pragma unroll
			for (int i = 0; i < ROWS; i++)
				sums[i] += dot_vector(words[i], x + at);
		}
	} else {
		for (int at = lane; at < n; at += WARP)
#pragma unroll
			for (int i = 0; i < ROWS; i++)
				sums[i] += bf16_value(rows[i][at]) * x[at];
	}
#pragma unroll
	for (int i = 0; i < ROWS; i++)
#pragma unroll
		for (int distance = WARP / 2; distance; distance /= 2)
			sums[i] += __shfl_xor_sync(ALL_LANES, sums[i], distance);
}

/*
 * a x over inputs begin to begin + n, which lie in shared memory, aligned; behind a barrier. A warp has ROWS rows at a time;
 * past the last one it computes that once more, and stores nothing.
 */
template <int ROWS>
static __device__ __forceinline__ void sum_slice(const struct llama_lora_group &g, const lora_here &here, int token,
						 int slice, const float *x, int begin, int n)
{
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
	const bool aligned = (g.inputs | begin | n) % VECTOR == 0 && is_aligned(here.a);
	float *sums = g.sums + ((size_t)token * g.slices + slice) * g.parts * g.max_rank;
	for (int first = warp; first < here.ranks.all; first += warps * ROWS) {
		const uint16_t *rows[ROWS];
		float results[ROWS];
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			rows[i] = lora_row_of(g, here, min(first + i * warps, here.ranks.all - 1)) + begin;
		dot_rows_of<ROWS>(results, rows, x, n, aligned);
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			int row = first + i * warps;
			if (lane == 0 && row < here.ranks.all) {
				const int part = part_of(here.ranks, row);
				sums[part * g.max_rank + row] = results[i];
			}
		}
	}
}

#if __CUDA_ARCH__ >= 900
/* The same in all threads of a cluster; all blocks have arrived at the cluster's barrier before. */
static __device__ __forceinline__ float cluster_sum(float value, float (&meeting)[LLAMA_LORA_BLOCKS], int block)
{
	const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
	float sum = 0;
	cluster.barrier_wait();
	if (threadIdx.x < LLAMA_LORA_BLOCKS)
		*cluster.map_shared_rank(&meeting[block], threadIdx.x) = value;
	cluster.sync();
	for (int i = 0; i < LLAMA_LORA_BLOCKS; i++)
		sum += meeting[i];
	return sum;
}
#endif

/* x += what is added, over one slice; the new values stay in shared memory. Returns this thread's squares. */
static __device__ __forceinline__ float add_to_slice(float *values, float *x, const struct llama_lora_group &g,
						     const lora_here &here, const float (*hidden)[LLAMA_LORA_MAX_RANK],
						     int begin, int n)
{
	float squares = 0;
	if (here.ranks.all)
		for (int i = threadIdx.x; i < n; i += LORA_THREADS)
			values[i] = column_delta(g, here, hidden, 0, begin + i);
	wait_for_inputs();
	for (int i = threadIdx.x; i < n; i += LORA_THREADS) {
		float value = x[begin + i];
		if (here.ranks.all)
			x[begin + i] = value += values[i];
		values[i] = value;
		squares += value * value;
	}
	return squares;
}

/* In a cluster each block has a slice; elsewhere the first block goes through all of them. */
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(LORA_THREADS)
    llama_adapted_norm(float *out, float *x, const uint16_t *weight, const struct llama_lora_group from,
		       const struct llama_lora_group to, int32_t width, float epsilon)
{
	extern __shared__ __align__(16) float values[]; /* [LLAMA_LORA_SLICE(width)] */
	__shared__ __align__(16) float hidden[1][LLAMA_LORA_MAX_RANK];
	const int token = blockIdx.x, length = LLAMA_LORA_SLICE(width);
	const lora_here added = find_adapter(from, token), next = find_adapter(to, token);
	float *row = x + (size_t)token * width, *normed = out + (size_t)token * width, squares = 0;
#if __CUDA_ARCH__ >= 900
	__shared__ float meeting[LLAMA_LORA_BLOCKS];
	const int first = blockIdx.y, last = first + 1;
	cooperative_groups::this_cluster().barrier_arrive();
#else
	const int first = 0, last = blockIdx.y ? 0 : LLAMA_LORA_BLOCKS;
#endif
	add_slices(hidden, from, added, token);
	if (last == first + 1)
		prefetch_slice(to, next, min(first * length, width), min(length, width - min(first * length, width)));
	__syncthreads();
	for (int slice = first; slice < last; slice++) {
		const int begin = min(slice * length, width);
		squares += add_to_slice(values, row, from, added, hidden, begin, min(length, width - begin));
	}
	squares = block_reduce<sum_of>(squares, 0);
#if __CUDA_ARCH__ >= 900
	squares = cluster_sum(squares, meeting, first);
#endif
	const float factor = 1.0f / sqrtf(squares / width + epsilon);
	for (int slice = first; slice < last; slice++) {
		const int begin = min(slice * length, width), n = min(length, width - begin);
		for (int i = threadIdx.x; i < n; i += LORA_THREADS) {
			const float value = last == first + 1 ? values[i] : row[begin + i];
			values[i] = value * factor * bf16_value(weight[begin + i]);
			normed[begin + i] = values[i];
		}
		__syncthreads();
		sum_slice<6>(to, next, token, slice, values, begin, n);
		__syncthreads();
	}
}

extern "C" __global__ void llama_adapted_rope(float *qkv, float *kv, const int32_t *positions, const int32_t *slots,
					      const int32_t *block_table, const struct llama_lora_group from,
					      int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t block_size,
					      int32_t max_blocks, int32_t blocks, float theta, int32_t interleaved)
{
	extern __shared__ float values[]; /* [head_dim] */
	__shared__ __align__(16) float hidden[LLAMA_LORA_PARTS][LLAMA_LORA_MAX_RANK];
	const int token = blockIdx.x, head = blockIdx.y, part = (head >= heads) + (head >= heads + kv_heads);
	const int first = head - of_part(part, 0, heads, heads + kv_heads);
	float *in = qkv + ((size_t)token * (heads + 2 * kv_heads) + head) * head_dim;
	lora_here added = find_adapter(from, token);
	keep_part(added, part);
	for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
		prefetch_column(from, added, part, first * head_dim + i);
	add_slices(hidden, from, added, token);
	__syncthreads();
	if (added.ranks.all)
		for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
			values[i] = column_delta(from, added, hidden, part, first * head_dim + i);
	wait_for_inputs();
	for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
		values[i] = in[i] + (added.ranks.all ? values[i] : 0.0f);
	__syncthreads();

	const int position = positions[token];
	const cache c = {block_table + (size_t)slots[token] * max_blocks, blocks, kv_heads, block_size, head_dim};
	if (part == 0)
		rotate(in, values, position, head_dim, theta, interleaved);
	else if (part == 1)
		rotate(kv + cache_offset(c, 0, position, first), values, position, head_dim, theta, interleaved);
	else
		for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
			kv[cache_offset(c, 1, position, first) + i] = values[i];
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)
    llama_adapted_attention(float *out, const float *qkv, const float *kv, const int32_t *positions,
			    const int32_t *slots, const int32_t *block_table, const struct llama_lora_group to,
			    int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t block_size, int32_t max_blocks,
			    int32_t blocks, int32_t max_positions)
{
	extern __shared__ __align__(16) float scores[]; /* [max_positions], then q [head_dim] */
	wait_for_inputs();
	const int token = blockIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads);
	const int length = min(positions[token] + 1, max_positions);
	const cache c = {block_table + (size_t)slots[token] * max_blocks, blocks, kv_heads, block_size, head_dim};
	float *q = scores + LLAMA_ADAPTED_ATTENTION_QUERY(max_positions);
	const lora_here next = find_adapter(to, token);

	for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
		q[i] = qkv[((size_t)token * (heads + 2 * kv_heads) + head) * head_dim + i];
	prefetch_slice(to, next, head * head_dim, head_dim);
	__syncthreads();
	score_positions(scores, q, kv, c, kv_head, length);
	__syncthreads();

	const float total = softmax_unscaled(scores, length);

	__syncthreads();
	weigh_values(out + ((size_t)token * heads + head) * head_dim, scores, kv, c, kv_head, length, total, q);
	sum_slice<4>(to, next, token, head, q, head * head_dim, head_dim);
}

extern "C" __global__ void __launch_bounds__(LORA_THREADS)
    llama_adapted_silu(float *out, const float *gate, const float *up, const struct llama_lora_group from,
		       const struct llama_lora_group to, int32_t width)
{
	__shared__ __align__(16) float hidden[2][LLAMA_LORA_MAX_RANK], values[LORA_THREADS];
	const int token = blockIdx.x, begin = blockIdx.y * blockDim.x, i = begin + threadIdx.x;
	const size_t at = (size_t)token * width + i;
	const int n = min((int)blockDim.x, width - begin);
	wait_for_inputs();
	const float g = i < width ? gate[at] : 0, u = i < width ? up[at] : 0;
	const lora_here added = find_adapter(from, token), next = find_adapter(to, token);
	float value = 0;
	if (i < width) {
		prefetch_column(from, added, 0, i);
		prefetch_column(from, added, 1, i);
	}
	prefetch_slice(to, next, begin, n);
	add_slices(hidden, from, added, token);
	__syncthreads();
	if (i < width) {
		const float x = g + column_delta(from, added, hidden, 0, i);
		value = x / (1.0f + expf(-x)) * (u + column_delta(from, added, hidden, 1, i));
		out[at] = value;
	}
	values[threadIdx.x] = value;
	__syncthreads();
	sum_slice<2>(to, next, token, blockIdx.y, values, begin, n);
}

extern "C" __global__ void llama_adapted_gather(float *out, const float *x, const int32_t *rows,
						const struct llama_lora_group from, int32_t width)
{
	__shared__ __align__(16) float hidden[1][LLAMA_LORA_MAX_RANK];
	wait_for_inputs();
	const int row = rows[blockIdx.x], i = blockIdx.y * blockDim.x + threadIdx.x;
	const lora_here added = find_adapter(from, row);
	add_slices(hidden, from, added, row);
	__syncthreads();
	if (i < width)
		out[(size_t)blockIdx.x * width + i] =
		    x[(size_t)row * width + i] + column_delta(from, added, hidden, 0, i);
}
