/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is handed on: the engine's copy, and Medusa's. */
#ifndef MD_RESTORE_VERIFY_HANDED_COPIES_H
#define MD_RESTORE_VERIFY_HANDED_COPIES_H

#include "restore/restore.h"
#include "restore/verify/live_graphs.h"

/* A part of the memory through which the graphs of a group hand values on. */
struct md_verify_part {
	const struct md_artifact_handed *stored;
	uint64_t live;     /* the engine's copy */
	CUdeviceptr copy;  /* its bytes when the comparison began, in the session's slabs; */
	uint8_t *before;   /* or here; owned */
	CUdeviceptr after; /* with `copy`: room for what the live replay leaves */
};

struct md_verify_handed {
	struct md_verify_part *parts; /* owned */
	uint32_t count;
	bool loaded;
	struct md_device_session *device; /* not owned */
	uint64_t grains;                  /* of all parts that are on the device */
};

/* Finds the engine's copy of the memory. Call finish in any case. */
enum md_status md_verify_handed_init(struct md_verify_handed *handed, struct md_restore *r,
				     const struct md_restore_graph *graph, const struct md_live_graph *live,
				     struct md_error *err) MD_REQUIRES(md_verify_table_lock);
void md_verify_handed_finish(struct md_verify_handed *handed);
/* Saves the bytes before the live replay. Before any other replay, and at the end, gives both copies these bytes. */
enum md_status md_verify_handed_load(struct md_verify_handed *handed, struct md_device_session *device,
				     struct md_error *err);
enum md_status md_verify_handed_place(const struct md_verify_handed *handed, const struct md_restore *r,
				      struct md_error *err);
enum md_status md_verify_handed_put_back(const struct md_verify_handed *handed, const struct md_restore *r,
					 struct md_error *err);
/* Medusa's copy. */
uint64_t md_verify_part_address(const struct md_verify_part *part, const struct md_restore *r);
/* after: the bytes that the live replay left, per part that is not on the device. */
enum md_status md_verify_handed_changed(const struct md_verify_handed *handed, uint8_t *const *after, bool *changed,
					struct md_error *err);
/* The engine launches the graph: MD_ERR_UNPROVABLE when no graph has rewritten what it reads. */
enum md_status md_verify_handed_launched(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_lock);

#endif
