/* SPDX-License-Identifier: Apache-2.0 */
/* Times the analysis of two traces, reading included, and sizes the artifact's sections by node. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analyze/analyze.h"
#include "base/clock.h"
#include "format/artifact/artifact.h"
#include "format/trace/trace.h"

int main(int argc, char **argv)
{
	struct md_trace traces[2];
	struct md_artifact artifact;
	struct md_artifact_sizes sizes;
	struct md_error error = {0};
	const struct md_analyze_options options = {.size = sizeof(options)};
	if (argc != 4) {
		fprintf(stderr, "usage: analysis FIRST.mtrace SECOND.mtrace OUT.medusa\n");
		return 2;
	}
	size_t failed;
	uint64_t start = md_clock_ns();
	if (md_trace_read_two((const char *const[]){argv[1], argv[2]}, traces, &failed, &error))
		goto failed;
	uint64_t read = md_clock_ns();
	if (md_analyze(&traces[0], &traces[1], &options, &artifact, &error))
		goto failed;
	uint64_t analyzed = md_clock_ns();
	if (md_artifact_write(&artifact, argv[3], &sizes, &error))
		goto failed;
	uint64_t written = md_clock_ns(), nodes = 0, bytes = 0, pointers = 0;
	for (uint32_t i = 0; i < artifact.graph_count; i++) {
		nodes += artifact.graphs[i].node_count;
		pointers += artifact.graphs[i].pointer_count;
	}
	for (uint32_t i = 0; i < sizes.section_count; i++)
		if (!strcmp(sizes.sections[i].name, "graphs") || !strcmp(sizes.sections[i].name, "pointers"))
			bytes += sizes.sections[i].stored;
	printf("{\"graphs\": %u, \"refused\": %u, \"nodes\": %" PRIu64 ", \"pointers\": %" PRIu64
	       ", \"read_ms\": %.2f, "
	       "\"analyze_ms\": %.2f, \"write_ms\": %.2f, \"total_ms\": %.2f, \"graph_pointer_bytes\": %" PRIu64
	       ", \"bytes_per_node\": %.3f, \"file_bytes\": %" PRIu64 "}\n",
	       artifact.graph_count, artifact.refusal_count, nodes, pointers, (read - start) / 1e6,
	       (analyzed - read) / 1e6, (written - analyzed) / 1e6, (written - start) / 1e6, bytes,
	       nodes ? (double)bytes / (double)nodes : 0.0, sizes.file);
	md_artifact_finish(&artifact);
	md_trace_finish(&traces[0]);
	md_trace_finish(&traces[1]);
	return 0;
failed:
	fprintf(stderr, "analysis: %s\n", error.message);
	return 3;
}
