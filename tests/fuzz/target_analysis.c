/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a trace from anywhere. What is read can be analyzed, alone and against itself. */
#include "analyze/analyze.h"
#include "format/trace/trace.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mend.h"

bool fuzz_accepted;

/* Without images, whose paths are those of the captured machine's files. */
static void analyze(const struct md_trace *trace, const struct md_trace *second)
{
	const struct md_analyze_options options = {.size = sizeof(options), .no_images = true};
	struct md_artifact artifact;
	struct md_error err = {0};
	if (md_analyze(trace, second, &options, &artifact, &err) != MD_OK) {
		FUZZ_REQUIRE(err.status && *err.message, "analysis failed without saying why");
		return;
	}
	/* it is as bad as the trace may be: the writer refuses it then */
	FUZZ_REQUIRE(md_artifact_check(&artifact, &err) == MD_OK || *err.message, "refused without saying why");
	md_artifact_finish(&artifact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_trace trace;
	struct md_error err = {0};
	fuzz_accepted = md_trace_parse(data, size, &trace, &err) == MD_OK;
	if (!fuzz_accepted)
		return 0;
	trace.complete = true; /* else nothing would be analyzed of most mutations */
	trace.version = MD_TRACE_ANALYZED_FROM;
	analyze(&trace, NULL);
	analyze(&trace, &trace);
	md_trace_finish(&trace);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mend_mutate(&mend_trace, data, size, max_size, seed);
}
