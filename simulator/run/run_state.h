/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a run: functions as modified by a policy, the scheduler or early binding, and measurements. */
#ifndef MD_SIMULATOR_RUN_RUN_STATE_H
#define MD_SIMULATOR_RUN_RUN_STATE_H

#include "simulator/model/node_model.h"
#include "simulator/simulator.h"

/* ---- play.c: md_sim_run() where things go wrong (see model/node_model.h), for tests; not with early binding ------ */
enum md_status md_sim_run_faulty(const struct md_sim_node *node, const struct md_sim_functions *functions,
				 const struct md_sim_workload *workload, const struct md_sim_policy *policy,
				 const struct medusa_sched_event *faults, size_t fault_count,
				 struct md_sim_result *result, struct md_error *err);

/* ---- prepare.c: what the policy's ablations change in functions; names are borrowed ---- */
enum md_status md_sim_run_prepare(const struct md_sim_functions *functions, const struct md_sim_policy *policy,
				  struct md_sim_functions *prepared, struct md_error *err);
void md_sim_run_unprepare(struct md_sim_functions *prepared);

/* ---- make_scheduler.c: without functions and tenants ---- */
enum md_status md_sim_run_scheduler(const struct md_sim_node *node, const struct md_sim_policy *policy, uint64_t seed,
				    struct medusa_sched **sched, struct md_error *err);

/* ---- native.c: early binding, in the place of the scheduler library ---- */
struct md_sim_native;

/*
 * Creates one process per function, on the first GPU that has room, beginning with the GPU after its predecessor's. The
 * process serves its requests one by one, however long they wait, beside the others on its GPU. Functions that fit
 * nowhere never run.
 */
enum md_status md_sim_native_create(const struct md_sim_node *node, const struct md_sim_functions *functions,
				    const struct md_sim_workload *workload, struct md_sim_native **native,
				    struct md_error *err);
void md_sim_native_destroy(struct md_sim_native *native);
/* At most one action, valid until the next step. */
void md_sim_native_step(struct md_sim_native *native, const struct medusa_sched_event *event,
			const struct medusa_sched_action *const **actions, size_t *count);
void md_sim_native_stats(const struct md_sim_native *native, struct medusa_sched_stats *stats);
/* Share of a GPU's memory that the function's process holds; 0: the function does not run. */
double md_sim_native_part(const struct md_sim_native *native, uint32_t function);
uint64_t md_sim_native_bytes(const struct md_sim_native *native, uint32_t gpu); /* of all processes there */

/* ---- time_series.c ---- */
__extension__ typedef unsigned __int128 md_sim_sum; /* bytes x ns of weeks: exact, so equal on every machine */

struct md_sim_sums { /* see struct md_sim_point */
	uint64_t arrived, served, met, rejected, swaps, waiting_most;
	uint64_t covered_ns; /* less than the interval at the end */
	md_sim_sum waiting, running;
};

struct md_sim_memory_sums {
	md_sim_sum artifacts, kv, residues, free;
};

/* Memory that has not changed for a while, and is counted when it does, or when the interval ends. */
struct md_sim_held {
	struct md_sim_memory memory;
	uint64_t since; /* up to when it is in the sums */
};

struct md_sim_track {
	uint64_t interval_ns, at; /* at: up to when levels are counted */
	size_t count;             /* intervals that have begun */
	uint32_t gpu_count;
	struct md_sim_sums *sums;          /* MD_SIM_POINTS_MAX */
	struct md_sim_memory_sums *memory; /* MD_SIM_POINTS_MAX x gpu_count */
	struct md_sim_held *held;          /* by GPU */
};

struct md_sim_levels {
	uint64_t waiting, running;
	const struct md_sim_memory *memory; /* by GPU */
};

/* end_ns: when the last request arrives, by which the interval is chosen. */
enum md_status md_sim_track_init(struct md_sim_track *track, uint64_t end_ns, uint32_t gpus, struct md_error *err);
void md_sim_track_finish(struct md_sim_track *track);
/* Time passes, during which nothing changes. */
void md_sim_track_pass(struct md_sim_track *track, uint64_t until, const struct md_sim_levels *levels);
/* The interval in which events are counted now. */
struct md_sim_sums *md_sim_track_now(struct md_sim_track *track);
enum md_status md_sim_track_conclude(struct md_sim_track *track, struct md_sim_series *series, struct md_error *err);

/* ---- tenant_track.c: without tenants but the default one, all of this does nothing ---- */
struct md_sim_tenant_track {
	const struct md_sim_functions *functions;
	struct md_sim_result *result;
	uint32_t count;    /* with the default one; 0: there are no others */
	uint64_t *open;    /* requests that have arrived and not ended, by tenant */
	uint64_t *running; /* of these, in batches; when time passed last, as the two below */
	double *parts;     /* of GPUs */
	bool *contends;
};

struct md_sim_served {
	bool met;
	double ttft_ms, wait_ms;
};

enum md_status md_sim_tenants_init(struct md_sim_tenant_track *track, const struct md_sim_functions *functions,
				   struct md_sim_result *result, struct md_error *err);
void md_sim_tenants_finish(struct md_sim_tenant_track *track);
/* Time passes, during which nothing changes. */
void md_sim_tenants_pass(struct md_sim_tenant_track *track, struct md_sim_model *model, uint64_t ns);
void md_sim_tenants_arrived(struct md_sim_tenant_track *track, uint32_t tenant);
void md_sim_tenants_ended(struct md_sim_tenant_track *track, uint32_t tenant); /* served or not */
void md_sim_tenants_refused(struct md_sim_tenant_track *track, uint32_t tenant, unsigned reason);
/* False: out of memory. */
bool md_sim_tenants_served(struct md_sim_tenant_track *track, uint32_t tenant, const struct md_sim_served *served);

/* ---- measure.c: requests on their way into a result ---- */
struct md_sim_measure {
	const struct md_sim_functions *functions;
	const struct md_sim_workload *workload;
	struct md_sim_result *result;
	struct md_sim_track track;
	struct md_sim_tenant_track tenants;
	uint64_t *started, *first; /* ns, by request; 0: not yet */
	uint64_t *batch;           /* by request: of its last run */
	uint8_t *aborted;          /* by request: the reason why that run was asked to stop; 0: it was not */
	bool *ended;
	size_t ended_count;
	uint64_t last_end;
};

enum md_status md_sim_measure_init(struct md_sim_measure *measure, const struct md_sim_functions *functions,
				   const struct md_sim_workload *workload, struct md_sim_result *result,
				   struct md_error *err);
void md_sim_measure_finish(struct md_sim_measure *measure);
bool md_sim_measure_event(struct md_sim_measure *measure, const struct medusa_sched_event *event);
/* These two functions return false when out of memory. */
bool md_sim_measure_actions(struct md_sim_measure *measure, uint64_t now,
			    const struct medusa_sched_action *const *actions, size_t count);
void md_sim_measure_comply(struct md_sim_measure *measure); /* called at the end */

#endif
