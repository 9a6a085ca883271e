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
#include "restore/pace.h"

/* ---- where kernels come from ---- */

enum md_step { MD_STEP_LOADED = 1, MD_STEP_STORED = 2, MD_STEP_TRIGGER = 3 };
#define MD_STEPS 3

/* Names of all kernels of a module or library, read when a kernel is found by enumeration only. */
struct md_kernel_names {
	void **handles;     /* CUkernel of a library, CUfunction of a module */
	const char **names; /* the driver's */
	unsigned count;
	bool read;
};

/* A module or library that this process has loaded by itself. */
struct md_loaded {
	void *handle;      /* CUmodule or CUlibrary */
	CUcontext context; /* a module lives in one; a library in all (NULL) */
	bool is_library, hashed;
	bool live; /* verifying: loaded while a graph was captured live */
	struct md_hash hash;
	uint64_t size;
	struct md_kernel_names names;
};

struct md_asked {           /* the process has the address of a variable, which it needs to write it */
	const void *handle; /* of its module or library */
	uint64_t address;
	uint64_t before; /* checksum of its value at that time */
	bool read;
};

struct md_registry {
	pthread_mutex_t lock;
	struct md_loaded *items;
	size_t count, capacity;
	/* Sizes worth hashing; NULL until the artifact is open: then every image is hashed. */
	const struct md_image *wanted;
	uint32_t wanted_count;
	struct md_asked *asked;
	size_t asked_count;
	bool live; /* verifying: images that are loaded now are loaded by a live capture */
};

enum md_image_state { MD_IMAGE_IDLE, MD_IMAGE_LOADING, MD_IMAGE_LOADED, MD_IMAGE_FAILED };

struct md_restore_image { /* one of the artifact's images, loaded by us */
	enum md_image_state state;
	bool queued; /* a loader will take it */
	bool values_placed;
	/* verifying: the engine's own copy could be used before its live captures; only since them */
	bool own, own_is_live;
	CUlibrary library;
	struct md_kernel_names names;
	struct md_error reason;
};

enum md_kernel_state { MD_KERNEL_PENDING, MD_KERNEL_TRIGGER, MD_KERNEL_RESOLVED, MD_KERNEL_REFUSED };

struct md_restore_kernel {
	enum md_kernel_state state; /* TRIGGER: waits until the engine asks for a graph, which runs the trigger */
	unsigned step;              /* position in the order of steps */
	enum md_step from;
	CUfunction function;
	void *home; /* module or library of the process in which it was found; NULL: in ours */
	struct md_error reason;
};

/* ---- bindings and graphs ---- */

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

enum md_graph_state { MD_GRAPH_WAITING, MD_GRAPH_READY, MD_GRAPH_REFUSED };

struct md_trial { /* values of doubtful words in a trial of a verify run, in place of those of the first capture */
	bool set, all;
	uint32_t index; /* of the only one, unless all */
	uint64_t value;
};

struct md_moved { /* a pointer of the graph that has this address in place of its own, in verify mode */
	uint32_t pointer;
	uint64_t address;
};

struct md_restore_graph {
	struct md_artifact_graph *stored;
	struct md_trial trial;
	const struct md_moved *moved; /* ascending; not owned */
	uint32_t moved_count;
	unsigned border_tries; /* verifying: to learn what addresses between bindings mean */
	enum md_graph_state state;
	bool handed_out;
	bool stale;                              /* made for an address that the binding no longer has */
	bool destroyed;                          /* by the engine, after it was handed out */
	uint32_t rank;                           /* place in the order of building */
	uint32_t *kernels, *bindings, *contents; /* distinct indices that it uses, one allocation, with: */
	uint32_t *constants;                     /* bindings whose hashes must be right, which are among the others */
	uint32_t *images;                        /* images with variables that are set, or pointed to */
	uint32_t kernel_count, binding_count, content_count, constant_count, image_count;
	uint32_t kernels_done, bindings_done; /* cursors: everything before them is resolved, bound */
	bool uses_arena, has_noise_now;
	unsigned awaited; /* calls of medusa_graph_get that wait for it */
	uint32_t stage;   /* the next stage of md_restore_graph_stages */
	uint32_t slice;   /* how many nodes the stage may add now */
	uint32_t nodes_added;
	CUgraphNode *nodes; /* owned, until the edges are there; with it: */
	/* per node: the child graph node that it lies in, or MD_NONE; NULL: there are no child graphs */
	uint32_t *parents;
	CUgraph *children; /* per node: the graph that it embeds, which is the driver's */
	CUevent *events;   /* owned, as long as exec */
	uint32_t event_count;
	CUgraph graph;
	CUgraphExec exec;
	struct md_error reason;
	bool given_up;      /* the engine asked for it, and did not wait */
	bool split, warned; /* logged: others of its group were handed out; it is launched too early */
	bool *fed;          /* per part of handed memory: it was written; verifying: since the last launch; owned */
	bool asked; /* verifying: the engine has asked for it; and why a cold start would have refused it then: */
	struct md_error too_late;
	bool live; /* it has been asked for, and not labelled yet */
};

struct md_want {
	char *label; /* owned */
	unsigned batch;
};

struct md_scratch { /* reused from graph to graph */
	CUgraphNode *from, *to;
	CUgraphEdgeData *edge_data;
	void **params;
	uint32_t edges_room, params_room;
};

struct md_heap {
	void **blocks;               /* blocks that were brought in; from `first` on they are held */
	uint32_t first, count, room; /* room: of the array */
	uint64_t loose;              /* bytes that were freed for the driver and that no graph has taken yet */
	bool full;                   /* there was no memory, so no more is asked for */
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
	struct md_pace_gate pace;
	_Atomic(CUcontext) context; /* written under lock; hooks read it without */
	CUdevice device;
	CUstream stream; /* non-blocking, ours */

	struct md_error failure MD_RESTORE_GUARDED;    /* why the whole restore failed */
	struct md_error refusal MD_RESTORE_GUARDED;    /* for good: the engine's facts differ from the artifact's */
	struct md_fingerprint said MD_RESTORE_GUARDED; /* the facts that the engine stated; outlives a context */
	bool facts_known MD_RESTORE_GUARDED;           /* the artifact's facts have been read */
	struct md_artifact artifact;
	struct md_artifact_file *file;      /* the images are read from here */
	bool head_known MD_RESTORE_GUARDED; /* fingerprint and KV capacity have been read, and they fit this machine */
	struct md_registry registry;
	struct md_restore_image *images;
	uint32_t *image_order; /* most wanted first */
	uint32_t image_order_count;
	struct md_restore_kernel *kernels;
	struct md_restore_graph *graphs;
	uint32_t *order;      /* graph indices by rank */
	uint32_t *binding_of; /* artifact binding -> index into bound, or MD_NONE */
	uint64_t *addresses;  /* artifact binding -> address; set when a graph that uses it is built, under work */
	uint64_t *variables;  /* artifact allocation -> address of its variable; 0: not known yet. Under work */
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
