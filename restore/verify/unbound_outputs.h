/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs in unbound memory. */
#ifndef MD_RESTORE_VERIFY_UNBOUND_OUTPUTS_H
#define MD_RESTORE_VERIFY_UNBOUND_OUTPUTS_H

#include "restore/restore.h"
#include "restore/verify/doubt.h"

struct md_verify_handed;

struct md_live_output {
	uint64_t address, size; /* size 0: the engine did not declare it */
	enum md_element_type type;
};

struct md_verify_outputs {
	struct md_live_output *live;           /* owned; those of the graph, then the parts of handed memory */
	uint32_t count, declared;              /* of all; of those that the graph declares */
	const struct md_verify_handed *handed; /* not owned */
	uint8_t **bytes, *scratch;             /* what the live graph left; one chunk */
	CUdeviceptr *copies;                   /* instead of bytes: in the session's slabs; 0: none */
	struct md_device_session *device;      /* not owned */
	struct md_verify_doubt *doubt;         /* not owned; where every difference is noted */
};

/* Lists outputs that the engine declared, and memory that is handed on. */
enum md_status md_verify_outputs_init(struct md_verify_outputs *outputs, const struct md_live_output *live,
				      uint32_t count, const struct md_verify_handed *handed, struct md_error *err);
/* The address of an output of the restored graph. */
uint64_t md_verify_output_address(const struct md_verify_outputs *outputs, const struct md_restore *r,
				  const struct md_artifact_graph *stored, uint32_t index);
/* MD_ERR_MISMATCH: an output that only one side has, or another size or binding. Bindings have been checked. */
enum md_status md_verify_outputs_match(struct md_restore *r, const struct md_artifact_graph *stored,
				       const struct md_live_output *live, uint32_t count, struct md_error *err);
/* Called after the live replay. Outputs for which the device has no room are kept on the host. */
enum md_status md_verify_outputs_take(struct md_verify_outputs *outputs, struct md_device_session *device,
				      struct md_error *err);
/* After a restored replay: MD_ERR_MISMATCH names the first difference. */
enum md_status md_verify_outputs_compare(const struct md_verify_outputs *outputs, const struct md_restore *r,
					 const struct md_artifact_graph *stored, uint64_t *compared,
					 struct md_error *err);
void md_verify_outputs_finish(struct md_verify_outputs *outputs);

#endif
