/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the hooks. */
#include "capture/hooks/hook.h"

const struct md_hook md_hooks[] = {
#define CU_ENTRY MD_HOOK_ENTRY
#include "driver/cuda_api.def"
};
MD_HOOK_COUNT;
