/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries and functions. */
#ifndef HOSTCUDA_MODULE_H
#define HOSTCUDA_MODULE_H

#include "hostcuda/device_state.h"

void hc_module_destroy(struct hc_module *module);
void hc_library_drop_context(struct hc_context *context);
CUresult hc_function_resolve(CUfunction handle,
			     struct hc_function **function) HC_STATE_HELD; /* CUfunction or CUkernel */

#endif
