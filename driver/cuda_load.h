/* SPDX-License-Identifier: Apache-2.0 */
/* Asks whether this process has loaded the CUDA driver library, without loading it. */
#ifndef MD_DRIVER_CUDA_LOAD_H
#define MD_DRIVER_CUDA_LOAD_H

#include <stdbool.h>

bool md_cuda_present(void);

#endif
