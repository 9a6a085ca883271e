/* SPDX-License-Identifier: Apache-2.0 */
/* cuCheckpointProcess*: asks the thread of the other process (checkpoint.c), and waits for its answer. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "hostcuda/checkpoint.h"

/* CUDA_ERROR_INVALID_VALUE: the process has not initialized the driver, or does not exist. */
static CUresult ask(int pid, const struct hc_checkpoint_request *request, int *value)
{
	struct sockaddr_un address;
	struct hc_checkpoint_answer answer;
	size_t size = hc_checkpoint_address(pid, &address);
	MD_AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ssize_t got;
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (connect(fd, (struct sockaddr *)&address, (socklen_t)size))
		return CUDA_ERROR_INVALID_VALUE;
	if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) != (ssize_t)sizeof(*request))
		return CUDA_ERROR_OPERATING_SYSTEM;
	do
		got = recv(fd, &answer, sizeof(answer), 0);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof(answer)) /* it has ended */
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (value && answer.result == CUDA_SUCCESS)
		*value = answer.value;
	return (CUresult)answer.result;
}

static bool is_zero(const void *bytes, size_t size)
{
	const char *at = bytes;
	return !size || (!*at && !memcmp(at, at + 1, size - 1));
}

CUresult hc_cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	struct hc_checkpoint_request request = {.wish = HC_GET_THREAD};
	return tid ? ask(pid, &request, tid) : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	struct hc_checkpoint_request request = {.wish = HC_GET_STATE};
	int value = 0;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(ask(pid, &request, &value));
	*state = (CUprocessState)value;
	return CUDA_SUCCESS;
}

CUresult hc_cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	struct hc_checkpoint_request request = {.wish = HC_LOCK, .timeout_ms = args ? args->timeoutMs : 0};
	if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof(args->reserved1))))
		return CUDA_ERROR_INVALID_VALUE;
	return ask(pid, &request, NULL);
}

CUresult hc_cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	struct hc_checkpoint_request request = {.wish = HC_CHECKPOINT};
	return args && !is_zero(args, sizeof(*args)) ? CUDA_ERROR_INVALID_VALUE : ask(pid, &request, NULL);
}

CUresult hc_cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	struct hc_checkpoint_request request = {.wish = HC_RESTORE};
	if (args && (!is_zero(args->reserved, sizeof(args->reserved)) || args->reserved1 ||
		     args->gpuPairsCount > HC_MAX_DEVICES || (args->gpuPairsCount && !args->gpuPairs)))
		return CUDA_ERROR_INVALID_VALUE;
	request.pair_count = args ? args->gpuPairsCount : 0;
	for (uint32_t i = 0; i < request.pair_count; i++)
		request.pairs[i] = args->gpuPairs[i];
	return ask(pid, &request, NULL);
}

CUresult hc_cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	struct hc_checkpoint_request request = {.wish = HC_UNLOCK};
	return args && !is_zero(args, sizeof(*args)) ? CUDA_ERROR_INVALID_VALUE : ask(pid, &request, NULL);
}
