/* SPDX-License-Identifier: Apache-2.0 */
/* A model's weights: bfloat16 matrices in one device allocation, from a GGUF file or made from a seed on the device. */
#ifndef LLAMA_MODEL_H
#define LLAMA_MODEL_H

#include <stdint.h>

#include "models/llama/device.h"
#include "models/llama/loader.h"
#include "models/llama/recipe.h"

struct llama_layer {
	CUdeviceptr attention_norm, qkv, output, feed_norm, gate, up, down;
};

struct llama_model {
	struct llama_shape shape;
	const struct llama_device *device;
	CUdeviceptr base;
	size_t bytes; /* of the whole allocation, rounded up to the device's granularity */
	CUmemGenericAllocationHandle handle;
	bool virtual_memory; /* reserved, created and mapped; else cuMemAlloc */
	bool shared;         /* with other processes */
	bool filled;         /* by one of them: there is nothing to load */
	CUdeviceptr embedding, final_norm, head;
	struct llama_layer *layers;
};

/*
 * Lays the weights out and takes device memory for them. device must outlive the model. share: the name under which
 * other processes may have the same weights, and weights, which tells these from others; NULL: they are this process's own.
 */
struct llama_share {
	const char *name, *weights;
};
enum md_status llama_model_create(struct llama_model *model, const struct llama_device *device,
				  const struct llama_shape *shape, const struct llama_share *share,
				  struct md_error *err);
void llama_model_finish(struct llama_model *model); /* also on a zeroed one */

/* gguf is of a file, which threads (at least 1) read. */
enum md_status llama_model_load(struct llama_model *model, const struct gguf *gguf, unsigned threads,
				struct loader_report *report, struct md_error *err);
enum md_status llama_model_fill(struct llama_model *model, uint64_t seed, struct md_error *err);

/* Maps the weights read-only: from here on a kernel that writes there fails. Nothing without
 * virtual memory management. Shared weights are given to the processes that wait for them. */
enum md_status llama_model_seal(struct llama_model *model, struct md_error *err);

#endif
