/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: no call of the engine that could touch device memory passes while the engine's memory is away. */
#ifndef MD_SWAP_GATE_H
#define MD_SWAP_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

/* The index of each entry point in cuda_api.def. */
enum md_swap_index {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) MD_SWAP_INDEX_##symbol,
#include "driver/cuda_api.def"
	MD_SWAP_INDEX_COUNT
};

/*
 * Closes the gate: waits until no gated call is inside, and no stream is being captured, and until the work of all
 * contexts of this process has ended. deadline_ns is a duration. MD_ERR_TIMEOUT names the call or work that did not end,
 * and for how long; MD_ERR_BUSY: the gate is closed already; MD_ERR_DRIVER: a context is broken. After an error other
 * than MD_ERR_BUSY the gate is open.
 */
enum md_status md_swap_gate_close(uint64_t deadline_ns, struct md_error *err);
void md_swap_gate_open(void);
bool md_swap_gate_is_closed(void);
/*
 * The same for a thread of the engine, which may be inside a call itself: nobody else closes the gate until
 * md_swap_gate_open_again. MD_ERR_BUSY: streams are being captured, or the memory is out, and has come back meanwhile if
 * the thread is inside a call; or that call was made by another one.
 */
enum md_status md_swap_gate_close_briefly(uint64_t deadline_ns, struct md_error *err);
void md_swap_gate_open_again(void);
/*
 * Whether the engine itself has asked for its memory to be out (medusa_swap_out): cuMemGetInfo then passes the closed
 * gate, because the engine wants to see what is free now. Ends when the gate opens.
 */
void md_swap_gate_asked_for(bool by_engine);
/*
 * For a process that ends while its memory is out: waiting calls and all later ones return
 * CUDA_ERROR_DEINITIALIZED, as they do while the driver shuts down. The gate does not open again.
 */
void md_swap_gate_abandon(void);

/* The call of the driver that this thread has made, and is inside. */
const char *md_swap_gate_call(void);

/* How many streams are being captured, as the layer tells the gate. */
void md_swap_gate_capture_begins(CUstream stream, CUcontext context);
void md_swap_gate_capture_ends(CUstream stream);
/* The context has been destroyed, and its streams with it. */
void md_swap_gate_captures_gone(CUcontext context);
unsigned md_swap_gate_captures(void);

/* ---- for the layer: around each gated call ---- */

struct md_swap_slot {
	_Atomic(uint32_t) inside; /* 1 + the index of the entry point; 0: this thread is outside */
	uint32_t depth;           /* a call inside a call passes */
	atomic_bool taken;
	atomic_int thread; /* read by who closes the gate, also while the slot goes to another thread */
	uint64_t serial;   /* of the thread, among all that ever came */
	struct md_swap_slot *next;
};

extern _Thread_local struct md_swap_slot *md_swap_own_slot __attribute__((tls_model("initial-exec")));
extern _Atomic(uint32_t) md_swap_gate_state; /* 0: open */

CUresult md_swap_gate_enter_first(enum md_swap_index index);
CUresult md_swap_gate_wait(struct md_swap_slot *slot, enum md_swap_index index);

/* If the result is not CUDA_SUCCESS, the call is not made, and returns this result. */
static inline CUresult md_swap_gate_enter(enum md_swap_index index)
{
	struct md_swap_slot *slot = md_swap_own_slot;
	if (__builtin_expect(!slot, 0))
		return md_swap_gate_enter_first(index);
	if (__builtin_expect(slot->depth != 0, 0)) {
		slot->depth++;
		return CUDA_SUCCESS;
	}
	slot->depth = 1;
	atomic_store_explicit(&slot->inside, (uint32_t)index + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&md_swap_gate_state, memory_order_acquire) == 0, 1))
		return CUDA_SUCCESS;
	return md_swap_gate_wait(slot, index);
}

static inline void md_swap_gate_leave(void)
{
	struct md_swap_slot *slot = md_swap_own_slot;
	if (--slot->depth == 0)
		atomic_store_explicit(&slot->inside, 0, memory_order_release);
}

/* MD_SWAP_GATED(cuMemFree_v2, call): the call's result, made inside the gate. */
#define MD_SWAP_GATED(symbol, call)                                                                                    \
	({                                                                                                             \
		CUresult gated_ = md_swap_gate_enter(MD_SWAP_INDEX_##symbol);                                          \
		if (__builtin_expect(gated_ == CUDA_SUCCESS, 1)) {                                                     \
			gated_ = (call);                                                                               \
			md_swap_gate_leave();                                                                          \
		}                                                                                                      \
		gated_;                                                                                                \
	})

#endif
