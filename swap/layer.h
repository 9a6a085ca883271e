/* SPDX-License-Identifier: Apache-2.0 */
/* The layer between all calls and the driver: the driver's own table, and the functions that replace its entries. */
#ifndef MD_SWAP_LAYER_H
#define MD_SWAP_LAYER_H

#include "driver/cuda_driver.h"

/* The driver itself. All of swap/ calls the driver through this table; md_cuda leads through the gate. */
#define md_swap_real md_cuda_real

/* Puts our functions into a table of the driver's. A program that links this function has the layer in md_cuda. */
void md_swap_layer(struct md_cuda *table);

/*
 * The functions that replace the driver's in the rows with OWN, those that wait in the rows with WAIT and BETWEEN, and those
 * that make copies between devices in the rows with BETWEEN and SHAPE. All of them run inside the gate.
 */
#define MD_SWAP_DECLARE_PASS(symbol, params)
#define MD_SWAP_DECLARE_GATE(symbol, params)
#define MD_SWAP_DECLARE_ALL(symbol, params)
#define MD_SWAP_DECLARE_WAIT(symbol, params) CUresult md_swap_await_##symbol params;
#define MD_SWAP_DECLARE_SHAPE(symbol, params) CUresult md_swap_between_##symbol params;
#define MD_SWAP_DECLARE_BETWEEN(symbol, params)                                                                        \
	MD_SWAP_DECLARE_WAIT(symbol, params) MD_SWAP_DECLARE_SHAPE(symbol, params)
#define MD_SWAP_DECLARE_OWN(symbol, params) CUresult md_swap_own_##symbol params;
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) MD_SWAP_DECLARE_##swap(symbol, params)
#include "driver/cuda_api.def"

#endif
