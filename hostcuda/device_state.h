/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of hostcuda share: objects behind the handles, and the two locks. */
#ifndef HOSTCUDA_DEVICE_STATE_H
#define HOSTCUDA_DEVICE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/descriptor.h"
#include "base/guarded.h"
#include "driver/cuda_driver.h"
#include "hostcuda/kernel.h"

/*
 * entry.c makes every exported function from cuda_api.def. The function checks the preconditions (initialized, context,
 * sticky error, injected fault, capture) and calls hc_SYMBOL. One of these files defines it; stubs.c has a weak
 * definition for all others.
 *
 * Locks: the state lock guards objects and tables, the queue lock the work of streams. Take state before queue. Nobody
 * waits for work while holding the state lock, since work may need it to finish (stream-ordered frees).
 */
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) CUresult hc_##symbol params;
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args)
#include "driver/cuda_api.def"

enum hc_index {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) HC_INDEX_##symbol,
#include "driver/cuda_api.def"
	HC_INDEX_COUNT
};

extern pthread_mutex_t hc_state_mutex; /* recursive */
void hc_state_lock(void) MD_ACQUIRES(hc_state_mutex);
void hc_state_unlock(void) MD_RELEASES(hc_state_mutex);

/* Behind a variable, and behind the parameters of a function whose caller holds the state lock. */
#define HC_STATE_GUARDED MD_GUARDED_BY(hc_state_mutex)
#define HC_STATE_HELD MD_REQUIRES(hc_state_mutex)

extern pthread_mutex_t hc_queue_mutex; /* the queue lock */
#define HC_QUEUE_GUARDED MD_GUARDED_BY(hc_queue_mutex)
#define HC_QUEUE_HELD MD_REQUIRES(hc_queue_mutex)

/* clang does not know that the lock is released at the end of the scope. */
static inline int hc_state_enter(void) MD_ASSERTS(hc_state_mutex) MD_LOCKS_UNCHECKED
{
	hc_state_lock();
	return 0;
}
static inline void hc_state_leave(int *unused) MD_LOCKS_UNCHECKED
{
	(void)unused;
	hc_state_unlock();
}
/* Holds the state lock to the end of the scope. */
#define HC_STATE_GUARD() __attribute__((cleanup(hc_state_leave), unused)) int hc_state_guard_ = hc_state_enter()

#define HC_TRY(expression)                                                                                             \
	do {                                                                                                           \
		CUresult hc_tried_ = (expression);                                                                     \
		if (hc_tried_ != CUDA_SUCCESS)                                                                         \
			return hc_tried_;                                                                              \
	} while (0)

/*
 * The error of an injected fault that is due, or CUDA_SUCCESS; caller: the return address of the exported function
 * (faults.c).
 */
CUresult hc_fault_due(const char *symbol, const char *base, const void *caller);
void hc_call_count(enum hc_index index); /* calls.c */

/* ---- handles ----------------------------------------------------------------------------------------------------- */
enum hc_kind {
	HC_CONTEXT = 1,
	HC_STREAM,
	HC_EVENT,
	HC_MODULE,
	HC_LIBRARY,
	HC_FUNCTION,
	HC_KERNEL,
	HC_GRAPH,
	HC_NODE,
	HC_EXEC,
	HC_POOL,
	HC_PHYSICAL,
	HC_LINK,
	HC_GREEN,
	HC_RESOURCES,
};

/* ---- devices and contexts ---------------------------------------------------------------------------------------- */
#define HC_MAX_DEVICES 16
#define HC_MAX_DYNAMIC_SHARED (227u << 10)
#define HC_DEFAULT_DYNAMIC_SHARED (48u << 10)
#define HC_GRANULARITY ((size_t)2 << 20)

struct hc_pool {
	int device;
	bool exportable, imported;
	cuuint64_t threshold HC_STATE_GUARDED;
	bool on_host; /* the engine asked for host memory; hostcuda's memory is all of one kind */
};

struct hc_device {
	int ordinal;
	int place HC_STATE_GUARDED; /* which device of the machine it is; a restore may change it */
	size_t capacity, used HC_STATE_GUARDED;
	struct hc_context *primary HC_STATE_GUARDED;
	unsigned primary_refs HC_STATE_GUARDED, primary_flags HC_STATE_GUARDED;
	struct hc_pool default_pool;
	struct hc_pool *pool HC_STATE_GUARDED; /* for allocations that name no pool; NULL: the default pool */
};

struct hc_context {
	struct hc_device *device;
	uint64_t id;
	bool primary;
	atomic_bool dead; /* written under the state lock, read without it by each call */
	struct hc_context
	    *home;   /* that has its memory, modules and errors: itself, or the primary one (green_context.c) */
	void *green; /* its handle as a green context; NULL: it is none */
	struct hc_context *next_dead HC_STATE_GUARDED, *next HC_STATE_GUARDED;
	unsigned flags, api_version;
	CUresult sticky;                            /* atomic access */
	struct hc_stream *streams HC_STATE_GUARDED; /* all streams; the legacy stream was made first */
	struct hc_stream *legacy;
	struct hc_module *modules HC_STATE_GUARDED;
	size_t limits[16] HC_STATE_GUARDED;
	bool heap_fixed HC_STATE_GUARDED; /* code that uses the device heap was loaded */
	size_t charged;                   /* bytes of the device that the context itself takes */
};

struct hc_thread {
	struct hc_context *stack[64];
	unsigned depth;
	CUstreamCaptureMode mode;
	unsigned inside; /* calls, one inside the other (checkpoint.c) */
	bool per_thread; /* inside a _ptsz/_ptds entry: the null stream is this thread's own */
	uint64_t own_context;
	struct hc_stream *own;
};
extern _Thread_local struct hc_thread hc_thread;

extern struct hc_device hc_devices[HC_MAX_DEVICES];
extern int hc_device_count;
extern bool hc_initialised;
extern bool hc_copied; /* a child that was forked after cuInit: no call of its own works, as on a real driver */

/* ---- memory ------------------------------------------------------------------------------------------------------ */
enum hc_memory_kind {
	HC_MEMORY_DEVICE = 1,
	HC_MEMORY_MANAGED,
	HC_MEMORY_HOST,
	HC_MEMORY_REGISTERED,
	HC_MEMORY_MAPPED,
	HC_MEMORY_GLOBAL,
	HC_MEMORY_IMPORTED, /* of another process */
	HC_MEMORY_SEEN,     /* the alias by which the device sees host memory */
};

struct hc_memory {
	enum hc_memory_kind kind;
	uint64_t address;
	size_t size;    /* as asked for */
	size_t extent;  /* address space taken, bytes */
	size_t charged; /* of the device's capacity */
	uint64_t id;
	struct hc_context *context;
	struct hc_device *device;
	struct hc_pool *pool;
	struct hc_physical *physical; /* HC_MEMORY_MAPPED */
	size_t physical_offset;
	int shared_fd HC_STATE_GUARDED; /* HC_MEMORY_DEVICE that was exported: what it lies in; 0: nothing */
	uint64_t other;                 /* host memory: the device's address for it, and vice versa; 0: the same */
	bool of_graph;                  /* an allocation node's */
	struct {                        /* opened from an IPC handle */
		uint64_t inode;         /* of the exporting process's file; 0: not opened */
		unsigned times;
	} opened HC_STATE_GUARDED;
	unsigned access HC_STATE_GUARDED;
	uint16_t reach HC_STATE_GUARDED; /* HC_MEMORY_MAPPED: a bit for each device that may access it */
	unsigned flags;
};

/* ---- images, modules, functions ---------------------------------------------------------------------------------- */
struct hc_symbol {
	char *name;
	uint64_t value;
	size_t size;
	bool hidden;
	/* kernels only */
	uint32_t param_count, params_size;
	struct hostcuda_param *params;
};

struct hc_image {
	int refs;
	struct md_descriptor file;      /* a copy of the code, in a memfd */
	void *library HC_STATE_GUARDED; /* dlopen handle once the code is mapped */
	uintptr_t base;                 /* load address then; set before there is a launch, and never again */
	struct hc_symbol *kernels, *globals;
	size_t kernel_count, global_count;
};

struct hc_attributes {
	int max_dynamic, carveout, non_portable_cluster, scheduling, cluster[3], cluster_required;
};

struct hc_function {
	struct hc_image *image; /* borrowed from the module */
	const struct hc_symbol *symbol;
	struct hc_module *module;
	struct hc_kernel *kernel; /* the library's, or NULL */
	struct hc_attributes attributes HC_STATE_GUARDED;
};

struct hc_kernel {
	struct hc_library *library;
	const struct hc_symbol *symbol;
	struct hc_attributes attributes HC_STATE_GUARDED;
};

struct hc_module {
	struct hc_image *image;
	struct hc_context *context;
	struct hc_library *library; /* that made it, or NULL */
	struct hc_function *functions;
	struct hc_module *next HC_STATE_GUARDED;
};

struct hc_library {
	struct hc_image *image;
	struct hc_kernel *kernels;
	struct hc_library *next HC_STATE_GUARDED;
};

/* ---- work -------------------------------------------------------------------------------------------------------- */
struct hc_launch {
	struct hc_image *image; /* a reference */
	const struct hc_symbol *symbol;
	unsigned grid[3], block[3], shared;
	uint8_t *params; /* owned, params_size bytes */
	size_t given;    /* bytes of them that the caller gave, at most all */
};

struct hc_copy {
	uint64_t to, from;
	size_t width, height, depth;
	size_t to_pitch, to_slice, from_pitch, from_slice;
	unsigned bus; /* enum hc_bus: the link that it goes over */
	int place;    /* the device of the machine whose link it is */
};

struct hc_fill {
	uint64_t to;
	size_t width, height, pitch; /* width in elements */
	uint32_t value;
	unsigned element;
};

struct hc_op {
	int refs;
	bool done;
	bool awaited HC_QUEUE_GUARDED; /* somebody waits for it */
	uint64_t done_ns;
	struct hc_op *next;
	struct hc_context *context;
	CUresult (*run)(struct hc_op *op); /* NULL for a marker, which does nothing */
	void (*release)(struct hc_op *op); /* frees the payload, also when the run was skipped */
	bool always;                       /* runs after a sticky error too */
	void *owned;                       /* freed with the operation */
	struct hc_op **waits;
	size_t wait_count;
	union {
		struct hc_launch launch;
		struct hc_copy copy;
		struct hc_fill fill;
		struct {
			CUhostFn call;
			CUstreamCallback callback;
			CUstream stream;
			void *data;
		} host;
		struct {
			struct hc_plan *plan;
			struct hc_launch_event *events; /* see graph_exec.c */
			size_t event_count;
		} graph;
		uint64_t address;
	};
};

struct hc_edge_to {
	struct hc_node *node;
	CUgraphEdgeData data;
};

struct hc_front { /* the nodes that the next captured node will depend on */
	struct hc_edge_to *items;
	size_t count, capacity;
};

struct hc_stream {
	struct hc_context *context;
	struct hc_stream *next HC_STATE_GUARDED;
	unsigned flags;
	int priority;
	pthread_t worker;
	bool started HC_QUEUE_GUARDED, stopping HC_QUEUE_GUARDED;
	bool lent HC_QUEUE_GUARDED; /* another thread runs the head of the queue */
	pthread_cond_t wake;
	struct hc_op *head HC_QUEUE_GUARDED, *tail HC_QUEUE_GUARDED; /* queue; the head is being run */
	struct hc_op *last HC_QUEUE_GUARDED;                         /* a reference to the newest op, or NULL */
	struct hc_capture *capture HC_STATE_GUARDED;
	struct hc_stream *next_captured HC_STATE_GUARDED;
	struct hc_front front HC_STATE_GUARDED;
	CUgraphNode *told_nodes HC_STATE_GUARDED; /* arrays handed out by cuStreamGetCaptureInfo */
	CUgraphEdgeData *told_data HC_STATE_GUARDED;
};

struct hc_event {
	struct hc_context *context;
	unsigned flags;
	struct hc_op *op HC_STATE_GUARDED; /* the record's marker, a reference */
	struct hc_capture *capture HC_STATE_GUARDED;
	uint64_t capture_id HC_STATE_GUARDED;
	struct hc_front front HC_STATE_GUARDED;
};

/* ---- capture ----------------------------------------------------------------------------------------------------- */
struct hc_capture {
	uint64_t id;
	struct hc_graph *graph;
	bool owns_graph;
	CUstreamCaptureMode mode;
	struct hc_stream *origin;
	/* all streams in the capture, of any context; linked by next_captured */
	struct hc_stream *streams HC_STATE_GUARDED;
	pthread_t thread;
	bool invalid HC_STATE_GUARDED;
	struct hc_capture *next HC_STATE_GUARDED;
};

/* ---- graphs ------------------------------------------------------------------------------------------------------ */
struct hc_node_kernel {
	CUfunction func;
	CUkernel kern;
	CUcontext ctx;
	struct hc_launch launch;
	void **kernel_params; /* into launch.params; NULL when added through extra */
	void *extra[5];
	size_t extra_size;
	bool from_extra;
	CUlaunchAttribute *attributes;
	size_t attribute_count;
};

struct hc_node {
	CUgraphNodeType type;
	struct hc_graph *graph;
	uint64_t id;          /* position of creation, for matching and cycle checks */
	struct hc_front from; /* incoming edges */
	uint64_t mark;        /* used while walking graphs */
	union {
		struct hc_node_kernel kernel;
		struct {
			CUDA_MEMCPY3D params;
			struct hc_copy copy;
			const struct hc_device *device; /* which makes it; NULL: that of each end, by name */
		} memcpy;
		struct {
			CUDA_MEMSET_NODE_PARAMS params;
			struct hc_fill fill;
		} memset;
		CUDA_HOST_NODE_PARAMS host;
		struct hc_graph *child;
		struct hc_event *event;
		uint64_t address; /* of an allocation or free node */
	};
};

struct hc_graph {
	struct hc_node **nodes;
	size_t count, capacity;
	bool borrowed; /* owned by a child node or under capture */
};

#endif
