/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other processes have, too, or that lies at two addresses. Lock not held unless said. */
#ifndef MD_CAPTURE_RECORD_SHARED_H
#define MD_CAPTURE_RECORD_SHARED_H

#include "capture/capture.h"

/* Memory of this process, anywhere in it: what reaches it besides (the host, the library that made it), or other processes */
void md_capture_shared_reached(uint64_t address);
void md_capture_shared_exported(uint64_t address);
void md_capture_shared_imported(uint64_t address);
void md_capture_shared_opened(uint64_t address); /* by an IPC handle, perhaps not for the first time */
void md_capture_shared_closed(uint64_t address); /* gone when it was closed as often as it was opened */
/* on_device: else the host reaches it, too. */
void md_capture_handle_made(CUmemGenericAllocationHandle handle, bool on_device);
/* Of the mapping that the address lies in; it may be another one than that which was mapped. */
void md_capture_handle_retained(CUmemGenericAllocationHandle handle, uint64_t address);
void md_capture_handle_foreign(CUmemGenericAllocationHandle handle, bool own); /* exported (own), or imported */
/* Names its mapping, if it has one and is exported or imported (capture/record/made.h). caller: the hook's return address. */
void md_capture_handle_named(const void *caller, CUmemGenericAllocationHandle handle);
void md_capture_handle_multicast(CUmemGenericAllocationHandle handle);
void md_capture_shared_multicast(uint64_t address);  /* it is bound to such an object */
bool md_capture_has_multicast(void) MD_CAPTURE_HELD; /* this process has made or joined a multicast object, ever */
void md_capture_mapped(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
bool md_capture_is_mapping(uint64_t start) MD_CAPTURE_HELD;
void md_capture_unmapped(uint64_t start) MD_CAPTURE_HELD;
/* Page-locked memory has another address on the device. */
void md_capture_host_seen(const void *host, uint64_t device);
uint64_t md_capture_host_gone(uint64_t start) MD_CAPTURE_HELD; /* that address, or 0 */
/* Devices were given access to a range of mappings. Lock not held. */
void md_capture_access_given(uint64_t address, uint64_t bytes, const CUmemAccessDesc *desc, size_t count);

#endif
