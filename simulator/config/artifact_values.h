/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a model that are read from its artifact. */
#ifndef MD_SIMULATOR_CONFIG_ARTIFACT_VALUES_H
#define MD_SIMULATOR_CONFIG_ARTIFACT_VALUES_H

#include <stdint.h>

#include "base/status.h"

/* A value is 0 if the artifact does not contain it. */
struct md_sim_artifact_facts {
	char *path;              /* of the artifact; owned by the caller */
	uint64_t weight_bytes;   /* buffers that the engine bound as constants */
	uint64_t context_bytes;  /* graphs and their private memory */
	uint64_t kv_block_bytes; /* of one KV block over all layers */
	uint64_t capture_ns;     /* warm-up, capture and instantiation at build time */
};

/* file: a path, relative to the folder of the file `beside`. */
enum md_status md_sim_artifact_facts(const char *beside, const char *file, struct md_sim_artifact_facts *facts,
				     struct md_error *err);

#endif
