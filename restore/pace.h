/* SPDX-License-Identifier: Apache-2.0 */
/* When a step of restoring may use the driver beside an engine that replays graphs: in the shadow of a replay. */
#ifndef MD_RESTORE_PACE_H
#define MD_RESTORE_PACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/*
 * The driver does one thing at a time: a launch that comes while a graph is instantiated waits for the end of that. But
 * once a launch has returned, the device is busy with the replay, the engine waits for it, and nobody wants the driver:
 *
 *	engine   |launch|.......... gap ..........|launch|.......... gap ..........|launch|
 *	step             |nodes|upload|                   |nodes of another|
 *
 * So while an engine replays, a step begins right after a launch, and only if it will have ended before the next one. A
 * step that is longer than any gap is felt by the launch behind it. No step at all begins within the next
 * MD_PACE_LAUNCHES launches after one that was felt, so that at most one launch of as many is disturbed. Without
 * launches, and for a graph that somebody waits for, everything goes at full speed.
 */
#define MD_PACE_LAUNCHES 200
#define MD_PACE_IDLE_NS 50000000u /* no launch for so long (and twice the gap): the engine is idle */
#define MD_PACE_GAPS 16

enum md_pace_step {
	MD_PACE_IMAGE,       /* units: KiB */
	MD_PACE_FUNCTION,    /* functions */
	MD_PACE_NODES,       /* nodes; the one step that can be cut in pieces */
	MD_PACE_EDGES,       /* edges */
	MD_PACE_INSTANTIATE, /* nodes */
	MD_PACE_UPLOAD,      /* nodes */
	MD_PACE_DROP,        /* nodes */
	MD_PACE_STEPS,
};

/* ---- what the launch hook sees; two clock readings and a few stores a launch ---- */

struct md_pace_engine {
	_Alignas(64) _Atomic uint64_t begun; /* launches */
	_Atomic uint64_t ended;
	_Atomic uint64_t ended_ns;           /* when the last one returned */
	_Atomic uint64_t gaps[MD_PACE_GAPS]; /* ns from a return to the next launch, the latest ones; 0: none yet */
	atomic_bool watched;                 /* something is left to restore; if not, launches are only counted */
};

static inline void md_pace_launch_begins(struct md_pace_engine *engine)
{
	uint64_t launch = atomic_fetch_add_explicit(&engine->begun, 1, memory_order_relaxed);
	if (!atomic_load_explicit(&engine->watched, memory_order_relaxed))
		return;
	uint64_t since = atomic_load_explicit(&engine->ended_ns, memory_order_relaxed), now = md_clock_ns();
	if (since && now > since)
		atomic_store_explicit(&engine->gaps[launch % MD_PACE_GAPS], now - since, memory_order_relaxed);
}

static inline void md_pace_launch_ends(struct md_pace_engine *engine)
{
	if (atomic_load_explicit(&engine->watched, memory_order_relaxed))
		atomic_store_explicit(&engine->ended_ns, md_clock_ns(), memory_order_relaxed);
	atomic_fetch_add_explicit(&engine->ended, 1, memory_order_release);
}

/* ---- the decision: no clock, no threads ---- */

struct md_pace_view {
	uint64_t launches; /* begun so far */
	uint64_t ended_ns; /* when the last one returned; 0: there was none */
	uint64_t gap_ns;   /* the shortest of the latest gaps; 0: not known yet */
	bool in_launch;
};

struct md_pace {
	uint64_t next_launch;             /* nothing begins before so many launches: a step was felt */
	uint64_t unit_ns8[MD_PACE_STEPS]; /* what a unit takes, in 1/256 ns; learned */
};

struct md_pace_answer {
	uint64_t units;   /* do so many now; 0: not now */
	uint64_t wait_ns; /* ask again after that */
	bool shadow;      /* in the shadow of a replay: no other step meanwhile */
};

void md_pace_init(struct md_pace *pace);
/* awaited: somebody waits for the graph that the step belongs to. */
struct md_pace_answer md_pace_decide(const struct md_pace *pace, const struct md_pace_view *engine,
				     enum md_pace_step step, uint64_t units, bool awaited, uint64_t now_ns);
/* After a step: what it took, and how many launches had begun before and after it. */
void md_pace_learn(struct md_pace *pace, enum md_pace_step step, uint64_t units, uint64_t ns, uint64_t launches_before,
		   uint64_t launches_after, bool awaited);

/* ---- the same for several threads, with the clock ---- */

struct md_pace_gate {
	pthread_mutex_t lock;
	struct md_pace pace;
	bool busy; /* a step runs in a replay's shadow */
};

struct md_pace_turn {
	enum md_pace_step step;
	uint64_t units, wait_ns; /* as in the answer */
	uint64_t start_ns, launches;
	bool shadow, awaited;
};

extern struct md_pace_engine md_pace_engine; /* the process's */

/* True: do turn->units now, and say md_pace_end. False: ask again after turn->wait_ns. */
bool md_pace_begin(struct md_pace_gate *gate, enum md_pace_step step, uint64_t units, bool awaited,
		   struct md_pace_turn *turn);
void md_pace_end(struct md_pace_gate *gate, const struct md_pace_turn *turn);
/* Whether the engine does not replay, or waits for the graph: then everything may go at full speed, without turns. */
bool md_pace_is_free(bool awaited);
uint64_t md_pace_launches(void); /* begun so far */
/* Learns how long such a step took; launches: how many had begun before it. */
void md_pace_learned(struct md_pace_gate *gate, enum md_pace_step step, uint64_t units, uint64_t ns, uint64_t launches,
		     bool awaited);

#endif
