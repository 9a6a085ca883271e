/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the driver how a kernel's parameters lie, and copies them. */
#include "swap/kernel_words.h"

#include <stdlib.h>
#include <string.h>

#include "swap/layer.h"
#include "swap/reach.h"

#define COUNT_MOST 8192u

typedef CUresult (*info_function)(const void *kernel, size_t index, size_t *offset, size_t *size);

static CUresult info_of_function(const void *kernel, size_t index, size_t *offset, size_t *size)
{
	return md_swap_real.cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}

static CUresult info_of_kernel(const void *kernel, size_t index, size_t *offset, size_t *size)
{
	return md_swap_real.cuKernelGetParamInfo((CUkernel)kernel, index, offset, size);
}

/* A launch takes both kinds of handle. NULL: the driver knows neither. */
static info_function info_for(CUfunction function)
{
	const char *name;
	if (md_swap_real.cuFuncGetName(&name, function) == CUDA_SUCCESS)
		return info_of_function;
	return md_swap_real.cuKernelGetName(&name, (CUkernel)function) == CUDA_SUCCESS ? info_of_kernel : NULL;
}

static bool copy_each(CUfunction function, void *const *params, uint8_t *bytes, size_t *size)
{
	info_function info = info_for(function);
	size_t offset, one;
	if (!info)
		return false;
	for (size_t i = 0; i < COUNT_MOST; i++) {
		CUresult result = info(function, i, &offset, &one);
		if (result == CUDA_ERROR_INVALID_VALUE)
			return true; /* there are no more */
		if (result != CUDA_SUCCESS || !params || !params[i] || one > MD_SWAP_PARAMETERS_MOST ||
		    offset > MD_SWAP_PARAMETERS_MOST - one)
			return false;
		if (offset > *size)
			memset(bytes + *size, 0, offset - *size);
		memcpy(bytes + offset, params[i], one);
		*size = offset + one > *size ? offset + one : *size;
	}
	return false;
}

static bool copy_extra(void *const *extra, uint8_t *bytes, size_t *size)
{
	const void *from = NULL;
	size_t given = 0;
	bool sized = false;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			from = extra[1];
		} else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
			given = *(const size_t *)extra[1];
			sized = true;
		} else {
			return false;
		}
	}
	if (!from || !sized || given > MD_SWAP_PARAMETERS_MOST)
		return false;
	memcpy(bytes, from, given);
	*size = given;
	return true;
}

bool md_swap_kernel_parameters(CUfunction function, void *const *params, void *const *extra,
			       uint8_t bytes[MD_SWAP_PARAMETERS_MOST], size_t *size)
{
	*size = 0;
	bool copied = !params && extra ? copy_extra(extra, bytes, size) : copy_each(function, params, bytes, size);
	size_t rest = *size % 8 ? 8 - *size % 8 : 0;
	if (!copied || *size + rest > MD_SWAP_PARAMETERS_MOST)
		return false;
	memset(bytes + *size, 0, rest);
	*size += rest;
	return true;
}

void md_swap_kernel_wish(CUfunction function, void **params, void **extra)
{
	uint8_t bytes[MD_SWAP_PARAMETERS_MOST];
	size_t size;
	md_swap_wish_function(function);
	if (md_swap_kernel_parameters(function, params, extra, bytes, &size))
		md_swap_wish_bytes(bytes, size);
	else
		md_swap_wish_all("the driver does not tell its parameters, or they are too large");
}
