/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules. */
#ifndef MD_RESTORE_VARIABLES_H
#define MD_RESTORE_VARIABLES_H

#include "restore/restore.h"

/* Called by hooks: the engine has been given the address of a variable. */
void md_restore_variable_asked(struct md_restore *r, void *handle, uint64_t address, uint64_t size);
/* MD_ERR_MISMATCH: the engine's copy of the image cannot be used at present, and why. */
enum md_status md_restore_variables_usable(struct md_restore *r, const struct md_loaded *in, uint32_t image,
					   struct md_error *err) MD_REQUIRES(md_restore_work);
/*
 * Names a variable of the image that holds addresses, or to which
 * pointers lead: these are right in a copy of ours alone. NULL: none.
 */
const char *md_restore_variables_ours(const struct md_artifact *artifact, uint32_t image);
/* True if a copy of the image that the engine has loaded can be used. */
bool md_restore_variable_ready(struct md_restore *r, uint32_t image) MD_REQUIRES(md_restore_work);
/*
 * Loads the images whose variables the graph needs, and finds
 * the addresses of these; then sets their values. Work is held.
 */
enum md_status md_restore_variables_load(struct md_restore *r, const struct md_restore_graph *graph,
					 struct md_error *err) MD_REQUIRES(md_restore_work);
enum md_status md_restore_variables_place(struct md_restore *r, const struct md_restore_graph *graph, bool again,
					  struct md_error *err);
/* Variables must be set anew: a binding that some of them point to has moved, or the image was unloaded. */
void md_restore_variables_moved(struct md_restore *r, uint32_t binding);
void md_restore_variables_gone(struct md_restore *r, uint32_t image);

#endif
