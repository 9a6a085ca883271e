/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix library's kernels for CUDA: few rows, tiled, and split-k with arrival counters. */
#include <stdint.h>

#include "models/llama/dependency.cuh"
#include "models/llama/gemm_params.h"

/* The part of k that a block works on, and where its sums go. */
struct span {
	int64_t k_begin, k_end;
	float *out; /* [rows][n] */
	bool accumulate;
};

static __device__ __forceinline__ float low_value(uint32_t pair)
{
	return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float high_value(uint32_t pair)
{
	return __uint_as_float(pair & 0xffff0000u);
}

static __device__ __forceinline__ float weight_value(uint16_t half)
{
	return __uint_as_float((uint32_t)half << 16);
}

static __device__ __forceinline__ void put(const gemm_params &g, const span &s, int row, int column, float sum)
{
	float *y = s.out + (size_t)row * g.n + column;
	*y = s.accumulate ? *y + sum : sum;
}

/* Whether every row of x and w can be read 16 bytes at a time. */
static __device__ __forceinline__ bool is_aligned(const gemm_params &g)
{
	return g.k % 8 == 0 && (((uintptr_t)g.x | (uintptr_t)g.w) & 15) == 0;
}

/* ---- few rows: a warp has two columns, its lanes divide k -------------------- */

#define WARP_COLUMNS 2
static_assert(GEMM_BLOCK / 32 * WARP_COLUMNS == GEMM_ROWS_COLUMNS, "a block's warps cover its columns");
static_assert(GEMM_FEW_ROWS == 8, "few_rows has a case for each power of two");

static __device__ __forceinline__ void unpack(uint4 packed, float (&values)[8])
{
	const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		values[2 * i] = low_value(pairs[i]);
		values[2 * i + 1] = high_value(pairs[i]);
	}
}

template <int ROWS>
static __device__ __forceinline__ void dot_wide(const gemm_params &g, const span &s, const int (&columns)[WARP_COLUMNS],
						float (&sums)[ROWS][WARP_COLUMNS])
{
	for (int64_t i = s.k_begin + (threadIdx.x & 31) * 8; i < s.k_end; i += 256) {
		float w[WARP_COLUMNS][8];
#pragma unroll
		for (int c = 0; c < WARP_COLUMNS; c++)
			unpack(__ldg((const uint4 *)(g.w + columns[c] * g.k + i)), w[c]);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			const float4 *x = (const float4 *)(g.x + min(r, g.rows - 1) * g.k + i);
			const float4 a = x[0], b = x[1];
			const float values[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
			for (int c = 0; c < WARP_COLUMNS; c++)
#pragma unroll
				for (int j = 0; j < 8; j++)
					sums[r][c] += w[c][j] * values[j];
		}
	}
}

template <int ROWS>
static __device__ __forceinline__ void dot_narrow(const gemm_params &g, const span &s,
						  const int (&columns)[WARP_COLUMNS], float (&sums)[ROWS][WARP_COLUMNS])
{
	for (int64_t i = s.k_begin + (threadIdx.x & 31); i < s.k_end; i += 32)
#pragma unroll
		for (int c = 0; c < WARP_COLUMNS; c++) {
			const float w = weight_value(g.w[columns[c] * g.k + i]);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				sums[r][c] += w * g.x[min(r, g.rows - 1) * g.k + i];
		}
}

static __device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
	for (int distance = 16; distance; distance /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, distance);
	return value;
}

template <int ROWS> static __device__ void few_rows_of(const gemm_params &g, const span &s)
{
	const int first = blockIdx.x * GEMM_ROWS_COLUMNS + threadIdx.x / 32 * WARP_COLUMNS;
	float sums[ROWS][WARP_COLUMNS] = {};
	int columns[WARP_COLUMNS];
	/* past the edge a warp computes the last column (and row) once more and stores nothing */
#pragma unroll
	for (int c = 0; c < WARP_COLUMNS; c++)
		columns[c] = min(first + c, g.n - 1);
	if (is_aligned(g))
		dot_wide<ROWS>(g, s, columns, sums);
	else
		dot_narrow<ROWS>(g, s, columns, sums);
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int c = 0; c < WARP_COLUMNS; c++) {
			const float sum = warp_sum(sums[r][c]);
			if ((threadIdx.x & 31) == 0 && r < g.rows && first + c < g.n)
				put(g, s, r, first + c, sum);
		}
}

static __device__ __forceinline__ void few_rows(const gemm_params &g, const span &s)
{
	if (g.rows == 1)
		few_rows_of<1>(g, s);
	else if (g.rows == 2)
		few_rows_of<2>(g, s);
	else if (g.rows <= 4)
		few_rows_of<4>(g, s);
	else
		few_rows_of<8>(g, s);
}

/* ---- more rows: 64 x 64 outputs for a block, 4 x 4 for a thread -------------------- */

#define TILE 64
#define STEP 32
#define THREAD_TILE 4
static_assert(TILE == GEMM_TILE_ROWS && TILE == GEMM_TILE_COLUMNS, "square tiles");
static_assert(TILE / THREAD_TILE * (TILE / THREAD_TILE) == GEMM_BLOCK, "threads cover the tile");
static_assert(TILE * STEP == GEMM_BLOCK * 8, "a thread loads eight elements of each operand");

/* Transposed, so that a thread reads its four rows or columns with one load; padded, so that those stay aligned. */
struct tiles {
	float x[STEP][TILE + 4], w[STEP][TILE + 4];
};

/* Eight neighbouring elements of one row of x and of w, zero past the edges. */
struct fragment {
	float x[8], w[8];
};

static __device__ __forceinline__ void load_fragment(const gemm_params &g, int64_t k_end, int row, int column,
						     int64_t i, bool aligned, fragment &f)
{
	const float *x = g.x + row * g.k + i;
	const uint16_t *w = g.w + column * g.k + i;
#pragma unroll
	for (int j = 0; j < 8; j++)
		f.x[j] = f.w[j] = 0;
	if (aligned && i + 8 <= k_end) {
		if (row < g.rows) {
			const float4 a = ((const float4 *)x)[0], b = ((const float4 *)x)[1];
			f.x[0] = a.x, f.x[1] = a.y, f.x[2] = a.z, f.x[3] = a.w;
			f.x[4] = b.x, f.x[5] = b.y, f.x[6] = b.z, f.x[7] = b.w;
		}
		if (column < g.n)
			unpack(__ldg((const uint4 *)w), f.w);
		return;
	}
#pragma unroll
	for (int j = 0; j < 8; j++) {
		if (i + j < k_end && row < g.rows)
			f.x[j] = x[j];
		if (i + j < k_end && column < g.n)
			f.w[j] = weight_value(w[j]);
	}
}

static __device__ __forceinline__ void multiply_step(const tiles &t, float (&sums)[THREAD_TILE][THREAD_TILE])
{
	const int y = threadIdx.x / 16 * THREAD_TILE, x = threadIdx.x % 16 * THREAD_TILE;
#pragma unroll
	for (int i = 0; i < STEP; i++) {
		const float4 a = *(const float4 *)&t.x[i][y], b = *(const float4 *)&t.w[i][x];
		const float rows[4] = {a.x, a.y, a.z, a.w}, columns[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
		for (int r = 0; r < THREAD_TILE; r++)
#pragma unroll
			for (int c = 0; c < THREAD_TILE; c++)
				sums[r][c] += rows[r] * columns[c];
	}
}

static __device__ void tile(const gemm_params &g, const span &s, int row_tile)
{
	__shared__ __align__(16) tiles shared;
	const int slot = threadIdx.x / 4, part = threadIdx.x % 4 * 8;
	const int row = row_tile * TILE, column = blockIdx.x * TILE;
	const int y = threadIdx.x / 16 * THREAD_TILE, x = threadIdx.x % 16 * THREAD_TILE;
	const bool aligned = is_aligned(g);
	float sums[THREAD_TILE][THREAD_TILE] = {};
	fragment next;
	load_fragment(g, s.k_end, row + slot, column + slot, s.k_begin + part, aligned, next);
	for (int64_t i = s.k_begin; i < s.k_end; i += STEP) {
		__syncthreads();
#pragma unroll
		for (int j = 0; j < 8; j++) {
			shared.x[part + j][slot] = next.x[j];
			shared.w[part + j][slot] = next.w[j];
		}
		__syncthreads();
		/* the next step's loads are under way while this one is multiplied */
		if (i + STEP < s.k_end)
			load_fragment(g, s.k_end, row + slot, column + slot, i + STEP + part, aligned, next);
		multiply_step(shared, sums);
	}
#pragma unroll
	for (int r = 0; r < THREAD_TILE; r++)
#pragma unroll
		for (int c = 0; c < THREAD_TILE; c++)
			if (row + y + r < g.rows && column + x + c < g.n)
				put(g, s, row + y + r, column + x + c, sums[r][c]);
}

/* ---- kernels: internal linkage makes their symbols local, so only enumeration finds them -------------------- */

static __device__ __forceinline__ span whole(const gemm_params &g)
{
	return span{0, g.k, g.y, g.accumulate != 0};
}

__attribute__((used)) static __global__ void __launch_bounds__(GEMM_BLOCK)
    gemm_rows(const __grid_constant__ gemm_params g)
{
	wait_for_inputs();
	few_rows(g, whole(g));
}

__attribute__((used)) static __global__ void __launch_bounds__(GEMM_BLOCK)
    gemm_tiled(const __grid_constant__ gemm_params g)
{
	wait_for_inputs();
	tile(g, whole(g), blockIdx.y);
}

/* Adds up the partial sums of a tile, always from the first split to the last. */
static __device__ void reduce(const gemm_params &g, const span &s, int splits)
{
	const int row_begin = blockIdx.z * GEMM_TILE_ROWS, rows = min(GEMM_TILE_ROWS, g.rows - row_begin);
	const int column_begin = blockIdx.x * g.columns, columns = min(g.columns, g.n - column_begin);
	const size_t plane = (size_t)g.rows * g.n;
	for (int i = threadIdx.x; i < rows * columns; i += GEMM_BLOCK) {
		const int row = row_begin + i / columns, column = column_begin + i % columns;
		const float *partial = g.workspace + (size_t)row * g.n + column;
		float sum = 0;
		for (int split = 0; split < splits; split++)
			sum += __ldcg(partial + split * plane);
		put(g, s, row, column, sum);
	}
}

/* True in every thread of the block that arrives last: by then all partial sums are visible. */
static __device__ bool arrive_last(uint32_t *counter, uint32_t splits)
{
	__shared__ bool last;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicAdd(counter, 1u) == splits - 1;
	__syncthreads();
	__threadfence();
	return last;
}

__attribute__((used)) static __global__ void __launch_bounds__(GEMM_BLOCK)
    gemm_split_k(const __grid_constant__ gemm_params g)
{
	const int64_t split = blockIdx.y, splits = gridDim.y;
	uint32_t *counter = g.counters + blockIdx.x + (size_t)gridDim.x * blockIdx.z;
	span partial;
	wait_for_inputs();
	partial.k_begin = min((int64_t)GEMM_SPLIT_BEGIN(g.k, split, splits), g.k);
	partial.k_end = min((int64_t)GEMM_SPLIT_BEGIN(g.k, split + 1, splits), g.k);
	partial.out = g.workspace + (size_t)split * g.rows * g.n;
	partial.accumulate = false;
	if (g.rows <= GEMM_FEW_ROWS)
		few_rows(g, partial);
	else
		tile(g, partial, blockIdx.z);

	if (!arrive_last(counter, (uint32_t)splits))
		return;
	reduce(g, whole(g), (int)splits);
	if (threadIdx.x == 0)
		*counter = 0;
}
