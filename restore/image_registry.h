/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries that the process has loaded by itself, and kernels in them. */
#ifndef MD_RESTORE_IMAGE_REGISTRY_H
#define MD_RESTORE_IMAGE_REGISTRY_H

#include "restore/restore.h"

void md_kernel_names_finish(struct md_kernel_names *names);

/* option: of md_jit_option_of_code. PTX that was compiled with an option is not the image that a restore wants. */
void md_registry_add(struct md_registry *registry, void *handle, bool is_library, const void *image,
		     const char *option);
void md_registry_add_file(struct md_registry *registry, void *handle, bool is_library, const char *path,
			  const char *option);
bool md_registry_holds(struct md_registry *registry, void *handle);
void md_registry_asked(struct md_registry *registry, const struct md_asked *asked);
/* out may be NULL. */
bool md_registry_asked_at(struct md_registry *registry, const void *handle, uint64_t address, struct md_asked *out);
/* True if some image must be the engine's own because of a variable, or if that is not known yet. */
bool md_registry_wants_variables(struct md_registry *registry);
/* A copy of the entry; false past the last one. */
bool md_registry_at(struct md_registry *registry, size_t index, struct md_loaded *out);
void md_registry_remove(struct md_registry *registry, void *handle);
void md_registry_remove_context(struct md_registry *registry, CUcontext context); /* its modules are removed */
void md_registry_want(struct md_registry *registry, const struct md_image *images, uint32_t count);
bool md_registry_has(struct md_registry *registry, const struct md_hash *hash);
void md_registry_clear(struct md_registry *registry);

#endif
