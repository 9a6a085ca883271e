/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a list of faults. What is read is in order, and of GPUs and backbones that there are. */
#include <string.h>

#include "simulator/workload/fault_file.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

static const char node_text[] = "name: n\nsource: s\nhost_speed: 10GB/s\nreport_every: 1s\ngpus:\n"
				"  - {name: a, memory: 80GB}\n  - {name: b, memory: 40GB}\n";
static const char functions_text[] = "source: s\nbackbones: [{name: base, weights: 1GB, count: 2}]\n"
				     "models: [{name: f, backbone: base, adapter: 1MB, execution: 5ms}]\n";

static void check(const struct md_sim_workload *workload, const struct md_sim_node *node,
		  const struct md_sim_functions *functions)
{
	for (size_t i = 0; i < workload->fault_count; i++) {
		const struct medusa_sched_event *fault = &workload->faults[i];
		FUZZ_REQUIRE(fault->gpu < node->gpu_count, "fault %zu is of GPU %u", i, fault->gpu);
		FUZZ_REQUIRE(fault->type != MEDUSA_SCHED_EVENT_BACKBONE_FAILED ||
				 fault->backbone < functions->backbone_count,
			     "fault %zu is of backbone %u", i, fault->backbone);
		FUZZ_REQUIRE(!i || fault[-1].now <= fault->now, "fault %zu is out of order", i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_sim_workload workload = {0};
	struct md_sim_functions functions;
	struct md_sim_node node;
	struct md_error err = {0};
	fuzz_accepted = false;
	FUZZ_REQUIRE(md_sim_node_parse("n", node_text, strlen(node_text), &node, &err) == MD_OK, "%s", err.message);
	FUZZ_REQUIRE(md_sim_functions_parse("f", functions_text, strlen(functions_text), &functions, &err) == MD_OK,
		     "%s", err.message);
	fuzz_accepted =
	    md_sim_faults_parse("fuzz", (const char *)data, size, &node, &functions, &workload, &err) == MD_OK;
	FUZZ_REQUIRE(fuzz_accepted || (err.status && *err.message), "refused without saying why");
	check(&workload, &node, &functions);
	md_sim_workload_finish(&workload);
	md_sim_functions_finish(&functions);
	md_sim_node_finish(&node);
	return 0;
}
