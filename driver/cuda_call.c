/* SPDX-License-Identifier: Apache-2.0 */
/* Turns results of the CUDA driver into statuses with a message. */
#include "driver/cuda_driver.h"

const char *md_cuda_error_name(CUresult result)
{
	const char *name = NULL;
	if (result == CUDA_SUCCESS)
		return "CUDA_SUCCESS";
	/* The driver's own strings, because it knows results that are newer than our headers. */
	if (md_cuda.cuGetErrorName && md_cuda.cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
		return name;
	return "CUDA_ERROR_UNKNOWN";
}

static const char *error_text(CUresult result)
{
	const char *text = NULL;
	if (md_cuda.cuGetErrorString && md_cuda.cuGetErrorString(result, &text) == CUDA_SUCCESS && text)
		return text;
	return "no description";
}

enum md_status md_cuda_status(CUresult result, const char *entry, struct md_error *err)
{
	enum md_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? MD_ERR_DRIVER_MEMORY : MD_ERR_DRIVER;
	if (result == CUDA_SUCCESS)
		return MD_OK;
	return md_error_set(err, status, "%s: %s (%d, %s)", entry, md_cuda_error_name(result), (int)result,
			    error_text(result));
}

enum md_status(md_cuda_absent)(const char *entry, struct md_error *err)
{
	struct md_error why;
	if (md_cuda_load(&why) != MD_OK)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "%s: %s", entry, why.message);
	return md_error_set(err, MD_ERR_UNSUPPORTED, "%s: this CUDA driver does not have it", entry);
}

/* Returns the node that a stream capture added last: the only dependency of the next node. */
CUgraphNode md_cuda_captured_node(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *dependencies = NULL;
	const CUgraphEdgeData *data;
	size_t count = 0;
	CUresult result;
	if (md_cuda.cuStreamGetCaptureInfo_v3)
		result = md_cuda.cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &dependencies, &data, &count);
	else
		result = md_cuda.cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &dependencies, &count);
	if (result || status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1)
		return NULL;
	return dependencies[0];
}

const void *md_cuda_extra_block(void **extra, size_t *size)
{
	const void *block = NULL;
	*size = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			block = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*size = *(const size_t *)extra[1];
	}
	return block;
}
