/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuIpcGetMemHandle and related calls for memory for which the driver has no such handle. The handle names a descriptor
 * of this process. The process that opens the handle also has this library, and takes a copy of that descriptor.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "swap/arrival.h"
#include "swap/contexts.h"
#include "swap/layer.h"
#include "swap/memory_own.h"
#include "swap/reach.h"
#include "swap/sharing.h"

#define HANDLE_MAGIC UINT64_C(0x4d44535741504950)

struct token {
	uint64_t magic, bytes, offset; /* bytes: of the physical memory; offset: of the allocation in it */
	uint64_t device, inode;        /* of the descriptor, so that another one with its number is not taken for it */
	uint64_t number;               /* among all that the process shared */
	int32_t process, fd, gpu;
};
_Static_assert(sizeof(struct token) <= sizeof(CUipcMemHandle), "a token must fit a handle");

/* Handles that this process has opened: the same memory is mapped once. */
struct opened {
	struct token token;
	CUdeviceptr address; /* of the physical memory */
	CUmemGenericAllocationHandle handle;
	unsigned count;
	struct opened *next;
};
static struct opened *all_opened MD_GUARDED_BY(md_swap_memory_lock);

/* ---- giving ---- */

static CUresult share(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	static uint64_t last_number;
	int fd = -1;
	if (physical->shared_fd)
		return CUDA_SUCCESS;
	if (physical->lease || !(physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = md_swap_real.cuMemExportToShareableHandle(&fd, physical->handle,
								    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result != CUDA_SUCCESS)
		return result;
	physical->shared_fd = fd + 1;
	physical->shared_as = ++last_number;
	physical->resident = "shared with other processes (cuIpcGetMemHandle)";
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* so that a process of this user may copy descriptors */
	return CUDA_SUCCESS;
}

static CUresult give(const struct md_swap_allocation *found, CUipcMemHandle *handle) MD_REQUIRES(md_swap_memory_lock)
{
	struct stat status;
	struct md_swap_physical *physical = found->mapping->physical;
	CUresult result = share(physical);
	if (result != CUDA_SUCCESS)
		return result;
	if (fstat(physical->shared_fd - 1, &status))
		return CUDA_ERROR_OPERATING_SYSTEM;
	struct token token = {.magic = HANDLE_MAGIC,
			      .bytes = physical->bytes,
			      .offset = found->address - found->mapping->address,
			      .device = status.st_dev,
			      .inode = status.st_ino,
			      .number = physical->shared_as,
			      .process = (int32_t)getpid(),
			      .fd = physical->shared_fd - 1,
			      .gpu = physical->prop.location.id};
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &token, sizeof(token));
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct md_swap_allocation found;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	md_swap_arrival_settle_all();
	pthread_mutex_lock(&md_swap_memory_lock);
	bool ours = md_swap_own_find(dptr, &found);
	if (ours && pHandle)
		result = give(&found, pHandle);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return md_swap_sharing_note(ours ? result : md_swap_real.cuIpcGetMemHandle(pHandle, dptr), "cuIpcGetMemHandle");
}

/* ---- taking ---- */

/* A copy of the other process's descriptor, or -1. */
static int take_descriptor(const struct token *token)
{
	struct stat status;
	int process = (int)syscall(SYS_pidfd_open, token->process, 0);
	if (process < 0)
		return -1;
	int fd = (int)syscall(SYS_pidfd_getfd, process, token->fd, 0);
	close(process);
	if (fd >= 0 && (fstat(fd, &status) || status.st_dev != token->device || status.st_ino != token->inode)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static CUresult map_opened(struct opened *opened)
{
	CUdevice device;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint64_t bytes = opened->token.bytes;
	CUresult result = md_swap_real.cuCtxGetDevice(&device);
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemAddressReserve(&opened->address, bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	access.location.id = device;
	result = md_swap_real.cuMemMap(opened->address, bytes, 0, opened->handle, 0);
	if (result == CUDA_SUCCESS) {
		result = md_swap_real.cuMemSetAccess(opened->address, bytes, &access, 1);
		if (result != CUDA_SUCCESS)
			md_swap_real.cuMemUnmap(opened->address, bytes);
	}
	if (result != CUDA_SUCCESS)
		md_swap_real.cuMemAddressFree(opened->address, bytes);
	return result;
}

static CUresult import(struct opened *opened)
{
	int fd = take_descriptor(&opened->token);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = md_swap_real.cuMemImportFromShareableHandle(&opened->handle, (void *)(intptr_t)fd,
								      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(fd);
	if (result != CUDA_SUCCESS)
		return result;
	result = map_opened(opened);
	if (result != CUDA_SUCCESS)
		md_swap_real.cuMemRelease(opened->handle);
	return result;
}

static struct opened *find_opened(const struct token *token) MD_REQUIRES(md_swap_memory_lock)
{
	struct opened *at = all_opened;
	while (at && (at->token.process != token->process || at->token.number != token->number))
		at = at->next;
	return at;
}

static CUresult open_token(const struct token *token, CUdeviceptr *address) MD_REQUIRES(md_swap_memory_lock)
{
	struct opened *opened = find_opened(token);
	if (!opened) {
		opened = calloc(1, sizeof(*opened));
		if (!opened)
			return CUDA_ERROR_OUT_OF_MEMORY;
		opened->token = *token;
		CUresult result = import(opened);
		if (result != CUDA_SUCCESS) {
			free(opened);
			return result;
		}
		opened->next = all_opened;
		all_opened = opened;
	}
	opened->count++;
	*address = opened->address + token->offset;
	return CUDA_SUCCESS;
}

/* The size of memory that the driver opens is not known. */
static CUresult open_drivers(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned flags)
{
	CUresult result = md_swap_arrival_settle_all();
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuIpcOpenMemHandle_v2(pdptr, handle, flags);
	return md_swap_sharing_note(result, "cuIpcOpenMemHandle");
}

CUresult md_swap_own_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct token token;
	memcpy(&token, &handle, sizeof(token));
	if (token.magic != HANDLE_MAGIC)
		return open_drivers(pdptr, handle, Flags);
	if (!pdptr || !token.bytes || token.bytes % MD_SWAP_SLAB_BYTES || token.offset >= token.bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (token.process == (int32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT; /* as the driver has it */
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = open_token(&token, pdptr);
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (result == CUDA_SUCCESS)
		md_swap_reach_came(*pdptr - token.offset, token.bytes);
	return md_swap_sharing_note(result, "cuIpcOpenMemHandle");
}

/* ---- closing ---- */

static CUresult close_opened(struct opened **link) MD_REQUIRES(md_swap_memory_lock)
{
	struct opened *opened = *link;
	CUresult result = CUDA_SUCCESS;
	if (--opened->count)
		return CUDA_SUCCESS;
	result = md_swap_real.cuMemUnmap(opened->address, opened->token.bytes);
	md_swap_real.cuMemAddressFree(opened->address, opened->token.bytes);
	md_swap_real.cuMemRelease(opened->handle);
	*link = opened->next;
	free(opened);
	return result;
}

CUresult md_swap_own_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&md_swap_memory_lock);
	bool any = all_opened != NULL;
	pthread_mutex_unlock(&md_swap_memory_lock);
	CUresult idle =
	    any ? md_swap_real.cuCtxSynchronize() : CUDA_SUCCESS; /* not under the lock: it waits for the device */
	pthread_mutex_lock(&md_swap_memory_lock);
	for (struct opened **link = &all_opened; *link; link = &(*link)->next)
		if (dptr - (*link)->address < (*link)->token.bytes) {
			result = close_opened(link);
			break;
		}
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return md_swap_real.cuIpcCloseMemHandle(dptr);
	return result == CUDA_SUCCESS ? idle : result;
}
