/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side: ranks meet at a socket, open each other's memory, and order graph launches with live calls. */
#include "tests/collective/collective.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/export.h"
#include "tests/collective/runtime_alloc.h"
#include "tests/collective/collective_state.h"

#define PATIENCE_SECONDS 60
#define INBOX_BYTES (2u << 20)

_Static_assert(sizeof(struct collective_inbox) <= INBOX_BYTES, "an inbox is smaller than a mapping");

struct collective {
	CUdeviceptr state, inbox, peer, extra;
	size_t inbox_bytes;
	bool mapped; /* inbox and peer are mappings of these handles, else allocations */
	CUmemGenericAllocationHandle own, others;
	uint32_t *stop; /* page-locked; the kernel looks at it */
	CUevent order;  /* recorded behind each operation, and waited for by live ones */
};

static CUmodule module; /* of all communicators; it stays when they are closed */
static CUfunction sum;

static CUresult failed(const char *what, CUresult result)
{
	const char *name = "";
	cuGetErrorName(result, &name);
	fprintf(stderr, "collective: %s: %s\n", what, name);
	return result;
}

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		CUresult result_ = call;                                                                               \
		if (result_ != CUDA_SUCCESS)                                                                           \
			return failed(#call, result_);                                                                 \
	} while (0)

/* ---- meeting ---- */

static int listen_at(const struct sockaddr_un *at)
{
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), met = -1;
	struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
	unlink(at->sun_path);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!bind(listener, (const struct sockaddr *)at, sizeof(*at)) && !listen(listener, 1))
		met = accept(listener, NULL, NULL);
	unlink(at->sun_path);
	close(listener);
	return met;
}

static int connect_to(const struct sockaddr_un *at)
{
	for (time_t started = time(NULL); time(NULL) - started < PATIENCE_SECONDS;) {
		int met = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(met, (const struct sockaddr *)at, sizeof(*at)))
			return met;
		close(met);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return -1;
}

/* Returns once both have the other one's handle, and once more when both have opened it. */
static int exchange(int met, const void *mine, void *theirs, size_t bytes)
{
	return met >= 0 && send(met, mine, bytes, MSG_NOSIGNAL) == (ssize_t)bytes &&
	       recv(met, theirs, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* A descriptor with one byte. -1: none came. */
static int exchange_descriptors(int met, int mine)
{
	char byte = 1, room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	struct cmsghdr *with = CMSG_FIRSTHDR(&message);
	int theirs = -1;
	*with = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(with), &mine, sizeof(mine));
	if (met < 0 || sendmsg(met, &message, MSG_NOSIGNAL) != 1 || recvmsg(met, &message, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	with = CMSG_FIRSTHDR(&message);
	if (with && with->cmsg_type == SCM_RIGHTS)
		memcpy(&theirs, CMSG_DATA(with), sizeof(theirs));
	return theirs;
}

/* ---- memory that the other rank has, too ---- */

static CUresult map(CUmemGenericAllocationHandle handle, size_t bytes, CUdeviceptr *out)
{
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CHECK(cuMemAddressReserve(out, bytes, 0, 0, 0));
	CHECK(cuMemMap(*out, bytes, 0, handle, 0));
	return cuMemSetAccess(*out, bytes, &access, 1);
}

static CUresult make_inbox(struct collective *with)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	if (!with->mapped)
		return runtime_alloc(&with->inbox, with->inbox_bytes);
	CHECK(cuMemCreate(&with->own, with->inbox_bytes, &prop, 0));
	return map(with->own, with->inbox_bytes, &with->inbox);
}

static CUresult open_mapped(struct collective *with, int met)
{
	int mine = -1;
	CHECK(cuMemExportToShareableHandle(&mine, with->own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	int theirs = exchange_descriptors(met, mine);
	close(mine);
	if (theirs < 0)
		return failed("the other rank did not come", CUDA_ERROR_UNKNOWN);
	CUresult result = cuMemImportFromShareableHandle(&with->others, (void *)(uintptr_t)theirs,
							 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(theirs);
	CHECK(result);
	return map(with->others, with->inbox_bytes, &with->peer);
}

static CUresult open_allocated(struct collective *with, int met)
{
	CUipcMemHandle mine, theirs;
	CHECK(cuIpcGetMemHandle(&mine, with->inbox));
	if (!exchange(met, &mine, &theirs, sizeof(mine)))
		return failed("the other rank did not come", CUDA_ERROR_UNKNOWN);
	CHECK(cuIpcOpenMemHandle(&with->peer, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return CUDA_SUCCESS;
}

static CUresult open_peer(struct collective *with, int met)
{
	char ready = 1, other;
	CHECK(with->mapped ? open_mapped(with, met) : open_allocated(with, met));
	if (!exchange(met, &ready, &other, 1))
		return failed("the other rank went", CUDA_ERROR_UNKNOWN);
	return CUDA_SUCCESS;
}

static void close_mapped(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
	cuMemUnmap(address, bytes);
	cuMemAddressFree(address, bytes);
	cuMemRelease(handle);
}

static CUresult meet(struct collective *with, const char *socket_path, int rank)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", socket_path);
	int met = rank ? connect_to(&at) : listen_at(&at);
	CUresult result = open_peer(with, met);
	if (met >= 0)
		close(met);
	return result;
}

/* ---- communicators ---- */

static CUresult make(struct collective *with, const char *socket_path, int rank, const void *image)
{
	struct collective_state state = {.rank = (uint64_t)rank};
	if (!module)
		CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&sum, module, "collective_sum"));
	if (getenv("COLLECTIVE_EXTRA"))
		CHECK(cuMemAlloc(&with->extra, 4096));
	CHECK(cuMemAlloc(&with->state, sizeof(state)));
	CHECK(make_inbox(with));
	CHECK(cuMemsetD8(with->inbox, 0, sizeof(struct collective_inbox)));
	CHECK(cuMemHostAlloc((void **)&with->stop, sizeof(*with->stop), CU_MEMHOSTALLOC_DEVICEMAP));
	*with->stop = 0;
	CHECK(cuCtxSynchronize());
	CHECK(cuEventCreate(&with->order, CU_EVENT_DISABLE_TIMING));
	CHECK(meet(with, socket_path, rank));
	state.stop = with->stop;
	state.own = (struct collective_inbox *)with->inbox;
	state.peer = (struct collective_inbox *)with->peer;
	CHECK(cuMemcpyHtoD(with->state, &state, sizeof(state)));
	return cuCtxSynchronize();
}

MD_EXPORT struct collective *collective_open(const char *socket_path, int rank, const void *image)
{
	struct collective *with = calloc(1, sizeof(*with));
	if (with) {
		with->mapped = getenv("COLLECTIVE_MAPPED") != NULL;
		with->inbox_bytes = getenv("COLLECTIVE_LARGE") ? 2 * INBOX_BYTES : INBOX_BYTES;
	}
	if (with && make(with, socket_path, rank, image) == CUDA_SUCCESS)
		return with;
	free(with);
	return NULL;
}

/*
 * A graph's launch is ordered with live calls, and with other launches, as NCCL does it: one node waits for the event
 * before the operation, and one records it behind it.
 */
MD_EXPORT CUresult collective_sum(struct collective *with, CUdeviceptr data, int n, CUstream stream)
{
	void *params[] = {&with->state, &data, &n};
	CUstreamCaptureStatus status;
	if (n < 0 || n > COLLECTIVE_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	CHECK(cuStreamIsCapturing(stream, &status));
	CHECK(cuStreamWaitEvent(stream, with->order,
				status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : CU_EVENT_WAIT_EXTERNAL));
	CHECK(cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		return cuEventRecord(with->order, stream);
	return cuEventRecordWithFlags(with->order, stream, CU_EVENT_RECORD_EXTERNAL);
}

MD_EXPORT CUdeviceptr collective_memory(const struct collective *with)
{
	return with->state;
}

MD_EXPORT void collective_close(struct collective *with)
{
	if (with->mapped) {
		close_mapped(with->peer, with->inbox_bytes, with->others);
		close_mapped(with->inbox, with->inbox_bytes, with->own);
	} else {
		cuIpcCloseMemHandle(with->peer);
		cuMemFree(with->inbox);
	}
	cuMemFreeHost(with->stop);
	cuMemFree(with->state);
	if (with->extra)
		cuMemFree(with->extra);
	cuEventDestroy(with->order);
	free(with);
}
