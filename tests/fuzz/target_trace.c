/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a trace. */
#include "format/trace/trace.h"
#include "tests/fuzz/consumers.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mend.h"

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_trace trace;
	struct md_error err = {0};
	fuzz_accepted = md_trace_parse(data, size, &trace, &err) == MD_OK;
	FUZZ_REQUIRE(fuzz_accepted || (err.status && *err.message), "refused without saying why");
	if (!fuzz_accepted)
		return 0;
	consumers_of_trace(&trace);
	md_trace_finish(&trace);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mend_mutate(&mend_trace, data, size, max_size, seed);
}
