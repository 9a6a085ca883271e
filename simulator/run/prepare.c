/* SPDX-License-Identifier: Apache-2.0 */
/* Functions as modified by a policy: variants change what the functions cost. */
#include <stdlib.h>
#include <string.h>

#include "simulator/run/run_state.h"

static void unshare(const struct md_sim_functions *functions, struct md_sim_function *function)
{
	struct medusa_sched_function *spec = &function->spec;
	if (spec->backbone == MEDUSA_SCHED_NONE)
		return;
	const struct medusa_sched_backbone *backbone = &functions->backbones[spec->backbone].spec;
	spec->weight_bytes += backbone->bytes;
	spec->cold_ns += backbone->cold_ns;
	spec->in_host = spec->in_host && backbone->in_host;
	spec->backbone = MEDUSA_SCHED_NONE;
	if (function->transfer_bytes)
		function->transfer_bytes += backbone->bytes;
}

static void change(const struct md_sim_functions *functions, const struct md_sim_policy *policy,
		   struct md_sim_function *function)
{
	struct medusa_sched_function *spec = &function->spec;
	spec->size = sizeof(*spec);
	if (policy->no_artifacts && function->capture_ns)
		spec->context_ns = function->capture_ns;
	if (policy->no_sharing)
		unshare(functions, function);
	if (policy->early_binding && function->native_ns)
		spec->t0_ns = function->native_ns;
}

enum md_status md_sim_run_prepare(const struct md_sim_functions *functions, const struct md_sim_policy *policy,
				  struct md_sim_functions *prepared, struct md_error *err)
{
	*prepared = *functions;
	prepared->functions = malloc((functions->count + 1) * sizeof(*prepared->functions));
	if (!prepared->functions)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u functions", functions->count);
	if (functions->count)
		memcpy(prepared->functions, functions->functions, functions->count * sizeof(*prepared->functions));
	for (uint32_t i = 0; i < functions->count; i++)
		change(functions, policy, &prepared->functions[i]);
	return MD_OK;
}

void md_sim_run_unprepare(struct md_sim_functions *prepared)
{
	free(prepared->functions);
	*prepared = (struct md_sim_functions){0};
}
