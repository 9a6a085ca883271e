/* SPDX-License-Identifier: Apache-2.0 */
/* Verify mode: what the driver says of a restored graph is compared with what the artifact has. */
#ifndef MD_RESTORE_VERIFY_READ_BACK_H
#define MD_RESTORE_VERIFY_READ_BACK_H

#include "restore/restore.h"

/*
 * Reads all nodes of a graph that is built and not instantiated yet; its edges are read where they are added. The message
 * names node and field. MD_ERR_DRIVER: the driver has made something else. MD_ERR_DRIVER_MISSING: the driver cannot tell
 * something that the graph has, so nothing is known of it.
 */
enum md_status md_verify_read_back(struct md_restore *r, const struct md_restore_graph *graph, struct md_error *err);

#endif
