/* SPDX-License-Identifier: Apache-2.0 */
/* PEFT's adapter_config.json: rank and alpha of each module; whatever else changes what is computed is refused by name. */
#ifndef LLAMA_PEFT_CONFIG_H
#define LLAMA_PEFT_CONFIG_H

#include <stdbool.h>

#include "models/llama/adapters/adapter_json.h"

struct peft_config {
	json_t *json;
	int rank;
	double alpha;
	bool root_scale;                            /* use_rslora: alpha / sqrt(rank) */
	const json_t *rank_pattern, *alpha_pattern; /* NULL: none */
	const json_t *targets;                      /* a list of texts; or a text, a regular expression */
	const json_t *exclude;                      /* the same, or NULL */
	const json_t *layers;                       /* a list of numbers, a number, or NULL: all */
};

/* What the configuration says of one module. */
struct peft_module {
	int rank;
	double alpha;
};

enum md_status peft_config_parse(struct peft_config *config, const char *text, size_t size, struct md_error *err);
void peft_config_finish(struct peft_config *config); /* also of a zeroed one */

/* module: "model.layers.N.self_attn.q_proj" of layer N. Refuses one that PEFT would not change. */
enum md_status peft_config_find(const struct peft_config *config, const char *module, int layer,
				struct peft_module *out, struct md_error *err);

#endif
