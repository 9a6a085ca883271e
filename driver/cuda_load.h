/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the table of the CUDA driver: whether the driver's library is loaded, and how swap/ changes the table. */
#ifndef MD_DRIVER_CUDA_LOAD_H
#define MD_DRIVER_CUDA_LOAD_H

#include <stdbool.h>

#include "driver/cuda_driver.h"

/* Whether this process has loaded the CUDA driver library; does not load it. */
bool md_cuda_present(void);

/*
 * swap/layer.c defines it; it is NULL in libraries without swap/. md_cuda_load calls it before the table is published,
 * and it puts its own functions there for entry points of the driver, which stay in md_cuda_real.
 */
extern void md_cuda_layer(struct md_cuda *table) __attribute__((weak));

#endif
