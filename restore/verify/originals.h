/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own copy of private memory. */
#ifndef MD_RESTORE_VERIFY_ORIGINALS_H
#define MD_RESTORE_VERIFY_ORIGINALS_H

#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/live_graphs.h"

struct md_verify_original {
	uint64_t address, size;
	uint32_t alloc;   /* index into the artifact's allocations */
	CUdeviceptr copy; /* in the session's slabs, or 0 */
	uint8_t *bytes;   /* owned; else NULL */
};

struct md_verify_originals {
	struct md_verify_original *parts; /* owned */
	uint32_t count, begin, end;       /* begin, end: the parts that are filled; all of them, except in a trial */
	bool filled;                      /* filled, and not yet put back */
	struct md_device_session *device; /* not owned */
};

/* Lists the unbound memory that graphs of the artifact use. Under the lock of the table of live graphs. */
enum md_status md_verify_originals_init(struct md_verify_originals *originals, struct md_restore *r,
					struct md_device_session *device, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock);
void md_verify_originals_finish(struct md_verify_originals *originals);
/* Before a restored replay: saves the memory, and fills it. After the replay, even a failed one, it is put back. */
enum md_status md_verify_originals_fill(struct md_verify_originals *originals, uint8_t value, struct md_error *err);
enum md_status md_verify_originals_put_back(struct md_verify_originals *originals, struct md_error *err);

/*
 * After a difference: if the replay is right without the filling, err is set anew: MD_ERR_UNPROVABLE names the memory.
 * All other graphs that use it fail, too.
 */
void md_verify_originals_suspect(struct md_verify_originals *originals, struct md_restore *r,
				 struct md_restore_graph *graph,
				 enum md_status (*compare)(void *user, struct md_restore_graph *graph,
							   struct md_error *err),
				 void *user, struct md_error *err) MD_REQUIRES(md_verify_table_lock);

#endif
