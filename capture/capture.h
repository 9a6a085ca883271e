/* SPDX-License-Identifier: Apache-2.0 */
/* State that the parts of the capture library share: one recording per process, and the verbs that write into it. */
#ifndef MD_CAPTURE_CAPTURE_H
#define MD_CAPTURE_CAPTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/interval.h"
#include "base/map.h"
#include "driver/alloc_sequence.h"
#include "driver/cuda_driver.h"
#include "driver/interpose.h"
#include "format/trace/part_file.h"
#include "format/trace/trace.h"

#define MD_LOG_DOMAIN "capture"
#include "base/guarded.h"
#include "base/log.h"

#define MD_TRACE_PATH_BYTES 4096

enum md_capture_until { MD_UNTIL_EXIT, MD_UNTIL_GRAPHS, MD_UNTIL_MARK };
enum md_capture_store { MD_STORE_ANONYMOUS, MD_STORE_ALL, MD_STORE_NONE };

/* Settings from the environment, which are read once, before the first hook acts. */
struct md_capture_options {
	char trace[MD_TRACE_PATH_BYTES]; /* MEDUSA_TRACE */
	enum md_capture_until until;
	uint64_t until_graphs;
	char until_mark[128];
	uint64_t shift;    /* MEDUSA_SHIFT, 0: none */
	uint64_t kv_bytes; /* MEDUSA_KV_BYTES, 0: measure */
	enum md_capture_store store;
	bool probe;                  /* MEDUSA_PROBE */
	uint64_t probe_limit;        /* MEDUSA_PROBE_LIMIT, bytes of host memory */
	uint64_t probe_device_limit; /* MEDUSA_PROBE_DEVICE_LIMIT, bytes of device memory */
};

struct md_capture_bind {
	char *name; /* owned */
	enum md_bind_role role;
	uint64_t address, size;
	bool hashed; /* the trace has a hash of it, or why it has none */
};

/*
 * `active` is all that a hook looks at once recording has ended. Everything below `lock` is touched under it; the
 * trace is only written under it too, so that closing needs no further care.
 */
struct md_capture {
	atomic_bool active;
	atomic_uint capturing; /* streams under stream capture */
	_Atomic uint64_t sequence;
	_Atomic uint64_t epoch; /* counts unloads: function handles of an older epoch may have been reused */
	struct md_capture_options options;

	pthread_mutex_t lock;
	struct md_trace_writer *writer;
	struct md_interval_index live;  /* allocations; value is the md_alloc_family, and MD_FAMILY_COUNTED */
	struct md_interval_index binds; /* value is an index into bound */
	struct md_capture_bind *bound;
	size_t bind_count;
	struct md_alloc_sequence allocations; /* of the device, until the engine asks for a graph */
	struct md_kv kv;
	uint64_t free_before_capture; /* bytes, before the first stream capture; 0: not yet */
	uint64_t free_after_instantiate;
};

extern struct md_capture md_capture;

/* Behind a variable, and behind the parameters of a function whose caller holds the lock. */
#define MD_CAPTURE_GUARDED MD_GUARDED_BY(md_capture.lock)
#define MD_CAPTURE_HELD MD_REQUIRES(md_capture.lock)

/* Shared memory that was this process's own: the KV profile has counted it. */
#define MD_FAMILY_COUNTED 0x100u
#define MD_FAMILY_MASK 0xffu

/* ---- session/session.c: life of the recording ---- */

/* Starts the recording at the first call of the process. True: record, and call md_capture_leave after. */
bool md_capture_enter(void);
void md_capture_leave(void);
/* Says why once, ends the recording without completing the trace, and lets the engine run on. Lock held or not. */
void md_capture_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* session/owner.c: the file to write, or NULL, and said why, when another process records to this trace. */
struct md_trace_part *md_capture_own(const char *path);
void md_capture_disown(void);           /* in a forked child */
void md_capture_disowned_warn(void);    /* once, when that child uses the device */
bool md_capture_lacks_files_warn(void); /* the limit of open files is too low for two */
void md_capture_not_asked_warn(void);   /* there is no MEDUSA_TRACE */
/* api/early.c: true when it was kept, as recording has not begun; the API alone does not begin it. */
enum md_capture_early { MD_EARLY_FACT, MD_EARLY_MARK, MD_EARLY_STAGE };
bool md_capture_said_early(enum md_capture_early kind, const char *name, const char *value, uint64_t ns);
void md_capture_put_early(void); /* recording has begun, or never will; lock not held */
/* Ends the recording if what --until names has been reached. Lock not held; inside a hook. */
void md_capture_check_until(const char *mark);
/* A graph is about to be launched: an engine that labels none has none left to label. */
void md_capture_check_launch(void);
/* A context is current for the first time: fingerprint and shift. Inside a hook, lock not held. */
void md_capture_context_seen(void);

static inline uint64_t md_capture_next(void)
{
	return atomic_fetch_add_explicit(&md_capture.sequence, 1, memory_order_relaxed) + 1;
}
static inline void md_capture_lock(void) MD_ACQUIRES(md_capture.lock)
{
	pthread_mutex_lock(&md_capture.lock);
}
static inline void md_capture_unlock(void) MD_RELEASES(md_capture.lock)
{
	pthread_mutex_unlock(&md_capture.lock);
}

/* ---- record/allocs.c: lock not held ---- */

void md_capture_alloc_note(enum md_alloc_family family, uint64_t address, uint64_t bytes);
/* Called before the real free, so that nobody can be given the address in between. */
void md_capture_free_note(uint64_t address);
void md_capture_free_note_locked(uint64_t address) MD_CAPTURE_HELD;
void md_capture_unmap_note(uint64_t address, uint64_t bytes);
/* Moves what is allocated next, in a run with MEDUSA_SHIFT; bytes is the size asked for. */
void md_capture_shift_before_alloc(uint64_t bytes);
void md_capture_shift_before_reserve(void);
void md_capture_shift_start(void);
void md_capture_shift_release(void);

/* Memory that is allocated on a stream under capture belongs to the captured graph. */
void md_capture_alloc_note_on(CUstream stream, uint64_t address, uint64_t bytes);
/* A range of reserved addresses is given back: nothing is bound there any more. */
void md_capture_unreserve_note(uint64_t address, uint64_t bytes);
void md_capture_reserve_note(uint64_t address, uint64_t bytes);

/* ---- record/shared.c: lock not held unless said ---- */

void md_capture_shared_exported(uint64_t address); /* of memory of this process, anywhere in it */
void md_capture_shared_imported(uint64_t address);
void md_capture_shared_opened(uint64_t address); /* by an IPC handle, perhaps not for the first time */
void md_capture_shared_closed(uint64_t address); /* gone when it was closed as often */
void md_capture_handle_made(CUmemGenericAllocationHandle handle);
void md_capture_handle_foreign(CUmemGenericAllocationHandle handle); /* imported, exported, or of several devices */
void md_capture_mapped(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
bool md_capture_is_mapping(uint64_t start) MD_CAPTURE_HELD;
void md_capture_unmapped(uint64_t start) MD_CAPTURE_HELD;
/* Page-locked memory has another address on the device. */
void md_capture_host_seen(const void *host, uint64_t device);
uint64_t md_capture_host_gone(uint64_t start) MD_CAPTURE_HELD; /* that address, or 0 */

/* ---- record/images.c: lock not held unless said ---- */

/* option: of a JIT compiler, by its name, if one changes the code that it makes (driver/jit_options.h); else NULL. */
void md_capture_module_loaded(CUmodule module, const void *image, const char *option);
void md_capture_module_loaded_file(CUmodule module, const char *path);
void md_capture_library_loaded(CUlibrary library, const void *image, const char *option);
void md_capture_library_loaded_file(CUlibrary library, const char *path, const char *option);
void md_capture_library_module(CUlibrary library, CUmodule module);
void md_capture_module_unloaded(CUmodule module);
void md_capture_library_unloaded(CUlibrary library);
void md_capture_context_destroyed(CUcontext context);                 /* with every module in it */
void md_capture_primary_released(CUdevice device);                    /* the same, if nobody holds it any more */
uint32_t md_capture_image_of_module(CUmodule module) MD_CAPTURE_HELD; /* MD_NONE when its load was not seen */
uint32_t md_capture_image_of_library(CUlibrary library) MD_CAPTURE_HELD;
/* The option with which PTX was compiled when it was loaded, or NULL. */
const char *md_capture_image_option(uint32_t image) MD_CAPTURE_HELD;

/* ---- record/module_variables.c ---- */

struct md_capture_variable { /* of a module, and the engine has its address */
	uint64_t address, size;
	uint32_t image;
	CUcontext context;
	char *name;
};

/* Recorded variables; false past the last one, or where there is none. The name is valid under the lock. */
bool md_capture_variable_at(size_t index, struct md_capture_variable *out) MD_CAPTURE_HELD;
bool md_capture_variable_find(uint64_t address, struct md_capture_variable *out) MD_CAPTURE_HELD;
/* The driver has returned the address of a variable of a module or library. Lock not held. */
void md_capture_variable_asked(CUmodule module, CUlibrary library, const char *name, uint64_t address, uint64_t size);
/* The trace says which images had variables written since; lock not held, the driver may be called. */
void md_capture_variables_check(void);
/* Whether the engine has the address of any. */
bool md_capture_variables_watching(void);
/* A call of the engine's writes there, in a variable. */
void md_capture_variable_set(uint64_t address) MD_CAPTURE_HELD;
void md_capture_variables_gone(const void *owner) MD_CAPTURE_HELD; /* before that module or library is unloaded */

/* ---- record/constant_hashes.c: hashes of what is bound as constant; lock held ---- */

/* Contents were saved: from here on it counts what they may have been made of. */
void md_capture_constants_needed(void) MD_CAPTURE_HELD;
enum md_capture_constants {
	MD_CONSTANTS_NEW,      /* those that have no hash yet */
	MD_CONSTANTS_AGAIN,    /* those that have: they should still have the same */
	MD_CONSTANTS_SEQUENCE, /* all that is bound by sequence, just now */
};
/* To the trace, if it counts. The driver may be called. */
void md_capture_constants_put(enum md_capture_constants which) MD_CAPTURE_HELD;

/* ---- record/kernels.c ---- */

/* Index of the kernel in the trace, put there when new; func or kern may be NULL. MD_NONE on failure. */
uint32_t md_capture_kernel_find(CUfunction func, CUkernel kern) MD_CAPTURE_HELD;
/* The same for a graph node: function state is read again, for it may have been changed since. */
uint32_t md_capture_kernel_find_fresh(CUfunction func, CUkernel kern) MD_CAPTURE_HELD;
const struct md_kernel *md_capture_kernel_get(uint32_t index) MD_CAPTURE_HELD; /* valid until the next find */
/* What was unloaded, or, if both are NULL, all: handles may come again. */
void md_capture_kernels_forget(CUmodule module, CUlibrary library) MD_CAPTURE_HELD;
/* Whether the handle was another kernel's, or of one that is gone, at that time. */
bool md_capture_kernel_unloaded_since(CUfunction func, CUkernel kern, uint64_t sequence) MD_CAPTURE_HELD;

/* ---- record/launched.c ---- */

/* A kernel's parameter layout, which never changes; kernel is MD_NONE if the kernel is unknown. */
struct md_capture_layout {
	uint32_t kernel, param_count;
	const struct md_param *params;
};
/* Hot: no lock, no allocation once the kernel is known. */
struct md_capture_layout md_capture_launch_count(CUfunction func);
void md_capture_launches_put(void) MD_CAPTURE_HELD;                         /* totals to the trace */
void md_capture_transfer_count(enum md_transfer_kind kind, uint64_t bytes); /* hot: two atomic additions */
void md_capture_transfers_put(void) MD_CAPTURE_HELD;                        /* totals to the trace */

/* The recorded call that made a node; some attributes cannot be read back from the node. */
#define MD_NODE_ATTRIBUTES 10
struct md_capture_memo {
	uint64_t sequence; /* 0: the call was not seen */
	CUcontext context; /* that the node runs in; NULL: not known */
	bool green;        /* which is a green context: a part of the device */
	bool opaque;       /* a child graph, with attributes that can't be read back */
	bool updatable;    /* from the device */
	uint32_t strange;  /* an attribute of the launch that is not known here; 0: none */
	uint32_t attribute_count;
	struct md_attribute attributes[MD_NODE_ATTRIBUTES];
};
extern const uint32_t md_capture_attribute_ids[MD_NODE_ATTRIBUTES];
/* The bytes of an attribute that mean something; the rest of value is zeroed. False for default values. */
bool md_capture_attribute_copy(struct md_attribute *to, CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
			       bool given);

void md_capture_stream_begun(CUstream stream);
void md_capture_stream_ending(CUstream stream); /* after cuStreamEndCapture, whatever it returned */
/* Links the node that the last call put at the end of a capturing stream with that call. */
void md_capture_node_note(CUstream stream, const CUlaunchAttribute *attributes, unsigned count);
/* A call on the graph set the node's parameters; everything else that is recorded of the node stays. */
void md_capture_node_touched(CUgraphNode node);
/* Forgets earlier records: the handle may have been another node's. context: the node's own, or NULL. */
void md_capture_node_added(CUgraphNode node, CUcontext context);
void md_capture_node_forget(CUgraphNode node);
void md_capture_node_alike(CUgraphNode node, CUgraphNode from); /* it was given all attributes of the other */
/* An attribute was set on the node: kept if it is one of those that can't be read back. */
void md_capture_node_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
/* The copy's nodes get the records of the graph's nodes. */
void md_capture_graph_copied(CUgraph graph, CUgraph copy);
void md_capture_child_added(CUgraphNode node, CUgraph graph);
void md_capture_graph_launched(CUgraphExec exec, CUstream stream);                    /* inside of a stream capture */
const struct md_capture_memo *md_capture_node_memo(CUgraphNode node) MD_CAPTURE_HELD; /* NULL */
void md_capture_graph_forget(CUgraph graph);                                          /* before cuGraphDestroy */

/* ---- record/graphs.c: recorded graphs ---- */

struct md_capture_output {
	uint32_t index;
	uint64_t address, size;
};

struct md_capture_graph {
	uint64_t id;
	CUgraphExec exec; /* NULL once destroyed */
	CUcontext context;
	char *label; /* owned; NULL: none */
	unsigned batch;
	uint64_t name;  /* hash of both */
	uint64_t later; /* id of a graph that was given the same name since; 0: none */
	bool refused, labelled;
	bool unwanted;                    /* refused by the engine alone: it may be replayed */
	bool unread;                      /* its nodes have attributes that they do not tell */
	bool probed;                      /* or never to be */
	uint64_t made;                    /* sequence */
	uint64_t launched;                /* sequence of the engine's first launch; 0: not yet */
	uint64_t tested;                  /* sequence; 0: the poison test has shown nothing */
	size_t handed_seen;               /* of what others read in private memory, see probe/handed.c */
	struct md_capture_output *handed; /* what it writes there that others read; owned */
	size_t handed_count, handed_tested;
	bool silent;          /* its test saw it change nothing that is bound, and it has no outputs */
	bool pageable;        /* writes host memory that could not be put back */
	uint64_t *candidates; /* addresses of live allocations that parameters point into, ascending; owned */
	size_t candidate_count;
	struct md_capture_output *outputs; /* each index once; owned */
	size_t output_count;
	struct md_trace_graph kept;     /* what is known of it; nodes, edges and arena owned */
	CUgraph source;                 /* that it was made from, */
	CUgraphNode *handles;           /* and its nodes, by which calls change them; NULL: not known; owned */
	bool *off;                      /* of each node whether it is switched off; NULL: none is; owned */
	bool stale;                     /* the trace says what it was before a change */
	struct md_trace_range *written; /* by its poison test; owned */
	uint32_t written_count;
};

void md_capture_graph_instantiated(CUgraph graph, CUgraphExec exec, uint64_t flags);
/* ---- record/updates.c: executables that are changed once they are made ---- */

/* As a whole, to what the graph holds. */
void md_capture_exec_updated(CUgraphExec exec, CUgraph graph, const char *call);
/* The changed node; NULL: the executable was changed in a way that is not recorded. */
void md_capture_exec_changed(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params, const char *call);
void md_capture_exec_switched(CUgraphExec exec, CUgraphNode node, bool on, const char *call);
/* Before anything else is said of the graph: the trace learns what it is by now. */
void md_capture_graph_flush(struct md_capture_graph *graph) MD_CAPTURE_HELD;
void md_capture_graphs_flush(void) MD_CAPTURE_HELD; /* all */
/* Takes over what was walked: nodes, edges and handles. Lock held. */
struct md_capture_walk;
void md_capture_graph_keep(struct md_capture_graph *graph, struct md_capture_walk *walk, CUgraph source);
void md_capture_graph_drop(struct md_capture_graph *graph);
bool md_capture_graph_take_candidates(struct md_capture_graph *graph, struct md_capture_walk *walk) MD_CAPTURE_HELD;

/* ---- record/graphs.c again ---- */

void md_capture_exec_destroyed(CUgraphExec exec);
struct md_capture_graph *md_capture_graph_of(CUgraphExec exec) MD_CAPTURE_HELD; /* NULL */
/* The graph that the engine means: by its handle, or, for NULL, the one that this thread instantiated last. */
struct md_capture_graph *md_capture_graph_meant(CUgraphExec exec) MD_CAPTURE_HELD;
/*
 * The engine launches a graph, perhaps for the first time: if another has its name by now, there are two that the
 * engine would get one for. runs: not into a stream capture.
 */
void md_capture_graph_launching(CUgraphExec exec, bool runs);
void md_capture_home_note(void) MD_CAPTURE_HELD; /* memory is bound in the current context */
CUcontext md_capture_home(void) MD_CAPTURE_HELD; /* that context, or that of the first graph; NULL: not known yet */
/* Statements of the engine about a graph; lock held. False: out of memory. */
void md_capture_graph_label(struct md_capture_graph *graph, const char *label, unsigned batch) MD_CAPTURE_HELD;
bool md_capture_graph_output(struct md_capture_graph *graph, struct md_capture_output output) MD_CAPTURE_HELD;
/* The graph's outputs, and its memory that other graphs read; the caller owns the list. NULL: out of memory. */
struct md_capture_output *md_capture_graph_all_outputs(const struct md_capture_graph *graph, size_t *count);
void md_capture_graph_note(struct md_capture_graph *graph, const void *data, size_t bytes);
void md_capture_graph_refuse(struct md_capture_graph *graph, const char *why);
struct md_capture_graph *md_capture_graph_at(size_t index) MD_CAPTURE_HELD; /* NULL past the end */
size_t md_capture_graphs_labelled(void) MD_CAPTURE_HELD;
size_t md_capture_graphs_recorded(void) MD_CAPTURE_HELD;

/* ---- record/touched.c: what the engine copies and sets in private memory of graphs ---- */

/* From hooks: one atomic load while no graph has memory that nobody bound. call: static. Lock not held. */
void md_capture_touched(const char *call, uint64_t address, uint64_t size, bool writes);
void md_capture_touched_copy2d(const char *call, const CUDA_MEMCPY2D *copy);
void md_capture_touched_copy3d(const char *call, const CUDA_MEMCPY3D *copy);
void md_capture_touched_peer(const char *call, const CUDA_MEMCPY3D_PEER *copy);
void md_capture_touched_operation(const char *call, const CUDA_MEMCPY3D_BATCH_OP *op);
void md_capture_touched_watch(const uint64_t *candidates, size_t count) MD_CAPTURE_HELD;
void md_capture_touched_declared(struct md_capture_output output) MD_CAPTURE_HELD;

/* ---- record/given.c: private memory of graphs that launches outside of graphs are given addresses of ---- */

/* Hot: one atomic load while no graph has private memory; no lock unless a word may be an address. Lock not held. */
void md_capture_given(struct md_capture_layout layout, void **params, void **extra);
void md_capture_given_watch(uint64_t start)
    MD_CAPTURE_HELD; /* an allocation in which a graph has an address nobody bound */
void md_capture_given_watch_words(const uint8_t *bytes,
				  size_t size) MD_CAPTURE_HELD; /* contents, with addresses in them */
void md_capture_given_freed(uint64_t start) MD_CAPTURE_HELD;    /* an allocation is gone, or another one is there */
void md_capture_given_put(void) MD_CAPTURE_HELD;                /* to the trace */
/* The engine says that only graphs use it. */
void md_capture_scratch(uint64_t address, uint64_t bytes) MD_CAPTURE_HELD;
void md_capture_scratch_end(void) MD_CAPTURE_HELD; /* of all that was said so far */

/* ---- record/filled.c: what the engine has copied or set in device memory, from the start ---- */

/* From hooks, outside of stream captures; from: NULL: it is set. Lock not held. */
void md_capture_filled(const void *from, uint64_t to, uint64_t size);
void md_capture_filled_forget(uint64_t start, uint64_t size) MD_CAPTURE_HELD;
/* The range at address that one call filled, or NULL. */
const struct md_interval *md_capture_filled_at(uint64_t address);
/* Such a range is told by some of its bytes: the offset of a window, whose *bytes are 0 behind the last one. */
uint64_t md_capture_filled_window(uint64_t size, unsigned window, uint64_t *bytes);
uint64_t md_capture_filled_hash(uint64_t hash, const void *bytes, uint64_t size); /* of the next window; begins at 0 */
/* True if the range may still hold the bytes that were put there; a set range repeats 4 bytes. */
bool md_capture_filled_holds(const struct md_interval *range, uint64_t hash);
bool md_capture_filled_was_set(const struct md_interval *range);

/* ---- record/events.c: events that nodes of graphs record and wait for ---- */

/* The event's number in the trace; lock held. False: out of memory. */
bool md_capture_event_number(CUevent event, uint32_t *number) MD_CAPTURE_HELD;
/* The engine uses the event outside of stream captures; one atomic load while no graph has events. Lock not held. */
void md_capture_event_used(CUevent event, const char *call);
void md_capture_event_destroyed(CUevent event);

/* ---- record/objects.c ---- */

void md_capture_texture_made(CUtexObject object); /* lock not held */
void md_capture_surface_made(CUsurfObject object);
void md_capture_object_gone(uint64_t object);
const char *md_capture_object_kind(uint64_t number) MD_CAPTURE_HELD; /* "texture", "surface" or NULL */

/* ---- record/tensor_maps.c ---- */

void md_capture_tensor_map(const CUtensorMap *map); /* lock not held */
bool md_capture_is_tensor_map(const void *bytes)
    MD_CAPTURE_HELD; /* MD_TENSOR_MAP_BYTES of them, as one that was encoded */

/* ---- probe/probe.c: which private memory has contents that matter ---- */

void md_capture_probe_exec(CUgraphExec exec);     /* if it has not been; inside a hook, lock not held */
void md_capture_probe_leaving(CUgraphExec exec);  /* the same before it is destroyed, and who writes what others read */
void md_capture_probe_context(CUcontext context); /* all graphs of a context, NULL: all */

#endif
