/* SPDX-License-Identifier: Apache-2.0 */
/* Everybody who reads what a file said: none may trip over what is absent, empty or strange in it. */
#ifndef TESTS_FUZZ_CONSUMERS_H
#define TESTS_FUZZ_CONSUMERS_H

#include "format/artifact/artifact.h"
#include "format/trace/trace.h"
#include "tests/fuzz/fuzz.h"
#include "tools/diff.h"
#include "tools/inspect.h"

static inline FILE *consumers_out(void)
{
	static FILE *out;
	if (!out)
		out = fopen("/dev/null", "w");
	FUZZ_REQUIRE(out, "no /dev/null");
	return out;
}

/* other: another artifact, or the same. */
static inline void consumers_diff(const struct md_artifact *artifact, const struct md_artifact *other)
{
	struct md_diff diff = {0};
	if (md_diff_artifacts(artifact, other, &diff)) {
		md_diff_print(&diff, "a", "b", consumers_out());
		md_diff_print_json(&diff, "a", "b", consumers_out());
	}
	md_diff_finish(&diff);
}

static inline void consumers_of_artifact(const struct md_artifact *artifact, const struct md_artifact_sizes *sizes)
{
	const struct md_artifact nothing = {0};
	md_inspect_print("a", artifact, sizes, consumers_out());
	md_inspect_json("a", artifact, sizes, consumers_out());
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		md_inspect_graph(artifact, &artifact->graphs[i], consumers_out());
		md_inspect_graph_json(artifact, &artifact->graphs[i], consumers_out());
	}
	consumers_diff(artifact, artifact);
	consumers_diff(artifact, &nothing);
	consumers_diff(&nothing, artifact);
}

static inline void consumers_of_trace(const struct md_trace *trace)
{
	md_inspect_trace("t", trace, consumers_out());
	md_inspect_trace_json("t", trace, consumers_out());
}

#endif
