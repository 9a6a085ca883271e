/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels, copies and fills. */
#ifndef HOSTCUDA_EXECUTOR_H
#define HOSTCUDA_EXECUTOR_H

#include "hostcuda/device_state.h"

/* Runs with the worker's fault guard set; a memory fault gives CUDA_ERROR_ILLEGAL_ADDRESS. */
CUresult hc_execute_launch(const struct hc_launch *launch, const struct hc_context *context);
CUresult hc_execute_copy(const struct hc_copy *copy);
CUresult hc_execute_fill(const struct hc_fill *fill);
void hc_executor_lone_op(void); /* called before a kernel or a copy on the device that is not part of a graph */
void hc_executor_start(void);   /* installs the fault handlers, unless they are installed */
void hc_executor_leave(void);   /* frees what this thread allocated for running kernels */

#endif
