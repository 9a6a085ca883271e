/* SPDX-License-Identifier: Apache-2.0 */
/* Which mappings are of handles that processes share, as capture/record/shared.c does it. */
#include "restore/shared_handles.h"

#include <pthread.h>

#include "base/array.h"
#include "base/map.h"
#include "restore/library_made.h"

struct mapping {
	uint64_t start, size;
	CUmemGenericAllocationHandle handle; /* 0: released since, and its number is another one's */
};

enum shared { EXPORTED = 1, IMPORTED };

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_map shared MD_GUARDED_BY(handles_lock); /* handle -> enum shared */
static struct mapping *mappings MD_GUARDED_BY(handles_lock);
static size_t mapping_count MD_GUARDED_BY(handles_lock), mapping_room MD_GUARDED_BY(handles_lock);

void md_restore_handles_renew(void)
{
	pthread_mutex_init(&handles_lock, NULL);
}

void md_restore_handle_made(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&handles_lock);
	md_map_remove(&shared, handle, NULL);
	for (size_t i = 0; i < mapping_count; i++)
		if (mappings[i].handle == handle)
			mappings[i].handle = 0;
	pthread_mutex_unlock(&handles_lock);
}

/* Memory at two addresses gets no name, in a capture neither. */
static void name(const void *caller, CUmemGenericAllocationHandle handle)
{
	struct mapping only = {0};
	uint64_t how = 0;
	size_t count = 0;
	pthread_mutex_lock(&handles_lock);
	md_map_get(&shared, handle, &how);
	for (size_t i = 0; how && i < mapping_count; i++)
		if (mappings[i].handle == handle) {
			only = mappings[i];
			count++;
		}
	pthread_mutex_unlock(&handles_lock);
	if (count == 1)
		md_restore_made_shared(caller, only.start, only.size, how == EXPORTED);
}

/* Without memory for it, the mapping stays without its name, and what follows has others than in the capture: nothing is restored. */
void md_restore_handle_shared(const void *caller, CUmemGenericAllocationHandle handle, bool own)
{
	pthread_mutex_lock(&handles_lock);
	if (!own || !md_map_get(&shared, handle, NULL))
		md_map_put(&shared, handle, own ? EXPORTED : IMPORTED);
	pthread_mutex_unlock(&handles_lock);
	name(caller, handle);
}

void md_restore_handle_retained(CUmemGenericAllocationHandle handle, uint64_t address)
{
	uint64_t how = 0;
	pthread_mutex_lock(&handles_lock);
	for (size_t i = 0; i < mapping_count; i++) {
		struct mapping *mapping = &mappings[i];
		if (address < mapping->start || address - mapping->start >= mapping->size)
			continue;
		if (mapping->handle != handle && md_map_get(&shared, mapping->handle, &how))
			md_map_put(&shared, handle, how);
		mapping->handle = handle;
	}
	pthread_mutex_unlock(&handles_lock);
}

void md_restore_handle_mapped(const void *caller, uint64_t address, uint64_t size, CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&handles_lock);
	if (MD_ARRAY_GROW(mappings, mapping_count, mapping_room))
		mappings[mapping_count++] = (struct mapping){address, size, handle};
	pthread_mutex_unlock(&handles_lock);
	name(caller, handle);
}

void md_restore_handle_unmapped(uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&handles_lock);
	for (size_t i = 0; i < mapping_count;)
		if (mappings[i].start >= address && mappings[i].start - address < size)
			mappings[i] = mappings[--mapping_count];
		else
			i++;
	pthread_mutex_unlock(&handles_lock);
}
