/* SPDX-License-Identifier: Apache-2.0 */
/* What every kernel of the reference engine should compute, in plain double-precision loops over host memory. */
#ifndef LLAMA_REFERENCE_H
#define LLAMA_REFERENCE_H

#include "models/llama/kernels.h"

/*
 * Each takes the kernel's own parameters, with pointers into host memory, and the number of tokens (its grid), and
 * writes double-precision results where the kernel would write to p->out. Inputs are not changed.
 */
void llama_reference_embed(double *out, const struct llama_embed *p, int tokens);
void llama_reference_rms_norm(double *out, const struct llama_rms_norm *p, int tokens);

/* qkv and kv begin as copies of p->qkv and p->kv; only what the kernel would write is changed. */
void llama_reference_rope_store(double *qkv, double *kv, const struct llama_rope_store *p, int tokens);
void llama_reference_attention(double *out, const struct llama_attention *p, int tokens);
void llama_reference_silu_mul(double *out, const struct llama_silu_mul *p, int tokens);
void llama_reference_add(double *x, const struct llama_add *p);

/* What llama_sample maximizes over index: the logit, or logit / temperature + Gumbel noise. */
double llama_reference_score(const struct llama_sample *p, int row, int index);
int llama_reference_sample(const struct llama_sample *p, int row);

/* w[i] before it is rounded to bfloat16. */
double llama_reference_fill(const struct llama_fill *p, uint64_t i);
void llama_reference_gather(double *out, const struct llama_gather *p, int tokens);

/* The sums of tokens whose inputs are x [tokens][inputs], in slices of so many inputs; what is not written stays. */
void llama_reference_lora_sums(double *sums, const struct llama_lora_group *p, const double *x, int tokens, int slice);
/* out += what p adds to one part of a token, from p->sums. */
void llama_reference_lora_add(double *out, const struct llama_lora_group *p, int token, int part);

/* y[rows][n] = x[rows][k] * w[n][k]^T, plus `before` [rows][n] unless it is NULL. */
void llama_reference_gemm(double *y, const float *x, const llama_bf16 *w, const float *before, int rows, int n, int k);

#endif
