/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a kernel, as bytes in which addresses can be found. */
#ifndef MD_SWAP_KERNEL_WORDS_H
#define MD_SWAP_KERNEL_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

#define MD_SWAP_PARAMETERS_MOST ((size_t)8 << 10) /* bytes; launches with more wait for everything */

/*
 * Copies the parameters; function is a CUfunction or a CUkernel. False: their size is unknown or too large.
 */
bool md_swap_kernel_parameters(CUfunction function, void *const *params, void *const *extra,
			       uint8_t bytes[MD_SWAP_PARAMETERS_MOST], size_t *size);
/* Adds all that a launch with these parameters may touch to the wish. */
void md_swap_kernel_wish(CUfunction function, void **params, void **extra);

#endif
