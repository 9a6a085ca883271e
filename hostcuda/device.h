/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, their free memory, and the table of handles. */
#ifndef HOSTCUDA_DEVICE_H
#define HOSTCUDA_DEVICE_H

#include "hostcuda/device_state.h"

bool hc_handle_add(const void *object, enum hc_kind kind); /* false when out of memory */
void hc_handle_remove(const void *object);
enum hc_kind hc_handle_kind(const void *object); /* 0: not a live handle */

struct hc_device *hc_device_at(CUdevice device); /* NULL for a bad ordinal */

CUuuid hc_device_uuid(int place);
int hc_device_of_uuid(const CUuuid *uuid); /* its place, or -1 */
size_t hc_device_context_bytes(void);      /* what a context takes (HOSTCUDA_CONTEXT) */

CUresult hc_device_charge(struct hc_device *device, size_t bytes);
void hc_device_credit(struct hc_device *device, size_t bytes);

#endif
