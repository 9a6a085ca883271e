/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that another process locks and takes the device from: cuCheckpointProcess*. */
#ifndef HOSTCUDA_CHECKPOINT_H
#define HOSTCUDA_CHECKPOINT_H

#include "hostcuda/device_state.h"

/* ---- around each call: it waits while the process is locked ---- */
void hc_checkpoint_enter(void);
void hc_checkpoint_leave(void);

/* Answers other processes from a thread; without that thread, this process cannot be checkpointed. */
void hc_checkpoint_start(void);

/* ---- between the calling process and the thread ---- */
enum hc_checkpoint_wish { HC_GET_STATE, HC_GET_THREAD, HC_LOCK, HC_CHECKPOINT, HC_RESTORE, HC_UNLOCK };

struct hc_checkpoint_request {
	uint32_t wish, timeout_ms, pair_count;
	CUcheckpointGpuPair pairs[HC_MAX_DEVICES];
};

struct hc_checkpoint_answer {
	int32_t result, value; /* value: the state, or the thread */
};

/* An abstract address; the size of it. */
size_t hc_checkpoint_address(int pid, void *address);

#endif
