/* SPDX-License-Identifier: Apache-2.0 */
/* An engine from within, for engine.c and engine_swap.c alone: others see engine.h. */
#ifndef MD_WORKER_ENGINE_ENGINE_STEPS_H
#define MD_WORKER_ENGINE_ENGINE_STEPS_H

#include "worker/engine/engine.h"

struct md_engine {
	struct event_base *base;
	struct md_engine_processes *processes;
	const struct md_engine_settings *settings;
	const struct md_engine_events *events;
	void *context;
	enum md_engine_state state;
	struct md_engine_process *process, *helper; /* helper: medusa-swap, or the command that stops */
	struct md_template_fork *fork;              /* a template was asked for its process */
	char origin[108];
	struct md_engine_health *health;
	struct md_search_thread *search; /* it is healthy: is it the engine that has answered? */
	struct event *deadline;
	struct event *look; /* at the port, before it is started */
	unsigned looks;
	uint64_t looks_until;
	bool adopting;   /* what an earlier daemon has left is checked */
	unsigned asked;  /* of its memory, while it is adopted */
	int answer;      /* of the helper that swaps by checkpoints; -1: none */
	bool listened;   /* somebody was seen to listen at its address when it was ready */
	bool late;       /* that helper was killed, because its time was over */
	bool overdue;    /* its last start was given up when start_ms had passed */
	bool unwanted;   /* it failed, and is being stopped for that reason */
	bool was_wanted; /* `settled` is expected when it has stopped */
	char why[640];   /* of a failure that is told once it has stopped */
};

void md_engine_set_deadline(struct md_engine *engine, uint64_t ms); /* of the state that it is in */
void md_engine_enter(struct md_engine *engine, enum md_engine_state state);
void md_engine_settle(struct md_engine *engine, enum md_engine_state state); /* which was wanted */
/* What was asked for has failed: the process is ended, and then that is told. */
void md_engine_give_up(struct md_engine *engine, const char *why);
/* The process runs: it is ready when it says so. */
void md_engine_await_health(struct md_engine *engine);

/* ---- engine_swap.c ---- */

/* Runs medusa-swap; verb: "out" or "in". False: it could not be started. */
bool md_engine_swap(struct md_engine *engine, const char *verb);
/*
 * The engine is on its way. Called before medusa-swap begins, so that the next daemon knows where the engine goes if this one is
 * killed: medusa-swap goes on then.
 */
void md_engine_be_on_way(struct md_engine *engine, enum md_engine_state state);
/*
 * Where the memory is was written down, and the last swap may have been under way when the daemon ended. To order what is
 * so already changes nothing, and answers only when it is so.
 */
void md_engine_ask_again(struct md_engine *engine);

#endif
