/* SPDX-License-Identifier: Apache-2.0 */
/* Finds engines that can be swapped by their sockets in a folder of the user's. */
#ifndef MD_SWAP_PLACE_H
#define MD_SWAP_PLACE_H

#include <limits.h>

#include "base/arguments.h"
#include "base/status.h"

/* ${XDG_RUNTIME_DIR:-/tmp/medusa-UID}/medusa/swap/NAME.sock. MD_ERR_INVALID: NAME is not allowed. */
enum md_status md_swap_place_socket(const char *name, char path[PATH_MAX], struct md_error *err);
/*
 * Makes the folder, for this user alone, and listens there. MD_ERR_BUSY: an engine of this name runs. The socket of a
 * killed one is replaced.
 */
enum md_status md_swap_place_listen(const char *name, char path[PATH_MAX], int *fd, struct md_error *err);
/* The names of all sockets in the folder, sorted, including those of engines that were killed. */
enum md_status md_swap_place_names(struct md_argument_list *names, struct md_error *err);

#endif
