/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as node.yaml and as functions.yaml. What is read has its bounds, and can be resized. */
#include <math.h>
#include <string.h>

#include "simulator/simulator.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

static void check_node(const uint8_t *data, size_t size)
{
	struct md_sim_node node;
	struct md_error err = {0};
	if (md_sim_node_parse("fuzz", (const char *)data, size, &node, &err) != MD_OK) {
		FUZZ_REQUIRE(err.status && *err.message, "a node was refused without saying why");
		return;
	}
	fuzz_accepted = true;
	FUZZ_REQUIRE(node.gpu_count && node.host_bytes_per_s > 0 && *node.source,
		     "a node without GPUs, link or source");
	for (uint32_t i = 0; i < node.gpu_count; i++)
		FUZZ_REQUIRE(node.gpus[i].memory_bytes && *node.gpu_names[i], "GPU %u without memory or name", i);
	for (size_t i = 0; node.peer_bytes_per_s && i < (size_t)node.gpu_count * node.gpu_count; i++)
		FUZZ_REQUIRE(isfinite(node.peer_bytes_per_s[i]) && node.peer_bytes_per_s[i] >= 0, "a link's speed");
	md_sim_node_finish(&node);
}

static void check_function(const struct md_sim_functions *all, const struct md_sim_function *function)
{
	const struct medusa_sched_function *spec = &function->spec;
	FUZZ_REQUIRE(*function->name && function->model < all->model_count, "a function without name or model");
	FUZZ_REQUIRE(spec->backbone == MEDUSA_SCHED_NONE || spec->backbone < all->backbone_count, "no such backbone");
	FUZZ_REQUIRE(!function->tenant || function->tenant < all->tenant_count, "no such tenant");
	FUZZ_REQUIRE(spec->t0_ns && spec->residue_bytes <= spec->context_bytes, "%s", function->name);
	FUZZ_REQUIRE(function->rate_per_min >= 0 && function->rate_per_min <= 1e6, "a rate of %g",
		     function->rate_per_min);
}

static void check_tenants(const struct md_sim_functions *all)
{
	for (uint32_t i = 0; i < all->tenant_count; i++) {
		const struct md_sim_tenant *tenant = &all->tenants[i];
		uint32_t found;
		FUZZ_REQUIRE(tenant->spec.weight >= 1e-6 && tenant->spec.weight <= 1e6, "a weight of %g",
			     tenant->spec.weight);
		FUZZ_REQUIRE(md_sim_tenant_find(all, tenant->name, strlen(tenant->name), &found) && found == i,
			     "tenant %u is not found by its name", i);
	}
}

static void check_functions(const uint8_t *data, size_t size)
{
	struct md_sim_functions all;
	struct md_error err = {0};
	if (md_sim_functions_parse("fuzz", (const char *)data, size, &all, &err) != MD_OK) {
		FUZZ_REQUIRE(err.status && *err.message, "functions were refused without saying why");
		return;
	}
	fuzz_accepted = true;
	FUZZ_REQUIRE(all.count && all.model_count, "nothing was read");
	check_tenants(&all);
	for (uint32_t i = 0; i < all.count; i++)
		check_function(&all, &all.functions[i]);
	FUZZ_REQUIRE(md_sim_functions_resize(&all, 17, 3, &err) == MD_OK && all.count == 17, "%s", err.message);
	for (uint32_t i = 0; i < all.count; i++)
		check_function(&all, &all.functions[i]);
	md_sim_functions_finish(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_accepted = false;
	check_node(data, size);
	check_functions(data, size);
	return 0;
}
