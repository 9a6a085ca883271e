/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of constant buffers. */
#ifndef MD_RESTORE_VERIFY_CONSTANT_SAMPLES_H
#define MD_RESTORE_VERIFY_CONSTANT_SAMPLES_H

#include "restore/restore.h"

struct md_verify_memory;

/* Samples of the constant buffers: kept the first time, compared from then on. */
enum md_status md_verify_constants_check(struct md_verify_memory *memory, struct md_error *err);

#endif
