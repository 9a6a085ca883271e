/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a trace of requests. What is read is in order, and of functions that there are. */
#include <string.h>

#include "simulator/simulator.h"
#include "simulator/workload/trace_functions.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

static const char functions_text[] = "source: s\ntenants: [{name: a}]\n"
				     "models: [{name: f, weights: 1GB, execution: 5ms, count: 3}]\n";

static void check(const struct md_sim_functions *functions, const uint8_t *data, size_t size,
		  const struct md_sim_workload_options *options)
{
	struct md_sim_workload workload;
	struct md_error err = {0};
	if (md_sim_workload_parse("fuzz", (const char *)data, size, functions, options, &workload, &err) != MD_OK) {
		FUZZ_REQUIRE(err.status && *err.message, "refused without saying why");
		return;
	}
	fuzz_accepted = true;
	for (size_t i = 0; i < workload.count; i++) {
		const struct md_sim_request *request = &workload.requests[i];
		FUZZ_REQUIRE(request->function < functions->count, "request %zu is function %u's", i,
			     request->function);
		FUZZ_REQUIRE(request->tenant < functions->tenant_count, "request %zu is of tenant %u", i,
			     request->tenant);
		FUZZ_REQUIRE(request->at < workload.end, "request %zu arrives behind the end", i);
		FUZZ_REQUIRE(!i || request[-1].at <= request->at, "request %zu is out of order", i);
	}
	md_sim_workload_finish(&workload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	fuzz_accepted = false;
	FUZZ_REQUIRE(md_sim_functions_parse("f", functions_text, strlen(functions_text), &functions, &err) == MD_OK,
		     "%s", err.message);
	bool made;
	if (md_sim_functions_of_text("t", (const char *)data, size, &functions, &made, &err) != MD_OK)
		FUZZ_REQUIRE(err.status && *err.message && !made, "refused without saying why");
	err = (struct md_error){0};
	check(&functions, data, size, &(struct md_sim_workload_options){0});
	check(&functions, data, size,
	      &(struct md_sim_workload_options){
		  .mapping = MD_SIM_ZIPF, .zipf = 1, .speed = 0.5, .duration_ns = 60000000000});
	md_sim_functions_finish(&functions);
	return 0;
}
