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
void md_kernel_names_finish(struct md_kernel_names *names);

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

struct md_asked {           /* the process has the address of a variable, as who writes one must */
	const void *handle; /* of its module or library */
	uint64_t address;
	uint64_t before; /* checksum of what it held then */
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
	bool live; /* verifying: what is loaded now, is loaded by a live capture */
};

/* option: as md_jit_option_of_code says it. PTX that was compiled with one is not the image that a restore wants. */
void md_registry_add(struct md_registry *registry, void *handle, bool is_library, const void *image,
		     const char *option);
void md_registry_add_file(struct md_registry *registry, void *handle, bool is_library, const char *path,
			  const char *option);
bool md_registry_holds(struct md_registry *registry, void *handle);
void md_registry_asked(struct md_registry *registry, const struct md_asked *asked);
/* out may be NULL. */
bool md_registry_asked_at(struct md_registry *registry, const void *handle, uint64_t address, struct md_asked *out);
/* True if some image must be the engine's own because of a variable, or if that is not known yet. */
bool md_registry_wants_variables(struct md_registry *registry);
/* A copy of the entry; false past the last one. */
bool md_registry_at(struct md_registry *registry, size_t index, struct md_loaded *out);
void md_registry_remove(struct md_registry *registry, void *handle);
void md_registry_remove_context(struct md_registry *registry, CUcontext context); /* modules in it */
void md_registry_want(struct md_registry *registry, const struct md_image *images, uint32_t count);
bool md_registry_has(struct md_registry *registry, const struct md_hash *hash);
void md_registry_clear(struct md_registry *registry);

enum md_image_state { MD_IMAGE_IDLE, MD_IMAGE_LOADING, MD_IMAGE_LOADED, MD_IMAGE_FAILED };

struct md_restore_image { /* one of the artifact's images, loaded by us */
	enum md_image_state state;
	bool queued; /* a loader will take it */
	bool values_placed;
	bool own, own_is_live; /* verifying: the engine's own would do before its live captures; only since them */
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
	void *home; /* module or library of the process that it was found in; NULL when ours */
	struct md_error reason;
};

/* ---- bindings and graphs ---- */

struct md_bound {   /* what the engine said */
	char *name; /* owned */
	uint64_t address, size;
	uint32_t role;
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

struct md_trial { /* what doubtful words are in place of what the first capture had, in verify mode */
	bool set, all;
	uint32_t index; /* of the only one, unless all */
	uint64_t value;
};

struct md_restore_graph {
	struct md_artifact_graph *stored;
	struct md_trial trial;
	enum md_graph_state state;
	bool handed_out;
	bool stale;                              /* made for an address that the engine has left since */
	uint32_t rank;                           /* place in the order of building */
	uint32_t *kernels, *bindings, *contents; /* distinct indices that it uses, one allocation, with: */
	uint32_t *constants;                     /* bindings whose hashes must be right, which are among the others */
	uint32_t *images;                        /* with variables that are set, or pointed to */
	uint32_t kernel_count, binding_count, content_count, constant_count, image_count;
	uint32_t kernels_done, bindings_done; /* cursors: everything before them is resolved, bound */
	bool uses_arena, has_noise_now;
	unsigned awaited; /* calls of medusa_graph_get that wait for it */
	uint32_t stage;   /* the next one of md_restore_graph_stages; what is done waits for its turn beside replays */
	uint32_t slice;   /* how many nodes the stage may add now */
	uint32_t nodes_added;
	CUgraphNode *nodes; /* owned, until the edges are there; with it: */
	uint32_t *parents;  /* of each node the child graph it belongs to, MD_NONE; NULL: there are no child graphs */
	CUgraph *children;  /* of each node the graph that it holds, which is the driver's */
	CUevent *events;    /* owned, as long as exec */
	uint32_t event_count;
	CUgraph graph;
	CUgraphExec exec;
	struct md_error reason;
	bool given_up;      /* the engine asked for it, and did not wait */
	bool split, warned; /* it was said that others of its group were handed out, or that it is launched too early */
	bool *fed;  /* of each part of handed memory, whether it was written, verifying: since the last launch; owned */
	bool asked; /* verifying: the engine has asked for it; and why a cold start would refuse it then: */
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
	void **blocks;               /* brought in; those from first on are held */
	uint32_t first, count, room; /* room: of the array */
	uint64_t loose;              /* bytes that were freed for the driver, and that no graph has taken yet */
	bool full;                   /* there was no memory: it is not asked for again */
};

enum md_phase { MD_PHASE_IDLE, MD_PHASE_OPENING, MD_PHASE_OPEN, MD_PHASE_FAILED };

struct md_restore {
	pthread_mutex_t work; /* held while driver objects of a restore are made or taken apart; before lock */
	pthread_mutex_t lock; /* everything below that more than one thread reads */
	pthread_cond_t changed;
	_Atomic(enum md_phase) phase; /* written under lock; hooks look at it without */
	bool verify, require_proof;
	atomic_bool stop, off; /* off: child of a fork that came after a restore was begun */
	unsigned live_graphs; /* verifying: asked for and not labelled yet, of those that a cold start would hand out */
	bool released;        /* medusa_release: nothing is restored any more */
	pid_t process;        /* that we are of; another one is a child that nobody told us of */
	bool started;         /* a restore was begun in this process, ever */
	bool sequence_bound;  /* what the artifact knows by sequence has been looked for */
	bool missing_logged;  /* the engine asked for a graph that the artifact does not hold */
	bool limits_logged;   /* and while a limit of its context was too low */
	bool limits_fit;      /* none was, when they were compared last */
	const char *path, *report;
	bool trust_asked;         /* MEDUSA_TRUSTED_KEYS is set */
	const char *trusted_keys; /* its value; NULL also for want of memory */
	enum md_step steps[MD_STEPS];
	unsigned step_count;

	pthread_t thread;
	bool thread_started, thread_done;
	pthread_t loaders[4];
	unsigned loader_count;
	uint32_t next_image; /* in image_order */
	bool images_stop;    /* loaders end with the image they are at */
	unsigned holds;      /* calls that want the driver for themselves for a moment */
	unsigned awaited;    /* calls of medusa_graph_get that wait */
	struct md_pace_gate pace;
	_Atomic(CUcontext) context; /* likewise */
	CUdevice device;
	CUstream stream; /* non-blocking, ours */

	struct md_error failure;    /* of the whole restore */
	struct md_error refusal;    /* for good: the engine has said that it is another one */
	struct md_fingerprint said; /* facts alone: what the engine said it is; outlives a context */
	bool facts_known;           /* the artifact's facts are there to compare with */
	struct md_artifact artifact;
	struct md_artifact_file *file; /* where image bytes come from */
	bool head_known;               /* fingerprint and KV capacity are there, and this machine is the right one */
	struct md_registry registry;
	struct md_restore_image *images;
	uint32_t *image_order; /* most wanted first */
	uint32_t image_order_count;
	struct md_restore_kernel *kernels;
	struct md_restore_graph *graphs;
	uint32_t *order;      /* graph indices by rank */
	uint32_t *binding_of; /* artifact binding -> index into bound, or MD_NONE */
	uint64_t *addresses;  /* artifact binding -> address; set when a graph that uses it is built, under work */
	uint64_t
	    *variables; /* artifact allocation -> address of the variable that it is; 0: not known yet. Under work */
	struct md_map binding_names; /* checksum of the name -> artifact binding */
	bool *content_placed;
	uint8_t *constants; /* artifact binding -> enum md_constant_state */
	struct md_device_hasher hasher;
	enum md_hasher_state hasher_state;

	struct md_bound *bound;
	uint32_t bound_count, bound_room;
	struct md_map bound_names; /* checksum of the name -> index into bound */
	uint64_t last_bind_ns, functions_done_ns;

	struct md_want *wants;
	uint32_t want_count, want_room;
	struct md_want *lives; /* that the engine captured while the artifact was being opened */
	uint32_t live_count;

	int (*trigger)(void *user);
	void *trigger_user;
	bool trigger_done, trigger_running;

	CUdeviceptr arena;
	bool arena_tried;             /* ahead of the graphs */
	struct md_error arena_failed; /* then; the first graph that needs it is refused */
	struct md_scratch scratch;
	struct md_heap heap;
	struct medusa_stats stats;
	unsigned busy; /* threads at work; their stages overlap, and the total counts the time once */
	uint64_t busy_since_ns, busy_ns;
	uint64_t images_first_ns, images_last_ns;
	atomic_uint captures; /* stream captures in progress */
};

extern struct md_restore md_restore;

/* ---- what is next (work.c) ---- */

enum md_work_kind {
	MD_WORK_WAIT,    /* for bindings, images or a trigger */
	MD_WORK_BUILD,   /* the next stage of a graph */
	MD_WORK_RESOLVE, /* a kernel */
	MD_WORK_ARENA,
	MD_WORK_HEAP,   /* a slice of host memory */
	MD_WORK_DROP,   /* what a ready graph was instantiated from */
	MD_WORK_UNDO,   /* what was made of a graph whose group is refused */
	MD_WORK_SETTLE, /* no graph waits any more */
};

struct md_work {
	enum md_work_kind kind;
	struct md_restore_graph *graph;
	uint32_t kernel;
	enum md_pace_step pace; /* with units: what it asks of the driver; 0 units: nothing worth a turn */
	uint64_t units;
	bool awaited;
};

/* Refuses graphs that can't be restored any more. */
struct md_work md_restore_work_next(struct md_restore *r, bool settled) MD_REQUIRES(r->work, r->lock);

/* ---- stages (stages.c) ---- */

struct md_restore_stage {
	const char *name;
	enum md_status (*run)(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
	void (*undo)(struct md_restore *r,
		     struct md_restore_graph *graph); /* may be NULL; safe when run did not finish */
	size_t ns; /* offset in struct medusa_stats of the time it takes; 0: counted nowhere */
	bool (*more)(const struct md_restore_graph *graph); /* run again; NULL: once does it */
	enum md_pace_step pace;
	/* NULL: needs no turn beside replays, as it hardly uses the driver */
	uint64_t (*units)(const struct md_restore_graph *graph);
};

extern const struct md_restore_stage md_restore_session_stages[];
extern const size_t md_restore_session_stage_count;
extern const struct md_restore_stage md_restore_graph_stages[];
extern const size_t md_restore_graph_stage_count;

/* Runs stages in order; when one fails, undoes it and those before it, last first, and says which one it was. */
enum md_status md_restore_stages_run(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
				     struct md_restore_graph *graph, struct md_error *err);
/* Runs one stage of the graph, or a slice of it (graph->slice); *done after the last. A failure undoes everything. */
enum md_status md_restore_graph_step(struct md_restore *r, struct md_restore_graph *graph, bool *done,
				     struct md_error *err);
void md_restore_stages_undo(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
			    struct md_restore_graph *graph);

/* ---- steps of the stages ---- */

/* Room for images and kernels, which a loader may need before the graphs are read; then the plan of the graphs. */
enum md_status md_restore_plan_tables(struct md_restore *r, struct md_error *err);
enum md_status md_restore_plan(struct md_restore *r, struct md_error *err);
void md_restore_plan_finish(struct md_restore *r);
/* Orders graphs by what the engine wants. */
void md_restore_plan_order(struct md_restore *r) MD_REQUIRES(r->lock);

void md_restore_images_start(struct md_restore *r);
void md_restore_images_join(struct md_restore *r);
void md_restore_images_unload(struct md_restore *r, bool only_unused);
/* Loads the image now, or waits for the thread that does. paced: beside replays, when its turn comes. */
enum md_status md_restore_image_load(struct md_restore *r, uint32_t image, bool paced, struct md_error *err);
/* A loader has it, or will take it: who wants it need not load it. */
bool md_restore_image_coming(const struct md_restore *r, uint32_t image) MD_REQUIRES(r->lock);
/* Device memory that images take, which the driver tells nobody: more than in their file, in pages. */
uint64_t md_restore_images_held(const struct md_restore *r, bool at_most) MD_REQUIRES(r->lock);
/* Reads the graphs on another thread, and resolves kernels meanwhile as their images come. */
enum md_status md_restore_graphs_read(struct md_restore *r, struct md_error *err);

bool md_restore_has_step(const struct md_restore *r, enum md_step step);
/* Moves one kernel on: to RESOLVED, REFUSED or TRIGGER. */
void md_restore_kernel_resolve(struct md_restore *r, uint32_t kernel) MD_REQUIRES(r->work);
/* Finds the kernel in an image that the engine has loaded and that may be used. */
enum md_status md_restore_kernel_loaded(struct md_restore *r, uint32_t kernel, struct md_error *err)
    MD_REQUIRES(r->work);

enum md_status md_restore_arena_reserve(struct md_restore *r, struct md_error *err);
void md_restore_arena_free(struct md_restore *r);
enum md_status md_restore_contents_place(struct md_restore *r, struct md_restore_graph *graph, bool again,
					 struct md_error *err);
uint64_t md_restore_alloc_address(const struct md_restore *r, uint32_t alloc);

/* Relocates in place: the bytes are Medusa's copy, and relocating again gives the right words again. */
enum md_status md_restore_relocate(struct md_restore *r, uint8_t *data, const struct md_pointer *pointers,
				   uint32_t count, struct md_error *err);

/* ---- variables of modules (variables.c) ---- */

/* From hooks: the engine has been given the address of one. */
void md_restore_variable_asked(struct md_restore *r, void *handle, uint64_t address, uint64_t size);
/* MD_ERR_MISMATCH: that copy of the image, which the engine has loaded, will not do now, and why. */
enum md_status md_restore_variables_usable(struct md_restore *r, const struct md_loaded *in, uint32_t image,
					   struct md_error *err) MD_REQUIRES(r->work);
/* A variable that holds addresses, or that others point to: only in a copy of ours they are right. NULL: none. */
const char *md_restore_variables_ours(const struct md_artifact *artifact, uint32_t image);
/* True if a copy of the image that the engine has loaded can be used. */
bool md_restore_variable_ready(struct md_restore *r, uint32_t image) MD_REQUIRES(r->work);
/* Loads the images whose variables the graph needs, and finds their addresses; then sets them. Holds work. */
enum md_status md_restore_variables_load(struct md_restore *r, const struct md_restore_graph *graph,
					 struct md_error *err) MD_REQUIRES(r->work);
enum md_status md_restore_variables_place(struct md_restore *r, const struct md_restore_graph *graph, bool again,
					  struct md_error *err);
/* Variables must be set anew: a binding that some of them point to has moved, or the image was unloaded. */
void md_restore_variables_moved(struct md_restore *r, uint32_t binding);
void md_restore_variables_gone(struct md_restore *r, uint32_t image);

/* The 128 bytes of a tensor map, wherever they lie: it has this address from now on. */
enum md_status md_restore_patch_tensor_map(uint8_t *at, uint64_t address, struct md_error *err);
enum md_status md_restore_patch(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
/* Fills the noise bytes with zero (seed 0) or with pseudo-random bytes. */
void md_restore_patch_noise(struct md_restore_graph *graph, uint64_t seed);
/* Up to graph->slice nodes; then, with all there, the edges. */
enum md_status md_restore_build_nodes(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
enum md_status md_restore_build_edges(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
/* Frees memory that only building needs; and the events, after the nodes that use them. */
void md_restore_build_finish(struct md_restore_graph *graph);
void md_restore_events_destroy(struct md_restore_graph *graph);
void md_restore_scratch_finish(struct md_scratch *scratch);

/* ---- host memory for the driver (heap.c): under work, on the thread that makes the graphs ---- */

/* Graphs that are still to be made will take more than is there. */
bool md_restore_heap_lacks(const struct md_restore *r) MD_REQUIRES(r->lock);
/* Brings in some 4 MiB more. */
void md_restore_heap_add(struct md_restore *r);
/* Leaves to the driver what this graph will take; a stage, which never fails. */
enum md_status md_restore_heap_take(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
void md_restore_heap_finish(struct md_heap *heap);

/* ---- what the engine says it is (restore_facts.c) ---- */

/* The first fact said so far that the artifact does not have, or has with another value. */
enum md_status md_restore_facts_compare(struct md_restore *r, struct md_error *err);
/* An engine of which no facts were recorded, by how it was started. */
enum md_status md_restore_arguments_compare(const struct md_restore *r, struct md_error *err);
/* The same, and the first fact of the artifact that was not said at all. Under lock, while open. */
/* The limits of the context that is restored in, against those that the graphs were made with. */
enum md_status md_restore_limits_check(struct md_restore *r, struct md_error *err) MD_REQUIRES(r->lock);
/*
 * Whether code may be loaded. Not while a limit is too low: the engine may still raise it, and the driver
 * lets nobody change the heap once code that uses it is loaded.
 */
bool md_restore_limits_fit(struct md_restore *r) MD_REQUIRES(r->lock);
/* The engine has set a limit. Takes lock. */
void md_restore_limits_changed(struct md_restore *r);
enum md_status md_restore_facts_check(struct md_restore *r, struct md_error *err);
/* Before graphs are handed out: refuses everything when a fact was not said. Waits for the artifact. */
void md_restore_facts_settle(struct md_restore *r, uint64_t deadline_ns);
/*
 * Refuses the whole artifact for good, says why once, and frees all that was made, but for graphs that were handed out:
 * these go with medusa_release. No lock may be held.
 */
void md_restore_refuse_all(struct md_restore *r, const struct md_error *why);

/* ---- what contents may be made of (constants.c) ---- */

/* Loads the kernel that hashes, or waits for the thread that does; nothing if no hash is to be compared. No lock. */
void md_restore_constants_prepare(struct md_restore *r);
void md_restore_constants_finish(struct md_restore *r);
/* True if a binding that the graph depends on has not been hashed. */
bool md_restore_constants_open(const struct md_restore *r, const struct md_restore_graph *graph) MD_REQUIRES(r->lock);
/* MD_ERR_MISMATCH names the first binding that is not what it was. */
enum md_status md_restore_constants_check(const struct md_restore *r, const struct md_restore_graph *graph,
					  struct md_error *err) MD_REQUIRES(r->lock);
/* Forgets the hash of a binding that was bound again. */
void md_restore_constants_rebound(struct md_restore *r, uint32_t binding) MD_REQUIRES(r->lock);
/*
 * Hashes all that is open, when what the engine has submitted is done, and refuses graphs that were made of something
 * else. An error is no answer: it may be asked again. Holds work; or, settle, no lock.
 */
enum md_status md_restore_constants_hash(struct md_restore *r, struct md_error *err) MD_REQUIRES(r->work);
enum md_status md_restore_constants_settle(struct md_restore *r, struct md_error *err);

/* ---- groups: graphs that go together (groups.c); under lock ---- */

/* True if the graph, or another one of its group, was handed out. */
bool md_restore_group_is_out(const struct md_restore *r, const struct md_restore_graph *graph);
/* The graph itself or one that goes with it, which is not made yet; NULL: none. */
struct md_restore_graph *md_restore_group_waiting(const struct md_restore *r, struct md_restore_graph *graph);
/* Refuses all that go with a graph that was refused. */
void md_restore_group_refuse(struct md_restore *r, const struct md_restore_graph *graph) MD_REQUIRES(r->lock);
/* No graph of the group is handed out any more. */
void md_restore_group_stale(struct md_restore *r, struct md_restore_graph *graph);
/* All graphs of the group are built: may this one be handed out, and must a binding be hashed before? */
enum md_status md_restore_group_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(r->lock);
bool md_restore_group_open(const struct md_restore *r, const struct md_restore_graph *graph) MD_REQUIRES(r->lock);
/* The engine was not given the graph: says so if another one of its group is in its hands. */
void md_restore_group_lost(struct md_restore *r, const char *label, unsigned batch, const char *why);
/* The engine has captured the graph live: none of its group is handed out; MD_ERR_MISMATCH when one was already. */
enum md_status md_restore_group_captured(struct md_restore *r, const char *label, unsigned batch, struct md_error *err)
    MD_REQUIRES(r->lock);
void md_restore_group_apply_live(struct md_restore *r) MD_REQUIRES(r->lock);
/* The graph is launched: what it writes is there for the others. */
void md_restore_group_feed(struct md_restore *r, const struct md_restore_graph *writer);
/* A restored graph is launched, as long as md_restore_watching says that this is of interest. */
void md_restore_group_launched(struct md_restore *r, CUgraphExec exec);
extern atomic_bool md_restore_watching;

/* ---- outputs and notes (restore_outputs.c) ---- */

/* The first output that does not lie within its allocation. */
enum md_status md_restore_outputs_check(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
					struct md_error *err);
/* The address of an output in this process, once its graph is built. */
uint64_t md_restore_output_address(const struct md_restore *r, const struct md_artifact_output *output);

/* ---- binding by sequence (restore_sequence.c) ---- */

/* From hooks: an allocation of the engine's that kernels are handed by address; address ranges that go. */
void md_restore_sequence_alloc(enum md_alloc_family family, uint64_t address, uint64_t size);
void md_restore_sequence_free(uint64_t address, uint64_t size);
/* +1, -1: around a profiling forward, which a restore mostly leaves out. */
void md_restore_sequence_pause(int change);
/* When the engine asks for a graph: binds what the artifact knows by sequence, or refuses everything. No lock held. */
void md_restore_sequence_bind(struct md_restore *r, uint64_t deadline_ns);

/* ---- public functions (restore_api.c) ---- */

/* Runs the engine's trigger, if there is one. The lock is released while it runs. */
void md_restore_trigger_pull(struct md_restore *r) MD_REQUIRES(r->lock);
/* A name that was not bound before. */
enum md_status md_restore_bind_new(struct md_restore *r, const struct md_bound *what, struct md_error *err)
    MD_REQUIRES(r->lock);

#define MD_RESTORE_OFF "nothing is restored in a forked child"

/* ---- the background (background.c) ---- */

/* Reads the environment once. */
/* restore_early.c: the file that a variable names, by a path that leads there now; malloc'd, NULL: none,
 * or no memory. */
char *md_restore_path(const char *variable);
/* The same file: the process may open enough files for itself and for us. */
enum md_status md_restore_files_check(struct md_error *err);
void md_restore_init(void);
/* Starts restoring in context (which exists); later calls do nothing. */
void md_restore_start(CUcontext context);
/* Stops the background and takes everything down; the context is still alive. reason says why graphs are gone. */
void md_restore_stop(const char *reason);
/* Gives back to the device what no ready graph uses. */
void md_restore_settle(struct md_restore *r) MD_REQUIRES(r->work);
/* Before a module or library of the process goes away. */
void md_restore_module_gone(void *handle);
void md_restore_context_gone(CUcontext context);
/* After a module was loaded: exit() is noticed before it is unloaded there. */
void md_restore_watch_exit(void);
/* A graph that was ready waits, and counts as restored no more. */
void md_restore_graph_unmake(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(r->lock);
/* Sets REFUSED with the reason and logs it. The graph must not have been handed out. */
void md_restore_refuse(struct md_restore *r, struct md_restore_graph *graph, const struct md_error *err)
    MD_REQUIRES(r->lock);
/* Waits until the artifact is open or failed; false when deadline_ns passed. */
bool md_restore_wait_open(struct md_restore *r, uint64_t deadline_ns) MD_REQUIRES(r->lock);
/* A thread begins (+1) or ends (-1) a piece of work. */
void md_restore_busy(struct md_restore *r, int change) MD_REQUIRES(r->lock);
/* Waits for a change; false when deadline_ns (CLOCK_MONOTONIC, UINT64_MAX never) passed. */
bool md_restore_wait(struct md_restore *r, uint64_t deadline_ns) MD_REQUIRES(r->lock);
struct md_restore_graph *md_restore_find(struct md_restore *r, const char *label, unsigned batch);
/* Checks one binding of the artifact; MD_ERR_NOT_FOUND until the engine has bound it. */
enum md_status md_restore_binding_check(const struct md_restore *r, uint32_t binding, struct md_error *err)
    MD_REQUIRES(r->lock);
/* The first binding of graph that is missing or has another size; MD_OK if none. */
enum md_status md_restore_bindings_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(r->lock);
/* On a thread of ours. False: it has no context, or would break captures of the engine; it must do nothing then. */
bool md_restore_thread_enter(struct md_restore *r, const char *name);

#endif
