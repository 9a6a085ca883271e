/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's JSON report: times of the start, graphs, KV cache, what was generated. */
#ifndef LLAMA_REPORT_H
#define LLAMA_REPORT_H

#include "models/llama/generate.h"

enum llama_stage {
	STAGE_CONTEXT,
	STAGE_ENGINE,
	STAGE_WEIGHTS,
	STAGE_KV,
	STAGE_RESTORE,
	STAGE_WARMUP,
	STAGE_CAPTURE,
	STAGE_INSTANTIATE,
	STAGE_FIRST_GRAPH,
	STAGE_READY,
	STAGE_PREFILL,
	STAGE_FIRST_TOKEN,
	STAGE_DECODE,
	STAGE_COUNT
};

extern const char *const llama_stage_names[STAGE_COUNT];

struct llama_report {
	const char *mode, *device, *model;
	uint64_t started; /* md_clock_ns at the start of main */
	uint64_t stage_ns[STAGE_COUNT];
	uint64_t weight_bytes, kv_bytes;
	struct loader_report load; /* of weights from a file */
	int kv_blocks;
	bool kv_from_profile, checked, graphs_used;
	size_t check_equal;
	const struct llama_graphs *graphs;
	const struct llama_generation *generation;
	struct llama_background background;
	char **texts; /* one for each sequence; NULL entries when there is no tokenizer */
};

enum md_status llama_report_write(const struct llama_report *report, const char *path, struct md_error *err);

#endif
