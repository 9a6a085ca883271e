/* SPDX-License-Identifier: Apache-2.0 */
/* cuCheckpointProcess*: a process that is locked, loses its share of the device, and goes on, on this device or another. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostcuda_fixture.h"

enum { COUNT = 1 << 18, MEGABYTE = 1 << 20 };
#define CONTEXT_BYTES (3 * MEGABYTE)
#define DEVICE_BYTES (64 * MEGABYTE)

/* ---- the process that is checkpointed ---- */

static struct {
	pid_t pid;
	int fd;
} target;

static CUfunction scale, wait_flag;
static CUdeviceptr numbers, shared;
static int32_t *flag;
static pthread_t waiter;
static CUcontext context;

/* Whether the thread of this process sleeps in the kernel. */
static bool sleeps(int thread)
{
	char path[64], state = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	FILE *stat = fopen(path, "re");
	cr_assert(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1, "%s", path);
	fclose(stat);
	return state == 'S';
}

static _Atomic(pid_t) in_call; /* the thread is about to make a call that waits */

static void *synchronize(void *unused)
{
	(void)unused;
	ok(md_cuda.cuCtxSetCurrent(context));
	atomic_store(&in_call, gettid());
	ok(md_cuda.cuCtxSynchronize());
	return NULL;
}

static void start_waiting(void)
{
	CUdeviceptr there = (CUdeviceptr)(uintptr_t)flag, seen;
	void *params[] = {&seen, &there};
	ok(md_cuda.cuMemAlloc_v2(&seen, 4));
	ok(md_cuda.cuLaunchKernel(wait_flag, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	atomic_store(&in_call, 0);
	pthread_create(&waiter, NULL, synchronize, NULL);
	while (!atomic_load(&in_call) || !sleeps(atomic_load(&in_call)))
		usleep(1000);
}

static CUdeviceptr map_all(CUmemGenericAllocationHandle handle, size_t bytes)
{
	CUdeviceptr address;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	ok(md_cuda.cuMemAddressReserve(&address, bytes, 0, 0, 0));
	ok(md_cuda.cuMemMap(address, bytes, 0, handle, 0));
	ok(md_cuda.cuMemSetAccess(address, bytes, &access, 1));
	return address;
}

/* Imports what comes over the socket. */
static void import_memory(int fd)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec io = {&byte, 1};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	CUmemGenericAllocationHandle handle;
	int passed;
	cr_assert_eq(recvmsg(fd, &message, 0), 1);
	memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(passed));
	ok(md_cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)passed,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(passed);
	shared = map_all(handle, 2 * MEGABYTE);
}

static int64_t read_int(CUdeviceptr address)
{
	int value;
	ok(md_cuda.cuMemcpyDtoH_v2(&value, address, 4));
	return value;
}

static int64_t obey(char command, int fd)
{
	size_t free_bytes, total;
	CUuuid uuid;
	CUdeviceptr more;
	switch (command) {
	case 'x':
		ok(launch_scale(scale, NULL, numbers, 2, COUNT));
		ok(md_cuda.cuCtxSynchronize());
		return read_int(numbers + 4 * (COUNT - 1));
	case 'f':
		ok(md_cuda.cuMemGetInfo_v2(&free_bytes, &total));
		return (int64_t)free_bytes;
	case 'p':
		ok(md_cuda.cuDeviceGetUuid_v2(&uuid, 0));
		return uuid.bytes[15];
	case 'a':
		return md_cuda.cuMemAlloc_v2(&more, 40 * MEGABYTE);
	case 'w':
		start_waiting();
		return 0;
	case 'g':
		__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
		return pthread_join(waiter, NULL);
	case 'i':
		import_memory(fd);
		return read_int(shared);
	case 's':
		return read_int(shared);
	default:
		_exit(0);
	}
}

static void be_target(int fd)
{
	char command;
	device_open();
	CUmodule module = load_whole_module();
	scale = function_named(module, "scale");
	wait_flag = function_named(module, "wait_flag");
	numbers = device_ints(1, COUNT);
	ok(md_cuda.cuCtxGetCurrent(&context));
	ok(md_cuda.cuMemHostAlloc((void **)&flag, 4, 0));
	*flag = 0;
	for (int64_t answer = 1; write(fd, &answer, sizeof(answer)) && read(fd, &command, 1) == 1;)
		answer = obey(command, fd);
	_exit(0);
}

static void say(char command)
{
	cr_assert_eq(write(target.fd, &command, 1), 1);
}

static int64_t heard(void)
{
	int64_t answer = -1;
	cr_assert_eq(read(target.fd, &answer, sizeof(answer)), (ssize_t)sizeof(answer), "the target has ended");
	return answer;
}

static int64_t asked(char command)
{
	say(command);
	return heard();
}

static bool is_silent(void)
{
	struct pollfd ready = {.fd = target.fd, .events = POLLIN};
	return poll(&ready, 1, 200) == 0;
}

static char ledger[] = "/tmp/hostcuda-shared.XXXXXX";

static void set_up(void)
{
	int ends[2];
	close(mkstemp(ledger));
	setenv("HOSTCUDA_SHARED", ledger, 1);
	setenv("HOSTCUDA_CONTEXT", "3M", 1);
	setenv("HOSTCUDA_MEM", "64M", 1);
	setenv("HOSTCUDA_DEVICES", "2", 1);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	target.pid = fork();
	if (!target.pid) {
		close(ends[0]);
		be_target(ends[1]);
	}
	close(ends[1]);
	target.fd = ends[0];
	heard();
	struct md_error err;
	cr_assert_eq(md_cuda_load(&err), MD_OK, "%s", err.message);
	ok(md_cuda.cuInit(0));
	only_on_hostcuda("what a driver does with processes, and its settings");
}

static void tear_down(void)
{
	kill(target.pid, SIGKILL);
	waitpid(target.pid, NULL, 0);
	unlink(ledger);
}

TestSuite(hostcuda_checkpoint, .init = set_up, .fini = tear_down, .timeout = 60);

/* ---- the calls ---- */

static void assert_state(CUprocessState wanted)
{
	CUprocessState state;
	ok(md_cuda.cuCheckpointProcessGetState(target.pid, &state));
	cr_assert_eq(state, wanted, "state %d, not %d", state, wanted);
}

static CUresult lock(unsigned timeout_ms)
{
	CUcheckpointLockArgs args = {.timeoutMs = timeout_ms};
	return md_cuda.cuCheckpointProcessLock(target.pid, &args);
}

static CUresult checkpoint(void)
{
	return md_cuda.cuCheckpointProcessCheckpoint(target.pid, NULL);
}

static CUresult restore(void)
{
	return md_cuda.cuCheckpointProcessRestore(target.pid, NULL);
}

static CUresult unlock(void)
{
	return md_cuda.cuCheckpointProcessUnlock(target.pid, NULL);
}

static size_t free_bytes_of(int device)
{
	CUcontext own;
	size_t free_bytes, total;
	ok(md_cuda.cuDevicePrimaryCtxRetain(&own, device));
	ok(md_cuda.cuCtxSetCurrent(own));
	ok(md_cuda.cuMemGetInfo_v2(&free_bytes, &total));
	ok(md_cuda.cuDevicePrimaryCtxRelease_v2(device));
	return free_bytes + CONTEXT_BYTES;
}

Test(hostcuda_checkpoint, all_states_in_their_order)
{
	assert_state(CU_PROCESS_STATE_RUNNING);
	refused(CUDA_ERROR_ILLEGAL_STATE, checkpoint());
	refused(CUDA_ERROR_ILLEGAL_STATE, restore());
	refused(CUDA_ERROR_ILLEGAL_STATE, unlock());
	cr_assert_eq(asked('x'), 2);
	ok(lock(1000));
	assert_state(CU_PROCESS_STATE_LOCKED);
	refused(CUDA_ERROR_ILLEGAL_STATE, lock(1000));
	refused(CUDA_ERROR_ILLEGAL_STATE, restore());
	say('x');
	cr_assert(is_silent(), "calls wait");
	ok(checkpoint());
	assert_state(CU_PROCESS_STATE_CHECKPOINTED);
	refused(CUDA_ERROR_ILLEGAL_STATE, lock(1000));
	refused(CUDA_ERROR_ILLEGAL_STATE, checkpoint());
	refused(CUDA_ERROR_ILLEGAL_STATE, unlock());
	cr_assert(is_silent(), "calls wait");
	ok(restore());
	assert_state(CU_PROCESS_STATE_LOCKED);
	cr_assert(is_silent(), "calls wait");
	ok(unlock());
	assert_state(CU_PROCESS_STATE_RUNNING);
	cr_assert_eq(heard(), 4, "the call went on, with what was there");
	cr_assert_eq(asked('x'), 8);
}

Test(hostcuda_checkpoint, its_share_of_the_device_is_free_meanwhile)
{
	size_t all = DEVICE_BYTES, its = CONTEXT_BYTES + COUNT * 4;
	cr_assert_eq(free_bytes_of(0), all - its, "%zu", all - free_bytes_of(0));
	ok(lock(0));
	ok(checkpoint());
	cr_assert_eq(free_bytes_of(0), all, "%zu bytes stay", all - free_bytes_of(0));
	ok(restore());
	cr_assert_eq(free_bytes_of(0), all - its);
	ok(unlock());
	cr_assert_eq(asked('f'), (int64_t)(all - its));
}

Test(hostcuda_checkpoint, without_room_it_stays_checkpointed)
{
	CUcontext own;
	CUdeviceptr memory;
	cr_assert_eq(asked('a'), CUDA_SUCCESS);
	ok(lock(1000));
	ok(checkpoint());
	ok(md_cuda.cuDevicePrimaryCtxRetain(&own, 0));
	ok(md_cuda.cuCtxSetCurrent(own));
	ok(md_cuda.cuMemAlloc_v2(&memory, 30 * MEGABYTE));
	refused(CUDA_ERROR_OUT_OF_MEMORY, restore());
	assert_state(CU_PROCESS_STATE_CHECKPOINTED);
	ok(md_cuda.cuMemFree_v2(memory));
	ok(restore());
	refused(CUDA_ERROR_OUT_OF_MEMORY, md_cuda.cuMemAlloc_v2(&memory, 30 * MEGABYTE));
	ok(unlock());
	cr_assert_eq(asked('x'), 2);
}

static CUcheckpointGpuPair pair(int from, int to)
{
	CUcheckpointGpuPair made = {{{0}}, {{0}}};
	ok(md_cuda.cuDeviceGetUuid_v2(&made.oldUuid, from));
	ok(md_cuda.cuDeviceGetUuid_v2(&made.newUuid, to));
	return made;
}

static CUresult restore_with(const CUcheckpointGpuPair *pairs, unsigned count)
{
	CUcheckpointGpuPair copy[2] = {pairs[0], pairs[count - 1]};
	CUcheckpointRestoreArgs args = {.gpuPairs = copy, .gpuPairsCount = count};
	return md_cuda.cuCheckpointProcessRestore(target.pid, &args);
}

Test(hostcuda_checkpoint, pairs_move_it_to_another_device)
{
	size_t all = DEVICE_BYTES, its = CONTEXT_BYTES + COUNT * 4;
	CUcheckpointGpuPair swapped[] = {pair(0, 1), pair(1, 0)}, both[] = {pair(0, 1), pair(1, 1)};
	cr_assert_eq(asked('x'), 2);
	ok(lock(1000));
	ok(checkpoint());
	refused(CUDA_ERROR_INVALID_VALUE, restore_with(swapped, 1)); /* one device is missing */
	refused(CUDA_ERROR_INVALID_VALUE, restore_with(both, 2));
	assert_state(CU_PROCESS_STATE_CHECKPOINTED);
	ok(restore_with(swapped, 2));
	ok(unlock());
	cr_assert_eq(asked('p'), 1, "its first device is the other one now");
	cr_assert_eq(asked('x'), 4);
	cr_assert_eq(free_bytes_of(0), all);
	cr_assert_eq(free_bytes_of(1), all - its);
}

/* accept4 takes the number of its result before it waits, so a thread that waits in it takes one from the process. */
Test(hostcuda_checkpoint, the_thread_that_waits_for_requests_takes_no_descriptor)
{
	int thread;
	ok(md_cuda.cuCheckpointProcessGetRestoreThreadId(getpid(), &thread));
	while (!sleeps(thread))
		usleep(1000);
	for (int number = 0; number < 64; number++)
		if (fcntl(number, F_GETFD) < 0)
			cr_assert_eq(fcntl(target.fd, F_DUPFD, number), number, "%d is free and cannot be had", number);
}

Test(hostcuda_checkpoint, a_lock_waits_for_calls_but_not_for_ever)
{
	asked('w');
	refused(CUDA_ERROR_NOT_READY, lock(100));
	assert_state(CU_PROCESS_STATE_RUNNING);
	cr_assert_gt(asked('f'), 0, "calls go on");
	asked('g');
	ok(lock(1000));
	ok(unlock());
}

Test(hostcuda_checkpoint, processes_that_have_no_state)
{
	CUprocessState state;
	int thread;
	pid_t other = fork();
	if (!other)
		_exit(0);
	waitpid(other, NULL, 0);
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuCheckpointProcessGetState(other, &state));
	ok(md_cuda.cuCheckpointProcessGetState(getpid(), &state));
	ok(md_cuda.cuCheckpointProcessGetRestoreThreadId(target.pid, &thread));
	cr_assert_gt(thread, target.pid, "a thread of its own");
	ok(lock(1000));
	ok(checkpoint());
	kill(target.pid, SIGKILL);
	waitpid(target.pid, NULL, 0);
	refused(CUDA_ERROR_INVALID_VALUE, restore());
	cr_assert_eq(free_bytes_of(0), DEVICE_BYTES, "it left nothing");
}

Test(hostcuda_checkpoint, arguments_of_the_future_are_refused)
{
	CUcheckpointLockArgs args = {.reserved1 = {0, 1}};
	CUcheckpointRestoreArgs later = {.reserved = {1}};
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuCheckpointProcessLock(target.pid, &args));
	refused(CUDA_ERROR_INVALID_VALUE, md_cuda.cuCheckpointProcessRestore(target.pid, &later));
	assert_state(CU_PROCESS_STATE_RUNNING);
}

static void send_descriptor(int passed)
{
	char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {&byte, 1};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	*CMSG_FIRSTHDR(&message) =
	    (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &passed, sizeof(passed));
	cr_assert_eq(sendmsg(target.fd, &message, 0), 1);
}

Test(hostcuda_checkpoint, shared_memory_becomes_a_copy)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	int fd;
	ok(md_cuda.cuDevicePrimaryCtxRetain(&context, 0));
	ok(md_cuda.cuCtxSetCurrent(context));
	ok(md_cuda.cuMemCreate(&handle, 2 * MEGABYTE, &prop, 0));
	CUdeviceptr mine = map_all(handle, 2 * MEGABYTE);
	ok(md_cuda.cuMemsetD32_v2(mine, 5, 16));
	ok(md_cuda.cuCtxSynchronize());
	ok(md_cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	say('i');
	send_descriptor(fd);
	cr_assert_eq(heard(), 5);
	ok(md_cuda.cuMemsetD32_v2(mine, 6, 16));
	ok(md_cuda.cuCtxSynchronize());
	cr_assert_eq(asked('s'), 6, "both see it");
	ok(lock(1000));
	ok(checkpoint());
	ok(restore());
	ok(unlock());
	cr_assert_eq(asked('s'), 6, "the contents are as before");
	ok(md_cuda.cuMemsetD32_v2(mine, 7, 16));
	ok(md_cuda.cuCtxSynchronize());
	cr_assert_eq(asked('s'), 6, "and nobody else's writes are seen");
}
