/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules of which the engine has asked for the address: kernels find memory by what they hold. */
#ifndef MD_SWAP_MODULE_WORDS_H
#define MD_SWAP_MODULE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

typedef bool md_swap_variable_reader(void *user, const uint8_t *bytes, size_t size);

/*
 * Hands what each variable holds to the reader. False: one of them cannot be read, the host may write it at any time
 * (managed), or the reader says so.
 */
bool md_swap_variables_read(const struct md_cuda *driver, md_swap_variable_reader *reader, void *user);
void md_swap_variables_context_gone(CUcontext context);

#endif
