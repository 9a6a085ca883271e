/* SPDX-License-Identifier: Apache-2.0 */
/* The artifact's own images, loaded on a few threads. */
#ifndef MD_RESTORE_IMAGE_LOAD_H
#define MD_RESTORE_IMAGE_LOAD_H

#include "restore/restore.h"

void md_restore_images_start(struct md_restore *r);
void md_restore_images_join(struct md_restore *r);
void md_restore_images_unload(struct md_restore *r, bool only_unused);
/* Loads the image now, or waits for the thread that does. paced: beside replays, when its turn comes. */
enum md_status md_restore_image_load(struct md_restore *r, uint32_t image, bool paced, struct md_error *err);
/* A loader is loading the image, or will. */
bool md_restore_image_coming(const struct md_restore *r, uint32_t image) MD_REQUIRES(md_restore_lock);
/* Device memory that images take, which the driver does not report: more than in their file, in pages. */
uint64_t md_restore_images_held(const struct md_restore *r, bool at_most) MD_REQUIRES(md_restore_lock);

#endif
