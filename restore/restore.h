/* SPDX-License-Identifier: Apache-2.0 */
/* Internal state of the restore library: one artifact, one context, one background thread, graphs on their way to
 * ready. */
#ifndef MD_RESTORE_RESTORE_H
#define MD_RESTORE_RESTORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/guarded.h"
#include "base/map.h"
#include "driver/cuda_driver.h"
#include "driver/device_hash.h"
#include "format/artifact/artifact.h"
#include "medusa/medusa.h"
#include "restore/restore_graph.h"
#include "restore/kernel_sources.h"
#include "restore/pace.h"

struct md_bound {   /* a binding as the engine stated it */
	char *name; /* owned */
	uint64_t address, size;
	uint32_t role;
	bool freed; /* the engine has freed the memory since, and not bound the name again */
};

/* State of a binding from which contents may be made. */
enum md_constant_state {
	MD_CONSTANT_IDLE,    /* no graph depends on it */
	MD_CONSTANT_UNKNOWN, /* not hashed since it was bound */
	MD_CONSTANT_SAME,
	MD_CONSTANT_OTHER,
	MD_CONSTANT_UNREAD,
};
enum md_hasher_state { MD_HASHER_CLOSED, MD_HASHER_OPENING, MD_HASHER_OPEN };

struct md_want {
	char *label; /* owned */
	unsigned batch;
};

struct md_scratch { /* reused from graph to graph */
	CUgraphNode *from, *to;
	CUgraphEdgeData *edge_data;
	void **params;
	uint8_t *block; /* MD_PARAMS_MAX bytes; NULL: no node has needed it */
	uint32_t edges_room, params_room;
};

struct md_heap {
	void **blocks;               /* blocks that were brought in; from `first` on they are held */
	uint32_t first, count, room; /* room: of the array */
	uint64_t loose;              /* bytes that were freed for the driver and that no graph has taken yet */
	bool full;                   /* there was no memory, so no more is asked for */
	bool learned;                /* from the first graphs */
	uint32_t share;              /* what this driver takes, in 1/256 of what it might take */
	uint64_t nodes, whole;       /* of the graphs since the last look; bytes that they might have taken */
	uint64_t faults; /* of this thread at the last look, and since then for memory that was brought in */
};

enum md_phase { MD_PHASE_IDLE, MD_PHASE_OPENING, MD_PHASE_OPEN, MD_PHASE_FAILED };

/*
 * md_restore_work is held while driver objects of a restore are made or taken apart, and is taken before md_restore_lock,
 * which guards all state that more than one thread reads. Neither is a member of struct md_restore: in C, an attribute of
 * a member cannot name another member.
 */
extern pthread_mutex_t md_restore_work, md_restore_lock;
/* Behind a variable, and behind the parameters of a function whose caller holds the lock. */
#define MD_RESTORE_GUARDED MD_GUARDED_BY(md_restore_lock)
#define MD_RESTORE_HELD MD_REQUIRES(md_restore_lock)

struct md_restore {
	pthread_cond_t changed;
	_Atomic(enum md_phase) phase; /* written under lock; hooks read it without */
	bool verify, require_proof;
	bool reads_back;       /* verifying: what the driver has made of graphs is compared with the artifact */
	atomic_bool stop, off; /* off: child of a fork that came after a restore was begun */
	/* verifying: graphs that a cold start would hand out and that are asked for and not labelled yet */
	unsigned live_graphs;                   /* written under both locks */
	bool released MD_RESTORE_GUARDED;       /* medusa_release: nothing is restored any more */
	bool started MD_RESTORE_GUARDED;        /* a restore was begun in this process, ever */
	bool sequence_bound MD_RESTORE_GUARDED; /* bindings by sequence have been looked for */
	bool missing_logged MD_RESTORE_GUARDED; /* the engine asked for a graph that the artifact does not hold */
	/* the engine asked for a graph while a limit of its context was too low */
	bool limits_logged MD_RESTORE_GUARDED;
	bool limits_fit; /* no limit was too low when they were compared last */
	const char *path, *report;
	bool trust_asked;         /* MEDUSA_TRUSTED_KEYS is set */
	const char *trusted_keys; /* its value; NULL also for want of memory */
	enum md_step steps[MD_STEPS];
	unsigned step_count;

	pthread_t thread;
	bool thread_started MD_RESTORE_GUARDED, thread_done MD_RESTORE_GUARDED;
	pthread_t loaders[4];
	unsigned loader_count;
	uint32_t next_image MD_RESTORE_GUARDED; /* in image_order */
	bool images_stop MD_RESTORE_GUARDED;    /* loaders end after their current image */
	unsigned holds MD_RESTORE_GUARDED;      /* calls that want the driver for themselves */
	unsigned awaited MD_RESTORE_GUARDED;    /* calls of medusa_graph_get that wait */
	uint64_t choices MD_RESTORE_GUARDED;    /* how often the background has chosen its next work */
	struct md_pace_gate pace;
	_Atomic(CUcontext) context; /* written under lock; hooks read it without */
	CUdevice device;
	CUstream stream; /* non-blocking, ours */

	struct md_error failure MD_RESTORE_GUARDED; /* why the whole restore failed */
	struct md_error refusal MD_RESTORE_GUARDED; /* for good: the engine's facts differ from the artifact's */
	bool parted MD_RESTORE_GUARDED; /* the refusal is that ranks agree on nothing more (restore/agree.h) */
	struct md_fingerprint said MD_RESTORE_GUARDED; /* the facts that the engine stated; outlives a context */
	bool facts_known MD_RESTORE_GUARDED;           /* the artifact's facts have been read */
	bool of_rank; /* the artifact is of a bundle, which says that it is this rank's, and of how many */
	uint64_t bundle MD_RESTORE_GUARDED; /* of which one; 0: none, or not known yet */
	struct md_artifact artifact;
	struct md_artifact_file *file;      /* the images are read from here */
	bool head_known MD_RESTORE_GUARDED; /* fingerprint and KV capacity have been read, and they fit this machine */
	struct md_registry registry;
	struct md_restore_image *images;
	uint32_t *image_order; /* most wanted first */
	uint32_t image_order_count;
	struct md_restore_kernel *kernels;
	struct md_restore_graph *graphs;
	struct md_graph_reasons *reasons; /* of the graphs */
	struct md_map graph_names;        /* label and batch -> index of the first such graph */
	uint32_t *order;                  /* graph indices by rank */
	/* no graph before that place in the order waits */
	uint32_t order_done MD_RESTORE_GUARDED;
	uint32_t *drops; /* indices of graphs that may have something to drop */
	uint32_t drop_count MD_RESTORE_GUARDED;
	struct md_restore_graph *awaited_last MD_RESTORE_GUARDED; /* the graph that a call began to wait for last */
	uint32_t *binding_of;                                     /* artifact binding -> index into bound, or MD_NONE */
	uint64_t *addresses; /* artifact binding -> address; set when a graph that uses it is built, under work */
	uint64_t *variables; /* artifact allocation -> address of its variable; 0: not known yet. Under work */
	struct md_map binding_names; /* checksum of the name -> artifact binding */
	bool *content_placed;
	uint8_t *constants; /* artifact binding -> enum md_constant_state */
	struct md_device_hasher hasher;
	enum md_hasher_state hasher_state;

	struct md_bound *bound MD_RESTORE_GUARDED;
	uint32_t bound_count MD_RESTORE_GUARDED, bound_room MD_RESTORE_GUARDED;
	struct md_map bound_names; /* checksum of the name -> index into bound */
	uint64_t last_bind_ns MD_RESTORE_GUARDED, functions_done_ns MD_RESTORE_GUARDED;

	struct md_want *wants MD_RESTORE_GUARDED;
	uint32_t want_count MD_RESTORE_GUARDED, want_room MD_RESTORE_GUARDED;
	/* graphs that the engine captured while the artifact was being opened */
	struct md_want *lives MD_RESTORE_GUARDED;
	uint32_t live_count MD_RESTORE_GUARDED;

	int (*trigger)(void *user);
	void *trigger_user;
	bool trigger_done MD_RESTORE_GUARDED, trigger_running MD_RESTORE_GUARDED;

	CUdeviceptr arena;
	bool arena_tried; /* was to be reserved ahead of the graphs */
	/* why that failed; the first graph that needs it is refused */
	struct md_error arena_failed MD_GUARDED_BY(md_restore_work);
	struct md_scratch scratch;
	struct md_heap heap;
	uint64_t batch_ns; /* how long the next batch of small graphs may take; under work */
	struct medusa_stats stats MD_RESTORE_GUARDED;
	/* threads at work: their stages overlap, and the total counts the time once */
	unsigned busy MD_RESTORE_GUARDED;
	uint64_t busy_since_ns MD_RESTORE_GUARDED, busy_ns MD_RESTORE_GUARDED;
	uint64_t images_first_ns MD_RESTORE_GUARDED, images_last_ns MD_RESTORE_GUARDED;
	atomic_uint captures; /* stream captures in progress */
	atomic_uint unmaps;   /* how often the engine has unmapped memory */
};

extern struct md_restore md_restore;

#endif
