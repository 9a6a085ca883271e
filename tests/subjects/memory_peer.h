/* SPDX-License-Identifier: Apache-2.0 */
/* Another process that shares its memory with the subject: the subject's own program, without anything preloaded. */
#ifndef TESTS_SUBJECTS_MEMORY_PEER_H
#define TESTS_SUBJECTS_MEMORY_PEER_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/subjects/subject.h"

enum { MEMORY_N = 64, MEMORY_BYTES = MEMORY_N * 4, MEMORY_BLOCK = 8, MEMORY_GRANULE = 2 << 20 };

#define MEMORY_PEER_ARGUMENT "peer"
#define MEMORY_PEER_SOCKET 3

/* What is asked for. Each has memory of its own, for what is opened or imported again has the same address. */
enum {
	MEMORY_PEER_IPC,
	MEMORY_PEER_IPC_UNBOUND,
	MEMORY_PEER_IPC_TWICE,
	MEMORY_PEER_IPC_COUNT,
	MEMORY_PEER_POINTER = MEMORY_PEER_IPC_COUNT,
	MEMORY_PEER_POINTER_UNBOUND,
	MEMORY_PEER_HANDLE,
	MEMORY_PEER_MEMORIES,
	MEMORY_PEER_POOL = MEMORY_PEER_MEMORIES,
	MEMORY_PEER_WRITE
};

struct memory_peer {
	pid_t process;
	int socket;
};

struct memory_peer_message {
	int what, fd_follows;
	unsigned turn;
	char bytes[64];
};

/* ---- the subject's side ---- */

static inline void memory_peer_start(struct memory_peer *peer, const char *program)
{
	int ends[2];
	static const char *const kept[] = {"LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "CUDA_VISIBLE_DEVICES="};
	char *environment[sizeof(kept) / sizeof(kept[0]) + 1] = {NULL};
	unsigned count = 0;
	for (unsigned k = 0; k < sizeof(kept) / sizeof(kept[0]); k++)
		for (char **at = environ; *at; at++)
			if (!strncmp(*at, kept[k], strlen(kept[k]))) {
				environment[count++] = *at;
				break;
			}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		exit(2);
	peer->socket = ends[0];
	peer->process = fork();
	if (peer->process)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(ends[1], MEMORY_PEER_SOCKET) < 0)
		_exit(2);
	execle(program, program, MEMORY_PEER_ARGUMENT, (char *)NULL, environment);
	_exit(2);
}

/* An answer, and the descriptor that came with it or -1. */
static inline int memory_peer_talk(struct memory_peer *peer, struct memory_peer_message *message)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {message, sizeof(*message)};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	int fd = -1;
	if (send(peer->socket, message, sizeof(*message), 0) != (ssize_t)sizeof(*message) ||
	    recvmsg(peer->socket, &header, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*message)) {
		fprintf(stderr, "the peer does not answer\n");
		exit(1);
	}
	if (message->fd_follows && CMSG_FIRSTHDR(&header))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
	return fd;
}

static inline void memory_peer_ask(struct memory_peer *peer, int what, void *bytes, size_t size)
{
	struct memory_peer_message message = {.what = what};
	memory_peer_talk(peer, &message);
	memcpy(bytes, message.bytes, size);
}

static inline int memory_peer_ask_fd(struct memory_peer *peer, int what)
{
	struct memory_peer_message message = {.what = what};
	return memory_peer_talk(peer, &message);
}

static inline void memory_peer_write(struct memory_peer *peer, unsigned turn)
{
	struct memory_peer_message message = {.what = MEMORY_PEER_WRITE, .turn = turn};
	memory_peer_talk(peer, &message);
}

static inline void memory_peer_stop(struct memory_peer *peer)
{
	close(peer->socket);
	waitpid(peer->process, NULL, 0);
}

/* ---- the peer's side ---- */

struct memory_peer_state {
	CUdeviceptr memory[MEMORY_PEER_MEMORIES];
	CUmemoryPool pool;
	CUmemGenericAllocationHandle handle;
	bool started;
};

static const CUmemLocation memory_peer_device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

/* What one driver does not share must not keep the rest from being tried: each is made when it is asked for. */
static inline void memory_peer_make_pool(struct memory_peer_state *state)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				.location = memory_peer_device};
	TRY(cuMemPoolCreate, &state->pool, &props);
	for (int k = MEMORY_PEER_POINTER; k <= MEMORY_PEER_POINTER_UNBOUND; k++)
		TRY(cuMemAllocFromPoolAsync, &state->memory[k], MEMORY_BYTES, state->pool, NULL);
	TRY(cuStreamSynchronize, NULL);
}

static inline void memory_peer_make_mapped(struct memory_peer_state *state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = memory_peer_device};
	CUmemAccessDesc access = {.location = memory_peer_device, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	TRY(cuMemCreate, &state->handle, MEMORY_GRANULE, &prop, 0);
	CUdeviceptr at;
	TRY(cuMemAddressReserve, &at, MEMORY_GRANULE, 0, 0, 0);
	TRY(cuMemMap, at, MEMORY_GRANULE, 0, state->handle, 0);
	TRY(cuMemSetAccess, at, MEMORY_GRANULE, &access, 1);
	state->memory[MEMORY_PEER_HANDLE] = at;
}

static inline void memory_peer_fill(struct memory_peer_state *state, unsigned turn)
{
	float values[MEMORY_N];
	for (unsigned k = 0; k < MEMORY_PEER_MEMORIES; k++) {
		for (unsigned i = 0; i < MEMORY_N; i++)
			values[i] = (float)(1000 * (k + 1) + 10 * turn + i);
		if (state->memory[k])
			TRY(cuMemcpyHtoD_v2, state->memory[k], values, sizeof(values));
	}
	TRY(cuCtxSynchronize); /* it is there when the answer says so */
}

static inline void memory_peer_make(struct memory_peer_state *state, int what)
{
	CUcontext context;
	if (!state->started) {
		TRY(cuInit, 0);
		TRY(cuDevicePrimaryCtxRetain, &context, 0);
		TRY(cuCtxSetCurrent, context);
	}
	state->started = true;
	if (what < MEMORY_PEER_IPC_COUNT && !state->memory[what]) /* a whole page, which no other allocation shares */
		TRY(cuMemAlloc_v2, &state->memory[what], MEMORY_GRANULE);
	else if (what == MEMORY_PEER_POOL && !state->pool)
		memory_peer_make_pool(state);
	else if (what == MEMORY_PEER_HANDLE && !state->handle)
		memory_peer_make_mapped(state);
	else
		return;
	memory_peer_fill(state, 0);
}

/* The descriptor to send with the answer, or -1. */
static inline int memory_peer_answer(struct memory_peer_state *state, struct memory_peer_message *message)
{
	int fd = -1;
	memory_peer_make(state, message->what);
	if (message->what < MEMORY_PEER_IPC_COUNT)
		TRY(cuIpcGetMemHandle, (CUipcMemHandle *)(void *)message->bytes, state->memory[message->what]);
	else if (message->what == MEMORY_PEER_POINTER || message->what == MEMORY_PEER_POINTER_UNBOUND)
		TRY(cuMemPoolExportPointer, (CUmemPoolPtrExportData *)(void *)message->bytes,
		    state->memory[message->what]);
	else if (message->what == MEMORY_PEER_POOL)
		TRY(cuMemPoolExportToShareableHandle, &fd, state->pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	else if (message->what == MEMORY_PEER_HANDLE)
		TRY(cuMemExportToShareableHandle, &fd, state->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	else
		memory_peer_fill(state, message->turn);
	message->fd_follows = fd >= 0;
	return fd;
}

static inline int memory_peer_main(void)
{
	struct memory_peer_state state = {.pool = NULL};
	struct memory_peer_message message;
	while (recv(MEMORY_PEER_SOCKET, &message, sizeof(message), 0) == (ssize_t)sizeof(message)) {
		char room[CMSG_SPACE(sizeof(int))] = {0};
		struct iovec part = {&message, sizeof(message)};
		struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
		int fd = memory_peer_answer(&state, &message);
		if (fd >= 0) {
			header.msg_control = room;
			header.msg_controllen = sizeof(room);
			*CMSG_FIRSTHDR(&header) = (struct cmsghdr){
			    .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), &fd, sizeof(fd));
		}
		if (sendmsg(MEMORY_PEER_SOCKET, &header, 0) != (ssize_t)sizeof(message))
			return 1;
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

#endif
