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
#define BUFFER_BYTES (1u << 20) /* an allocation; in a mapping, a buffer begins there */

_Static_assert(sizeof(struct collective_inbox) <= INBOX_BYTES, "an inbox is smaller than a mapping");

struct collective {
	int rank, ranks;
	CUdeviceptr state, extra;
	CUdeviceptr inboxes[COLLECTIVE_RANKS_MOST]; /* of all ranks, this one's among them */
	CUdeviceptr buffers[COLLECTIVE_RANKS_MOST]; /* with COLLECTIVE_PEERS, whose inboxes are signals */
	const char *peers;
	size_t inbox_bytes;
	CUdevice device;
	CUmemGenericAllocationHandle multicast; /* 0: none */
	bool mapped;                            /* inboxes are mappings of these handles, else allocations */
	CUmemGenericAllocationHandle handles[COLLECTIVE_RANKS_MOST];
	uint32_t *stop; /* page-locked; the kernel looks at it */
	CUevent order;  /* recorded behind each operation, and waited for by live ones */
};

static CUmodule module; /* of all communicators; it stays when they are closed */
static CUfunction sum, peers_sum;

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

/* ---- meeting: all ranks come to rank 0, which hands out what they have brought ---- */

struct hello {
	int rank;
	CUipcMemHandle handle, buffer;
};

static bool send_with(int to, const void *bytes, size_t size, const int *descriptors, size_t count)
{
	char room[CMSG_SPACE(COLLECTIVE_RANKS_MOST * sizeof(int))] = {0};
	struct iovec part = {(void *)bytes, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (count) {
		message.msg_control = room;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *with = CMSG_FIRSTHDR(&message);
		*with = (struct cmsghdr){CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(with), descriptors, count * sizeof(int));
	}
	return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

static bool take_with(int from, void *bytes, size_t size, int *descriptors, size_t count)
{
	char room[CMSG_SPACE(COLLECTIVE_RANKS_MOST * sizeof(int))] = {0};
	struct iovec part = {bytes, size};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != (ssize_t)size)
		return false;
	struct cmsghdr *with = CMSG_FIRSTHDR(&message);
	if (!count)
		return true;
	if (!with || with->cmsg_type != SCM_RIGHTS || with->cmsg_len != CMSG_LEN(count * sizeof(int)))
		return false;
	memcpy(descriptors, CMSG_DATA(with), count * sizeof(int));
	return true;
}

struct meeting {
	int met[COLLECTIVE_RANKS_MOST]; /* connections: of rank 0 to each other one, of these to rank 0 (met[0]) */
	struct hello hellos[COLLECTIVE_RANKS_MOST];
	int descriptors[COLLECTIVE_RANKS_MOST]; /* where memory is mapped */
};

static bool await_guests(struct collective *with, struct meeting *meeting, const struct sockaddr_un *at)
{
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), left = with->ranks - 1;
	struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
	unlink(at->sun_path);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!bind(listener, (const struct sockaddr *)at, sizeof(*at)) && !listen(listener, COLLECTIVE_RANKS_MOST))
		for (; left; left--) {
			struct hello hello;
			int descriptor = -1, met = accept(listener, NULL, NULL);
			if (met < 0 || !take_with(met, &hello, sizeof(hello), &descriptor, with->mapped) ||
			    hello.rank <= 0 || hello.rank >= with->ranks || meeting->met[hello.rank] >= 0)
				break;
			meeting->met[hello.rank] = met;
			meeting->hellos[hello.rank] = hello;
			meeting->descriptors[hello.rank] = descriptor;
		}
	unlink(at->sun_path);
	close(listener);
	return !left;
}

static bool hand_out(const struct collective *with, struct meeting *meeting)
{
	for (int rank = 1; rank < with->ranks; rank++)
		if (!send_with(meeting->met[rank], meeting->hellos, sizeof(meeting->hellos), meeting->descriptors,
			       with->mapped ? (size_t)with->ranks : 0))
			return false;
	return true;
}

static bool visit(const struct collective *with, struct meeting *meeting, const struct sockaddr_un *at)
{
	for (time_t started = time(NULL); time(NULL) - started < PATIENCE_SECONDS;) {
		int met = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), own = meeting->descriptors[with->rank];
		if (!connect(met, (const struct sockaddr *)at, sizeof(*at))) {
			meeting->met[0] = met;
			bool came =
			    send_with(met, &meeting->hellos[with->rank], sizeof(struct hello), &own, with->mapped) &&
			    take_with(met, meeting->hellos, sizeof(meeting->hellos), meeting->descriptors,
				      with->mapped ? (size_t)with->ranks : 0);
			if (with->mapped && came)
				close(own); /* it has come back with the others */
			return came;
		}
		close(met);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return false;
}

/* Returns when all ranks have come to this place. */
static bool all_there(const struct collective *with, const struct meeting *meeting)
{
	char ready = 1;
	if (with->rank)
		return send_with(meeting->met[0], &ready, 1, NULL, 0) && take_with(meeting->met[0], &ready, 1, NULL, 0);
	for (int rank = 1; rank < with->ranks; rank++)
		if (!take_with(meeting->met[rank], &ready, 1, NULL, 0))
			return false;
	for (int rank = 1; rank < with->ranks; rank++)
		if (!send_with(meeting->met[rank], &ready, 1, NULL, 0))
			return false;
	return true;
}

/* ---- memory that the other ranks have, too ---- */

static CUresult map(struct collective *with, int of)
{
	CUdeviceptr *out = &with->inboxes[of];
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, with->device},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CHECK(cuMemAddressReserve(out, with->inbox_bytes, 0, 0, 0));
	CHECK(cuMemMap(*out, with->inbox_bytes, 0, with->handles[of], 0));
	return cuMemSetAccess(*out, with->inbox_bytes, &access, 1);
}

static CUresult make_inbox(struct collective *with)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, with->device}};
	if (!with->mapped) {
		if (with->peers)
			CHECK(runtime_alloc(&with->buffers[with->rank], BUFFER_BYTES));
		return runtime_alloc(&with->inboxes[with->rank], with->inbox_bytes);
	}
	CHECK(cuMemCreate(&with->handles[with->rank], with->inbox_bytes, &prop, 0));
	if (getenv("COLLECTIVE_MULTICAST")) {
		CUmulticastObjectProp object = {.numDevices = 1, .size = with->inbox_bytes};
		CHECK(cuMulticastCreate(&with->multicast, &object));
		CHECK(cuMulticastBindMem(with->multicast, 0, with->handles[with->rank], 0, with->inbox_bytes, 0));
	}
	return map(with, with->rank);
}

static CUresult bring(struct collective *with, struct meeting *meeting)
{
	struct hello *own = &meeting->hellos[with->rank];
	own->rank = with->rank;
	if (!with->mapped) {
		bool swapped = with->peers && !strcmp(with->peers, "swapped");
		if (swapped)
			CHECK(cuIpcGetMemHandle(&own->buffer, with->buffers[with->rank]));
		CHECK(cuIpcGetMemHandle(&own->handle, with->inboxes[with->rank]));
		return with->peers && !swapped ? cuIpcGetMemHandle(&own->buffer, with->buffers[with->rank])
					       : CUDA_SUCCESS;
	}
	return cuMemExportToShareableHandle(&meeting->descriptors[with->rank], with->handles[with->rank],
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult open_inbox(struct collective *with, const struct meeting *meeting, int of)
{
	if (!with->mapped) {
		if (with->peers)
			CHECK(cuIpcOpenMemHandle(&with->buffers[of], meeting->hellos[of].buffer,
						 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		return cuIpcOpenMemHandle(&with->inboxes[of], meeting->hellos[of].handle,
					  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	}
	CHECK(cuMemImportFromShareableHandle(&with->handles[of], (void *)(uintptr_t)meeting->descriptors[of],
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return map(with, of);
}

static CUresult open_inboxes(struct collective *with, struct meeting *meeting, const struct sockaddr_un *at)
{
	CHECK(bring(with, meeting));
	if (with->rank ? !visit(with, meeting, at) : !await_guests(with, meeting, at) || !hand_out(with, meeting))
		return failed("the other ranks did not come", CUDA_ERROR_UNKNOWN);
	bool backwards = with->peers && !strcmp(with->peers, "backwards");
	for (int i = 0; i < with->ranks; i++) {
		int of = backwards ? with->ranks - 1 - i : i;
		if (of != with->rank)
			CHECK(open_inbox(with, meeting, of));
	}
	if (!all_there(with, meeting)) /* so all have opened them */
		return failed("another rank went", CUDA_ERROR_UNKNOWN);
	return CUDA_SUCCESS;
}

static void close_inbox(const struct collective *with, int of)
{
	if (with->mapped) {
		cuMemUnmap(with->inboxes[of], with->inbox_bytes);
		cuMemAddressFree(with->inboxes[of], with->inbox_bytes);
		cuMemRelease(with->handles[of]);
	} else if (of == with->rank) {
		cuMemFree(with->inboxes[of]);
		if (with->peers)
			cuMemFree(with->buffers[of]);
	} else {
		cuIpcCloseMemHandle(with->inboxes[of]);
		if (with->peers)
			cuIpcCloseMemHandle(with->buffers[of]);
	}
}

static CUresult meet(struct collective *with, const char *socket_path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct meeting meeting = {.hellos = {{0}}};
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", socket_path);
	memset(meeting.met, -1, sizeof(meeting.met));
	memset(meeting.descriptors, -1, sizeof(meeting.descriptors));
	CUresult result = open_inboxes(with, &meeting, &at);
	for (int i = 0; i < COLLECTIVE_RANKS_MOST; i++) {
		if (meeting.met[i] >= 0)
			close(meeting.met[i]);
		if (meeting.descriptors[i] >= 0)
			close(meeting.descriptors[i]);
	}
	return result;
}

/* ---- communicators ---- */

/* Where the addresses of signals are given to the kernel, the table has those of buffers alone. */
static CUresult fill_table(struct collective *with)
{
	struct peers_table table;
	memset(&table, 0, sizeof(table));
	for (int of = 0; of < with->ranks; of++) {
		if (with->mapped)
			with->buffers[of] = with->inboxes[of] + BUFFER_BYTES;
		table.buffers[of] = (float *)with->buffers[of];
		table.signals[of] = with->mapped ? (struct peers_signals *)with->inboxes[of] : NULL;
	}
	CHECK(cuMemcpyHtoD(with->state, &table, sizeof(table)));
	return cuCtxSynchronize();
}

static CUresult make(struct collective *with, const char *socket_path, const void *image)
{
	struct collective_state state = {.rank = (uint64_t)with->rank, .ranks = (uint64_t)with->ranks};
	CHECK(cuCtxGetDevice(&with->device));
	if (!module)
		CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&sum, module, "collective_sum"));
	CHECK(cuModuleGetFunction(&peers_sum, module, "peers_sum"));
	if (getenv("COLLECTIVE_EXTRA"))
		CHECK(cuMemAlloc(&with->extra, 4096));
	CHECK(cuMemAlloc(&with->state, sizeof(union collective_memory)));
	CHECK(make_inbox(with));
	CHECK(cuMemsetD8(with->inboxes[with->rank], 0, sizeof(struct collective_inbox)));
	CHECK(cuMemHostAlloc((void **)&with->stop, sizeof(*with->stop), CU_MEMHOSTALLOC_DEVICEMAP));
	*with->stop = 0;
	CHECK(cuCtxSynchronize());
	CHECK(cuEventCreate(&with->order, CU_EVENT_DISABLE_TIMING));
	CHECK(meet(with, socket_path));
	if (with->peers)
		return fill_table(with);
	state.stop = with->stop;
	for (int of = 0; of < with->ranks; of++)
		state.inboxes[of] = (struct collective_inbox *)with->inboxes[of];
	CHECK(cuMemcpyHtoD(with->state, &state, sizeof(state)));
	return cuCtxSynchronize();
}

MD_EXPORT struct collective *collective_open(const char *socket_path, int rank, int ranks, const void *image)
{
	bool known = ranks >= 1 && ranks <= COLLECTIVE_RANKS_MOST && rank >= 0 && rank < ranks;
	struct collective *with = known ? calloc(1, sizeof(*with)) : NULL;
	if (with) {
		with->rank = rank;
		with->ranks = ranks;
		with->mapped = getenv("COLLECTIVE_MAPPED") != NULL;
		with->peers = getenv("COLLECTIVE_PEERS");
		with->inbox_bytes = getenv("COLLECTIVE_LARGE") ? 2 * INBOX_BYTES : INBOX_BYTES;
	}
	if (with && make(with, socket_path, image) == CUDA_SUCCESS)
		return with;
	free(with);
	return NULL;
}

static CUresult sum_of_peers(struct collective *with, CUdeviceptr data, int n, CUstream stream)
{
	struct peers_work work = {.table = (struct peers_table *)with->state,
				  .data = (float *)data,
				  .n = n,
				  .rank = with->rank,
				  .ranks = with->ranks};
	size_t size = sizeof(work);
	void *given[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &work, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	for (int of = 0; of < with->ranks && !with->mapped; of++)
		work.signals[of] = (struct peers_signals *)with->inboxes[of];
	CHECK(cuMemcpyDtoDAsync(with->buffers[with->rank], data, (size_t)n * sizeof(float), stream));
	return cuLaunchKernel(peers_sum, 1, 1, 1, 1, 1, 1, 0, stream, NULL, given);
}

/*
 * A graph's launch is ordered with live calls, and with other launches, as NCCL does it: one node waits for the event
 * before the operation, and one records it behind it.
 */
MD_EXPORT CUresult collective_sum(struct collective *with, CUdeviceptr data, int n, CUstream stream)
{
	struct collective_work work = {(struct collective_state *)with->state, (float *)data, n};
	size_t size = sizeof(work);
	void *given[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &work, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUstreamCaptureStatus status;
	if (n < 0 || n > COLLECTIVE_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (with->peers)
		return sum_of_peers(with, data, n, stream);
	CHECK(cuStreamIsCapturing(stream, &status));
	CHECK(cuStreamWaitEvent(stream, with->order,
				status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : CU_EVENT_WAIT_EXTERNAL));
	CHECK(cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, stream, NULL, given));
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		return cuEventRecord(with->order, stream);
	return cuEventRecordWithFlags(with->order, stream, CU_EVENT_RECORD_EXTERNAL);
}

MD_EXPORT CUdeviceptr collective_memory(const struct collective *with)
{
	return with->state;
}

MD_EXPORT size_t collective_memory_bytes(void)
{
	return sizeof(union collective_memory);
}

MD_EXPORT CUdeviceptr collective_inbox(const struct collective *with, int rank)
{
	return with->inboxes[rank];
}

MD_EXPORT void collective_close(struct collective *with)
{
	for (int of = 0; of < with->ranks; of++)
		close_inbox(with, of);
	if (with->multicast)
		cuMemRelease(with->multicast);
	cuMemFreeHost(with->stop);
	cuMemFree(with->state);
	if (with->extra)
		cuMemFree(with->extra);
	cuEventDestroy(with->order);
	free(with);
}
