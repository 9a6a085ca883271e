/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon's control socket lies. */
#ifndef MD_WORKER_CONTROL_PLACE_H
#define MD_WORKER_CONTROL_PLACE_H

#include <stdbool.h>

#include "http/address.h"

/*
 * The address of the control socket. given: its path; NULL or "": ${XDG_RUNTIME_DIR:-/tmp/medusa-UID}/medusa/worker.sock,
 * in a folder that only this user can write to; make: that folder is made if need be. MD_ERR_NOT_FOUND: it is not there.
 */
enum md_status md_control_place(const char *given, bool make, struct md_http_address *address, struct md_error *err);

#endif
