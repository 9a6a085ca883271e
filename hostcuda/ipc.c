/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other processes: legacy IPC handles, and pointers into exported pools; both are files of the exporting
 * process.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostcuda/address_space.h"
#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/memory.h"

#define TOKEN_MAGIC UINT64_C(0x6563656970637468)

/* The contents of a handle of 64 bytes. */
struct token {
	uint64_t magic, inode, size, extent;
	int64_t process;
	int32_t fd, device;
	bool of_pool;
};
_Static_assert(sizeof(struct token) <= CU_IPC_HANDLE_SIZE, "a token must fit a handle");

/* Moves anonymous memory into a file, at the same addresses. No work is running. */
static CUresult back_by_file(struct hc_memory *memory) HC_STATE_HELD
{
	if (memory->shared_fd)
		return CUDA_SUCCESS;
	size_t bytes = memory->charged;
	int fd = memfd_create("hostcuda-shared", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ssize_t written = ftruncate(fd, (off_t)bytes) ? -1 : pwrite(fd, (void *)memory->address, bytes, 0);
	if (written != (ssize_t)bytes ||
	    mmap((void *)memory->address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->shared_fd = fd;
	return CUDA_SUCCESS;
}

static CUresult export_memory(uint64_t address, bool of_pool, struct token *token)
{
	HC_TRY(hc_context_drain(hc_context_current()));
	HC_STATE_GUARD();
	struct hc_memory *memory = hc_memory_at(address);
	struct stat status;
	if (!memory || memory->kind != HC_MEMORY_DEVICE || memory->address != address ||
	    of_pool != (memory->pool && memory->pool->exportable))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(back_by_file(memory));
	if (fstat(memory->shared_fd, &status))
		return CUDA_ERROR_OPERATING_SYSTEM;
	*token = (struct token){.magic = TOKEN_MAGIC,
				.inode = status.st_ino,
				.size = memory->size,
				.extent = memory->charged,
				.process = getpid(),
				.fd = memory->shared_fd,
				.device = memory->device->ordinal,
				.of_pool = of_pool};
	return CUDA_SUCCESS;
}

static int open_token(const struct token *token)
{
	struct stat status;
	char path[64];
	snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)token->process, token->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &status) || status.st_ino != token->inode || (uint64_t)status.st_size != token->extent) {
		close(fd);
		return -1;
	}
	return fd;
}

static CUresult import_memory(const struct token *token, struct hc_pool *pool, CUdeviceptr *address)
{
	HC_STATE_GUARD();
	int fd = token->magic == TOKEN_MAGIC && token->of_pool == (pool != NULL) ? open_token(token) : -1;
	struct hc_memory *memory = fd >= 0 ? calloc(1, sizeof(*memory)) : NULL;
	if (!memory) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = (struct hc_memory){.kind = HC_MEMORY_IMPORTED,
				     .size = token->size,
				     .extent = (token->extent + HC_GRANULARITY - 1) / HC_GRANULARITY * HC_GRANULARITY,
				     .context = hc_context_home(),
				     .device = hc_context_current()->device,
				     .pool = pool};
	CUresult result = hc_space_take(&memory->address, memory->extent, HC_GRANULARITY, 0);
	if (result == CUDA_SUCCESS) {
		void *got =
		    mmap((void *)memory->address, token->extent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
		result = got == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : hc_memory_add(memory);
		if (result != CUDA_SUCCESS)
			hc_space_give(memory->address, memory->extent);
	}
	close(fd);
	if (result != CUDA_SUCCESS)
		free(memory);
	else
		*address = memory->address;
	return result;
}

/* ---- legacy IPC ---- */

CUresult hc_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct token token;
	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(export_memory(dptr, false, &token));
	memset(pHandle, 0, sizeof(*pHandle));
	memcpy(pHandle, &token, sizeof(token));
	return CUDA_SUCCESS;
}

CUresult hc_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct token token;
	memcpy(&token, &handle, sizeof(token));
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (token.process == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	HC_STATE_GUARD();
	struct hc_memory *open_already = hc_memory_opened(token.inode, hc_context_home());
	if (open_already) {
		open_already->opened.times++;
		*pdptr = open_already->address;
		return CUDA_SUCCESS;
	}
	HC_TRY(import_memory(&token, NULL, pdptr));
	struct hc_memory *memory = hc_memory_at(*pdptr);
	memory->opened.inode = token.inode;
	memory->opened.times = 1;
	return CUDA_SUCCESS;
}

CUresult hc_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult sticky = hc_context_drain(hc_context_current());
	HC_STATE_GUARD();
	struct hc_memory *memory = hc_memory_at(dptr);
	if (!memory || memory->kind != HC_MEMORY_IMPORTED || memory->pool || memory->address != dptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (!--memory->opened.times)
		hc_memory_release(memory);
	return sticky;
}

/* ---- pools ---- */

static struct hc_pool *pool_of(CUmemoryPool pool)
{
	return hc_handle_kind(pool) == HC_POOL ? (struct hc_pool *)pool : NULL;
}

/* The file only proves that its holder was given the pool; each pointer is exported by itself. */
CUresult hc_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
					     unsigned long long flags)
{
	struct hc_pool *exported = pool_of(pool);
	if (!handle_out || !exported || !exported->exportable || flags ||
	    handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = memfd_create("hostcuda-pool", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)handle_out = fd;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
					       CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct stat status;
	if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    fstat((int)(intptr_t)handle, &status) || !S_ISREG(status.st_mode))
		return CUDA_ERROR_INVALID_VALUE;
	struct hc_pool *made = calloc(1, sizeof(*made));
	if (!made || !hc_handle_add(made, HC_POOL)) {
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	made->device = hc_context_current()->device->ordinal;
	made->imported = true;
	*pool_out = (CUmemoryPool)made;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct token token;
	if (!shareData_out)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(export_memory(ptr, true, &token));
	memset(shareData_out, 0, sizeof(*shareData_out));
	memcpy(shareData_out, &token, sizeof(token));
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
	struct hc_pool *imported = pool_of(pool);
	struct token token;
	if (!ptr_out || !shareData || !imported || !imported->imported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&token, shareData, sizeof(token));
	return import_memory(&token, imported, ptr_out);
}
