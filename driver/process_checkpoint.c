/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of processes, all or none: locks all, then takes all; restores all, then unlocks all. */
#include "driver/process_checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum md_status md_checkpoint_open(struct md_error *err)
{
	const struct {
		const char *name;
		bool there;
	} calls[] = {
	    {"cuCheckpointProcessGetState", md_cuda_load(err) == MD_OK && md_cuda.cuCheckpointProcessGetState},
	    {"cuCheckpointProcessLock", md_cuda.cuCheckpointProcessLock},
	    {"cuCheckpointProcessCheckpoint", md_cuda.cuCheckpointProcessCheckpoint},
	    {"cuCheckpointProcessRestore", md_cuda.cuCheckpointProcessRestore},
	    {"cuCheckpointProcessUnlock", md_cuda.cuCheckpointProcessUnlock},
	};
	MD_FORWARD(md_cuda_load(err));
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!calls[i].there)
			return md_error_set(err, MD_ERR_UNSUPPORTED,
					    "this CUDA driver has no %s, so it cannot checkpoint processes",
					    calls[i].name);
	return md_cuda_call(err, cuInit, 0);
}

/* ---- states ---- */

const char *md_checkpoint_state_name(CUprocessState state)
{
	static const char *const names[] = {"running", "locked", "checkpointed", "failed"};
	return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "in a state unknown to Medusa";
}

/* Says of a result whose process it is about; 801 is the driver's word for what it cannot do. */
static enum md_status say(CUresult result, const char *entry, pid_t pid, struct md_error *err)
{
	enum md_status status = md_cuda_status(result, entry, err);
	if (status == MD_OK)
		return MD_OK;
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		err->status = MD_ERR_UNSUPPORTED;
	else if (result == CUDA_ERROR_NOT_READY)
		err->status = MD_ERR_TIMEOUT;
	return md_error_prefix(err, "process %d", (int)pid);
}

enum md_status md_checkpoint_state(pid_t pid, bool *known, CUprocessState *state, struct md_error *err)
{
	CUresult result = md_cuda.cuCheckpointProcessGetState((int)pid, state);
	*known = result == CUDA_SUCCESS;
	if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_INITIALIZED)
		return MD_OK;
	return say(result, "cuCheckpointProcessGetState", pid, err);
}

static enum md_status must_be(pid_t pid, CUprocessState *state, struct md_error *err)
{
	bool known;
	MD_FORWARD(md_checkpoint_state(pid, &known, state, err));
	if (!known)
		return md_error_set(err, MD_ERR_NOT_FOUND,
				    "process %d has ended, or no longer uses the driver: its memory is lost", (int)pid);
	if (*state == CU_PROCESS_STATE_FAILED)
		return md_error_set(err, MD_ERR_DRIVER,
				    "process %d is failed, as the driver calls it: it cannot be brought back; end it",
				    (int)pid);
	return MD_OK;
}

/* ---- undoing ---- */

/* Adds to a message in which state a process was left, and how to go on. */
static void add_left(pid_t pid, const struct md_error *why, struct md_error *err)
{
	size_t used = err ? strlen(err->message) : 0;
	CUprocessState state;
	bool known;
	struct md_error none;
	if (!err || md_checkpoint_state(pid, &known, &state, &none) != MD_OK || !known)
		return;
	snprintf(err->message + used, sizeof(err->message) - used,
		 "; process %d stays %s (%s): \"medusa-swap in --method checkpoint %d\" tries again", (int)pid,
		 md_checkpoint_state_name(state), why->message, (int)pid);
}

/* Lets processes run that were locked or checkpointed. */
static void bring_back(const pid_t *pids, size_t count, struct md_error *err)
{
	for (size_t i = 0; i < count; i++) {
		CUprocessState state;
		struct md_error why = {0};
		enum md_status status = must_be(pids[i], &state, &why);
		if (status == MD_OK && state == CU_PROCESS_STATE_CHECKPOINTED)
			status = say(md_cuda.cuCheckpointProcessRestore((int)pids[i], NULL),
				     "cuCheckpointProcessRestore", pids[i], &why);
		if (status == MD_OK && state != CU_PROCESS_STATE_RUNNING)
			status = say(md_cuda.cuCheckpointProcessUnlock((int)pids[i], NULL), "cuCheckpointProcessUnlock",
				     pids[i], &why);
		if (status != MD_OK)
			add_left(pids[i], &why, err);
	}
}

/* ---- out ---- */

static enum md_status check_running(const pid_t *pids, size_t count, struct md_error *err)
{
	for (size_t i = 0; i < count; i++) {
		CUprocessState state;
		MD_FORWARD(must_be(pids[i], &state, err));
		if (state != CU_PROCESS_STATE_RUNNING)
			return md_error_set(err, MD_ERR_BUSY,
					    "process %d is %s already: \"medusa-swap in --method checkpoint %d\" lets "
					    "it run, unless another program has done that",
					    (int)pids[i], md_checkpoint_state_name(state), (int)pids[i]);
	}
	return MD_OK;
}

static enum md_status lock_one(pid_t pid, uint64_t began, uint64_t deadline_ms, struct md_error *err)
{
	uint64_t spent = (md_clock_ns() - began) / 1000000;
	uint64_t left = deadline_ms > spent ? deadline_ms - spent : 1;
	CUcheckpointLockArgs args = {.timeoutMs = left < UINT32_MAX ? (unsigned)left : UINT32_MAX};
	CUresult result = md_cuda.cuCheckpointProcessLock((int)pid, &args);
	if (result == CUDA_ERROR_NOT_READY)
		return md_error_set(
		    err, MD_ERR_TIMEOUT,
		    "process %d: cuCheckpointProcessLock: a call of the driver in it did not end within "
		    "%llu ms: the process keeps its memory, and runs on",
		    (int)pid, (unsigned long long)deadline_ms);
	return say(result, "cuCheckpointProcessLock", pid, err);
}

static enum md_status lock_all(const pid_t *pids, size_t count, uint64_t deadline_ms, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	for (size_t i = 0; i < count; i++) {
		enum md_status status = lock_one(pids[i], began, deadline_ms, err);
		if (status == MD_OK)
			continue;
		bring_back(pids, i, err);
		return status;
	}
	return MD_OK;
}

enum md_status md_checkpoint_out(const pid_t *pids, size_t count, uint64_t deadline_ms,
				 const struct md_checkpoint_begin *begin, struct md_checkpoint_times *times,
				 struct md_error *err)
{
	MD_FORWARD(check_running(pids, count, err));
	if (begin)
		MD_FORWARD(begin->call(begin->user, err));
	uint64_t began = md_clock_ns();
	MD_FORWARD(lock_all(pids, count, deadline_ms, err));
	times->ns_lock = md_clock_ns() - began;
	for (size_t i = 0; i < count; i++) {
		enum md_status status = say(md_cuda.cuCheckpointProcessCheckpoint((int)pids[i], NULL),
					    "cuCheckpointProcessCheckpoint", pids[i], err);
		if (status == MD_OK)
			continue;
		bring_back(pids, count, err);
		return status;
	}
	times->ns_checkpoint = md_clock_ns() - began - times->ns_lock;
	return MD_OK;
}

/* ---- in ---- */

/* Drivers want all GPUs to be named that they know of; those that do not may refuse GPUs that the process does not see. */
static CUresult restore_one(pid_t pid, const struct md_checkpoint_move *move)
{
	CUcheckpointRestoreArgs args = {0};
	CUcheckpointGpuPair pairs[MD_CHECKPOINT_GPUS];
	if (!move || !move->count)
		return md_cuda.cuCheckpointProcessRestore((int)pid, NULL);
	memcpy(pairs, move->pairs, sizeof(pairs));
	args.gpuPairs = pairs;
	args.gpuPairsCount = move->count;
	CUresult result = md_cuda.cuCheckpointProcessRestore((int)pid, &args);
	if (result != CUDA_ERROR_INVALID_VALUE || move->count == 1)
		return result;
	args.gpuPairsCount = 1;
	return md_cuda.cuCheckpointProcessRestore((int)pid, &args);
}

/* The first `count` are to be as they were: those that were checkpointed, again. */
static void take_again(const pid_t *pids, const CUprocessState *states, size_t count, struct md_error *err)
{
	for (size_t i = 0; i < count; i++) {
		struct md_error why = {0};
		if (states[i] == CU_PROCESS_STATE_CHECKPOINTED &&
		    say(md_cuda.cuCheckpointProcessCheckpoint((int)pids[i], NULL), "cuCheckpointProcessCheckpoint",
			pids[i], &why) != MD_OK)
			add_left(pids[i], &why, err);
	}
}

static enum md_status restore_all(const pid_t *pids, const CUprocessState *states, size_t count,
				  const struct md_checkpoint_move *move, struct md_error *err)
{
	for (size_t i = 0; i < count; i++) {
		if (states[i] != CU_PROCESS_STATE_CHECKPOINTED)
			continue;
		enum md_status status = say(restore_one(pids[i], move), "cuCheckpointProcessRestore", pids[i], err);
		if (status == MD_OK)
			continue;
		take_again(pids, states, i, err);
		return status;
	}
	return MD_OK;
}

/* One that cannot be unlocked does not hold up the others. */
static enum md_status unlock_all(const pid_t *pids, const CUprocessState *states, size_t count, struct md_error *err)
{
	enum md_status status = MD_OK;
	for (size_t i = 0; i < count; i++) {
		struct md_error why = {0};
		if (states[i] == CU_PROCESS_STATE_RUNNING || say(md_cuda.cuCheckpointProcessUnlock((int)pids[i], NULL),
								 "cuCheckpointProcessUnlock", pids[i], &why) == MD_OK)
			continue;
		if (status == MD_OK)
			status = md_error_set(err, why.status, "not all processes run");
		add_left(pids[i], &why, err);
	}
	return status;
}

static enum md_status read_states(const pid_t *pids, CUprocessState *states, size_t count, bool moves,
				  struct md_error *err)
{
	size_t running = 0;
	for (size_t i = 0; i < count; i++) {
		MD_FORWARD(must_be(pids[i], &states[i], err));
		running += states[i] == CU_PROCESS_STATE_RUNNING;
		if (moves && states[i] != CU_PROCESS_STATE_CHECKPOINTED)
			return md_error_set(err, MD_ERR_BUSY,
					    "process %d is %s: only a process that is checkpointed can come back on "
					    "another GPU",
					    (int)pids[i], md_checkpoint_state_name(states[i]));
	}
	return running < count ? MD_OK : md_error_set(err, MD_ERR_BUSY, "the memory is in already");
}

enum md_status md_checkpoint_in(const pid_t *pids, size_t count, const struct md_checkpoint_move *move,
				const struct md_checkpoint_begin *begin, struct md_checkpoint_times *times,
				struct md_error *err)
{
	CUprocessState states[MD_CHECKPOINT_PROCESSES];
	if (count > MD_CHECKPOINT_PROCESSES)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%zu processes; at most %u can come back together", count,
				    MD_CHECKPOINT_PROCESSES);
	MD_FORWARD(read_states(pids, states, count, move && move->count, err));
	if (begin)
		MD_FORWARD(begin->call(begin->user, err));
	uint64_t began = md_clock_ns();
	MD_FORWARD(restore_all(pids, states, count, move, err));
	times->ns_restore = md_clock_ns() - began;
	MD_FORWARD(unlock_all(pids, states, count, err));
	times->ns_unlock = md_clock_ns() - began - times->ns_restore;
	return MD_OK;
}

/* ---- GPUs by UUID ---- */

void md_checkpoint_uuid_text(const CUuuid *uuid, char text[MD_CHECKPOINT_UUID_BYTES])
{
	size_t used = (size_t)snprintf(text, MD_CHECKPOINT_UUID_BYTES, "GPU-");
	for (size_t i = 0; i < sizeof(uuid->bytes); i++)
		used +=
		    (size_t)snprintf(text + used, MD_CHECKPOINT_UUID_BYTES - used, "%s%02x",
				     i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid->bytes[i]);
}

static enum md_status uuid_of(int ordinal, CUuuid *uuid, struct md_error *err)
{
	CUdevice device;
	MD_FORWARD(md_cuda_call(err, cuDeviceGet, &device, ordinal));
	return md_cuda_call(err, cuDeviceGetUuid_v2, uuid, device);
}

enum md_status md_checkpoint_gpu(const char *text, CUuuid *uuid, struct md_error *err)
{
	int count = 0;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetCount, &count));
	for (int i = 0; i < count; i++) {
		char number[16], its[MD_CHECKPOINT_UUID_BYTES];
		CUuuid found;
		MD_FORWARD(uuid_of(i, &found, err));
		md_checkpoint_uuid_text(&found, its);
		snprintf(number, sizeof(number), "%d", i);
		if (strcmp(text, number) && strcmp(text, its))
			continue;
		*uuid = found;
		return MD_OK;
	}
	return md_error_set(err, MD_ERR_NOT_FOUND, "no GPU here is called \"%.60s\": use a number below %d, or a UUID",
			    text, count);
}

enum md_status md_checkpoint_plan(const CUuuid *from, const CUuuid *to, struct md_checkpoint_move *move,
				  struct md_error *err)
{
	int count = 0;
	move->pairs[0] = (CUcheckpointGpuPair){*from, *to};
	move->count = 1;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetCount, &count));
	for (int i = 0; i < count && move->count < MD_CHECKPOINT_GPUS; i++) {
		CUuuid uuid;
		MD_FORWARD(uuid_of(i, &uuid, err));
		if (!memcmp(&uuid, from, sizeof(uuid)))
			continue;
		bool is_other = !memcmp(&uuid, to, sizeof(uuid));
		move->pairs[move->count++] = (CUcheckpointGpuPair){uuid, is_other ? *from : uuid};
	}
	return MD_OK;
}
