/* SPDX-License-Identifier: Apache-2.0 */
/* Which matrices of an adapter are where in its file: all of them are checked before memory is taken for their values. */
#ifndef LLAMA_ADAPTER_PLAN_H
#define LLAMA_ADAPTER_PLAN_H

#include <stdbool.h>

#include "base/file.h"
#include "models/llama/adapters/adapter.h"
#include "models/llama/gguf.h"

enum lora_side { LORA_A, LORA_B, LORA_SIDES };

/* How a kind of file names a matrix: before, the layer's number, ".", the projection's part, the side's ending. */
struct lora_naming {
	const char *before;
	const char *parts[LORA_PROJECTIONS];
	const char *sides[LORA_SIDES];
	bool interleaved; /* rows of query and key lie in the order for interleaved rotation */
};

/* A matrix in the file. */
struct lora_matrix {
	bool there;
	enum gguf_tensor_type type;
	uint64_t rows, columns;
	uint64_t offset;
};

struct lora_pair {
	struct lora_matrix sides[LORA_SIDES];
	float scale; /* set by whoever reads the file's metadata */
};

struct lora_plan {
	const struct llama_shape *shape;
	const struct lora_naming *naming;
	int max_rank;
	struct lora_pair *pairs; /* [layers][LORA_PROJECTIONS] */
};

enum md_status lora_plan_init(struct lora_plan *plan, const struct llama_shape *shape, int max_rank,
			      const struct lora_naming *naming, struct md_error *err);
void lora_plan_finish(struct lora_plan *plan); /* also of a zeroed one */

/* NULL: the adapter leaves this projection as it is. lora_plan_check was successful. */
struct lora_pair *lora_plan_pair(const struct lora_plan *plan, int layer, enum lora_projection projection);
/* The rank of a pair of which both matrices are there. */
int lora_pair_rank(const struct lora_pair *pair);
/* alpha / rank, or alpha / sqrt(rank); refuses one that is 0 or no number as a float. */
enum md_status lora_pair_set_scale(struct lora_pair *pair, double alpha, bool root, struct md_error *err);

/* Adds a matrix: its name, its shape and its rank must fit the model, and it must be new. */
enum md_status lora_plan_add(struct lora_plan *plan, const struct gguf_string *name, const struct lora_matrix *matrix,
			     struct md_error *err);
/* Every matrix has its other half, and there is at least one pair. */
enum md_status lora_plan_check(const struct lora_plan *plan, struct md_error *err);
/* Reads the values of a plan that was checked and whose scales are set. */
enum md_status lora_plan_read(const struct lora_plan *plan, const struct md_file_source *source, size_t max_bytes,
			      struct lora_adapter *adapter, struct md_error *err);

#define LORA_SHOWN_BYTES 128
/* A name of a file for a message: printable, and cut off if it is long. */
const char *lora_show_name(char out[LORA_SHOWN_BYTES], const char *name, size_t size);

#endif
