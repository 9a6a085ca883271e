/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the grains of device memory in which some word may be an address: the host then looks at these alone. */
#ifndef MD_DRIVER_DEVICE_SEARCH_H
#define MD_DRIVER_DEVICE_SEARCH_H

#include "driver/device_session.h"

/* Loads the kernel for the session and tests it. If it cannot be loaded, or fails, session->search stays NULL. */
void md_device_search_load(struct md_device_session *session);
void md_device_search_unload(struct md_device_session *session);
/* True if the device can search the memory: the address is a multiple of 8 bytes. */
bool md_device_search_can(const struct md_device_session *session, uint64_t address);
/*
 * On the session's stream, between md_device_differ_begin and _end: sets the flags, from `flag` on, of the grains of the
 * range that have a word of 8 bytes in [lowest, highest). Bytes behind the last whole word are not looked at.
 */
enum md_status md_device_search_launch(struct md_device_session *session, uint64_t address, uint64_t size,
				       uint64_t lowest, uint64_t highest, size_t flag, struct md_error *err);

#endif
