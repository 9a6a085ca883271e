/* SPDX-License-Identifier: Apache-2.0 */
/* What /metrics says, in Prometheus' text format, with vLLM's names where the meaning is the same. */
#ifndef LLAMA_SERVE_SERVE_METRICS_H
#define LLAMA_SERVE_SERVE_METRICS_H

#include "base/buf.h"
#include "models/llama/serve/batcher.h"

#define SERVE_BUCKETS 20

struct serve_histogram {
	uint64_t counts[SERVE_BUCKETS + 1], total;
	double sum; /* s */
};

/* The HTTP thread's own. */
struct serve_metrics {
	uint64_t prompt_tokens, made_tokens;
	uint64_t finished[SERVE_FAILED + 1], refused;
	struct serve_histogram first_token, next_token, whole; /* TTFT, TPOT, to the end */
};

void serve_histogram_add(struct serve_histogram *histogram, uint64_t ns);
void serve_metrics_print(const struct serve_metrics *metrics, const struct batcher_counts *counts, size_t kv_blocks,
			 const char *model, struct md_buf *out);

#endif
