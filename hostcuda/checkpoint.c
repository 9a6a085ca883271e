/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that can be checkpointed: a thread takes requests of other processes over a socket. Contents of device memory
 * stay where they are, since all of it is host memory; what goes is the process's share of the devices.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/thread.h"
#include "hostcuda/checkpoint.h"
#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/memory.h"
#include "hostcuda/shared_devices.h"
#include "hostcuda/vmm.h"

static atomic_uint inside; /* threads in calls */
static atomic_bool locked;
static pthread_mutex_t locked_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unlocked = PTHREAD_COND_INITIALIZER;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* one change of the state at a time */
static atomic_int state = CU_PROCESS_STATE_RUNNING;
static int listening = -1;
static atomic_int thread_id;

/* ---- calls of this process ---- */

static void wait_until_unlocked(void)
{
	pthread_mutex_lock(&locked_mutex);
	while (atomic_load(&locked))
		pthread_cond_wait(&unlocked, &locked_mutex);
	pthread_mutex_unlock(&locked_mutex);
}

void hc_checkpoint_enter(void)
{
	if (hc_thread.inside++)
		return;
	for (;;) {
		atomic_fetch_add(&inside, 1);
		if (!atomic_load(&locked))
			return;
		atomic_fetch_sub(&inside, 1);
		wait_until_unlocked();
	}
}

void hc_checkpoint_leave(void)
{
	if (!--hc_thread.inside)
		atomic_fetch_sub(&inside, 1);
}

static void let_calls_in(void)
{
	pthread_mutex_lock(&locked_mutex);
	atomic_store(&locked, false);
	pthread_cond_broadcast(&unlocked);
	pthread_mutex_unlock(&locked_mutex);
}

/* ---- what is asked ---- */

static bool has_gone(int fd)
{
	struct pollfd peer = {.fd = fd, .events = POLLRDHUP};
	return poll(&peer, 1, 0) > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Without a timeout it waits until the calls end, or whoever asked has gone. */
static CUresult lock(uint32_t timeout_ms, int fd)
{
	uint64_t until = timeout_ms ? md_clock_ns() + timeout_ms * UINT64_C(1000000) : UINT64_MAX;
	if (atomic_load(&state) != CU_PROCESS_STATE_RUNNING)
		return CUDA_ERROR_ILLEGAL_STATE;
	atomic_store(&locked, true);
	while (atomic_load(&inside)) {
		if (md_clock_ns() >= until || has_gone(fd)) {
			let_calls_in();
			return CUDA_ERROR_NOT_READY;
		}
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	atomic_store(&state, CU_PROCESS_STATE_LOCKED);
	return CUDA_SUCCESS;
}

static CUresult fail(CUresult result)
{
	atomic_store(&state, CU_PROCESS_STATE_FAILED);
	return result;
}

static CUresult checkpoint(void)
{
	if (atomic_load(&state) != CU_PROCESS_STATE_LOCKED)
		return CUDA_ERROR_ILLEGAL_STATE;
	hc_context_drain_all();
	HC_STATE_GUARD();
	if (hc_memory_any(HC_MEMORY_IMPORTED)) /* as drivers before 610 have it */
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = hc_fault_due("hostcuda_checkpoint", "hostcuda_checkpoint", NULL);
	if (result == CUDA_SUCCESS)
		result = hc_vmm_part();
	if (result != CUDA_SUCCESS)
		return fail(result);
	hc_shared_leave();
	atomic_store(&state, CU_PROCESS_STATE_CHECKPOINTED);
	return CUDA_SUCCESS;
}

/* Where each device of this process is to be; as in a real driver, the pairs must name all that it sees. */
static CUresult find_places(const struct hc_checkpoint_request *request, int places[HC_MAX_DEVICES]) HC_STATE_HELD
{
	unsigned taken = 0;
	for (int i = 0; i < hc_device_count; i++) {
		CUuuid uuid = hc_device_uuid(hc_devices[i].place);
		places[i] = request->pair_count ? -1 : hc_devices[i].place;
		for (uint32_t p = 0; p < request->pair_count; p++)
			if (!memcmp(&request->pairs[p].oldUuid, &uuid, sizeof(uuid)))
				places[i] = hc_device_of_uuid(&request->pairs[p].newUuid);
		if (places[i] < 0 || (taken >> places[i] & 1))
			return CUDA_ERROR_INVALID_VALUE;
		taken |= 1u << places[i];
	}
	return CUDA_SUCCESS;
}

static CUresult restore(const struct hc_checkpoint_request *request)
{
	int places[HC_MAX_DEVICES];
	if (atomic_load(&state) != CU_PROCESS_STATE_CHECKPOINTED)
		return CUDA_ERROR_ILLEGAL_STATE;
	HC_STATE_GUARD();
	HC_TRY(find_places(request, places));
	HC_TRY(hc_shared_return(places));
	for (int i = 0; i < hc_device_count; i++)
		hc_devices[i].place = places[i];
	CUresult result = hc_fault_due("hostcuda_restore", "hostcuda_restore", NULL);
	if (result != CUDA_SUCCESS)
		return fail(result);
	atomic_store(&state, CU_PROCESS_STATE_LOCKED);
	return CUDA_SUCCESS;
}

static CUresult unlock(void)
{
	if (atomic_load(&state) != CU_PROCESS_STATE_LOCKED)
		return CUDA_ERROR_ILLEGAL_STATE;
	atomic_store(&state, CU_PROCESS_STATE_RUNNING);
	let_calls_in();
	return CUDA_SUCCESS;
}

static CUresult change(const struct hc_checkpoint_request *request, int fd)
{
	pthread_mutex_lock(&turn);
	CUresult result = request->wish == HC_LOCK         ? lock(request->timeout_ms, fd)
			  : request->wish == HC_CHECKPOINT ? checkpoint()
			  : request->wish == HC_RESTORE    ? restore(request)
			  : request->wish == HC_UNLOCK     ? unlock()
							   : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&turn);
	return result;
}

static struct hc_checkpoint_answer answer_to(const struct hc_checkpoint_request *request, int fd)
{
	if (request->wish == HC_GET_STATE)
		return (struct hc_checkpoint_answer){.value = atomic_load(&state)};
	if (request->wish == HC_GET_THREAD)
		return (struct hc_checkpoint_answer){.value = atomic_load(&thread_id)};
	return (struct hc_checkpoint_answer){.result = (int32_t)change(request, fd)};
}

/* ---- the thread ---- */

static void *serve_one(void *connection)
{
	int fd = (int)(intptr_t)connection;
	struct hc_checkpoint_request request;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && (peer.uid == geteuid() || !peer.uid) &&
	    recv(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request) &&
	    request.pair_count <= HC_MAX_DEVICES) {
		struct hc_checkpoint_answer answer = answer_to(&request, fd);
		send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

static void *serve(void *unused)
{
	(void)unused;
	atomic_store(&thread_id, (int)syscall(SYS_gettid));
	for (;;) {
		pthread_t thread;
		struct pollfd asked = {.fd = listening, .events = POLLIN};
		/* A thread that waits in accept4 holds a free descriptor already, which the engine may need. */
		int fd = poll(&asked, 1, -1) == 1 ? accept4(listening, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (fd < 0)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		else if (md_thread_start(&thread, serve_one, (void *)(intptr_t)fd))
			close(fd);
		else
			pthread_detach(thread);
	}
	return NULL;
}

size_t hc_checkpoint_address(int pid, void *address)
{
	struct sockaddr_un *made = address;
	*made = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length = snprintf(made->sun_path + 1, sizeof(made->sun_path) - 1, "hostcuda-checkpoint-%d", pid);
	return offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length;
}

void hc_checkpoint_start(void)
{
	struct sockaddr_un address;
	pthread_t thread;
	size_t size = hc_checkpoint_address(getpid(), &address);
	listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listening < 0)
		return;
	if (bind(listening, (struct sockaddr *)&address, (socklen_t)size) || listen(listening, 16) ||
	    md_thread_start(&thread, serve, NULL)) {
		close(listening);
		listening = -1;
		return;
	}
	pthread_detach(thread);
}

/* The child is no process of the device's until it initializes the driver, which hostcuda does not do again. */
static void renew(void)
{
	if (listening >= 0)
		close(listening);
	listening = -1;
	pthread_mutex_init(&locked_mutex, NULL);
	pthread_mutex_init(&turn, NULL);
	atomic_store(&locked, false);
	atomic_store(&inside, 0);
	hc_thread.inside = 0;
}

__attribute__((constructor)) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
