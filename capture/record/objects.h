/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects that exist. */
#ifndef MD_CAPTURE_RECORD_OBJECTS_H
#define MD_CAPTURE_RECORD_OBJECTS_H

#include "capture/capture.h"

void md_capture_texture_made(CUtexObject object); /* lock not held */
void md_capture_surface_made(CUsurfObject object);
void md_capture_object_gone(uint64_t object);
const char *md_capture_object_kind(uint64_t number) MD_CAPTURE_HELD; /* "texture", "surface" or NULL */

#endif
