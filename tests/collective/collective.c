/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side: ranks meet at a socket, open each other's memory, and order graph launches with live calls. */
#include "tests/collective/collective.h"

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

struct collective {
	CUdeviceptr state, inbox, peer;
	CUmodule module;
	CUfunction sum;
	CUevent order; /* recorded behind each operation, and waited for by live ones */
};

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

static CUresult open_peer(struct collective *with, int met)
{
	CUipcMemHandle mine, theirs;
	char ready = 1, other;
	CHECK(cuIpcGetMemHandle(&mine, with->inbox));
	if (!exchange(met, &mine, &theirs, sizeof(mine)))
		return failed("the other rank did not come", CUDA_ERROR_UNKNOWN);
	CHECK(cuIpcOpenMemHandle(&with->peer, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	if (!exchange(met, &ready, &other, 1))
		return failed("the other rank went", CUDA_ERROR_UNKNOWN);
	return CUDA_SUCCESS;
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
	CHECK(cuModuleLoadData(&with->module, image));
	CHECK(cuModuleGetFunction(&with->sum, with->module, "collective_sum"));
	CHECK(cuMemAlloc(&with->state, sizeof(state)));
	CHECK(runtime_alloc(&with->inbox, sizeof(struct collective_inbox)));
	CHECK(cuMemsetD8(with->inbox, 0, sizeof(struct collective_inbox)));
	CHECK(cuCtxSynchronize());
	CHECK(cuEventCreate(&with->order, CU_EVENT_DISABLE_TIMING));
	CHECK(meet(with, socket_path, rank));
	state.own = (struct collective_inbox *)with->inbox;
	state.peer = (struct collective_inbox *)with->peer;
	CHECK(cuMemcpyHtoD(with->state, &state, sizeof(state)));
	return cuCtxSynchronize();
}

MD_EXPORT struct collective *collective_open(const char *socket_path, int rank, const void *image)
{
	struct collective *with = calloc(1, sizeof(*with));
	if (with && make(with, socket_path, rank, image) == CUDA_SUCCESS)
		return with;
	free(with);
	return NULL;
}

/* A graph's launch is ordered with live calls by a node that records the event; live calls wait for it. */
MD_EXPORT CUresult collective_sum(struct collective *with, CUdeviceptr data, int n, CUstream stream)
{
	void *params[] = {&with->state, &data, &n};
	CUstreamCaptureStatus status;
	if (n < 0 || n > COLLECTIVE_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	CHECK(cuStreamIsCapturing(stream, &status));
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		CHECK(cuStreamWaitEvent(stream, with->order, 0));
	CHECK(cuLaunchKernel(with->sum, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
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
	cuIpcCloseMemHandle(with->peer);
	cuMemFree(with->inbox);
	cuMemFree(with->state);
	cuEventDestroy(with->order);
	cuModuleUnload(with->module);
	free(with);
}
