/* SPDX-License-Identifier: Apache-2.0 */
/* What every kernel of the reference engine should compute, in plain double-precision loops over host memory. */
#include "models/llama/reference.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "models/llama/random.h"

void llama_reference_embed(double *out, const struct llama_embed *p, int tokens)
{
	for (int t = 0; t < tokens; t++)
		for (int i = 0; i < p->width; i++)
			out[(size_t)t * p->width + i] = bf16_value(p->table[(size_t)p->tokens[t] * p->width + i]);
}

void llama_reference_rms_norm(double *out, const struct llama_rms_norm *p, int tokens)
{
	for (int t = 0; t < tokens; t++) {
		const float *x = p->x + (size_t)t * p->width;
		double squares = 0;
		for (int i = 0; i < p->width; i++)
			squares += (double)x[i] * x[i];
		for (int i = 0; i < p->width; i++)
			out[(size_t)t * p->width + i] =
			    x[i] * (double)bf16_value(p->weight[i]) / sqrt(squares / p->width + (double)p->epsilon);
	}
}

/* kv is [2][blocks][kv_heads][block_size][head_dim] */
static size_t cache_index(const int32_t *table, int blocks, int kv_heads, int block_size, int head_dim, int plane,
			  int position, int kv_head)
{
	size_t block = (size_t)table[position / block_size];
	return (((((size_t)plane * blocks + block) * kv_heads + kv_head) * block_size) + position % block_size) *
	       head_dim;
}

static void rotate(double *out, const float *in, const struct llama_rope_store *p, int position)
{
	for (int i = 0; i < p->head_dim / 2; i++) {
		const int a = p->interleaved ? 2 * i : i, b = p->interleaved ? 2 * i + 1 : i + p->head_dim / 2;
		const double angle = position * pow((double)p->theta, -2.0 * i / p->head_dim);
		out[a] = in[a] * cos(angle) - in[b] * sin(angle);
		out[b] = in[a] * sin(angle) + in[b] * cos(angle);
	}
}

void llama_reference_rope_store(double *qkv, double *kv, const struct llama_rope_store *p, int tokens)
{
	const int width = (p->heads + 2 * p->kv_heads) * p->head_dim;
	for (int t = 0; t < tokens; t++) {
		const int32_t *table = p->block_table + (size_t)p->slots[t] * p->max_blocks;
		const float *q = p->qkv + (size_t)t * width, *k = q + p->heads * p->head_dim;
		const float *v = k + p->kv_heads * p->head_dim;
		const int position = p->positions[t];
		for (int h = 0; h < p->heads; h++)
			rotate(qkv + (size_t)t * width + h * p->head_dim, q + h * p->head_dim, p, position);
		for (int h = 0; h < p->kv_heads; h++) {
			double *key =
			    kv + cache_index(table, p->blocks, p->kv_heads, p->block_size, p->head_dim, 0, position, h);
			double *value =
			    kv + cache_index(table, p->blocks, p->kv_heads, p->block_size, p->head_dim, 1, position, h);
			rotate(key, k + h * p->head_dim, p, position);
			for (int i = 0; i < p->head_dim; i++)
				value[i] = v[h * p->head_dim + i];
		}
	}
}

/* q . key[position] / sqrt(head_dim) */
static double attention_score(const struct llama_attention *p, const float *q, const int32_t *table, int position,
			      int kv_head)
{
	const float *key =
	    p->kv + cache_index(table, p->blocks, p->kv_heads, p->block_size, p->head_dim, 0, position, kv_head);
	double sum = 0;
	for (int i = 0; i < p->head_dim; i++)
		sum += (double)q[i] * key[i];
	return sum / sqrt(p->head_dim);
}

static void attend(double *out, const struct llama_attention *p, const float *q, const int32_t *table, int length,
		   int kv_head)
{
	double largest = -INFINITY, total = 0;
	for (int i = 0; i < length; i++)
		largest = fmax(largest, attention_score(p, q, table, i, kv_head));
	for (int i = 0; i < p->head_dim; i++)
		out[i] = 0;
	for (int i = 0; i < length; i++) {
		const double weight = exp(attention_score(p, q, table, i, kv_head) - largest);
		const float *value =
		    p->kv + cache_index(table, p->blocks, p->kv_heads, p->block_size, p->head_dim, 1, i, kv_head);
		total += weight;
		for (int j = 0; j < p->head_dim; j++)
			out[j] += weight * value[j];
	}
	for (int i = 0; i < p->head_dim; i++)
		out[i] /= total;
}

void llama_reference_attention(double *out, const struct llama_attention *p, int tokens)
{
	for (int t = 0; t < tokens; t++)
		for (int h = 0; h < p->heads; h++)
			attend(out + ((size_t)t * p->heads + h) * p->head_dim, p,
			       p->qkv + ((size_t)t * (p->heads + 2 * p->kv_heads) + h) * p->head_dim,
			       p->block_table + (size_t)p->slots[t] * p->max_blocks, p->positions[t] + 1,
			       h / (p->heads / p->kv_heads));
}

void llama_reference_silu_mul(double *out, const struct llama_silu_mul *p, int tokens)
{
	for (size_t i = 0; i < (size_t)tokens * p->width; i++)
		out[i] = p->gate[i] / (1.0 + exp(-(double)p->gate[i])) * p->up[i];
}

void llama_reference_add(double *x, const struct llama_add *p)
{
	for (int32_t i = 0; i < p->n; i++)
		x[i] = (double)p->x[i] + p->y[i];
}

double llama_reference_score(const struct llama_sample *p, int row, int index)
{
	const double logit = p->logits[(size_t)row * p->vocabulary + index];
	const uint64_t word = random_word(p->seed, (uint64_t)(uint32_t)p->positions[row], (uint64_t)index);
	if (p->temperature == 0)
		return logit;
	return logit / p->temperature - log(-log((double)random_unit(word)));
}

int llama_reference_sample(const struct llama_sample *p, int row)
{
	int best = 0;
	for (int i = 1; i < p->vocabulary; i++)
		if (llama_reference_score(p, row, i) > llama_reference_score(p, row, best))
			best = i;
	return best;
}

double llama_reference_fill(const struct llama_fill *p, uint64_t i)
{
	return (double)p->offset + (double)p->scale * random_signed(random_word(p->seed, 0, i));
}

void llama_reference_gather(double *out, const struct llama_gather *p, int tokens)
{
	for (int t = 0; t < tokens; t++)
		for (int i = 0; i < p->width; i++)
			out[(size_t)t * p->width + i] = p->x[(size_t)p->rows[t] * p->width + i];
}

/* The part's first row of a, or of b. */
static const llama_bf16 *part_of_slot(const struct llama_lora_group *p, int slot, int part, bool b)
{
	const int columns[3] = {p->columns0, p->columns1, p->columns2};
	const llama_bf16 *at = (b ? p->b : p->a) + slot * p->slot_elements;
	for (int i = 0; i < part; i++)
		at += (size_t)p->max_rank * (size_t)(b ? columns[i] : p->inputs);
	return at;
}

void llama_reference_lora_sums(double *sums, const struct llama_lora_group *p, const double *x, int tokens, int slice)
{
	for (int t = 0; t < tokens; t++)
		for (int part = 0; part < p->parts && p->adapters[t] >= 0; part++) {
			const llama_bf16 *a = part_of_slot(p, p->adapters[t], part, false);
			const int rank = p->entries[p->adapters[t] * p->slot_entries + part].rank;
			for (int i = 0; i < rank * p->slices; i++) {
				const int r = i % rank, number = i / rank;
				double *sum = &sums[((t * p->slices + number) * p->parts + part) * p->max_rank + r];
				*sum = 0;
				for (int k = number * slice; k < p->inputs && k < (number + 1) * slice; k++)
					*sum += x[(size_t)t * p->inputs + k] * bf16_value(a[(size_t)r * p->inputs + k]);
			}
		}
}

void llama_reference_lora_add(double *out, const struct llama_lora_group *p, int token, int part)
{
	const int columns[3] = {p->columns0, p->columns1, p->columns2}, slot = p->adapters[token];
	if (slot < 0)
		return;
	const struct llama_lora_entry *entry = &p->entries[slot * p->slot_entries + part];
	const llama_bf16 *b = part_of_slot(p, slot, part, true);
	for (int r = 0; r < entry->rank; r++) {
		double sum = 0;
		for (int number = 0; number < p->slices; number++)
			sum += p->sums[((token * p->slices + number) * p->parts + part) * p->max_rank + r];
		for (int i = 0; i < columns[part]; i++)
			out[i] += entry->scale * sum * bf16_value(b[(size_t)i * entry->rank + r]);
	}
}

void llama_reference_gemm(double *y, const float *x, const llama_bf16 *w, const float *before, int rows, int n, int k)
{
	for (int row = 0; row < rows; row++)
		for (int column = 0; column < n; column++) {
			double sum = before ? before[(size_t)row * n + column] : 0;
			for (int i = 0; i < k; i++)
				sum += (double)x[(size_t)row * k + i] * bf16_value(w[(size_t)column * k + i]);
			y[(size_t)row * n + column] = sum;
		}
}
