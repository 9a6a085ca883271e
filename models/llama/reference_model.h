/* SPDX-License-Identifier: Apache-2.0 */
/* The whole model in double precision on the host, without or with an adapter: what the engine's logits should be. */
#ifndef LLAMA_REFERENCE_MODEL_H
#define LLAMA_REFERENCE_MODEL_H

#include "models/llama/adapters/adapter.h"
#include "models/llama/generate.h"
#include "models/llama/model.h"

struct reference_model {
	const struct llama_model *model;
	uint16_t *weights; /* a copy of the device's */
};

/* How an adapter's y += scale * b (a x) is computed: as it stands, or as (w + scale * b a) x. */
enum reference_way { REFERENCE_UNMERGED, REFERENCE_MERGED, REFERENCE_WAYS };

enum md_status reference_model_init(struct reference_model *reference, const struct llama_model *model,
				    struct md_error *err);
void reference_model_finish(struct reference_model *reference); /* also on a zeroed one */

/* The largest difference of a logit that was kept, relative to the root mean square of its row. */
struct reference_result {
	size_t rows;
	double largest[REFERENCE_WAYS];
};
/* adapters: by slot. generation->kept is there, and its sequences have been generated. */
enum md_status reference_model_compare(const struct reference_model *reference,
				       const struct llama_generation *generation, const struct lora_adapter *adapters,
				       struct reference_result *result, struct md_error *err);

#endif
