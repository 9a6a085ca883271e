/* SPDX-License-Identifier: Apache-2.0 */
/* Reads values of a model from the artifact that was made for it. */
#include "simulator/config/artifact_values.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/artifact/artifact.h"

static uint64_t bound_constants(const struct md_artifact *artifact)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		if (artifact->bindings[i].role == MD_BIND_CONSTANT)
			bytes += artifact->bindings[i].size;
	return bytes;
}

/* Time that a cold start without the artifact would spend on warm-up, capture and instantiation. */
static uint64_t capture_ns(const struct md_provenance *provenance)
{
	static const char *const stages[] = {"warmup", "capture", "instantiate"};
	uint64_t ns = 0;
	for (uint32_t i = 0; i < provenance->stage_count; i++)
		for (size_t k = 0; k < sizeof(stages) / sizeof(stages[0]); k++)
			if (strcmp(provenance->stages[i].name, stages[k]) == 0)
				ns += provenance->stages[i].ns;
	return ns;
}

enum md_status md_sim_artifact_facts(const char *beside, const char *file, struct md_sim_artifact_facts *facts,
				     struct md_error *err)
{
	const char *slash = strrchr(beside, '/');
	MD_AUTO_FREE char *path = NULL;
	struct md_artifact_file *opened;
	struct md_artifact artifact;
	if (asprintf(&path, "%.*s%s", *file == '/' || !slash ? 0 : (int)(slash - beside + 1), beside, file) < 0) {
		path = NULL;
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the path of \"%s\"", file);
	}
	MD_FORWARD(md_artifact_open(path, &opened, &artifact, err));
	*facts = (struct md_sim_artifact_facts){
	    .weight_bytes = bound_constants(&artifact),
	    .context_bytes = artifact.kv.present && artifact.kv.graph_bytes > artifact.arena_size
				 ? artifact.kv.graph_bytes
				 : artifact.arena_size,
	    .kv_block_bytes = artifact.kv.present ? artifact.kv.block_bytes : 0,
	    .capture_ns = capture_ns(&artifact.provenance),
	};
	md_artifact_close(opened);
	md_artifact_finish(&artifact);
	facts->path = md_steal_ptr(&path);
	return MD_OK;
}
