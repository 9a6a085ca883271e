/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this process has shared device memory with others: after a checkpoint, each of them would have a copy. */
#ifndef MD_SWAP_SHARING_H
#define MD_SWAP_SHARING_H

#include "driver/cuda_driver.h"

/* Notes the call, for as long as the process lives, if it has succeeded. Returns the result. */
CUresult md_swap_sharing_note(CUresult result, const char *call);
/* The first call that was noted; NULL: none was. */
const char *md_swap_sharing_call(void);

#endif
