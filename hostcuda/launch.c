/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches: checked, arguments copied, then queued or captured. */
#include <stdlib.h>
#include <string.h>

#include "hostcuda/device_state.h"
#include "hostcuda/executor.h"
#include "hostcuda/graph.h"
#include "hostcuda/graph_node.h"
#include "hostcuda/launch.h"
#include "hostcuda/module.h"
#include "hostcuda/module_image.h"
#include "hostcuda/queue.h"
#include "hostcuda/stream.h"
#include "hostcuda/stream_capture.h"

static CUresult check_shape(const unsigned grid[3], const unsigned block[3])
{
	for (int i = 0; i < 3; i++)
		if (!grid[i] || !block[i])
			return CUDA_ERROR_INVALID_VALUE;
	if (grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535 || block[0] > 1024 || block[1] > 1024 ||
	    block[2] > 64)
		return CUDA_ERROR_INVALID_VALUE;
	return (uint64_t)block[0] * block[1] * block[2] <= 1024 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* `extra` is a list: BUFFER_POINTER p, BUFFER_SIZE &n, END. */
static CUresult read_extra(void **extra, const void **buffer, size_t *size)
{
	*buffer = NULL;
	*size = 0;
	for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*size = extra[i + 1] ? *(size_t *)extra[i + 1] : 0;
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	return *buffer || !*size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static size_t params_end(const struct hc_symbol *symbol)
{
	size_t end = 0;
	for (uint32_t i = 0; i < symbol->param_count; i++)
		if (symbol->params[i].offset + symbol->params[i].size > end)
			end = symbol->params[i].offset + symbol->params[i].size;
	return end;
}

/* As drivers do for NCCL's kernels, which declare one struct of 4,096 bytes and are given what they use of it. */
static bool ends_in_last_struct(const struct hc_symbol *symbol, size_t size)
{
	const struct hostcuda_param *last = symbol->param_count ? &symbol->params[symbol->param_count - 1] : NULL;
	return last && last->size > sizeof(uint64_t) && last->offset < size;
}

static CUresult copy_arguments(const struct hc_symbol *symbol, void **kernel_params, void **extra, uint8_t *params,
			       size_t *given)
{
	*given = symbol->params_size;
	if (kernel_params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra) {
		const void *buffer;
		size_t size;
		HC_TRY(read_extra(extra, &buffer, &size));
		if (size < params_end(symbol) && !ends_in_last_struct(symbol, size))
			return CUDA_ERROR_INVALID_VALUE;
		memset(params, 0xa5,
		       symbol->params_size); /* nobody knows what a kernel finds where nothing was given */
		*given = size < *given ? size : *given;
		if (*given)
			memcpy(params, buffer, *given);
		return CUDA_SUCCESS;
	}
	if (!kernel_params && symbol->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < symbol->param_count; i++) {
		if (!kernel_params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(params + symbol->params[i].offset, kernel_params[i], symbol->params[i].size);
	}
	return CUDA_SUCCESS;
}

CUresult hc_launch_make(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared,
			void **kernel_params, void **extra, struct hc_launch *launch, struct hc_function **resolved)
{
	struct hc_function *function;
	HC_TRY(hc_function_resolve(handle, &function));
	HC_TRY(check_shape(grid, block));
	if (shared > (unsigned)function->attributes.max_dynamic)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_image_load(function->image));
	uint8_t *params = calloc(1, function->symbol->params_size + 1u);
	if (!params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t given;
	CUresult result = copy_arguments(function->symbol, kernel_params, extra, params, &given);
	if (result != CUDA_SUCCESS) {
		free(params);
		return result;
	}
	*launch = (struct hc_launch){.image = hc_image_ref(function->image),
				     .symbol = function->symbol,
				     .shared = shared,
				     .params = params,
				     .given = given};
	memcpy(launch->grid, grid, sizeof(launch->grid));
	memcpy(launch->block, block, sizeof(launch->block));
	*resolved = function;
	return CUDA_SUCCESS;
}

void hc_launch_finish(struct hc_launch *launch)
{
	hc_image_unref(launch->image);
	free(launch->params);
	*launch = (struct hc_launch){0};
}

static CUresult run_launch(struct hc_op *op)
{
	hc_executor_lone_op();
	return hc_execute_launch(&op->launch, op->context);
}

static void release_launch(struct hc_op *op)
{
	hc_launch_finish(&op->launch);
}

/* Attributes that a captured launch passes on to its node; the others shape edges or events. */
static bool is_node_attribute(CUlaunchAttributeID id)
{
	return id != CU_LAUNCH_ATTRIBUTE_IGNORE && id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
	       id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT && id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT &&
	       id != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
}

static CUresult capture_launch(struct hc_stream *stream, const CUlaunchConfig *config,
			       const CUDA_KERNEL_NODE_PARAMS *params) HC_STATE_HELD
{
	struct hc_node *node;
	bool programmatic = false;
	HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_KERNEL, &node));
	CUresult result = hc_node_set_kernel(node, params);
	const CUlaunchAttribute priority = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = stream->priority};
	if (result == CUDA_SUCCESS && stream->priority && !hc_node_set_attribute(node, &priority))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; result == CUDA_SUCCESS && i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			programmatic = attribute->value.programmaticStreamSerializationAllowed != 0;
		if (is_node_attribute(attribute->id) && !hc_node_set_attribute(node, attribute))
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		hc_node_free(node);
		return result;
	}
	return hc_capture_append(stream, node, programmatic);
}

CUresult hc_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	struct hc_stream *stream;
	CUresult result;
	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(config->hStream, &stream));
	HC_STATE_GUARD();
	const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
	const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
	if (hc_capture_active(stream, &result)) {
		HC_TRY(result);
		CUDA_KERNEL_NODE_PARAMS params = {.func = f,
						  .gridDimX = grid[0],
						  .gridDimY = grid[1],
						  .gridDimZ = grid[2],
						  .blockDimX = block[0],
						  .blockDimY = block[1],
						  .blockDimZ = block[2],
						  .sharedMemBytes = config->sharedMemBytes,
						  .kernelParams = kernelParams,
						  .extra = extra};
		return capture_launch(stream, config, &params);
	}
	struct hc_launch launch;
	struct hc_function *function;
	HC_TRY(hc_launch_make(f, grid, block, config->sharedMemBytes, kernelParams, extra, &launch, &function));
	struct hc_op *op = hc_op_new(run_launch, release_launch);
	if (!op) {
		hc_launch_finish(&launch);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->launch = launch;
	return hc_op_submit(stream, op);
}

CUresult hc_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
			   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
			   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	CUlaunchConfig config = {.gridDimX = gridDimX,
				 .gridDimY = gridDimY,
				 .gridDimZ = gridDimZ,
				 .blockDimX = blockDimX,
				 .blockDimY = blockDimY,
				 .blockDimZ = blockDimZ,
				 .sharedMemBytes = sharedMemBytes,
				 .hStream = hStream};
	return hc_cuLaunchKernelEx(&config, f, kernelParams, extra);
}

CUresult hc_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
				      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
				      unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
	CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
	CUlaunchConfig config = {.gridDimX = gridDimX,
				 .gridDimY = gridDimY,
				 .gridDimZ = gridDimZ,
				 .blockDimX = blockDimX,
				 .blockDimY = blockDimY,
				 .blockDimZ = blockDimZ,
				 .sharedMemBytes = sharedMemBytes,
				 .hStream = hStream,
				 .attrs = &cooperative,
				 .numAttrs = 1};
	return hc_cuLaunchKernelEx(&config, f, kernelParams, NULL);
}
