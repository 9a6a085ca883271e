/* SPDX-License-Identifier: Apache-2.0 */
/* The state that swap_serve.c, swap_work.c and swap_say.c share: connections, and the current command. */
#ifndef MD_TOOLS_SWAP_SERVER_H
#define MD_TOOLS_SWAP_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/acceptor.h"
#include "swap/peer_counts.h"
#include "swap/pool.h"
#include "swap/wire.h"

enum md_swap_role {
	MD_SWAP_NEW,
	MD_SWAP_ENGINE,
	MD_SWAP_COMMAND,
	MD_SWAP_DRIVER,  /* tools/swap_driver.h */
	MD_SWAP_CARRIER, /* tools/swap_carrier.h */
};
enum md_swap_work {
	MD_SWAP_NOTHING,
	MD_SWAP_OUT,
	MD_SWAP_IN,
	MD_SWAP_RELEASE,
	MD_SWAP_END,
	MD_SWAP_THERE, /* nothing but an answer */
};

/* What a command asks for. */
struct md_swap_wish {
	enum md_swap_work work;
	uint64_t deadline_ms;
	pid_t process; /* of the engine's processes this one alone; 0: all */
	bool verify, overlap;
	bool neighbours; /* in: the carrier helps */
	bool peers;      /* in: it takes blocks from engines on other GPUs */
	bool full;       /* out: the driver takes what is left */
	char gpu[64];    /* in, of an engine that is fully out: where it comes back; "": where it was */
};

/* Which part of the work is being done. */
enum md_swap_step {
	MD_SWAP_STEP_ENGINES,
	MD_SWAP_STEP_CALL,       /* do the engines answer, before the driver is asked to restore them? */
	MD_SWAP_STEP_RESTORE,    /* by the driver, before engines can do anything */
	MD_SWAP_STEP_CHECKPOINT, /* by the driver, after the engines have gone out */
	MD_SWAP_STEP_BACK,       /* by the driver, of what a checkpoint that was broken off has left */
};

/* What an engine, or the process that asks the driver, was told to do; times in ns. */
struct md_swap_task {
	enum md_swap_work work;
	bool awaited; /* its answer is */
	bool unsent;  /* ... and it has not been told yet, because it owes other answers */
	bool begun;   /* it has said so */
	uint64_t id, asked_at, heard_at, step_at, steps;
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
	MD_SWAP_N_NEIGHBOURS,
	MD_SWAP_N_PEERS,
	MD_SWAP_N_DIFFERED,
	MD_SWAP_N_SPILLED,
	MD_SWAP_N_NS, /* from here on times, of which the longest counts */
	MD_SWAP_N_HASH = MD_SWAP_N_NS + 1,
	MD_SWAP_N_LOCK,
	MD_SWAP_N_COPY,
	MD_SWAP_N_UNMAP,
	MD_SWAP_N_MAP,
	MD_SWAP_N_SPILL,
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
	bool gone;      /* to be removed at the end of this turn */
	uint64_t since; /* ns: when the connection was made */
	/* of an engine */
	pid_t pid, seen_as; /* seen_as: from here, which may be another namespace */
	bool was_out;       /* when the work began */
	bool out, did;      /* did: it has done what was asked for, which can be undone */
	struct md_swap_task task;
	unsigned owed;               /* answers to work that nobody waits for any more */
	bool stuck;                  /* it owes one because its call of the driver does not return */
	uint64_t ping_id, pinged_at; /* while the driver is at work: a question whether it goes on; 0: none is out */
	uint64_t swappable, away, stays, kept, constant, shared, in_file, gpus;
	char gpu[64];                              /* its UUID, if it uses one, and has been fully out */
	uint64_t arrival[MD_SWAP_ARRIVAL_NUMBERS]; /* md_swap_arrival_names */
	char because[128];                         /* why its last launch waited for everything; "": none did */
	/* of a command that waits until another is done */
	struct md_swap_wish wish;
	uint64_t turn;
	bool wants_pulses;
	uint64_t pulsed_at;
};

#define MD_SWAP_CLIENTS 64u
#define MD_SWAP_ENGINE_PROCESSES 31u /* that use a GPU */
#define MD_SWAP_CONNECTIONS                                                                                            \
	(MD_SWAP_CLIENTS - 4) /* places for the process that asks the driver, the carrier, and the next one of each */
#define MD_SWAP_CHILDREN 16u  /* that have ended and are not reaped */

struct md_swap_server {
	const char *name;
	char *path;
	int listening, wake, pool_fd, spill_fd;
	struct md_acceptor acceptor; /* of `listening` */
	struct md_swap_pool *pool;
	bool shares;                    /* the pool, with other engines */
	bool stays_out, share_constant; /* see struct md_swap_serve_pool */
	pthread_t thread, populator;
	bool populates;
	atomic_uint wanted; /* blocks that are to have memory */
	atomic_bool stop;
	atomic_bool useless; /* the pool: the engine was released */
	atomic_bool placed;  /* an engine has said where the pool's pages should lie, or there is no choice */
	atomic_int engine;   /* process id of one that is connected, or 0 */
	struct md_swap_client *clients[MD_SWAP_CLIENTS];
	size_t client_count;
	uint64_t turns;
	bool released, ending;
	uint64_t outs, ins;
	/* the work that is being done */
	struct md_swap_wish now;
	uint64_t id;                    /* of the last task */
	uint64_t turned_at, resumed_at; /* ns: the last turn; the last one that came late, as after SIGSTOP */
	struct md_swap_client *asker;   /* NULL: it has gone */
	bool undoing;
	enum md_swap_step step;
	bool restored;                               /* by the driver, for the work that is being done */
	bool driver_asked, driver_begun, driver_did; /* in this step */
	bool driver_left;                            /* it has said that processes stay locked or checkpointed */
	bool retried;                                /* a second process has been asked */
	bool full;                                   /* the driver has checkpoints of all processes of the engine */
	struct md_swap_client *driver;               /* NULL: it does not run */
	struct md_swap_client *carrier;              /* NULL: it does not run */
	bool prepares_carrier, prepared;             /* it is started with the engine; it was */
	bool lends;                                  /* the engine's memory, to engines on other GPUs */
	uint64_t carrier_links,
	    carrier_locked;     /* neighbours that it has, and bytes of the pool that are locked for them */
	uint64_t carrier_asked; /* ns: the first question that it has not answered; 0: none */
	char carrier_gpus[4 * 48];
	pid_t ended[MD_SWAP_CHILDREN]; /* swap_child.c; 0: none */
	struct md_error why;           /* of the first engine that failed */
	uint64_t numbers[MD_SWAP_NUMBERS], peer_times[MD_PEER_TIMES];
	char links[512], because[256]; /* in: bytes of each neighbour, and why neighbours have carried nothing */
	char peers_because[256]; /* why nothing came from engines on other GPUs, the last time that it was asked for */
	char carried_because[256]; /* why the carrier has copied what came from there, and not such an engine itself */
};

/* ---- swap_work.c ---- */

/* Goes on with the current command, or with the next one, when messages have come or time has passed. */
void md_swap_serve_advance(struct md_swap_server *s);
void md_swap_serve_lost(struct md_swap_server *s, struct md_swap_client *client);
/* Called when the engine was told to end: brings its memory back, or lets its calls fail. */
void md_swap_serve_end(struct md_swap_server *s);
/* The number of the engine's processes, and of those that are out; process: of this one alone; 0: all. */
unsigned md_swap_serve_engines(const struct md_swap_server *s, pid_t process, unsigned *out);

/* ---- swap_hear.c ---- */

/* Handles a message of a client. An error: the client is disconnected. */
enum md_status md_swap_serve_message(struct md_swap_server *s, struct md_swap_client *client,
				     const struct md_swap_message *message, struct md_error *err);

/* ---- swap_task.c ---- */

/* Tells an engine what to do, once it owes no other answer. */
void md_swap_task_give(struct md_swap_server *s, struct md_swap_client *client, enum md_swap_work work);
/* A line with an id has come. True: it is the answer that is awaited. */
bool md_swap_task_hear(struct md_swap_server *s, struct md_swap_client *client, const struct md_swap_message *message);
bool md_swap_task_any(const struct md_swap_server *s);
/* Gives up those that are silent for too long: s->why says who, and what they do later is undone. */
void md_swap_task_watch(struct md_swap_server *s);
enum md_swap_work md_swap_task_opposite(enum md_swap_work work);

/* ---- swap_say.c ---- */

void md_swap_say_failure(struct md_swap_client *client, const struct md_error *why);
/* There is nothing to do, which is no failure. */
void md_swap_say_already(struct md_swap_server *s, struct md_swap_client *client, const char *what);
void md_swap_say_result(struct md_swap_server *s, struct md_swap_client *client);
void md_swap_say_status(struct md_swap_server *s, struct md_swap_client *client);
enum md_status md_swap_say_welcome(struct md_swap_server *s, struct md_swap_client *client, struct md_error *err);
enum md_status md_swap_say_work(struct md_swap_server *s, struct md_swap_client *client, enum md_swap_work work,
				uint64_t id, struct md_error *err);
/* Hands a borrower's connection to the engine, which does not answer. */
enum md_status md_swap_say_lend(const struct md_swap_client *client, int borrower, struct md_error *err);
/* To commands that wait, each second: this process goes on. */
void md_swap_say_pulse(struct md_swap_client *client);

#endif
