/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of hostcuda share: objects behind the handles, the two locks, and the verbs between the parts. */
#ifndef HOSTCUDA_DEVICE_STATE_H
#define HOSTCUDA_DEVICE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/descriptor.h"
#include "base/guarded.h"
#include "driver/cuda_driver.h"
#include "hostcuda/kernel.h"

/*
 * Every exported function is made in entry.c from cuda_api.def: it passes the gate (initialised? context? sticky error?
 * named fault? capture?) and calls hc_<symbol>, which one of these files defines; stubs.c has a weak one for the rest.
 *
 * Locks: hc_state_lock guards objects and tables, hc_queue_lock the work queues. Take state before queue. Nobody waits
 * for work while holding the state lock, since work may need it to finish (stream-ordered frees).
 */
#define CU_ENTRY(symbol, base, version, need, hook, params, args) CUresult hc_##symbol params;
#define CU_ENTRY_TS(symbol, base, version, need, hook, params, args)
#include "driver/cuda_api.def"

enum hc_index {
#define CU_ENTRY(symbol, base, version, need, hook, params, args) HC_INDEX_##symbol,
#include "driver/cuda_api.def"
	HC_INDEX_COUNT
};

extern pthread_mutex_t hc_state_mutex; /* recursive */
void hc_state_lock(void) MD_ACQUIRES(hc_state_mutex);
void hc_state_unlock(void) MD_RELEASES(hc_state_mutex);

/* Behind a variable, and behind the parameters of a function whose caller holds the state lock. */
#define HC_STATE_GUARDED MD_GUARDED_BY(hc_state_mutex)
#define HC_STATE_HELD MD_REQUIRES(hc_state_mutex)

/* clang does not know what is done at the end of a scope. */
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

/* The error of a fault that is due, or CUDA_SUCCESS; caller: the return address of the exported function (faults.c). */
CUresult hc_fault_due(const char *symbol, const char *base, const void *caller);

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
};

bool hc_handle_add(const void *object, enum hc_kind kind); /* false when out of memory */
void hc_handle_remove(const void *object);
enum hc_kind hc_handle_kind(const void *object); /* 0 for what is no live handle */

/* ---- devices and contexts ---------------------------------------------------------------------------------------- */
#define HC_MAX_DEVICES 16
#define HC_MAX_DYNAMIC_SHARED (227u << 10)
#define HC_DEFAULT_DYNAMIC_SHARED (48u << 10)
#define HC_GRANULARITY ((size_t)2 << 20)

struct hc_pool {
	int device;
	bool exportable, imported;
};

struct hc_device {
	int ordinal;
	size_t capacity, used;
	struct hc_context *primary;
	unsigned primary_refs, primary_flags;
	struct hc_pool default_pool;
	struct hc_pool *pool; /* that allocations without one come from; NULL: the default one */
};

struct hc_context {
	struct hc_device *device;
	uint64_t id;
	bool primary, dead;
	struct hc_context *next_dead;
	unsigned flags, api_version;
	CUresult sticky;           /* atomic access */
	struct hc_stream *streams; /* all, legacy first in time */
	struct hc_stream *legacy;
	struct hc_module *modules;
	size_t limits[16];
	bool heap_fixed; /* code that uses the device heap was loaded */
};

struct hc_thread {
	struct hc_context *stack[64];
	unsigned depth;
	CUstreamCaptureMode mode;
	bool per_thread; /* inside a _ptsz/_ptds entry: the null stream is this thread's own */
	uint64_t own_context;
	struct hc_stream *own;
};
extern _Thread_local struct hc_thread hc_thread;

extern struct hc_device hc_devices[HC_MAX_DEVICES];
extern int hc_device_count;
extern bool hc_initialised;
struct hc_device *hc_device_at(CUdevice device); /* NULL for a bad ordinal */
struct hc_context *hc_context_current(void);     /* NULL for none */
void hc_context_fail(struct hc_context *context, CUresult result);
CUresult hc_context_sticky(const struct hc_context *context);
CUresult hc_context_drain(struct hc_context *context); /* waits for all work; no state lock held */

/* ---- memory ------------------------------------------------------------------------------------------------------ */
enum hc_memory_kind {
	HC_MEMORY_DEVICE = 1,
	HC_MEMORY_MANAGED,
	HC_MEMORY_HOST,
	HC_MEMORY_REGISTERED,
	HC_MEMORY_MAPPED,
	HC_MEMORY_GLOBAL,
	HC_MEMORY_IMPORTED, /* of another process */
	HC_MEMORY_SEEN,     /* host memory at the device's own address for it */
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
	int shared_fd;  /* HC_MEMORY_DEVICE that was exported: what it lies in; 0: nothing */
	uint64_t other; /* host memory: where the device sees it, and the other way round; 0: at the same address */
	bool of_graph;  /* an allocation node's */
	struct {        /* by an IPC handle */
		uint64_t inode; /* its owner's file; 0: by none */
		unsigned times;
	} opened;
	unsigned access;
	unsigned flags;
};

CUresult hc_space_take(uint64_t *address, size_t size, size_t alignment, uint64_t wanted);
void hc_space_give(uint64_t address, size_t size);
CUresult hc_space_blank(uint64_t address, size_t size); /* no access, contents gone */

CUresult hc_memory_add(struct hc_memory *memory);               /* takes ownership of memory on success */
struct hc_memory *hc_memory_at(uint64_t address) HC_STATE_HELD; /* NULL when no live memory holds it */
void hc_memory_forget(struct hc_memory *memory);                /* out of the table, and freed */
/* What an IPC handle has opened in the context. */
struct hc_memory *hc_memory_opened(uint64_t inode, const struct hc_context *context) HC_STATE_HELD;
void hc_memory_release(struct hc_memory *memory) HC_STATE_HELD; /* gives back any kind but mapped memory */
/* Device memory for an allocation node, there as long as the context is. */
CUresult hc_memory_of_graph(struct hc_context *context, size_t size, uint64_t *address);
bool hc_memory_covers(uint64_t address, size_t bytes); /* live memory all along; takes the state lock */
bool hc_memory_is_pinned(uint64_t address);            /* host memory that the device may read later */
void hc_memory_drop_context(struct hc_context *context);
CUresult hc_device_charge(struct hc_device *device, size_t bytes);
void hc_device_credit(struct hc_device *device, size_t bytes);

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
	struct md_descriptor file; /* of the code, in memory */
	void *library;             /* dlopen handle once the code is mapped */
	uintptr_t base;            /* load address then */
	struct hc_symbol *kernels, *globals;
	size_t kernel_count, global_count;
};

bool hc_ptx_is(const void *data);
/* The image that a PTX text carries (*image is the caller's to free). */
CUresult hc_ptx_image(const char *text, uint8_t **image, size_t *size);

CUresult hc_image_parse(const void *data, struct hc_image **image);
CUresult hc_image_parse_file(const char *path, struct hc_image **image);
CUresult hc_image_load(struct hc_image *image); /* maps the code if it isn't yet; takes the state lock */
struct hc_image *hc_image_ref(struct hc_image *image);
void hc_image_unref(struct hc_image *image);

struct hc_attributes {
	int max_dynamic, carveout, non_portable_cluster, scheduling, cluster[3], cluster_required;
};

struct hc_function {
	struct hc_image *image; /* borrowed from the module */
	const struct hc_symbol *symbol;
	struct hc_module *module;
	struct hc_kernel *kernel; /* the library's, or NULL */
	struct hc_attributes attributes;
};

struct hc_kernel {
	struct hc_library *library;
	const struct hc_symbol *symbol;
	struct hc_attributes attributes;
};

struct hc_module {
	struct hc_image *image;
	struct hc_context *context;
	struct hc_library *library; /* that made it, or NULL */
	struct hc_function *functions;
	struct hc_module *next;
};

struct hc_library {
	struct hc_image *image;
	struct hc_kernel *kernels;
	struct hc_library *next;
};

void hc_module_destroy(struct hc_module *module);
void hc_library_drop_context(struct hc_context *context);
CUresult hc_function_resolve(CUfunction handle,
			     struct hc_function **function) HC_STATE_HELD; /* CUfunction or CUkernel */

/* ---- work -------------------------------------------------------------------------------------------------------- */
struct hc_launch {
	struct hc_image *image; /* a reference */
	const struct hc_symbol *symbol;
	unsigned grid[3], block[3], shared;
	uint8_t *params; /* owned, params_size bytes */
};

struct hc_copy {
	uint64_t to, from;
	size_t width, height, depth;
	size_t to_pitch, to_slice, from_pitch, from_slice;
	bool over_link; /* host to device or back: the link's speed applies */
};

struct hc_fill {
	uint64_t to;
	size_t width, height, pitch; /* width in elements */
	uint32_t value;
	unsigned element;
};

/* Runs with the worker's fault guard set; a memory fault gives CUDA_ERROR_ILLEGAL_ADDRESS. */
CUresult hc_execute_launch(const struct hc_launch *launch, const struct hc_context *context);
CUresult hc_execute_copy(const struct hc_copy *copy);
CUresult hc_execute_fill(const struct hc_fill *fill);
void hc_executor_lone_op(void); /* a launch or a copy on the device, by itself, is about to run */
void hc_executor_start(void);   /* takes the fault signals, unless it has them already */
void hc_executor_leave(void);   /* what this thread held for running kernels is freed */
int hc_thread_start(pthread_t *thread, void *(*main)(void *), void *argument); /* with the host's signals blocked */

struct hc_op {
	int refs;
	bool done;
	uint64_t done_ns;
	struct hc_op *next;
	struct hc_context *context;
	CUresult (*run)(struct hc_op *op); /* NULL for a mere marker */
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
		struct hc_plan *plan;
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
	struct hc_stream *next;
	unsigned flags;
	int priority;
	pthread_t worker;
	bool started, stopping;
	pthread_cond_t wake;
	struct hc_op *head, *tail; /* queue; the head is being run */
	struct hc_op *last;        /* a reference to the newest op, or NULL */
	struct hc_capture *capture;
	struct hc_stream *next_captured;
	struct hc_front front;
	CUgraphNode *told_nodes; /* arrays handed out by cuStreamGetCaptureInfo */
	CUgraphEdgeData *told_data;
};

struct hc_event {
	struct hc_context *context;
	unsigned flags;
	struct hc_op *op; /* the record's marker, a reference */
	struct hc_capture *capture;
	uint64_t capture_id;
	struct hc_front front;
};

struct hc_op *hc_op_new(CUresult (*run)(struct hc_op *), void (*release)(struct hc_op *));
void hc_op_unref(struct hc_op *op);
bool hc_op_wait_for(struct hc_op *op, struct hc_op *other);        /* op runs after other */
CUresult hc_op_submit(struct hc_stream *stream, struct hc_op *op); /* takes over op, also on failure */
/* As submit, but hands back a reference for hc_op_join. */
CUresult hc_op_submit_keep(struct hc_stream *stream, struct hc_op *op, struct hc_op **kept);
void hc_op_join(struct hc_op *op); /* waits, and drops the reference */
bool hc_op_done(struct hc_op *op);

CUresult hc_stream_resolve(CUstream handle, struct hc_stream **stream); /* takes the state lock */
CUresult hc_stream_make(struct hc_context *context, unsigned flags, int priority, struct hc_stream **stream);
void hc_stream_finish(struct hc_stream *stream); /* drains, joins the worker, frees; no state lock held */
CUresult hc_stream_join(struct hc_stream *stream);
struct hc_op *hc_stream_last(struct hc_stream *stream); /* a reference, or NULL */

/* ---- capture ----------------------------------------------------------------------------------------------------- */
struct hc_capture {
	uint64_t id;
	struct hc_graph *graph;
	bool owns_graph;
	CUstreamCaptureMode mode;
	struct hc_stream *origin;
	struct hc_stream *streams; /* all in it, of whatever context; by next_captured */
	pthread_t thread;
	bool invalid;
	struct hc_capture *next;
};

/* What an unsafe call does to captures; CUDA_SUCCESS when it may go on. */
CUresult hc_capture_unsafe(void);
/* Work for stream: true with *result set when it was captured (or refused), false when it must run. */
bool hc_capture_active(struct hc_stream *stream, CUresult *result);
CUresult hc_capture_append(struct hc_stream *stream, struct hc_node *node, bool programmatic);
void hc_capture_invalidate(struct hc_capture *capture);
void hc_capture_drop_stream(struct hc_stream *stream);
void hc_front_clear(struct hc_front *front);
bool hc_front_add(struct hc_front *front, struct hc_node *node, const CUgraphEdgeData *data);

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
	uint64_t mark;        /* scratch of walks */
	union {
		struct hc_node_kernel kernel;
		struct {
			CUDA_MEMCPY3D params;
			struct hc_copy copy;
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

struct hc_graph *hc_graph_new(void);
void hc_graph_free(struct hc_graph *graph);
CUresult hc_graph_copy(const struct hc_graph *graph, struct hc_graph **copy);
CUresult hc_node_new(struct hc_graph *graph, CUgraphNodeType type, struct hc_node **node); /* not in the graph yet */
CUresult hc_node_attach(struct hc_node *node); /* into its graph; frees the node on failure */
void hc_node_free(struct hc_node *node);
bool hc_node_set_attribute(struct hc_node *node, const CUlaunchAttribute *attribute);
/* As it was set, or its default; false for what is no attribute of a node. */
bool hc_node_tell_attribute(const struct hc_node *node, CUlaunchAttributeID id, CUlaunchAttributeValue *value);
void hc_graph_print(const struct hc_graph *graph) HC_STATE_HELD; /* for tests */
CUresult hc_node_set_kernel(struct hc_node *node, const CUDA_KERNEL_NODE_PARAMS *params) HC_STATE_HELD;
CUresult hc_node_copy_content(struct hc_node *to, const struct hc_node *from);
void hc_node_clear_content(struct hc_node *node);

CUresult hc_launch_make(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared,
			void **kernel_params, void **extra, struct hc_launch *launch,
			struct hc_function **function) HC_STATE_HELD;
void hc_launch_finish(struct hc_launch *launch);
CUresult hc_copy_make(const CUDA_MEMCPY3D *params, struct hc_copy *copy);
CUresult hc_fill_make(const CUDA_MEMSET_NODE_PARAMS *params, struct hc_fill *fill);
/* Queued, or captured; wait: until it is done. */
CUresult hc_copy_submit(const CUDA_MEMCPY3D *params, CUstream stream, bool wait);
CUresult hc_fill_submit(uint64_t to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
			CUstream stream);
CUresult hc_event_capture_wait(struct hc_stream *stream, struct hc_event *event);

#endif
