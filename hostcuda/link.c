/* SPDX-License-Identifier: Apache-2.0 */
/* PTX that carries an image, and the linker, which takes one input; a real driver compiles and links here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/link.h"

/*
 * Nothing is compiled here, so a text brings the image along, in words that are PTX all the same:
 *
 *	.version 8.0
 *	.target sm_90
 *	.address_size 64
 *	.global .align 1 .b8 hostcuda_image[3] = {127, 69, 76};
 */
#define LINK_FILE_MAX (1ull << 30) /* bytes */
#define CARRIER ".b8 hostcuda_image["

bool hc_ptx_is(const void *data)
{
	const char *text = data;
	for (text += strspn(text, " \t\r\n"); !strncmp(text, "//", 2); text += strspn(text, " \t\r\n"))
		text += strcspn(text, "\n");
	return !strncmp(text, ".version", 8);
}

CUresult hc_ptx_image(const char *text, uint8_t **image, size_t *size)
{
	const char *at = strstr(text, CARRIER);
	char *end;
	if (!at)
		return CUDA_ERROR_INVALID_PTX;
	size_t count = strtoul(at + strlen(CARRIER), &end, 10);
	at = strchr(end, '{');
	if (!at || count < 64 || count > strlen(at))
		return CUDA_ERROR_INVALID_PTX;
	MD_AUTO_FREE uint8_t *bytes = malloc(count);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++) {
		unsigned long value = strtoul(at + 1, &end, 10);
		if (end == at + 1 || value > 255 || (*end != ',' && *end != '}'))
			return CUDA_ERROR_INVALID_PTX;
		bytes[i] = (uint8_t)value;
		at = end;
	}
	*image = md_steal_ptr(&bytes);
	*size = count;
	return CUDA_SUCCESS;
}

/* ---- the linker ---- */

struct link {
	uint8_t *image; /* the image that the one input is or carries; owned */
	size_t size;
};

static struct link *link_of(CUlinkState state)
{
	return hc_handle_kind(state) == HC_LINK ? (struct link *)state : NULL;
}

CUresult hc_cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	(void)numOptions, (void)options, (void)optionValues;
	struct link *link = stateOut ? calloc(1, sizeof(*link)) : NULL;
	if (!stateOut)
		return CUDA_ERROR_INVALID_VALUE;
	if (!link || !hc_handle_add(link, HC_LINK)) {
		free(link);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*stateOut = (CUlinkState)link;
	return CUDA_SUCCESS;
}

static CUresult take_input(struct link *link, CUjitInputType type, const void *data, size_t size)
{
	if (link->image)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (type == CU_JIT_INPUT_PTX)
		return hc_ptx_image(data, &link->image, &link->size);
	if (type != CU_JIT_INPUT_CUBIN)
		return CUDA_ERROR_NOT_SUPPORTED;
	link->image = malloc(size);
	if (!link->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(link->image, data, size);
	link->size = size;
	return CUDA_SUCCESS;
}

CUresult hc_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
			     unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	(void)name, (void)numOptions, (void)options, (void)optionValues;
	struct link *link = link_of(state);
	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	return data && size ? take_input(link, type, data, size) : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
			     CUjit_option *options, void **optionValues)
{
	(void)numOptions, (void)options, (void)optionValues;
	struct link *link = link_of(state);
	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	struct md_file_bytes file;
	if (!path || md_file_read(path, LINK_FILE_MAX, &file, NULL) != MD_OK)
		return CUDA_ERROR_FILE_NOT_FOUND;
	CUresult result = file.size ? take_input(link, type, file.data, file.size) : CUDA_ERROR_FILE_NOT_FOUND;
	md_file_release(&file);
	return result;
}

/* As in a real driver, the linker owns the image, and destroys it with itself. */
CUresult hc_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	struct link *link = link_of(state);
	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!cubinOut)
		return CUDA_ERROR_INVALID_VALUE;
	if (!link->image)
		return CUDA_ERROR_INVALID_IMAGE;
	*cubinOut = link->image;
	if (sizeOut)
		*sizeOut = link->size;
	return CUDA_SUCCESS;
}

CUresult hc_cuLinkDestroy(CUlinkState state)
{
	struct link *link = link_of(state);
	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	hc_handle_remove(link);
	free(link->image);
	free(link);
	return CUDA_SUCCESS;
}
