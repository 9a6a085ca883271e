/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules for whose address the engine has asked: kernels find memory by addresses in them. */
#ifndef MD_SWAP_MODULE_WORDS_H
#define MD_SWAP_MODULE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

typedef bool md_swap_variable_reader(void *user, const uint8_t *bytes, size_t size);

/*
 * Calls the reader with the bytes of each variable. False: a variable cannot be read, the host may write it at any time
 * (managed), or the reader returned false.
 */
bool md_swap_variables_read(const struct md_cuda *driver, md_swap_variable_reader *reader, void *user);
void md_swap_variables_context_gone(CUcontext context);

#endif
