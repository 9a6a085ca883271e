/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what an adapter's file says that it has against the model, then reads it, matrix by matrix. */
#include "models/llama/adapters/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/plain.h"

#define PIECE_ELEMENTS (64u << 10) /* read and converted at once; a multiple of the quantized block of 32 */
#define NAME_BYTES 96

/* ---- names -------------------------------------------------------------------------------------------------------- */

const char *lora_show_name(char out[LORA_SHOWN_BYTES], const char *name, size_t size)
{
	char copy[LORA_SHOWN_BYTES];
	size_t kept = size < sizeof(copy) ? size : sizeof(copy) - 1;
	memcpy(copy, name, kept);
	copy[kept] = 0;
	md_plain_copy(out, LORA_SHOWN_BYTES, copy);
	return out;
}

static void name_matrix(const struct lora_plan *plan, int layer, enum lora_projection projection, enum lora_side side,
			char out[NAME_BYTES])
{
	const struct lora_naming *naming = plan->naming;
	snprintf(out, NAME_BYTES, "%s%d.%s%s", naming->before, layer, naming->parts[projection], naming->sides[side]);
}

static bool skip_text(struct gguf_string *rest, const char *text)
{
	size_t size = strlen(text);
	if (rest->size < size || memcmp(rest->data, text, size) != 0)
		return false;
	rest->data += size;
	rest->size -= size;
	return true;
}

/* Nine digits at most, none of them a 0 in front of others. */
static bool skip_number(struct gguf_string *rest, int *number)
{
	size_t digits = 0;
	*number = 0;
	for (; digits < rest->size && digits < 9 && rest->data[digits] >= '0' && rest->data[digits] <= '9'; digits++)
		*number = *number * 10 + (rest->data[digits] - '0');
	if (!digits || (digits > 1 && rest->data[0] == '0'))
		return false;
	rest->data += digits;
	rest->size -= digits;
	return true;
}

static bool parse_ending(const struct lora_naming *naming, struct gguf_string rest, enum lora_projection *projection,
			 enum lora_side *side)
{
	for (int p = 0; p < LORA_PROJECTIONS; p++) {
		struct gguf_string ending = rest;
		if (!skip_text(&ending, naming->parts[p]))
			continue;
		for (int s = 0; s < LORA_SIDES; s++) {
			if (ending.size != strlen(naming->sides[s]) || !skip_text(&ending, naming->sides[s]))
				continue;
			*projection = (enum lora_projection)p;
			*side = (enum lora_side)s;
			return true;
		}
	}
	return false;
}

static enum md_status parse_name(const struct lora_plan *plan, const struct gguf_string *name, int *layer,
				 enum lora_projection *projection, enum lora_side *side, struct md_error *err)
{
	const struct lora_naming *naming = plan->naming;
	struct gguf_string rest = *name;
	char shown[LORA_SHOWN_BYTES], first[NAME_BYTES];
	if (!skip_text(&rest, naming->before) || !skip_number(&rest, layer) || !skip_text(&rest, ".") ||
	    !parse_ending(naming, rest, projection, side)) {
		name_matrix(plan, 0, LORA_QUERY, LORA_A, first);
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED,
		    "tensor \"%s\" is none that this engine can apply: it takes low-rank changes of the seven "
		    "projections of a layer, with names like %s",
		    lora_show_name(shown, name->data, name->size), first);
	}
	if (*layer >= plan->shape->layers)
		return md_error_set(err, MD_ERR_MISMATCH, "tensor \"%s\": the model has layers 0 to %d",
				    lora_show_name(shown, name->data, name->size), plan->shape->layers - 1);
	return MD_OK;
}

/* ---- the plan ----------------------------------------------------------------------------------------------------- */

enum md_status lora_plan_init(struct lora_plan *plan, const struct llama_shape *shape, int max_rank,
			      const struct lora_naming *naming, struct md_error *err)
{
	*plan = (struct lora_plan){.shape = shape, .naming = naming, .max_rank = max_rank};
	if (max_rank < 1 || max_rank > LORA_MAX_RANK)
		return md_error_set(err, MD_ERR_INVALID, "the highest rank of an adapter is %d, it must be 1 to %d",
				    max_rank, LORA_MAX_RANK);
	plan->pairs = calloc((size_t)shape->layers * LORA_PROJECTIONS, sizeof(*plan->pairs));
	return plan->pairs ? MD_OK
			   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an adapter's list of %d layers",
					  shape->layers);
}

void lora_plan_finish(struct lora_plan *plan)
{
	free(plan->pairs);
	memset(plan, 0, sizeof(*plan));
}

struct lora_pair *lora_plan_pair(const struct lora_plan *plan, int layer, enum lora_projection projection)
{
	struct lora_pair *pair = &plan->pairs[(size_t)layer * LORA_PROJECTIONS + projection];
	return pair->sides[LORA_A].there ? pair : NULL;
}

int lora_pair_rank(const struct lora_pair *pair)
{
	return (int)pair->sides[LORA_A].rows;
}

enum md_status lora_pair_set_scale(struct lora_pair *pair, double alpha, bool root, struct md_error *err)
{
	double rank = lora_pair_rank(pair);
	float scale = (float)(alpha / (root ? sqrt(rank) : rank));
	if (!isnormal(scale))
		return md_error_set(err, MD_ERR_CORRUPT, "a scale of %g, from alpha %g and rank %g: no usable number",
				    (double)scale, alpha, rank);
	pair->scale = scale;
	return MD_OK;
}

static enum md_status check_rank(const struct lora_plan *plan, uint64_t rank, const char *name, struct md_error *err)
{
	if (rank >= 1 && rank <= (uint64_t)plan->max_rank)
		return MD_OK;
	return md_error_set(err, rank ? MD_ERR_TOO_LARGE : MD_ERR_CORRUPT,
			    "tensor \"%s\" has rank %llu, this engine takes 1 to %d", name, (unsigned long long)rank,
			    plan->max_rank);
}

enum md_status lora_plan_add(struct lora_plan *plan, const struct gguf_string *name, const struct lora_matrix *matrix,
			     struct md_error *err)
{
	int layer = 0;
	enum lora_projection projection = LORA_QUERY;
	enum lora_side side = LORA_A;
	char shown[LORA_SHOWN_BYTES];
	MD_FORWARD(parse_name(plan, name, &layer, &projection, &side, err));
	lora_show_name(shown, name->data, name->size);
	struct lora_matrix *sides = plan->pairs[(size_t)layer * LORA_PROJECTIONS + projection].sides;
	if (sides[side].there)
		return md_error_set(err, MD_ERR_CORRUPT, "tensor \"%s\" is there twice", shown);
	uint64_t rank = side == LORA_A ? matrix->rows : matrix->columns;
	uint64_t other = side == LORA_A ? matrix->columns : matrix->rows;
	uint64_t wanted =
	    (uint64_t)(side == LORA_A ? lora_inputs(plan->shape, projection) : lora_outputs(plan->shape, projection));
	MD_FORWARD(check_rank(plan, rank, shown, err));
	if (other != wanted)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "tensor \"%s\" has %llu x %llu elements; with the model's %llu %s and rank %llu they would "
		    "be %llu x %llu",
		    shown, (unsigned long long)matrix->rows, (unsigned long long)matrix->columns,
		    (unsigned long long)wanted, side == LORA_A ? "inputs" : "outputs", (unsigned long long)rank,
		    (unsigned long long)(side == LORA_A ? rank : wanted),
		    (unsigned long long)(side == LORA_A ? wanted : rank));
	sides[side] = *matrix;
	sides[side].there = true;
	if (sides[LORA_A].there && sides[LORA_B].there && sides[LORA_A].rows != sides[LORA_B].columns)
		return md_error_set(err, MD_ERR_CORRUPT, "tensor \"%s\" has rank %llu, its other half %llu", shown,
				    (unsigned long long)rank,
				    (unsigned long long)(side == LORA_A ? sides[LORA_B].columns : sides[LORA_A].rows));
	return MD_OK;
}

enum md_status lora_plan_check(const struct lora_plan *plan, struct md_error *err)
{
	size_t pairs = 0;
	for (int i = 0; i < plan->shape->layers * LORA_PROJECTIONS; i++) {
		const struct lora_matrix *sides = plan->pairs[i].sides;
		char name[NAME_BYTES];
		pairs += sides[LORA_A].there;
		if (sides[LORA_A].there == sides[LORA_B].there)
			continue;
		name_matrix(plan, i / LORA_PROJECTIONS, (enum lora_projection)(i % LORA_PROJECTIONS),
			    sides[LORA_A].there ? LORA_B : LORA_A, name);
		return md_error_set(err, MD_ERR_CORRUPT, "tensor \"%s\" is missing, and its other half is there", name);
	}
	return pairs ? MD_OK : md_error_set(err, MD_ERR_CORRUPT, "no tensor: an adapter that changes nothing");
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

struct reading {
	const struct lora_plan *plan;
	const struct md_file_source *source;
	struct lora_adapter *adapter;
	uint16_t *next; /* of the memory for weights */
	uint16_t *head; /* a copy of the rows of one head, while they are put in order */
};

/* Bytes of all matrices as bfloat16. Each has at most LORA_MAX_RANK * 262144 elements, so the sum can't overflow. */
static size_t count_bytes(const struct lora_plan *plan)
{
	size_t elements = 0;
	for (int i = 0; i < plan->shape->layers * LORA_PROJECTIONS; i++)
		for (int side = 0; side < LORA_SIDES; side++) {
			const struct lora_matrix *matrix = &plan->pairs[i].sides[side];
			elements += matrix->there ? (size_t)(matrix->rows * matrix->columns) : 0;
		}
	return elements * sizeof(uint16_t);
}

/* Whatever is finite in the file and none as bfloat16 would make all later tokens NaN. */
static enum md_status check_finite(const uint16_t *values, uint64_t count, uint64_t first, struct md_error *err)
{
	for (uint64_t i = 0; i < count; i++)
		if ((values[i] & 0x7f80) == 0x7f80)
			return md_error_set(err, MD_ERR_CORRUPT, "element %llu is %s as bfloat16",
					    (unsigned long long)(first + i),
					    values[i] & 0x7f ? "not a number" : "infinite");
	return MD_OK;
}

static enum md_status read_piece(const struct reading *reading, const struct lora_matrix *matrix, uint64_t first,
				 uint64_t count, uint16_t *out, struct md_error *err)
{
	const struct gguf_tensor place = {.type = matrix->type, .offset = matrix->offset};
	const void *data;
	MD_AUTO_FREE void *owned = NULL;
	uint64_t offset;
	size_t bytes;
	gguf_locate(&place, first, count, &offset, &bytes);
	MD_FORWARD(md_file_source_take(reading->source, offset, bytes, &data, &owned, err));
	gguf_to_bf16(matrix->type, data, count, out);
	return check_finite(out, count, first, err);
}

static enum md_status read_matrix(struct reading *reading, int layer, enum lora_projection projection,
				  enum lora_side side, struct md_error *err)
{
	const struct lora_matrix *matrix = &lora_plan_pair(reading->plan, layer, projection)->sides[side];
	uint64_t elements = matrix->rows * matrix->columns;
	char name[NAME_BYTES];
	for (uint64_t first = 0; first < elements; first += PIECE_ELEMENTS) {
		uint64_t count = elements - first < PIECE_ELEMENTS ? elements - first : PIECE_ELEMENTS;
		if (read_piece(reading, matrix, first, count, reading->next + first, err) != MD_OK) {
			name_matrix(reading->plan, layer, projection, side, name);
			return md_error_prefix(err, "tensor \"%s\"", name);
		}
	}
	reading->next += elements;
	return MD_OK;
}

/*
 * The rows of one head rotate in pairs. A file from PEFT has row i beside row i + head_dim / 2, one from llama.cpp has
 * them as rows 2i and 2i + 1, and so have the models: each matrix is brought into the order of this one.
 */
static void reorder_head(const struct reading *reading, uint16_t *rows, int rank)
{
	int dim = reading->plan->shape->head_dim;
	size_t bytes = (size_t)rank * sizeof(*rows);
	memcpy(reading->head, rows, (size_t)dim * bytes);
	for (int row = 0; row < dim; row++) {
		int apart = row / 2 + row % 2 * (dim / 2);
		int to = reading->plan->naming->interleaved ? apart : row, from = row + apart - to;
		memcpy(rows + (size_t)to * (size_t)rank, reading->head + (size_t)from * (size_t)rank, bytes);
	}
}

static void reorder(const struct reading *reading, enum lora_projection projection, uint16_t *b, int rank)
{
	const struct llama_shape *shape = reading->plan->shape;
	int heads = projection == LORA_QUERY ? shape->heads : projection == LORA_KEY ? shape->kv_heads : 0;
	if (reading->plan->naming->interleaved == (shape->rope_interleaved != 0))
		return;
	for (int head = 0; head < heads; head++)
		reorder_head(reading, b + (size_t)head * (size_t)shape->head_dim * (size_t)rank, rank);
}

static enum md_status read_part(struct reading *reading, int layer, enum lora_projection projection,
				struct md_error *err)
{
	const struct lora_pair *pair = lora_plan_pair(reading->plan, layer, projection);
	if (!pair)
		return MD_OK;
	struct lora_adapter *adapter = reading->adapter;
	int rank = lora_pair_rank(pair);
	struct lora_part part = {.a = reading->next, .rank = rank, .scale = pair->scale};
	MD_FORWARD(read_matrix(reading, layer, projection, LORA_A, err));
	uint16_t *b = reading->next;
	MD_FORWARD(read_matrix(reading, layer, projection, LORA_B, err));
	reorder(reading, projection, b, rank);
	part.b = b;
	adapter->parts[(size_t)layer * LORA_PROJECTIONS + projection] = part;
	adapter->rank = rank > adapter->rank ? rank : adapter->rank;
	return MD_OK;
}

static enum md_status read_parts(struct reading *reading, struct md_error *err)
{
	for (int layer = 0; layer < reading->plan->shape->layers; layer++)
		for (int projection = 0; projection < LORA_PROJECTIONS; projection++)
			MD_FORWARD(read_part(reading, layer, (enum lora_projection)projection, err));
	return MD_OK;
}

enum md_status lora_plan_read(const struct lora_plan *plan, const struct md_file_source *source, size_t max_bytes,
			      struct lora_adapter *adapter, struct md_error *err)
{
	const struct llama_shape *shape = plan->shape;
	size_t parts = (size_t)shape->layers * LORA_PROJECTIONS, weights = count_bytes(plan);
	struct lora_adapter made = {.layers = shape->layers, .bytes = weights + parts * sizeof(*made.parts)};
	if (made.bytes > max_bytes)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "the adapter takes %zu bytes of memory, at most %zu are allowed", made.bytes,
				    max_bytes);
	MD_AUTO_FREE uint16_t *head = malloc((size_t)shape->head_dim * LORA_MAX_RANK * sizeof(*head));
	made.parts = calloc(parts, sizeof(*made.parts));
	made.weights = malloc(weights ? weights : 1);
	struct reading reading = {plan, source, &made, made.weights, head};
	enum md_status status =
	    head && made.parts && made.weights
		? read_parts(&reading, err)
		: md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an adapter of %zu bytes", made.bytes);
	if (status != MD_OK)
		lora_adapter_finish(&made);
	else
		*adapter = made;
	return status;
}
