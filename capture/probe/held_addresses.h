/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses that private memory holds. */
#ifndef MD_CAPTURE_PROBE_HELD_ADDRESSES_H
#define MD_CAPTURE_PROBE_HELD_ADDRESSES_H

#include "capture/probe/probe.h"

/* Finds those in private memory whose copies have not been searched yet; changes the order of `copies`. */
enum md_status md_capture_addresses_find(struct md_probe_session *session, struct md_probe_copy **copies, size_t count,
					 struct md_error *err) MD_CAPTURE_HELD;

#endif
