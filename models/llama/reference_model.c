/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/reference_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "models/llama/random.h"

struct forward {
	const struct reference_model *reference;
	const struct llama_shape *shape;
	const struct lora_part *parts; /* of the layer; NULL: none */
	enum reference_way way;
	size_t count; /* tokens */
	/* [count][...] */
	double *x, *normed, *q, *k, *v, *attention, *gate, *up;
	double *row;    /* of a weight */
	double *scores; /* [count] */
};

enum md_status reference_model_init(struct reference_model *reference, const struct llama_model *model,
				    struct md_error *err)
{
	*reference = (struct reference_model){.model = model, .weights = malloc(model->bytes)};
	if (!reference->weights)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu bytes of weights", model->bytes);
	return md_cuda_call(err, cuMemcpyDtoH_v2, reference->weights, model->base, model->bytes);
}

void reference_model_finish(struct reference_model *reference)
{
	free(reference->weights);
	memset(reference, 0, sizeof(*reference));
}

static const uint16_t *weights_at(const struct forward *f, CUdeviceptr address)
{
	return f->reference->weights + (address - f->reference->model->base) / 2;
}

/* ---- products ---- */

static double dot_half(const uint16_t *w, const double *x, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += (double)bf16_value(w[i]) * x[i];
	return sum;
}

/* A row of the weight; merged, with the adapter's part in it. */
static void read_row(const struct forward *f, const uint16_t *w, const struct lora_part *part, size_t row,
		     size_t inputs)
{
	for (size_t i = 0; i < inputs; i++)
		f->row[i] = bf16_value(w[row * inputs + i]);
	if (!part || !part->a || f->way != REFERENCE_MERGED)
		return;
	for (int r = 0; r < part->rank; r++) {
		double factor = (double)part->scale * bf16_value(part->b[row * (size_t)part->rank + (size_t)r]);
		for (size_t i = 0; i < inputs; i++)
			f->row[i] += factor * bf16_value(part->a[(size_t)r * inputs + i]);
	}
}

static void add_unmerged(const struct forward *f, double *out, const double *in, const struct lora_part *part,
			 size_t outputs, size_t inputs)
{
	double hidden[LORA_MAX_RANK];
	for (size_t t = 0; t < f->count; t++) {
		for (int r = 0; r < part->rank; r++)
			hidden[r] = dot_half(part->a + (size_t)r * inputs, in + t * inputs, inputs);
		for (size_t i = 0; i < outputs; i++)
			out[t * outputs + i] += (double)part->scale *
						dot_half(part->b + i * (size_t)part->rank, hidden, (size_t)part->rank);
	}
}

/* out += w * in */
static void add_product(const struct forward *f, double *out, const double *in, const uint16_t *w,
			const struct lora_part *part, size_t outputs, size_t inputs)
{
	for (size_t row = 0; row < outputs; row++) {
		read_row(f, w, part, row, inputs);
		for (size_t t = 0; t < f->count; t++) {
			double sum = 0;
			for (size_t i = 0; i < inputs; i++)
				sum += f->row[i] * in[t * inputs + i];
			out[t * outputs + row] += sum;
		}
	}
	if (part && part->a && f->way == REFERENCE_UNMERGED)
		add_unmerged(f, out, in, part, outputs, inputs);
}

static void project(const struct forward *f, double *out, const double *in, const uint16_t *w,
		    enum lora_projection projection)
{
	size_t outputs = (size_t)lora_outputs(f->shape, projection), inputs = (size_t)lora_inputs(f->shape, projection);
	const struct lora_part *part = f->parts ? &f->parts[projection] : NULL;
	if (projection != LORA_OUTPUT && projection != LORA_DOWN)
		memset(out, 0, f->count * outputs * sizeof(*out));
	add_product(f, out, in, w, part, outputs, inputs);
}

/* ---- the layer ---- */

static void norm(const struct forward *f, double *out, CUdeviceptr weight)
{
	size_t width = (size_t)f->shape->hidden_size;
	const uint16_t *w = weights_at(f, weight);
	for (size_t t = 0; t < f->count; t++) {
		const double *x = f->x + t * width;
		double squares = 0;
		for (size_t i = 0; i < width; i++)
			squares += x[i] * x[i];
		for (size_t i = 0; i < width; i++)
			out[t * width + i] =
			    x[i] * (double)bf16_value(w[i]) / sqrt(squares / (double)width + f->shape->rms_epsilon);
	}
}

static void rotate(const struct forward *f, double *heads, size_t count)
{
	size_t width = (size_t)f->shape->head_dim, half = width / 2;
	for (size_t t = 0; t < f->count; t++)
		for (size_t h = 0; h < count; h++) {
			double *head = heads + (t * count + h) * width;
			for (size_t i = 0; i < half; i++) {
				size_t a = f->shape->rope_interleaved ? 2 * i : i,
				       b = f->shape->rope_interleaved ? 2 * i + 1 : i + half;
				double angle = (double)t * pow(f->shape->rope_theta, -2.0 * (double)i / (double)width);
				double low = head[a], high = head[b];
				head[a] = low * cos(angle) - high * sin(angle);
				head[b] = low * sin(angle) + high * cos(angle);
			}
		}
}

/* Of one token's head over the tokens up to it. */
static void attend(const struct forward *f, size_t token, size_t head)
{
	size_t width = (size_t)f->shape->head_dim, heads = (size_t)f->shape->heads, kv = (size_t)f->shape->kv_heads;
	size_t own = head / (heads / kv);
	const double *q = f->q + (token * heads + head) * width;
	double *out = f->attention + (token * heads + head) * width, largest = -INFINITY, total = 0;
	for (size_t t = 0; t <= token; t++) {
		f->scores[t] = 0;
		for (size_t i = 0; i < width; i++)
			f->scores[t] += q[i] * f->k[(t * kv + own) * width + i] / sqrt((double)width);
		largest = fmax(largest, f->scores[t]);
	}
	memset(out, 0, width * sizeof(*out));
	for (size_t t = 0; t <= token; t++) {
		double weight = exp(f->scores[t] - largest);
		total += weight;
		for (size_t i = 0; i < width; i++)
			out[i] += weight * f->v[(t * kv + own) * width + i];
	}
	for (size_t i = 0; i < width; i++)
		out[i] /= total;
}

static void run_layer(const struct forward *f, const struct llama_layer *layer)
{
	const struct llama_shape *s = f->shape;
	size_t hidden = (size_t)s->hidden_size, query = (size_t)s->heads * (size_t)s->head_dim,
	       key = (size_t)s->kv_heads * (size_t)s->head_dim, inner = (size_t)s->intermediate_size;
	const uint16_t *qkv = weights_at(f, layer->qkv);
	norm(f, f->normed, layer->attention_norm);
	project(f, f->q, f->normed, qkv, LORA_QUERY);
	project(f, f->k, f->normed, qkv + query * hidden, LORA_KEY);
	project(f, f->v, f->normed, qkv + (query + key) * hidden, LORA_VALUE);
	rotate(f, f->q, (size_t)s->heads);
	rotate(f, f->k, (size_t)s->kv_heads);
	for (size_t t = 0; t < f->count; t++)
		for (size_t h = 0; h < (size_t)s->heads; h++)
			attend(f, t, h);
	project(f, f->x, f->attention, weights_at(f, layer->output), LORA_OUTPUT);
	norm(f, f->normed, layer->feed_norm);
	project(f, f->gate, f->normed, weights_at(f, layer->gate), LORA_GATE);
	project(f, f->up, f->normed, weights_at(f, layer->up), LORA_UP);
	for (size_t i = 0; i < f->count * inner; i++)
		f->gate[i] = f->gate[i] / (1 + exp(-f->gate[i])) * f->up[i];
	project(f, f->x, f->gate, weights_at(f, layer->down), LORA_DOWN);
}

/* ---- the model ---- */

static void run(struct forward *f, const int32_t *tokens, const struct lora_adapter *adapter, double *logits)
{
	const struct llama_model *model = f->reference->model;
	size_t hidden = (size_t)f->shape->hidden_size, vocabulary = (size_t)f->shape->vocabulary;
	const uint16_t *table = weights_at(f, model->embedding);
	for (size_t t = 0; t < f->count; t++)
		for (size_t i = 0; i < hidden; i++)
			f->x[t * hidden + i] = bf16_value(table[(size_t)tokens[t] * hidden + i]);
	for (int layer = 0; layer < f->shape->layers; layer++) {
		f->parts = adapter ? adapter->parts + (size_t)layer * LORA_PROJECTIONS : NULL;
		run_layer(f, &model->layers[layer]);
	}
	norm(f, f->normed, model->final_norm);
	memset(logits, 0, f->count * vocabulary * sizeof(*logits));
	add_product(f, logits, f->normed, weights_at(f, model->head), NULL, vocabulary, hidden);
}

/* logits[count][vocabulary] of a sequence's tokens, from its first one on. adapter NULL: none. */
static enum md_status compute_logits(const struct reference_model *reference, const int32_t *tokens, size_t count,
				     const struct lora_adapter *adapter, enum reference_way way, double *logits,
				     struct md_error *err)
{
	const struct llama_shape *s = &reference->model->shape;
	size_t hidden = (size_t)s->hidden_size, query = (size_t)s->heads * (size_t)s->head_dim,
	       key = (size_t)s->kv_heads * (size_t)s->head_dim, inner = (size_t)s->intermediate_size;
	struct forward f = {.reference = reference, .shape = s, .way = way, .count = count};
	double **const rooms[] = {&f.x, &f.normed, &f.q, &f.k, &f.v, &f.attention, &f.gate, &f.up, &f.row, &f.scores};
	const size_t sizes[] = {
	    count * hidden, count * hidden, count * query,          count * key, count * key, count * query,
	    count * inner,  count * inner,  query + hidden + inner, count};
	size_t all = 0, at = 0;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		all += sizes[i];
	MD_AUTO_FREE double *room = malloc(all * sizeof(*room));
	if (!room)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the reference of %zu tokens", count);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); at += sizes[i++])
		*rooms[i] = room + at;
	run(&f, tokens, adapter, logits);
	return MD_OK;
}

/* ---- comparing ---- */

static double difference(const float *got, const double *want, size_t n)
{
	double squares = 0, largest = 0;
	for (size_t i = 0; i < n; i++) {
		squares += want[i] * want[i];
		/* what is no number is never near */
		largest = isfinite(got[i]) ? fmax(largest, fabs(got[i] - want[i])) : INFINITY;
	}
	return largest / sqrt(squares / (double)n);
}

static enum md_status compare(const struct reference_model *reference, const struct llama_generation *generation,
			      size_t number, const struct lora_adapter *adapters, double *logits, int32_t *tokens,
			      struct reference_result *result, struct md_error *err)
{
	const struct llama_sequence *s = &generation->sequences[number];
	size_t vocabulary = (size_t)reference->model->shape.vocabulary, made = s->output.count,
	       count = s->prompt.count + made - (made > 0);
	memcpy(tokens, s->prompt.tokens, s->prompt.count * sizeof(*tokens));
	for (size_t i = s->prompt.count; i < count; i++)
		tokens[i] = s->output.tokens[i - s->prompt.count];
	for (enum reference_way way = REFERENCE_UNMERGED; way < REFERENCE_WAYS; way++) {
		MD_FORWARD(compute_logits(reference, tokens, count, s->adapter < 0 ? NULL : &adapters[s->adapter], way,
					  logits, err));
		for (size_t i = 0; i < made; i++) {
			size_t kept = number * (size_t)generation->max_tokens + i;
			result->largest[way] =
			    fmax(result->largest[way],
				 difference(generation->kept + kept * vocabulary,
					    logits + (s->prompt.count - 1 + i) * vocabulary, vocabulary));
		}
	}
	result->rows += made;
	return MD_OK;
}

enum md_status reference_model_compare(const struct reference_model *reference,
				       const struct llama_generation *generation, const struct lora_adapter *adapters,
				       struct reference_result *result, struct md_error *err)
{
	size_t longest = 0, vocabulary = (size_t)reference->model->shape.vocabulary;
	for (size_t i = 0; i < generation->count; i++) {
		size_t count = generation->sequences[i].prompt.count + generation->sequences[i].output.count;
		longest = count > longest ? count : longest;
	}
	MD_AUTO_FREE double *logits = malloc((longest * vocabulary + 1) * sizeof(*logits));
	MD_AUTO_FREE int32_t *tokens = malloc((longest + 1) * sizeof(*tokens));
	if (!logits || !tokens)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the reference of %zu tokens", longest);
	*result = (struct reference_result){0};
	for (size_t i = 0; i < generation->count; i++)
		MD_FORWARD(compare(reference, generation, i, adapters, logits, tokens, result, err));
	return MD_OK;
}
