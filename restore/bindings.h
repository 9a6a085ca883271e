/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's bindings: whether they match the artifact's, and where they lie. */
#ifndef MD_RESTORE_BINDINGS_H
#define MD_RESTORE_BINDINGS_H

#include "restore/restore.h"

/* Checks one binding of the artifact; MD_ERR_NOT_FOUND until the engine has bound it. */
enum md_status md_restore_binding_check(const struct md_restore *r, uint32_t binding, struct md_error *err)
    MD_REQUIRES(md_restore_lock);
/* The first binding of graph that is missing or has another size; MD_OK if none. */
enum md_status md_restore_bindings_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_lock);
/* The same check; then the addresses of the graph's bindings are noted. */
enum md_status md_restore_bindings_take(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
/* MD_ERR_MISMATCH if the engine has freed the memory of one of the graph's bindings. */
enum md_status md_restore_bindings_live(const struct md_restore *r, const struct md_restore_graph *graph,
					struct md_error *err) MD_REQUIRES(md_restore_lock);
/* The engine frees [address, address + bytes). Lock not held. */
void md_restore_bindings_freed(struct md_restore *r, uint64_t address, uint64_t bytes);
/*
 * The address in this process of an allocation of the artifact: bound,
 * private, or a variable. For a graph whose bindings were taken.
 */
uint64_t md_restore_alloc_address(const struct md_restore *r, uint32_t alloc);

#endif
