/* SPDX-License-Identifier: Apache-2.0 */
/* The layer between everybody's calls and the driver: the driver's own table, and the functions that stand for it. */
#ifndef MD_SWAP_LAYER_H
#define MD_SWAP_LAYER_H

#include "driver/cuda_driver.h"

/* The driver itself. Everything in swap/ calls it, and nothing else: md_cuda leads through the gate. */
#define md_swap_real md_cuda_real

/* Puts our functions into a table of the driver's. A program that refers to it has the layer in md_cuda. */
void md_swap_layer(struct md_cuda *table);

/*
 * The functions that stand for the driver's in the rows with OWN, and those that wait in the rows with WAIT; they run
 * inside the gate.
 */
#define MD_SWAP_DECLARE_PASS(symbol, params)
#define MD_SWAP_DECLARE_GATE(symbol, params)
#define MD_SWAP_DECLARE_ALL(symbol, params)
#define MD_SWAP_DECLARE_WAIT(symbol, params) CUresult md_swap_await_##symbol params;
#define MD_SWAP_DECLARE_OWN(symbol, params) CUresult md_swap_own_##symbol params;
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) MD_SWAP_DECLARE_##swap(symbol, params)
#include "driver/cuda_api.def"

#endif
