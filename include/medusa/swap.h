/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of medusa-swap: takes an engine's device memory away and gives it back, from any process or from the engine itself. */
#ifndef MEDUSA_SWAP_H
#define MEDUSA_SWAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Link with -lmedusa. The functions do what the commands of medusa-swap(1) do: they send one message to the
 * `medusa-swap run` that has started the engine, and wait for its answer. (Only --gpu-peers has no field here.) They return 0 or a MEDUSA_ERR_* code of
 * medusa/medusa.h; medusa_reason() then says why, in one sentence. They may be called from any thread, of any program of
 * the engine's user or of root; the program need not use CUDA.
 *
 * name is what the engine is called: the --name of medusa-swap run. NULL is the calling process: an engine that
 * medusa-swap run has started takes its own memory away, and that of no other process. The calling thread waits; it
 * must not be inside a call of CUDA (a host function, say), and no stream may be in a capture. From then on each call of
 * CUDA waits until the memory is back, but for those that ask for the end of work or wait for it (cuCtxSynchronize,
 * cuStreamSynchronize, cuEventQuery ...) and, after medusa_swap_out(NULL, ...), cuMemGetInfo, which says what is free
 * now. So some thread must call medusa_swap_in(NULL, ...) without waiting for CUDA before, or another process must. A thread that
 * waits keeps its locks, such as Python's: stop other threads that call CUDA first.
 *
 * With full, the driver makes a checkpoint of the engine's processes, and nothing stays on the device. An engine cannot ask
 * for that itself: its own thread would wait in the driver. So name must be that of another engine.
 *
 * Codes: MEDUSA_ERR_INVALID (an argument, a name that no engine can have, or an engine that was released);
 * MEDUSA_ERR_NOT_FOUND (no such engine runs; it ended before it answered; no process of it uses a GPU yet; NULL in a
 * process that is no engine of medusa-swap run); MEDUSA_ERR_TIMEOUT (the engine's work did not end within the deadline,
 * or a process does not answer); MEDUSA_ERR_UNSUPPORTED (full: the driver cannot do it, the engine has shared device
 * memory, or asks for itself; gpu: the engine is not out with full, or uses several GPUs); MEDUSA_ERR_NO_MEMORY (of the pool, whose spill file may be full or fail, or, in, of the device: medusa_reason()
 * says how many bytes are missing); MEDUSA_ERR_DRIVER; MEDUSA_ERR_MISMATCH (verification found a difference, the spill file has
 * other bytes or cannot be read, or the peer is of another version). After each of them the memory is where it was, and the engine runs on if that was the device.
 */

struct medusa_swap_options {
	size_t size; /* sizeof(struct medusa_swap_options), set by the caller */
	uint64_t
	    deadline_ns; /* out: how long the engine's work on the device may take to end; at most an hour; 0: no time */
	int verify;      /* in: 1: hash what has come back, and compare */
	int overlap;     /* in: 1: the engine goes on while its memory fills; not with verify */
	int full;        /* out: 1: the CUDA driver takes what is left, such as contexts; for another process alone */
	const char
	    *gpu; /* in, after full: the GPU on which the engine comes back, as a number or a UUID; NULL: the same */
	int gpu_neighbours; /* in: 1: other GPUs with NVLink to this one carry a part; not with overlap */
};

/* Of several processes, bytes are sums, and each time is the longest one. */
struct medusa_swap_report {
	size_t size;           /* sizeof(struct medusa_swap_report), set by the caller */
	uint64_t bytes;        /* of device memory that went or came */
	uint64_t copied;       /* of these, between device and host */
	uint64_t hashed_equal; /* of these, what the host's pool had already; out only */
	uint64_t zero;         /* of these, blocks of zeros, which are neither copied nor kept */
	uint64_t discarded;    /* of these, what the engine does not need (medusa_swap_discardable) */
	uint64_t stays;        /* other device memory of the engine, which cannot go */
	uint64_t coming;       /* had not come when the engine went on; in with overlap only */
	uint64_t quiesce_ns, hash_ns, lock_ns, copy_ns, unmap_ns, map_ns, total_ns;
	uint64_t driver_lock_ns, checkpoint_ns; /* out with full; total_ns includes them, and the two below */
	uint64_t restore_ns, driver_unlock_ns;  /* in after full */
	uint64_t neighbour_bytes;               /* of those copied, over links of other GPUs; in with gpu_neighbours */
	uint64_t spilled;                       /* bytes that were written to the pool's spill file, or read from it */
	uint64_t spill_ns;                      /* of that; within copy_ns */
};

struct medusa_swap_engine {
	size_t size;                    /* sizeof(struct medusa_swap_engine), set by the caller of medusa_swap_status */
	char name[64];                  /* with a NUL */
	uint64_t pid;                   /* of medusa-swap run */
	uint64_t processes;             /* of the engine, that use a device */
	uint64_t processes_out;         /* of these, those whose memory is out */
	int moving;                     /* 1: the memory is on its way out or in */
	int released;                   /* 1: the engine keeps its memory for good */
	uint64_t swappable, out, stays; /* bytes of device memory that can go, that are out, and that cannot go */
	uint64_t coming;                /* bytes still to come, after in with overlap */
	uint64_t pool_bytes;            /* the host memory for what is out */
	uint64_t pool_held, pool_cached; /* of these, bytes of engines that are out, and bytes kept for the next time */
	uint64_t outs, ins;              /* done so far */
	uint64_t processes_silent;       /* of the processes, those that have not answered; stopped ones, say */
	int full;                        /* 1: out with full */
	uint64_t in_file;                /* bytes of this engine that lie in the pool's spill file */
	uint64_t spill_bytes, spill_held; /* the most that the file takes, and what it holds of engines that are out */
};

/*
 * Takes the memory away. options: NULL, or a deadline (NULL: 10 s). report: NULL, or set on success alone. All processes
 * of the engine go, or none. If the memory is out already, the result is 0, report->bytes is 0, and medusa_reason() says so.
 */
int medusa_swap_out(const char *name, const struct medusa_swap_options *options, struct medusa_swap_report *report);
/* Gives it back, at the same addresses. options and report as above; also if the memory is in already. */
int medusa_swap_in(const char *name, const struct medusa_swap_options *options, struct medusa_swap_report *report);
/* Gives it back if it is out, and leaves the engine alone from then on: all its processes, also for NULL. */
int medusa_swap_release(const char *name);
/* Fills *out. NULL: the engine that this process belongs to. */
int medusa_swap_status(const char *name, struct medusa_swap_engine *out);
/*
 * Calls each() for every engine of this user, in the order of their names, until it returns other than 0; the struct is
 * valid during that call. Engines that end meanwhile are left out. Returns 0, also if there is none.
 */
int medusa_swap_list(int (*each)(const struct medusa_swap_engine *engine, void *user), void *user);

#ifdef __cplusplus
}
#endif

#endif
