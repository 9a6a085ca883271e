/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's checkpoints of processes (cuCheckpointProcess*, CUDA 12.8): what a process has on the GPU goes to host
 * memory of the driver, with its context, and comes back, on the same GPU or another one. All processes go, or none.
 */
#ifndef MD_DRIVER_PROCESS_CHECKPOINT_H
#define MD_DRIVER_PROCESS_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/cuda_driver.h"

#define MD_CHECKPOINT_PROCESSES 256u /* that go and come together */

struct md_checkpoint_times {
	uint64_t ns_lock, ns_checkpoint, ns_restore, ns_unlock; /* of all processes together */
};

/*
 * Initializes the driver in this process, without a context. MD_ERR_UNSUPPORTED names the call that the driver lacks.
 */
enum md_status md_checkpoint_open(struct md_error *err);
/* *known is false if the process has not initialized the driver, or has ended. */
enum md_status md_checkpoint_state(pid_t pid, bool *known, CUprocessState *state, struct md_error *err);
/* "running", "locked", "checkpointed", "failed"; never NULL. */
const char *md_checkpoint_state_name(CUprocessState state);

/* Called when all questions are answered, before anything is changed; an error: nothing is. */
struct md_checkpoint_begin {
	enum md_status (*call)(void *user, struct md_error *err);
	void *user;
};

/*
 * Locks all processes, which must be running, and then checkpoints them. After a failure all run on; if one does not, the
 * message says in which state it stays. MD_ERR_TIMEOUT: a call of a process did not end within the deadline;
 * MD_ERR_UNSUPPORTED: the driver cannot do it for this process. begin: NULL for none.
 */
enum md_status md_checkpoint_out(const pid_t *pids, size_t count, uint64_t deadline_ms,
				 const struct md_checkpoint_begin *begin, struct md_checkpoint_times *times,
				 struct md_error *err);

/* Which GPU each one of this machine becomes: all are named, as drivers want it. */
#define MD_CHECKPOINT_GPUS 64u
struct md_checkpoint_move {
	CUcheckpointGpuPair pairs[MD_CHECKPOINT_GPUS]; /* the first one is the one that was asked for */
	unsigned count;                                /* 0: each process comes back where it was */
};

/*
 * Restores all processes that are checkpointed, and unlocks all. After a failure, those that were checkpointed are so
 * again. move, begin: NULL for none. MD_ERR_DRIVER_MEMORY: no room; MD_ERR_BUSY: all run.
 */
enum md_status md_checkpoint_in(const pid_t *pids, size_t count, const struct md_checkpoint_move *move,
				const struct md_checkpoint_begin *begin, struct md_checkpoint_times *times,
				struct md_error *err);

/* ---- GPUs by UUID ---- */

#define MD_CHECKPOINT_UUID_BYTES 48u /* of a text such as GPU-01234567-89ab-cdef-0123-456789abcdef */

void md_checkpoint_uuid_text(const CUuuid *uuid, char text[MD_CHECKPOINT_UUID_BYTES]);
/* A GPU of this machine by its number or its UUID. MD_ERR_NOT_FOUND says which there are. */
enum md_status md_checkpoint_gpu(const char *text, CUuuid *uuid, struct md_error *err);
/* From one GPU to another; if a process uses both, they change places. */
enum md_status md_checkpoint_plan(const CUuuid *from, const CUuuid *to, struct md_checkpoint_move *move,
				  struct md_error *err);

#endif
