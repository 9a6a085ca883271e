/* SPDX-License-Identifier: Apache-2.0 */
/* functions.yaml: the tenants whose requests share the GPUs, and which one a function's requests are of. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/config/functions_yaml.h"

/* Bounds of the weight are those of medusa_sched_add_tenant. */
static const struct md_sim_field tenant_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, offsetof(struct md_sim_tenant, name), .required = true),
    MD_SIM_FIELD("weight", MD_SIM_NUMBER, offsetof(struct md_sim_tenant, spec.weight), .low = 1e-6, .high = 1e6),
    MD_SIM_FIELD("max_waiting", MD_SIM_COUNT, offsetof(struct md_sim_tenant, spec.max_waiting), .low = 1,
		 .high = UINT32_MAX),
    MD_SIM_FIELD("max_running", MD_SIM_COUNT, offsetof(struct md_sim_tenant, spec.max_running), .low = 1,
		 .high = UINT32_MAX),
};

static enum md_status read_tenant(struct md_sim_functions_config *config, uint32_t at, struct md_sim_tenant *tenant,
				  struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(config->yaml, tenant_fields);
	char path[32];
	uint64_t seen = 0;
	snprintf(path, sizeof(path), "tenants[%" PRIu32 "]", config->out.tenant_count);
	MD_FORWARD(md_sim_fields_read(&fields, at, path, tenant, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, at, path, seen, err));
	if (strcmp(tenant->name, MD_SIM_TENANT_DEFAULT) == 0)
		return md_sim_fields_refuse(config->yaml, at, path, "name", err,
					    "that is the tenant of requests that name none; it has weight 1 and no "
					    "limits");
	return MD_OK;
}

enum md_status md_sim_config_tenants(struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	struct md_sim_functions *out = &config->out;
	if (!config->tenants)
		return MD_OK;
	MD_FORWARD(md_sim_config_list(yaml, config->tenants, "tenants", MD_SIM_TENANTS_MAX, err));
	MD_AUTO_FREE struct md_sim_named *names = calloc(yaml->nodes[config->tenants].count, sizeof(*names));
	out->tenants = calloc(yaml->nodes[config->tenants].count, sizeof(*out->tenants));
	if (!names || !out->tenants)
		return md_sim_config_memory(yaml, err);
	for (uint32_t at = yaml->nodes[config->tenants].first; at; at = yaml->nodes[at].next) {
		struct md_sim_tenant *tenant = &out->tenants[out->tenant_count];
		tenant->spec = (struct medusa_sched_tenant){.size = sizeof(tenant->spec), .weight = 1};
		enum md_status status = read_tenant(config, at, tenant, err);
		names[out->tenant_count++] = (struct md_sim_named){tenant->name, at};
		MD_FORWARD(status);
	}
	const struct md_sim_named *twice = md_sim_config_double(names, out->tenant_count);
	if (twice)
		return md_sim_fields_refuse(yaml, twice->at, "tenants", NULL, err, "'%.60s' is there already",
					    twice->name);
	return MD_OK;
}

bool md_sim_tenant_find(const struct md_sim_functions *functions, const char *name, size_t bytes, uint32_t *tenant)
{
	for (*tenant = 0; *tenant <= functions->tenant_count; ++*tenant) {
		const char *known = md_sim_tenant_name(functions, *tenant);
		if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
			return true;
	}
	return false;
}

const char *md_sim_tenant_name(const struct md_sim_functions *functions, uint32_t tenant)
{
	return tenant ? functions->tenants[tenant - 1].name : MD_SIM_TENANT_DEFAULT;
}

enum md_status md_sim_config_tenant(const struct md_sim_functions_config *config, uint32_t at, const char *path,
				    const char *name, uint32_t *tenant, struct md_error *err)
{
	*tenant = 0;
	if (!name || md_sim_tenant_find(&config->out, name, strlen(name), tenant))
		return MD_OK;
	return md_sim_fields_refuse(config->yaml, at, path, "tenant", err, "there is no tenant '%.60s'", name);
}
