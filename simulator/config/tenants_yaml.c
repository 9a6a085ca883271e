/* SPDX-License-Identifier: Apache-2.0 */
/* functions.yaml: the tenants whose requests share the GPUs, and which one a function's requests are of. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/config/functions_yaml.h"

/* Bounds of the weight are those of medusa_sched_add_tenant. */
static const struct md_sim_field tenant_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, offsetof(struct md_sim_tenant, name), .required = true),
    MD_SIM_FIELD("weight", MD_SIM_NUMBER, offsetof(struct md_sim_tenant, spec.weight), .low = 1e-6, .high = 1e6),
    MD_SIM_FIELD("max_waiting", MD_SIM_COUNT, offsetof(struct md_sim_tenant, spec.max_waiting), .high = UINT32_MAX),
    MD_SIM_FIELD("max_running", MD_SIM_COUNT, offsetof(struct md_sim_tenant, spec.max_running), .high = UINT32_MAX),
};

struct reader {
	struct md_sim_functions_config *config;
	uint32_t ordinal;  /* of the entry */
	bool default_seen; /* the default tenant is listed */
};

/* Adds the entry, or, if it is of the default tenant, replaces that one. Takes the name on success. */
static enum md_status add_tenant(struct reader *reader, uint32_t at, const char *path,
				 const struct md_sim_tenant *tenant, struct md_error *err)
{
	struct md_sim_functions *out = &reader->config->out;
	uint32_t index = 0;
	bool known = md_sim_tenant_find(out, tenant->name, strlen(tenant->name), &index);
	if (known && (index || reader->default_seen))
		return md_sim_fields_refuse(reader->config->yaml, at, path, "name", err, "'%.60s' is there already",
					    tenant->name);
	if (known) {
		reader->default_seen = true;
		free(out->tenants[0].name);
	} else {
		index = out->tenant_count++;
	}
	out->tenants[index] = *tenant;
	return MD_OK;
}

static enum md_status read_tenant(struct reader *reader, uint32_t at, struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(reader->config->yaml, tenant_fields);
	struct md_sim_tenant tenant = {.spec = {.size = sizeof(tenant.spec), .weight = 1}};
	char path[32];
	uint64_t seen = 0;
	snprintf(path, sizeof(path), "tenants[%" PRIu32 "]", reader->ordinal++);
	enum md_status status = md_sim_fields_read(&fields, at, path, &tenant, &seen, err);
	if (status == MD_OK)
		status = md_sim_fields_require(&fields, at, path, seen, err);
	if (status == MD_OK)
		status = add_tenant(reader, at, path, &tenant, err);
	if (status != MD_OK)
		free(tenant.name);
	return status;
}

static enum md_status add_default(struct md_sim_functions_config *config, uint32_t count, struct md_error *err)
{
	struct md_sim_functions *out = &config->out;
	out->tenants = calloc((size_t)count + 1, sizeof(*out->tenants));
	if (!out->tenants)
		return md_sim_config_memory(config->yaml, err);
	out->tenants[0].spec = (struct medusa_sched_tenant){.size = sizeof(out->tenants[0].spec), .weight = 1};
	out->tenants[0].name = strdup(MD_SIM_TENANT_DEFAULT);
	out->tenant_count = 1;
	return out->tenants[0].name ? MD_OK : md_sim_config_memory(config->yaml, err);
}

enum md_status md_sim_config_tenants(struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	struct reader reader = {.config = config};
	if (!config->tenants)
		return MD_OK;
	MD_FORWARD(md_sim_config_list(yaml, config->tenants, "tenants", MD_SIM_TENANTS_MAX, err));
	MD_FORWARD(add_default(config, yaml->nodes[config->tenants].count, err));
	for (uint32_t at = yaml->nodes[config->tenants].first; at; at = yaml->nodes[at].next)
		MD_FORWARD(read_tenant(&reader, at, err));
	return MD_OK;
}

bool md_sim_tenant_find(const struct md_sim_functions *functions, const char *name, size_t bytes, uint32_t *tenant)
{
	uint32_t count = functions->tenant_count ? functions->tenant_count : 1;
	for (*tenant = 0; *tenant < count; ++*tenant) {
		const char *known = md_sim_tenant_name(functions, *tenant);
		if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
			return true;
	}
	return false;
}

const char *md_sim_tenant_name(const struct md_sim_functions *functions, uint32_t tenant)
{
	return functions->tenant_count ? functions->tenants[tenant].name : MD_SIM_TENANT_DEFAULT;
}

enum md_status md_sim_config_tenant(const struct md_sim_functions_config *config, uint32_t at, const char *path,
				    const char *name, uint32_t *tenant, struct md_error *err)
{
	*tenant = 0;
	if (!name || md_sim_tenant_find(&config->out, name, strlen(name), tenant))
		return MD_OK;
	return md_sim_fields_refuse(config->yaml, at, path, "tenant", err, "there is no tenant '%.60s'", name);
}
