/* SPDX-License-Identifier: Apache-2.0 */
/* One engine: a command that serves HTTP, started, swapped out and in, and stopped, each with a deadline. */
#ifndef MD_WORKER_ENGINE_ENGINE_H
#define MD_WORKER_ENGINE_ENGINE_H

#include "worker/engine/template.h"
#include "http/address.h"

struct md_engine;

enum md_engine_state {
	MD_ENGINE_STOPPED,
	MD_ENGINE_STARTING,  /* its process runs, and is not healthy yet */
	MD_ENGINE_READY,     /* serves */
	MD_ENGINE_LEAVING,   /* its device memory is being taken away */
	MD_ENGINE_SWAPPED,   /* its process runs, its device memory is in the host's */
	MD_ENGINE_RETURNING, /* its device memory comes back */
	MD_ENGINE_STOPPING,
};

/* How its device memory is taken away and given back. */
enum md_engine_swapping {
	MD_ENGINE_SWAP_NEVER,      /* the engine is stopped instead */
	MD_ENGINE_SWAP_RUN,        /* by the library of medusa-swap run, which is in the command */
	MD_ENGINE_SWAP_CHECKPOINT, /* by the driver's checkpoints of its processes */
};

/* Borrowed, and unchanged while the engine is there. */
struct md_engine_settings {
	const char *name; /* of the model; for messages */
	enum md_engine_swapping swapping;
	const char *swap_name;               /* of the engine, with MD_ENGINE_SWAP_RUN; else NULL */
	char *const *argv;                   /* the command, with medusa-swap run before it if swap_name is set */
	struct md_engine_template *template; /* forks it, if it can; NULL: the command is run */
	char *const *fork_argv;              /* then; with MD_ENGINE_SWAP_NEVER. Else NULL */
	const char *const *fork_environment; /* then, in place of `environment` */
	char *const *stop_argv;              /* instead of SIGTERM; NULL: SIGTERM. "${PID}" in it is the process's id */
	const char *const *environment;      /* "NAME=VALUE", ends with NULL; may be NULL */
	const int *inherits;                 /* of struct md_engine_command */
	const char *swap_command;            /* path of medusa-swap; may be NULL with MD_ENGINE_SWAP_NEVER */
	bool swap_neighbours;                /* in over links of other GPUs, too; with MD_ENGINE_SWAP_RUN */
	const char *host;                    /* the Host header of requests to it */
	const char *check; /* path that answers 200 when it is ready; NULL: ready when it takes connections */
	const char *mark; /* of md_port_foreign_owner, which is in `environment`; NULL: whoever serves there is right */
	struct md_http_address address; /* where it serves */
	uint64_t start_ms;              /* deadline: from its start until it is healthy */
	uint64_t stop_ms;               /* from the wish to stop until SIGKILL */
	uint64_t swap_ms;               /* deadline of out: for the end of the engine's work */
	uint64_t checkpoint_ms; /* deadline of the whole, with MD_ENGINE_SWAP_CHECKPOINT; others have their own */
};

struct md_engine_events {
	/* What was asked for is so: READY after md_engine_start, SWAPPED or STOPPED after md_engine_leave. */
	void (*settled)(void *context);
	/*
	 * It is not so, and the engine is in the state that md_engine_state says. `why` is a sentence without its end. Of
	 * an engine that was READY: it has ended by itself.
	 */
	void (*failed)(void *context, const char *why);
	void (*changed)(void *context); /* the state has changed, for whoever shows it */
	void (*crowded)(
	    void *context); /* it should be SWAPPED, and the pool has no room: `settled` follows when it is STOPPED */
	int (*output)(void *context); /* where what its commands print goes, borrowed; -1: nowhere */
};

/* NULL: out of memory. */
struct md_engine *md_engine_create(struct event_base *base, struct md_engine_processes *processes,
				   const struct md_engine_settings *settings, const struct md_engine_events *events,
				   void *context);
/* Kills the process if it still runs. NULL is fine. */
void md_engine_destroy(struct md_engine *engine);

enum md_engine_state md_engine_state(const struct md_engine *engine);
const char *md_engine_state_name(enum md_engine_state state); /* "stopped" ... */

/* Makes it ready: starts it, or swaps it in. Only if it is STOPPED or SWAPPED; events come later. */
void md_engine_start(struct md_engine *engine);
/* The process of an engine that an earlier daemon has started, and that leads its process group. */
struct md_engine_left {
	pid_t pid;
	int pidfd;                /* of md_process_open */
	struct md_cgroup *cgroup; /* in which it is; NULL: none */
};
/*
 * Takes over such a process, with its descriptor and cgroup if this succeeds. Only if it is STOPPED. swapped: its device memory is in the host's; origin: see
 * md_engine_origin. That
 * is checked first, by medusa-swap, and an engine that is not swapped must be healthy; `settled` or `failed` follows.
 */
enum md_status md_engine_adopt(struct md_engine *engine, const struct md_engine_left *left, bool swapped,
			       const char *origin, struct md_error *err);
/* The socket of the template that has forked its process, which has the template's environment for the kernel; "": none. */
const char *md_engine_origin(const struct md_engine *engine);
/* Whether its last start was given up because it was not healthy within start_ms. */
bool md_engine_was_overdue(const struct md_engine *engine);
pid_t md_engine_process_of(const struct md_engine *engine); /* 0: none */
bool md_engine_is_ending(const struct md_engine *engine);   /* or was told to, has no process, or serves no more */
bool md_engine_is_ours(const struct md_engine *engine);     /* this daemon itself listens at its address */
const struct md_cgroup *md_engine_cgroup(const struct md_engine *engine); /* of its process; NULL: none */
/* Host memory of all its processes. False: it has none, or it is not counted. */
bool md_engine_memory(const struct md_engine *engine, uint64_t *bytes);
/* Frees its device memory: swaps it out if it can, else stops it. Only if it is READY. */
void md_engine_leave(struct md_engine *engine);
/* Ends its process, in any state; what was asked for before has failed. `settled` follows when it has ended. */
void md_engine_stop(struct md_engine *engine);

#endif
