/* SPDX-License-Identifier: Apache-2.0 */
/* The model's state: what is where, transfers, batches, GPUs. */
#ifndef MD_SIMULATOR_MODEL_MODEL_STATE_H
#define MD_SIMULATOR_MODEL_MODEL_STATE_H

#include "simulator/model/agenda.h"
#include "simulator/model/links.h"
#include "simulator/model/node_model.h"

#define NONE MEDUSA_SCHED_NONE

enum { AGENDA_COMPUTED, AGENDA_BEGIN, AGENDA_TRANSFER, AGENDA_FAULT, AGENDA_MEASURE, AGENDA_REPORT };

enum copy_state { COPY_ABSENT, COPY_COMING, COPY_THERE, COPY_LEAVING };

struct copy {
	uint8_t state;
	uint32_t transfer; /* COMING, LEAVING */
	uint32_t pins;     /* batches that use it, transfers that read it */
	uint64_t residue;  /* bytes that an evicted context has left */
};

enum stage { STAGE_LIBRARY, STAGE_DELAY, STAGE_DISK, STAGE_LINK, STAGE_LEAVING };

struct transfer {
	uint64_t id, order;
	uint32_t artifact, place, peer; /* place: a GPU, or gpu_count: the host */
	uint32_t function, backbone;
	uint8_t kind, source, stage; /* enum medusa_sched_class, ... */
	bool live, to_host;
	uint64_t bytes;    /* accounted for */
	double copied;     /* to be moved */
	uint64_t ready_at; /* no batch that waits for it begins before this time */
	uint32_t generation, next_free;
};

enum phase { PHASE_GATED, PHASE_FIRST, PHASE_STALLED, PHASE_FURTHER };

#define BATCH_NEEDS 4 /* artifacts, by enum medusa_sched_class */

struct batch {
	uint64_t id, order;
	uint32_t function, gpu;
	uint32_t engine;   /* the batch whose slot and bill it shares: itself, or the one that its requests joined */
	uint32_t decoding; /* of an engine: requests in their further tokens */
	uint32_t seats;    /* of an engine: requests that have not ended, while they are counted by tenant */
	uint8_t phase;
	bool live, joins;  /* joins: begun by a JOIN */
	double left, hold; /* ns of work until the next event; `hold` of them wait for copies */
	double tail;       /* ns */
	double rate;       /* of work */
	uint64_t since;    /* the time at which `left` was computed */
	uint64_t ready_at;
	uint32_t needs[BATCH_NEEDS]; /* artifacts, NONE: none */
	bool coming[BATCH_NEEDS];
	uint64_t *requests; /* by tokens */
	uint32_t *tokens;
	uint32_t count, ended, capacity;
	uint32_t tokens_done;
	uint64_t kv_bytes;  /* of requests that have not ended */
	double billed_from; /* of the GPU's share */
	uint32_t generation, next_free;
};

struct gpu {
	bool present;
	uint64_t used, limit;
	uint64_t residues; /* bytes of used that evicted contexts have left */
	uint32_t *batches; /* in the order of their start */
	uint32_t count, capacity;
	uint32_t engines;   /* batches without those that have joined others */
	double busy, share; /* busy: ns with at least one batch; share: ns that each engine there has been billed */
	uint64_t since;
	uint32_t link, uplink;
	uint32_t *blocks;     /* cached blocks, by model; NULL: with block management */
	uint64_t block_bytes; /* bytes that the driver has allocated */
};

struct timing { /* of a function's swaps */
	double tail, host_bytes, peer_bytes;
	uint64_t host_head, peer_head;
};

struct report {
	uint32_t gpu;
	uint64_t bytes, as_of;
};

struct md_sim_model {
	struct md_sim_model_options options;
	const struct md_sim_node *node;
	const struct md_sim_functions *functions;
	uint64_t now, orders;
	uint64_t ended; /* stages of copies and batches */
	bool failed;
	struct md_sim_agenda agenda;
	struct md_sim_links links;
	uint32_t disk, *peer_links; /* gpu_count x gpu_count */
	struct gpu *gpus;
	struct timing *timings;
	double *billed;                         /* ns, by function */
	uint32_t function_count, function_room; /* that are known here, and that there is room for */
	struct copy *copies;                    /* artifact * (gpu_count + 1) + place */
	struct transfer *transfers;
	uint32_t transfer_count, transfer_capacity, free_transfer;
	struct batch *batches;
	uint32_t batch_count, batch_capacity, free_batch;
	struct medusa_sched_event *events;
	size_t event_head, event_count, event_capacity;
	struct report *reports;
	size_t report_head, report_count, report_capacity;
	uint64_t report_lag, reported; /* ns; when the last report arrives */
	uint64_t complaints;
	char complaint[256];
};

/* ---- node_model.c ---- */
struct medusa_sched_event *md_sim_model_emit(struct md_sim_model *model, enum medusa_sched_event_type type);
void md_sim_model_complain(struct md_sim_model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
void md_sim_model_plan(struct md_sim_model *model, uint64_t at, uint32_t kind, uint32_t index, uint32_t generation);
uint32_t md_sim_model_artifact(const struct md_sim_model *model, int kind, uint32_t function, uint32_t backbone);
static inline struct copy *md_sim_model_copy(struct md_sim_model *model, uint32_t place, uint32_t artifact)
{
	return &model->copies[(size_t)artifact * (model->node->gpu_count + 1) + place];
}
void md_sim_model_use(struct md_sim_model *model, uint32_t place, uint64_t bytes);
void md_sim_model_free(struct md_sim_model *model, uint32_t place, uint64_t bytes);
/* Sets what an evicted context has left; the bytes themselves are accounted for by use and free. */
void md_sim_model_leave(struct md_sim_model *model, uint32_t place, struct copy *copy, uint64_t bytes);

/* ---- timing.c ---- */
void md_sim_model_time(struct md_sim_model *model, uint32_t from); /* functions from that one on */

/* ---- staged_copies.c ---- */
bool md_sim_model_links(struct md_sim_model *model); /* false: out of memory */
void md_sim_model_bring(struct md_sim_model *model, const struct medusa_sched_action *action);
void md_sim_model_remove(struct md_sim_model *model, const struct medusa_sched_action *action);
void md_sim_model_transfer_next(struct md_sim_model *model, uint32_t transfer); /* one of its stages has ended */
/* Ends the transfer without a report; its artifact does not arrive. */
void md_sim_model_transfer_drop(struct md_sim_model *model, uint32_t transfer);

/* ---- batches.c ---- */
/* A run, or a join: requests that join a batch are a batch of their own, of the same engine. */
void md_sim_model_run(struct md_sim_model *model, const struct medusa_sched_action *action);
/* called when what it waited for has happened */
void md_sim_model_begin(struct md_sim_model *model, uint32_t batch);
/* called when its remaining work has reached `hold` or 0 */
void md_sim_model_computed(struct md_sim_model *model, uint32_t batch);
void md_sim_model_arrived(struct md_sim_model *model, uint32_t place, uint32_t artifact);
void md_sim_model_batch_drop(struct md_sim_model *model, uint32_t batch);
/* Ends one of the requests that have not ended, as if it had all its tokens. */
void md_sim_model_request_stop(struct md_sim_model *model, uint32_t batch, uint32_t request);

/* ---- engines.c ---- */
/* Finds the engine of a batch that was just put on its GPU, after its number. */
void md_sim_model_engine_join(struct md_sim_model *model, uint32_t batch);
/* The batch, which is taken off its GPU, leaves its engine to one of those that joined it. */
void md_sim_model_engine_leave(struct md_sim_model *model, uint32_t batch);
/* Updates the speeds of all batches that compute on a GPU, after `changed` (or NONE) got work, began or stopped. */
void md_sim_model_share(struct md_sim_model *model, uint32_t gpu, uint32_t changed);
void md_sim_model_settle(struct md_sim_model *model, struct batch *batch);

/* ---- aborts.c ---- */
void md_sim_model_abort(struct md_sim_model *model, const struct medusa_sched_action *action);

/* ---- block_cache.c: Torpor-Block ---- */
bool md_sim_model_blocks(struct md_sim_model *model); /* false: out of memory */
/* How long the driver takes to make room for a function's bytes, ns. */
uint64_t md_sim_model_allocate(struct md_sim_model *model, uint32_t gpu, uint32_t function, uint64_t bytes);
void md_sim_model_release(struct md_sim_model *model, uint32_t gpu, uint32_t function, uint64_t bytes);

/* ---- failures.c ---- */
void md_sim_model_transfer_failed(struct md_sim_model *model, uint32_t transfer);
void md_sim_model_fault(struct md_sim_model *model, uint32_t index);
void md_sim_model_measure(struct md_sim_model *model);
void md_sim_model_report(struct md_sim_model *model);
/* Rounds of reports from now on come later by that much. */
void md_sim_model_delay_reports(struct md_sim_model *model, uint64_t by);

#endif
