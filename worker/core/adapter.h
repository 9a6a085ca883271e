/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters: models whose requests go to the engine of another one, their base, which loads them by vLLM's API. */
#ifndef MD_WORKER_CORE_ADAPTER_H
#define MD_WORKER_CORE_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/core/adapter_call.h"

struct event;
struct md_model;
struct md_worker_job;

/* What the scheduler wants (`wanted`) and what the engine has (`has`) become the same as soon as they can. */
struct md_adapter {
	struct md_model *next; /* of the same base */
	bool wanted;           /* the scheduler has it there, or on its way */
	bool has;              /* its engine has it, as far as is known */
	bool other;            /* its engine has another adapter by its name */
	bool sent_away;        /* a user has unloaded it, and the scheduler is told */
	bool pretended;        /* the scheduler believes that it is there, and nobody has asked for it */
	bool loading;          /* what `call` is for; else unloading */
	bool refused;          /* its load, with `why`; it may be there all the same, which the engine's list says */
	bool again;            /* its load was refused once, and is tried again when others have left */
	bool leaves; /* its engine was told to unload it, or its place is wanted, and the engine may have it still */
	unsigned unloads;            /* that have failed one after the other */
	struct md_adapter_call call; /* by which it is loaded or unloaded */
	unsigned status;             /* of its answer; 0: none */
	uint64_t transfer;           /* 0: none is under way */
	uint64_t began;              /* ns */
	char why[200];
};

/* What a model has of its adapters. */
struct md_adapter_host {
	struct md_model *first;
	struct event *pump;
	bool unsure;          /* which of them its engine has: its list is asked */
	bool broke;           /* the connection by which it was asked for its list broke: it is asked once more */
	uint64_t rests_until; /* ns: nothing is begun before */
	bool leaves;          /* its engine is to be swapped out when no call is under way */
	struct md_adapter_call list;
	struct md_adapter_stray *strays;    /* what daemons have loaded into its engine */
	struct md_adapter_call stray_call;  /* one of them is unloaded */
	struct md_adapter_foreign *foreign; /* what clients use of its engine under /upstream/NAME/ */
};

/* Puts it on its base's list. False: out of memory. */
bool md_adapter_begin(struct md_model *adapter);
void md_adapter_end(struct md_model *adapter);    /* takes it off; nothing of it is under way any more */
void md_adapter_end_host(struct md_model *model); /* of a model that is freed */

/* ---- what the scheduler decides ---- */

void md_adapter_load(struct md_model *adapter, uint64_t transfer);
void md_adapter_preload(struct md_model *adapter,
			uint64_t transfer); /* one that a user has unloaded is only pretended */
void md_adapter_unload(struct md_model *adapter, uint64_t transfer);
void md_adapter_want(struct md_model *adapter); /* a request was granted */

/* ---- what the engine does ---- */

/* The engine serves; unsure: it may have adapters already, and its list says which. */
void md_adapter_engine_ready(struct md_model *model, bool unsure);
void md_adapter_engine_gone(struct md_model *model,
			    bool failed); /* it has none any more; the scheduler learns of loads */
void md_adapter_give_up(
    struct md_model *model); /* the same for loads that were decided on before the scheduler had learned that */
bool md_adapter_engine_is_busy(const struct md_model *model); /* with a call for an adapter */
/* The engine does not know the adapter of this job, or its answer says so: whether it is so is asked. */
void md_adapter_doubt(struct md_worker_job *job);

/* A connection to the engine broke, or it refused to unload: what it has is asked after a moment. */
void md_adapter_rest(struct md_model *model);
void md_adapter_pump(struct md_model *model); /* what can be done is begun, soon */

/* ---- what others ask ---- */

bool md_adapter_is_ready(const struct md_model *adapter); /* requests of it can be sent */
/* Whether its engine's command loads it, so that it has its place as long as the engine lives, unless a user unloads it. */
bool md_adapter_is_fixed(const struct md_model *adapter);
bool md_adapter_is_gone(const struct md_model *adapter); /* its engine has nothing of it */

#endif
