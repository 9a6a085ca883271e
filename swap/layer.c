/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the gate, and the functions of swap/, between all calls and the driver. */
#include "swap/layer.h"

#include "driver/cuda_load.h"
#include "swap/arrival.h"
#include "swap/between.h"
#include "swap/gate.h"
#include "swap/physical.h"

#define DEFINE_PASS(symbol, params, args)
#define DEFINE_GATE(symbol, params, args)                                                                              \
	static CUresult CUDAAPI layer_##symbol params                                                                  \
	{                                                                                                              \
		return MD_SWAP_GATED(symbol, md_swap_real.symbol args);                                                \
	}
static inline uint32_t some_arrive(void)
{
	return atomic_load_explicit(&md_swap_arriving, memory_order_relaxed);
}

/* Or may not be written, since other engines have them. */
static inline uint32_t some_are_watched(void)
{
	return some_arrive() | atomic_load_explicit(&md_swap_read_only, memory_order_relaxed);
}

/* While bytes are on their way, `first` waits for those that the call needs. */
#define AFTER(when, first, call)                                                                                       \
	({                                                                                                             \
		CUresult first_ = CUDA_SUCCESS;                                                                        \
		if (__builtin_expect((when) != 0, 0))                                                                  \
			first_ = (first);                                                                              \
		first_ == CUDA_SUCCESS ? (call) : first_;                                                              \
	})
#define DEFINE_WAIT(symbol, params, args)                                                                              \
	static CUresult CUDAAPI layer_##symbol params                                                                  \
	{                                                                                                              \
		return MD_SWAP_GATED(                                                                                  \
		    symbol, AFTER(some_are_watched(), md_swap_await_##symbol args, md_swap_real.symbol args));         \
	}
#define DEFINE_ALL(symbol, params, args)                                                                               \
	static CUresult CUDAAPI layer_##symbol params                                                                  \
	{                                                                                                              \
		return MD_SWAP_GATED(symbol,                                                                           \
				     AFTER(some_arrive(), md_swap_arrival_settle_all(), md_swap_real.symbol args));    \
	}
#define MAKE_COPY(symbol, args)                                                                                        \
	(__builtin_expect(atomic_load_explicit(&md_swap_several_devices, memory_order_relaxed), 0)                     \
	     ? md_swap_between_##symbol args                                                                           \
	     : md_swap_real.symbol args)
#define DEFINE_BETWEEN(symbol, params, args)                                                                           \
	static CUresult CUDAAPI layer_##symbol params                                                                  \
	{                                                                                                              \
		return MD_SWAP_GATED(symbol,                                                                           \
				     AFTER(some_are_watched(), md_swap_await_##symbol args, MAKE_COPY(symbol, args))); \
	}
#define DEFINE_SHAPE(symbol, params, args)                                                                             \
	static CUresult CUDAAPI layer_##symbol params                                                                  \
	{                                                                                                              \
		return MD_SWAP_GATED(symbol,                                                                           \
				     AFTER(some_arrive(), md_swap_arrival_settle_all(), MAKE_COPY(symbol, args)));     \
	}
#define DEFINE_OWN(symbol, params, args)                                                                               \
	static CUresult CUDAAPI layer_##symbol params                                                                  \
	{                                                                                                              \
		return MD_SWAP_GATED(symbol, md_swap_own_##symbol args);                                               \
	}
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) DEFINE_##swap(symbol, params, args)
#include "driver/cuda_api.def"

/* Entry points that this driver lacks stay NULL. */
#define TAKE_PASS(symbol)
#define TAKE_GATE(symbol)                                                                                              \
	if (table->symbol)                                                                                             \
		table->symbol = layer_##symbol;
#define TAKE_WAIT(symbol) TAKE_GATE(symbol)
#define TAKE_ALL(symbol) TAKE_GATE(symbol)
#define TAKE_BETWEEN(symbol) TAKE_GATE(symbol)
#define TAKE_SHAPE(symbol) TAKE_GATE(symbol)
#define TAKE_OWN(symbol) TAKE_GATE(symbol)

void md_swap_layer(struct md_cuda *table)
{
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) TAKE_##swap(symbol)
#include "driver/cuda_api.def"
}

void md_cuda_layer(struct md_cuda *table)
{
	md_swap_layer(table);
}
