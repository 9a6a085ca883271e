/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration's tenants in the scheduler: whose a request is, and what it counts for whom. */
#ifndef MD_WORKER_CORE_TENANTS_H
#define MD_WORKER_CORE_TENANTS_H

#include <stddef.h>

#include "base/status.h"
#include "http/head.h"
#include "medusa/scheduler.h"
#include "worker/core/metrics.h"

struct md_model;
struct md_worker;
struct md_worker_config;

#define MD_TENANT_ANY UINT32_MAX /* no limit */

/* What the cluster says of a tenant, beside the configuration: the lesser limit counts. */
struct md_tenant_share {
	uint32_t running, waiting; /* requests at one time, 0 included; MD_TENANT_ANY: no limit */
	double weight;             /* instead of the configuration's; 0: that one counts */
};
#define MD_TENANT_ALONE ((struct md_tenant_share){MD_TENANT_ANY, MD_TENANT_ANY, 0}) /* it says nothing */

/* A tenant that the scheduler knows. It knows each for ever, so one that the configuration has no more stays with its counts. */
struct md_tenant_entry {
	char *name;
	uint32_t index;                          /* of the scheduler */
	struct medusa_sched_tenant stated, told; /* by the configuration; to the scheduler, with the cluster's share */
	struct md_tenant_share share;
	struct md_metrics_requests requests;
};

/* Tells the scheduler of the configuration's tenants: those that are new, and those whose weight or limits have changed. */
enum md_status md_tenants_tell(struct md_worker *worker, const struct md_worker_config *config, struct md_error *err);
void md_tenants_destroy(struct md_worker *worker);
/* The cluster's share of a tenant of this name, or ("") of requests of none, whose weight alone counts. Nothing happens if there is none such. */
void md_tenants_share(struct md_worker *worker, const char *name, const struct md_tenant_share *share);
/*
 * The scheduler's number of the tenant whose key the request has; else, of the model's tenant; else 0, the default tenant.
 * The model is one of the worker's current configuration.
 */
uint32_t md_tenants_of(const struct md_worker *worker, const struct md_model *model, const struct md_http_head *head);
/*
 * Adds to a counter of requests, of the model and of the tenant with the scheduler's number: which is its offset in struct
 * md_metrics_requests. So the counts of all models and those of all tenants have one sum.
 */
void md_tenants_count(struct md_model *model, uint32_t tenant, size_t which, int more);
#define MD_COUNT(model, tenant, member, more)                                                                          \
	md_tenants_count(model, tenant, offsetof(struct md_metrics_requests, member), more)
const struct md_tenant_entry *md_tenants_named(const struct md_worker *worker, const char *name); /* NULL: none */
/* The tenant with the scheduler's number; NULL: the default one. */
const struct md_tenant_entry *md_tenants_find(const struct md_worker *worker, uint32_t index);
/*
 * The one of the configuration with this number, or of its tenant_count, for the default one (*entry NULL). False: there is none, or the
 * configuration has no tenants.
 */
bool md_tenants_get(const struct md_worker *worker, uint32_t number, const struct md_tenant_entry **entry,
		    struct medusa_sched_tenant_state *state);
/* How that one's requests have ended; entry NULL: those of no tenant. */
const struct md_metrics_requests *md_tenants_requests(const struct md_worker *worker,
						      const struct md_tenant_entry *entry);

#endif
