/* SPDX-License-Identifier: Apache-2.0 */
/* The state that swap_serve.c, swap_work.c and swap_say.c share: connections, and the current command. */
#ifndef MD_TOOLS_SWAP_SERVER_H
#define MD_TOOLS_SWAP_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "swap/pool.h"
#include "swap/wire.h"

enum md_swap_role { MD_SWAP_NEW, MD_SWAP_ENGINE, MD_SWAP_COMMAND, MD_SWAP_DRIVER /* tools/swap_driver.h */ };
enum md_swap_work { MD_SWAP_NOTHING, MD_SWAP_OUT, MD_SWAP_IN, MD_SWAP_RELEASE, MD_SWAP_END };

/* What a command asks for. */
struct md_swap_wish {
	enum md_swap_work work;
	uint64_t deadline_ms;
	pid_t process; /* of the engine's processes this one alone; 0: all */
	bool verify, overlap;
	bool full;    /* out: the driver takes what is left */
	char gpu[64]; /* in, of an engine that is fully out: where it comes back; "": where it was */
};

/* Which part of the work is being done. */
enum md_swap_step {
	MD_SWAP_STEP_ENGINES,
	MD_SWAP_STEP_RESTORE,    /* by the driver, before engines can do anything */
	MD_SWAP_STEP_CHECKPOINT, /* by the driver, after the engines have gone out */
};

/* Numbers that engines report of a swap; md_swap_number_names has their names. */
enum md_swap_number {
	MD_SWAP_N_BYTES,
	MD_SWAP_N_COPIED,
	MD_SWAP_N_EQUAL,
	MD_SWAP_N_ZERO,
	MD_SWAP_N_DISCARDED,
	MD_SWAP_N_RESIDENT,
	MD_SWAP_N_COMING,
	MD_SWAP_N_NS, /* from here on times, of which the longest counts */
	MD_SWAP_N_HASH = MD_SWAP_N_NS + 1,
	MD_SWAP_N_LOCK,
	MD_SWAP_N_COPY,
	MD_SWAP_N_UNMAP,
	MD_SWAP_N_MAP,
	MD_SWAP_N_DRIVER_LOCK,
	MD_SWAP_N_CHECKPOINT,
	MD_SWAP_N_RESTORE,
	MD_SWAP_N_UNLOCK,
	MD_SWAP_N_TOTAL,
	MD_SWAP_NUMBERS
};
extern const char *const md_swap_number_names[MD_SWAP_NUMBERS];

/* Numbers that engines report of memory that is on its way in. */
#define MD_SWAP_ARRIVAL_NUMBERS 6u
extern const char *const md_swap_arrival_names[MD_SWAP_ARRIVAL_NUMBERS];

struct md_swap_client {
	struct md_swap_wire wire;
	enum md_swap_role role;
	bool gone; /* to be removed at the end of this turn */
	/* of an engine */
	pid_t pid, seen_as; /* seen_as: from here, which may be another namespace */
	bool was_out;       /* when the work began */
	bool out, asked,
	    did; /* asked: its answer is awaited; did: it has done what was asked for, which can be undone */
	uint64_t swappable, away, stays, kept, gpus;
	char gpu[64];                              /* its UUID, if it uses one, and has been fully out */
	uint64_t arrival[MD_SWAP_ARRIVAL_NUMBERS]; /* md_swap_arrival_names */
	/* of a command that waits until another is done */
	struct md_swap_wish wish;
	uint64_t turn;
};

#define MD_SWAP_CLIENTS 64u

struct md_swap_server {
	const char *name;
	char *path;
	int listening, wake, pool_fd;
	struct md_swap_pool *pool;
	pthread_t thread, populator;
	bool populates;
	atomic_uint wanted; /* blocks that are to have memory */
	atomic_bool stop;
	atomic_int engine; /* process id of one that is connected, or 0 */
	struct md_swap_client *clients[MD_SWAP_CLIENTS];
	size_t client_count;
	uint64_t turns;
	bool released, ending;
	uint64_t outs, ins;
	/* the work that is being done */
	struct md_swap_wish now;
	uint64_t id, began;           /* began: ns */
	struct md_swap_client *asker; /* NULL: it has gone */
	bool undoing;
	enum md_swap_step step;
	bool restored;                 /* by the driver, for the work that is being done */
	bool driver_did;               /* in this step */
	bool full;                     /* the driver has checkpoints of all processes of the engine */
	struct md_swap_client *driver; /* NULL: it does not run */
	struct md_error why;           /* of the first engine that failed */
	uint64_t numbers[MD_SWAP_NUMBERS];
};

/* ---- swap_work.c ---- */

/* Handles a message of a client. An error: the client is disconnected. */
enum md_status md_swap_serve_message(struct md_swap_server *s, struct md_swap_client *client,
				     const struct md_swap_message *message, struct md_error *err);
/* Goes on with the current command, or with the next one, when messages have come or time has passed. */
void md_swap_serve_advance(struct md_swap_server *s);
void md_swap_serve_lost(struct md_swap_server *s, struct md_swap_client *client);
/* Called when the engine was told to end: brings its memory back, or lets its calls fail. */
void md_swap_serve_end(struct md_swap_server *s);
unsigned md_swap_serve_engines(const struct md_swap_server *s, unsigned *out);

/* ---- swap_say.c ---- */

void md_swap_say_failure(struct md_swap_client *client, const struct md_error *why);
void md_swap_say_result(struct md_swap_server *s, struct md_swap_client *client);
void md_swap_say_status(struct md_swap_server *s, struct md_swap_client *client);
enum md_status md_swap_say_welcome(struct md_swap_server *s, struct md_swap_client *client, struct md_error *err);
enum md_status md_swap_say_work(struct md_swap_server *s, struct md_swap_client *client, enum md_swap_work work,
				struct md_error *err);

#endif
