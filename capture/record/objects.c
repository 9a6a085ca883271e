/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects: kernels get them as numbers that mean something in one process alone. */
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/objects.h"

enum { TEXTURE = 1, SURFACE };

static struct md_map objects MD_CAPTURE_GUARDED; /* number -> which of the two */

static void made(uint64_t object, uint64_t kind)
{
	md_capture_lock();
	if (!md_map_put(&objects, object, kind))
		md_capture_trouble("out of memory for texture object %llu", (unsigned long long)object);
	md_capture_unlock();
}

void md_capture_texture_made(CUtexObject object)
{
	made(object, TEXTURE);
}

void md_capture_surface_made(CUsurfObject object)
{
	made(object, SURFACE);
}

void md_capture_object_gone(uint64_t object)
{
	md_capture_lock();
	md_map_remove(&objects, object, NULL);
	md_capture_unlock();
}

const char *md_capture_object_kind(uint64_t number)
{
	uint64_t kind;
	if (!md_map_get(&objects, number, &kind))
		return NULL;
	return kind == TEXTURE ? "texture" : "surface";
}
