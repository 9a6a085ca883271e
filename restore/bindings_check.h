/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what the engine has bound is what the artifact was made with. */
#ifndef MD_RESTORE_BINDINGS_CHECK_H
#define MD_RESTORE_BINDINGS_CHECK_H

#include "restore/restore.h"

/* Checks one binding of the artifact; MD_ERR_NOT_FOUND until the engine has bound it. */
enum md_status md_restore_binding_check(const struct md_restore *r, uint32_t binding, struct md_error *err)
    MD_REQUIRES(r->lock);
/* The first binding of graph that is missing or has another size; MD_OK if none. */
enum md_status md_restore_bindings_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(r->lock);

#endif
