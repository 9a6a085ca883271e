/* SPDX-License-Identifier: Apache-2.0 */
/* What the matrix library and its kernels share: the one struct parameter and the shapes that each kernel is launched
 * with. */
#ifndef LLAMA_GEMM_PARAMS_H
#define LLAMA_GEMM_PARAMS_H

#include <stdint.h>

/*
 * Passed as one parameter through `extra`. The gaps after `accumulate` and at the end are natural padding; the library
 * leaves there what happens to be on its stack, as vendor libraries do.
 */
struct gemm_params {
	float *y;           /* [rows][n] */
	const float *x;     /* [rows][k] */
	const uint16_t *w;  /* [n][k], bfloat16 */
	float *workspace;   /* gemm_split_k: [splits][rows][n] partial sums */
	uint32_t *counters; /* gemm_split_k: one for each tile (x + grid.x * z), zero before and after a launch */
	int32_t rows, n;
	uint8_t accumulate; /* y += instead of y = */
	int64_t k;
	int32_t columns; /* columns that one block computes */
};

/*
 * Grids, block 256 everywhere (one call for a block on hostcuda):
 *   gemm_rows      (ceil(n / columns))                                rows <= GEMM_FEW_ROWS
 *   gemm_tiled     (ceil(n / columns), ceil(rows / GEMM_TILE_ROWS))
 *   gemm_split_k   (ceil(n / columns), splits, ceil(rows / GEMM_TILE_ROWS))
 * On CUDA columns is GEMM_ROWS_COLUMNS where rows <= GEMM_FEW_ROWS and GEMM_TILE_COLUMNS elsewhere: the thread layout
 * depends on it. On hostcuda any value does.
 */
#define GEMM_BLOCK 256
#define GEMM_FEW_ROWS 8
#define GEMM_TILE_ROWS 64
#define GEMM_TILE_COLUMNS 64
#define GEMM_ROWS_COLUMNS 16
#define GEMM_HOST_COLUMNS 32

/* Elements of k that split number `split` of `splits` begins at; a multiple of 32, so that 16-byte
 * loads stay aligned. */
#define GEMM_SPLIT_BEGIN(k, split, splits) ((((k) + 31) / 32 * (split) / (splits)) * 32)

/* What the library splits, and into how many parts at most. */
#define GEMM_SPLITS_MAX 8
#define GEMM_SPLIT_MAX_COLUMNS 8192
#define GEMM_SPLIT_MIN_K 512

/* Parts of k for a weight that the library may split, for some number of rows; 1 for others. */
static inline int gemm_parts(int32_t n, int64_t k)
{
	if (n > GEMM_SPLIT_MAX_COLUMNS || k < 2 * GEMM_SPLIT_MIN_K)
		return 1;
	return k / GEMM_SPLIT_MIN_K < GEMM_SPLITS_MAX ? (int)(k / GEMM_SPLIT_MIN_K) : GEMM_SPLITS_MAX;
}

#endif
