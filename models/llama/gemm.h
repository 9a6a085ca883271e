/* SPDX-License-Identifier: Apache-2.0 */
/* A vendor-style matrix library: hidden kernels, its own workspace and image, parameters passed through `extra`. */
#ifndef LLAMA_GEMM_H
#define LLAMA_GEMM_H

#include <stdint.h>

/*
 * libllama-gemm.so stands for cuBLAS in the reference engine, with the same habits: it finds the driver by
 * dlopen("libcuda.so.1") + dlsym("cuGetProcAddress_v2") (falling back to plain dlsym), loads its image with
 * cuLibraryLoadData at the first multiplication and not before, keeps a workspace that nobody registers (cuMemAlloc at
 * create: partial sums, and arrival counters that must be zero before a launch and are zero again after it), launches
 * with one struct parameter through `extra`, and its kernels have local symbols.
 */

struct llama_gemm; /* opaque */

/* max_rows and max_columns bound later calls (workspace size). 0 on success, else a CUresult. Context
 * must be current. */
int llama_gemm_create(struct llama_gemm **out, int max_rows, int max_columns);

/*
 * y[rows][n] = x[rows][k] * w[n][k]^T, plus bias-free accumulate: y += ... when accumulate != 0. x, y float32, w
 * bfloat16, row-major, device memory. Asynchronous on stream (CUstream). Chooses one of several kernels by shape (like
 * a heuristic): a few-row kernel, a tiled kernel, and a split-K kernel that uses workspace and counters. pdl != 0:
 * launch with programmatic stream serialization, so that a captured graph gets a programmatic edge. 0 on success, else
 * a CUresult.
 */
int llama_gemm_run(struct llama_gemm *gemm, void *stream, float *y, const float *x, const uint16_t *w, int rows, int n,
		   int k, int accumulate, int pdl);

void llama_gemm_destroy(struct llama_gemm *gemm);

#endif
