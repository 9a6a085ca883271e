/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of copies and sets. Inside of a stream capture they make nodes;
 * outside they are counted, and the memory that they touch is noted.
 */
#include "capture/hooks/hook.h"
#include "capture/record/filled.h"
#include "capture/record/given.h"
#include "capture/record/launched.h"
#include "capture/record/touched.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

/* A host function counts inside of a stream capture alone, for its place in the order. */
static void enqueued(CUstream stream)
{
	if (md_hook_in_capture(stream))
		md_capture_node_note(stream, NULL, 0);
}

/*
 * A copy or a set outside of stream captures. from, to: device addresses, 0 for host memory; but `from` is the host
 * address of a copy to the device.
 */
static void moved(const char *call, enum md_transfer_kind kind, CUdeviceptr from, CUdeviceptr to, uint64_t bytes)
{
	md_capture_transfer_count(kind, bytes);
	if (from && kind != MD_TRANSFER_TO_DEVICE)
		md_capture_touched(call, from, bytes, false);
	if (to)
		md_capture_touched(call, to, bytes, true);
	if (to && (kind == MD_TRANSFER_TO_DEVICE || kind == MD_TRANSFER_SET))
		md_capture_filled((const void *)(uintptr_t)from, to, bytes);
}

static void transferred(const char *call, CUstream stream, enum md_transfer_kind kind, CUdeviceptr from, CUdeviceptr to,
                        uint64_t bytes)
{
	if (md_hook_in_capture(stream))
		md_capture_node_note(stream, NULL, 0);
	else
		moved(call, kind, from, to, bytes);
}

static void copied_2d(const char *call, CUstream stream, const CUDA_MEMCPY2D *copy)
{
	if (!md_hook_in_capture(stream))
		md_capture_touched_copy2d(call, copy);
	transferred(call, stream, MD_TRANSFER_ANY, 0, 0, copy->WidthInBytes * copy->Height);
}

static void copied_3d(const char *call, CUstream stream, const CUDA_MEMCPY3D *copy)
{
	if (!md_hook_in_capture(stream))
		md_capture_touched_copy3d(call, copy);
	transferred(call, stream, MD_TRANSFER_ANY, 0, 0, copy->WidthInBytes * copy->Height * copy->Depth);
}

static void copied_peer(const char *call, CUstream stream, const CUDA_MEMCPY3D_PEER *copy)
{
	if (!md_hook_in_capture(stream))
		md_capture_touched_peer(call, copy);
	transferred(call, stream, MD_TRANSFER_ANY, 0, 0, copy->WidthInBytes * copy->Height * copy->Depth);
}

#define TRANSFER(symbol, which, kind, from, to, bytes, params, args)                                                   \
	CUresult CUDAAPI symbol params                                                                                 \
	MD_HOOK(symbol, args, MD_NOTHING, transferred(#symbol, which(hStream), MD_TRANSFER_##kind, from, to, bytes))
#define COPIES_AND_SETS(suffix, which)                                                                                 \
	TRANSFER(cuMemcpyAsync##suffix, which, ANY, src, dst, n,                                                       \
	         (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream hStream), (dst, src, n, hStream))               \
	TRANSFER(cuMemcpyHtoDAsync_v2##suffix, which, TO_DEVICE, (uintptr_t)src, dst, n,                               \
	         (CUdeviceptr dst, const void *src, size_t n, CUstream hStream), (dst, src, n, hStream))               \
	TRANSFER(cuMemcpyDtoHAsync_v2##suffix, which, TO_HOST, src, 0, n,                                              \
	         (void *dst, CUdeviceptr src, size_t n, CUstream hStream), (dst, src, n, hStream))                     \
	TRANSFER(cuMemcpyDtoDAsync_v2##suffix, which, WITHIN_DEVICE, src, dst, n,                                      \
	         (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream hStream), (dst, src, n, hStream))               \
	CUresult CUDAAPI cuMemcpy2DAsync_v2##suffix(const CUDA_MEMCPY2D *copy, CUstream hStream)                       \
	MD_HOOK(cuMemcpy2DAsync_v2##suffix, (copy, hStream), MD_NOTHING,                                               \
	        copied_2d("cuMemcpy2DAsync_v2" #suffix, which(hStream), copy))                                         \
	CUresult CUDAAPI cuMemcpy3DAsync_v2##suffix(const CUDA_MEMCPY3D *copy, CUstream hStream)                       \
	MD_HOOK(cuMemcpy3DAsync_v2##suffix, (copy, hStream), MD_NOTHING,                                               \
	        copied_3d("cuMemcpy3DAsync_v2" #suffix, which(hStream), copy))                                         \
	TRANSFER(cuMemsetD8Async##suffix, which, SET, 0, dst, n,                                                       \
	         (CUdeviceptr dst, unsigned char v, size_t n, CUstream hStream), (dst, v, n, hStream))                 \
	TRANSFER(cuMemsetD16Async##suffix, which, SET, 0, dst, 2 * n,                                                  \
	         (CUdeviceptr dst, unsigned short v, size_t n, CUstream hStream), (dst, v, n, hStream))                \
	TRANSFER(cuMemsetD32Async##suffix, which, SET, 0, dst, 4 * n,                                                  \
	         (CUdeviceptr dst, unsigned int v, size_t n, CUstream hStream), (dst, v, n, hStream))                  \
	TRANSFER(cuMemsetD2D8Async##suffix, which, SET, 0, dst, h ? (h - 1) * pitch + w : 0,                           \
	         (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h, CUstream hStream),               \
	         (dst, pitch, v, w, h, hStream))                                                                       \
	TRANSFER(cuMemsetD2D32Async##suffix, which, SET, 0, dst, h ? (h - 1) * pitch + 4 * w : 0,                      \
	         (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h, CUstream hStream),                \
	         (dst, pitch, v, w, h, hStream))                                                                       \
	TRANSFER(cuMemsetD2D16Async##suffix, which, SET, 0, dst, h ? (h - 1) * pitch + 2 * w : 0,                      \
	         (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h, CUstream hStream),              \
	         (dst, pitch, v, w, h, hStream))                                                                       \
	TRANSFER(cuMemcpyPeerAsync##suffix, which, ANY, src, dst, n,                                                   \
	         (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream hStream),         \
	         (dst, to, src, from, n, hStream))                                                                     \
	CUresult CUDAAPI cuMemcpy3DPeerAsync##suffix(const CUDA_MEMCPY3D_PEER *copy, CUstream hStream)                 \
	MD_HOOK(cuMemcpy3DPeerAsync##suffix, (copy, hStream), MD_NOTHING,                                              \
	        copied_peer("cuMemcpy3DPeerAsync" #suffix, which(hStream), copy))                                      \
	CUresult CUDAAPI cuLaunchHostFunc##suffix(CUstream hStream, CUhostFn fn, void *user)                           \
	MD_HOOK(cuLaunchHostFunc##suffix, (hStream, fn, user), MD_NOTHING, enqueued(which(hStream)))
COPIES_AND_SETS(, MD_AS_GIVEN)
COPIES_AND_SETS(_ptsz, md_hook_per_thread)

/* Synchronous calls cannot be captured. */
#define SYNCHRONOUS(symbol, kind, from, to, bytes, params, args)                                                       \
	CUresult CUDAAPI symbol params                                                                                 \
	MD_HOOK(symbol, args, MD_NOTHING, moved(#symbol, MD_TRANSFER_##kind, from, to, bytes))
#define ROWS(symbol, type, what)                                                                                       \
	CUresult CUDAAPI symbol(const type *copy)                                                                      \
	MD_HOOK(symbol, (copy), MD_NOTHING, what(#symbol, NULL, copy))
#define SYNCHRONOUS_COPIES_AND_SETS(suffix)                                                                            \
	SYNCHRONOUS(cuMemcpy##suffix, ANY, src, dst, n, (CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n))   \
	SYNCHRONOUS(cuMemcpyHtoD_v2##suffix, TO_DEVICE, (uintptr_t)src, dst, n,                                       \
	            (CUdeviceptr dst, const void *src, size_t n), (dst, src, n))                                       \
	SYNCHRONOUS(cuMemcpyDtoH_v2##suffix, TO_HOST, src, 0, n, (void *dst, CUdeviceptr src, size_t n),               \
	            (dst, src, n))                                                                                     \
	SYNCHRONOUS(cuMemcpyDtoD_v2##suffix, WITHIN_DEVICE, src, dst, n, (CUdeviceptr dst, CUdeviceptr src, size_t n), \
	            (dst, src, n))                                                                                     \
	SYNCHRONOUS(cuMemsetD8_v2##suffix, SET, 0, dst, n, (CUdeviceptr dst, unsigned char v, size_t n), (dst, v, n))  \
	SYNCHRONOUS(cuMemsetD16_v2##suffix, SET, 0, dst, 2 * n, (CUdeviceptr dst, unsigned short v, size_t n),         \
	            (dst, v, n))                                                                                       \
	SYNCHRONOUS(cuMemsetD32_v2##suffix, SET, 0, dst, 4 * n, (CUdeviceptr dst, unsigned int v, size_t n),           \
	            (dst, v, n))                                                                                       \
	SYNCHRONOUS(cuMemsetD2D8_v2##suffix, SET, 0, dst, h ? (h - 1) * pitch + w : 0,                                 \
	            (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h), (dst, pitch, v, w, h))       \
	SYNCHRONOUS(cuMemsetD2D16_v2##suffix, SET, 0, dst, h ? (h - 1) * pitch + 2 * w : 0,                            \
	            (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h), (dst, pitch, v, w, h))      \
	SYNCHRONOUS(cuMemsetD2D32_v2##suffix, SET, 0, dst, h ? (h - 1) * pitch + 4 * w : 0,                            \
	            (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h), (dst, pitch, v, w, h))        \
	SYNCHRONOUS(cuMemcpyPeer##suffix, ANY, src, dst, n,                                                            \
	            (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n), (dst, to, src, from, n)) \
	SYNCHRONOUS(cuMemcpyDtoA_v2##suffix, ANY, src, 0, n,                                                           \
	            (CUarray dst, size_t offset, CUdeviceptr src, size_t n), (dst, offset, src, n))                    \
	SYNCHRONOUS(cuMemcpyAtoD_v2##suffix, ANY, 0, dst, n,                                                           \
	            (CUdeviceptr dst, CUarray src, size_t offset, size_t n), (dst, src, offset, n))                    \
	ROWS(cuMemcpy2D_v2##suffix, CUDA_MEMCPY2D, copied_2d)                                                          \
	ROWS(cuMemcpy2DUnaligned_v2##suffix, CUDA_MEMCPY2D, copied_2d)                                                 \
	ROWS(cuMemcpy3D_v2##suffix, CUDA_MEMCPY3D, copied_3d)                                                          \
	ROWS(cuMemcpy3DPeer##suffix, CUDA_MEMCPY3D_PEER, copied_peer)
SYNCHRONOUS_COPIES_AND_SETS()
SYNCHRONOUS_COPIES_AND_SETS(_ptds)

/* ---- many at once ---- */

static void copied_each(const char *call, CUstream stream, const CUdeviceptr *to, const CUdeviceptr *from,
                        const size_t *sizes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		transferred(call, stream, MD_TRANSFER_ANY, from ? from[i] : 0, to[i], sizes[i]);
}

static void copied_operations(const char *call, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!md_hook_in_capture(stream))
			md_capture_touched_operation(call, &ops[i]);
		transferred(call, stream, MD_TRANSFER_ANY, 0, 0,
		            ops[i].extent.width * ops[i].extent.height * ops[i].extent.depth);
	}
}

static void decompressed(const char *call, CUstream stream, const CUmemDecompressParams *params, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		transferred(call, stream, MD_TRANSFER_ANY, (uintptr_t)params[i].src, 0, params[i].srcNumBytes);
		transferred(call, stream, MD_TRANSFER_ANY, 0, (uintptr_t)params[i].dst, params[i].dstNumBytes);
		if (!params[i].dstNumBytes && !md_hook_in_capture(stream)) /* the size of what it writes is not known */
			md_capture_given((struct md_capture_layout){.kernel = MD_NONE}, NULL, NULL);
		transferred(call, stream, MD_TRANSFER_ANY, 0, (uintptr_t)params[i].dstActBytes, sizeof(cuuint32_t));
	}
}

#define BATCHES(suffix, which)                                                                                         \
	CUresult CUDAAPI cuMemcpyBatchAsync##suffix(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,   \
	                                            CUmemcpyAttributes *attributes, size_t *indices, size_t n,         \
	                                            size_t *failed, CUstream hStream)                                  \
	MD_HOOK(cuMemcpyBatchAsync##suffix, (to, from, sizes, count, attributes, indices, n, failed, hStream),         \
	        MD_NOTHING, copied_each("cuMemcpyBatchAsync" #suffix, which(hStream), to, from, sizes, count))         \
	CUresult CUDAAPI cuMemcpyBatchAsync_v2##suffix(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,              \
	                                               size_t count, CUmemcpyAttributes *attributes, size_t *indices,  \
	                                               size_t n, CUstream hStream)                                     \
	MD_HOOK(cuMemcpyBatchAsync_v2##suffix, (to, from, sizes, count, attributes, indices, n, hStream), MD_NOTHING,  \
	        copied_each("cuMemcpyBatchAsync_v2" #suffix, which(hStream), to, from, sizes, count))                  \
	CUresult CUDAAPI cuMemcpy3DBatchAsync##suffix(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed,       \
	                                              unsigned long long flags, CUstream hStream)                      \
	MD_HOOK(cuMemcpy3DBatchAsync##suffix, (count, ops, failed, flags, hStream), MD_NOTHING,                        \
	        copied_operations("cuMemcpy3DBatchAsync" #suffix, which(hStream), ops, count))                         \
	CUresult CUDAAPI cuMemcpy3DBatchAsync_v2##suffix(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops,                    \
	                                                 unsigned long long flags, CUstream hStream)                   \
	MD_HOOK(cuMemcpy3DBatchAsync_v2##suffix, (count, ops, flags, hStream), MD_NOTHING,                             \
	        copied_operations("cuMemcpy3DBatchAsync_v2" #suffix, which(hStream), ops, count))                      \
	CUresult CUDAAPI cuMemDiscardBatchAsync##suffix(CUdeviceptr *of, size_t *sizes, size_t count,                  \
	                                                unsigned long long flags, CUstream hStream)                    \
	MD_HOOK(cuMemDiscardBatchAsync##suffix, (of, sizes, count, flags, hStream), MD_NOTHING,                        \
	        copied_each("cuMemDiscardBatchAsync" #suffix, which(hStream), of, NULL, sizes, count))                 \
	CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync##suffix(                                                    \
	    CUdeviceptr *of, size_t *sizes, size_t count, CUmemLocation *places, size_t *indices, size_t n,            \
	    unsigned long long flags, CUstream hStream)                                                                \
	MD_HOOK(cuMemDiscardAndPrefetchBatchAsync##suffix, (of, sizes, count, places, indices, n, flags, hStream),     \
	        MD_NOTHING,                                                                                            \
	        copied_each("cuMemDiscardAndPrefetchBatchAsync" #suffix, which(hStream), of, NULL, sizes, count))      \
	CUresult CUDAAPI cuMemBatchDecompressAsync##suffix(CUmemDecompressParams *params, size_t count,                \
	                                                   unsigned int flags, size_t *failed, CUstream hStream)       \
	MD_HOOK(cuMemBatchDecompressAsync##suffix, (params, count, flags, failed, hStream), MD_NOTHING,                \
	        decompressed("cuMemBatchDecompressAsync" #suffix, which(hStream), params, count))
BATCHES(, MD_AS_GIVEN)
BATCHES(_ptsz, md_hook_per_thread)

/* ---- words that a stream writes, or waits for ---- */

static void word_used(const char *call, CUstream stream, CUdeviceptr address, uint64_t bytes, bool writes)
{
	if (!md_hook_in_capture(stream))
		md_capture_touched(call, address, bytes, writes);
}

static void words_used(const char *call, CUstream stream, const CUstreamBatchMemOpParams *ops, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		CUstreamBatchMemOpType type = ops[i].operation;
		if (type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64)
			word_used(call, stream, ops[i].writeValue.address,
			          type == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8, true);
		else if (type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			word_used(call, stream, ops[i].waitValue.address,
			          type == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8, false);
		else if (type != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES && type != CU_STREAM_MEM_OP_BARRIER)
			md_capture_given((struct md_capture_layout){.kernel = MD_NONE}, NULL, NULL);
	}
}

#define WORD(symbol, which, bits, writes)                                                                              \
	CUresult CUDAAPI symbol(CUstream hStream, CUdeviceptr address, cuuint##bits##_t value, unsigned int flags)     \
	MD_HOOK(symbol, (hStream, address, value, flags), MD_NOTHING,                                                  \
	        word_used(#symbol, which(hStream), address, bits / 8, writes))
#define WORDS(suffix, which)                                                                                           \
	WORD(cuStreamWriteValue32##suffix, which, 32, true)                                                            \
	WORD(cuStreamWriteValue64##suffix, which, 64, true)                                                            \
	WORD(cuStreamWaitValue32##suffix, which, 32, false)                                                            \
	WORD(cuStreamWaitValue64##suffix, which, 64, false)                                                            \
	CUresult CUDAAPI cuStreamBatchMemOp##suffix(CUstream hStream, unsigned int count,                              \
	                                            CUstreamBatchMemOpParams *ops, unsigned int flags)                 \
	MD_HOOK(cuStreamBatchMemOp##suffix, (hStream, count, ops, flags), MD_NOTHING,                                  \
	        words_used("cuStreamBatchMemOp" #suffix, which(hStream), ops, count))
WORDS(, MD_AS_GIVEN)
WORDS(_ptsz, md_hook_per_thread)
WORDS(_v2, MD_AS_GIVEN)
WORDS(_v2_ptsz, md_hook_per_thread)
