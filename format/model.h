/* SPDX-License-Identifier: Apache-2.0 */
/* What trace and artifact both hold: nodes, edges, attributes, kernels, images, KV capacity. */
#ifndef MD_FORMAT_MODEL_H
#define MD_FORMAT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "driver/image.h"

#define MD_NONE UINT32_MAX /* "no index" */

/* Values are those of CUgraphNodeType. Graphs with nodes of other types are refused by name. */
enum md_node_type {
	MD_NODE_KERNEL = 0,
	MD_NODE_MEMCPY = 1,
	MD_NODE_MEMSET = 2,
	MD_NODE_CHILD = 4,
	MD_NODE_EMPTY = 5,
	MD_NODE_EVENT_WAIT = 6,
	MD_NODE_EVENT_RECORD = 7,
};

enum md_alloc_family {
	MD_ALLOC_DEVICE = 1,  /* cuMemAlloc */
	MD_ALLOC_PITCH = 2,   /* cuMemAllocPitch */
	MD_ALLOC_ASYNC = 3,   /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
	MD_ALLOC_MANAGED = 4, /* cuMemAllocManaged */
	MD_ALLOC_HOST = 5,    /* cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister */
	MD_ALLOC_VMM = 6,     /* cuMemMap of a cuMemCreate handle */
	MD_ALLOC_GLOBAL = 7,  /* a module's global variable */
	MD_ALLOC_SHARED =
	    8, /* shared with another process or device, the host or the engine itself by a second address */
	MD_ALLOC_GRAPH = 9, /* of a memory node: live while its graph has it */
};

/* A description of memory that a restore cannot make anew for a graph; NULL for memory that it can. */
static inline const char *md_alloc_foreign(enum md_alloc_family family)
{
	return family == MD_ALLOC_HOST     ? "host memory"
	       : family == MD_ALLOC_GLOBAL ? "a module global"
	       : family == MD_ALLOC_SHARED
		   ? "memory that is shared with another process or device, the host or a second address"
	       : family == MD_ALLOC_GRAPH   ? "memory of a graph's allocation node"
	       : family == MD_ALLOC_MANAGED ? "managed memory, which the host reaches without a call"
					    : NULL;
}

/* Roles of bound buffers; values are those of medusa.h's MEDUSA_BIND_*. */
enum md_bind_role {
	MD_BIND_CONSTANT = 1, /* weights: no graph writes it */
	MD_BIND_STATE = 2,    /* read and written: KV cache, counters */
	MD_BIND_INPUT = 3,    /* the engine writes it before a replay */
	MD_BIND_OUTPUT = 4,   /* the graph writes it, the engine reads it */
};

struct md_attribute {      /* of a kernel node */
	uint32_t id;       /* CUlaunchAttributeID */
	uint8_t value[64]; /* CUlaunchAttributeValue, unused tail zero */
};

#define MD_ATTRIBUTE_WINDOW 1u     /* access policy window: 8 bytes of address, 8 of size (0: none), plain values */
#define MD_ATTRIBUTE_UPDATABLE 13u /* the node can be changed from the device */
#define MD_ATTRIBUTE_LAST 16u      /* the last attribute whose value has a known layout */

#define MD_MEMORY_HOST 1u /* CU_MEMORYTYPE_HOST */

struct md_edge {
	uint32_t from, to;                /* node indices in the graph */
	uint8_t from_port, to_port, type; /* CUgraphEdgeData; all zero for a full dependency */
	uint8_t zero;                     /* edges are compared by their bytes */
};

struct md_param {              /* one kernel parameter, from cuFuncGetParamInfo */
	uint32_t offset, size; /* bytes in the parameter block */
};

/* State of a function that graph nodes do not carry; it is set again on the resolved function. */
struct md_func_state {
	int32_t max_dynamic_shared_bytes;       /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
	int32_t preferred_carveout;             /* CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1 default */
	int32_t non_portable_cluster;           /* CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0 or 1 */
	int32_t registers, static_shared_bytes; /* compared to identify the kernel, not set */
};

struct md_memset {
	uint64_t dst;                  /* address in a trace; 0 in an artifact, whose pointer table has it at byte 0 */
	uint64_t pitch, width, height; /* bytes, elements, rows */
	uint32_t value, element_size;
};

struct md_memcpy { /* CUDA_MEMCPY3D, device or host pointers only (arrays are refused) */
	/* address in a trace; 0 in an artifact, whose pointer table has them at bytes 0 (src) and 8 (dst) */
	uint64_t src, dst;
	uint32_t src_type, dst_type; /* CUmemorytype */
	uint64_t src_x, src_y, src_z, src_pitch, src_height;
	uint64_t dst_x, dst_y, dst_z, dst_pitch, dst_height;
	uint64_t width, height, depth; /* bytes, rows, slices */
};

#define MD_LIBRARY_EVENTS_MOST 65536u /* of one communication library */

struct md_node {
	uint8_t type;    /* md_node_type */
	bool via_extra;  /* kernel parameters were given through `extra`, as one buffer */
	uint32_t kernel; /* index into the kernel table; MD_NONE for other node types */
	uint32_t grid[3], block[3], shared_bytes;
	uint32_t params_size; /* bytes */
	uint8_t *params;      /* the parameter block, at the offsets of md_param; owned by the graph's arena */
	uint32_t attribute_count;
	struct md_attribute *attributes; /* owned by the graph's arena */
	union {
		struct md_memset memset;
		struct md_memcpy memcpy;
		uint32_t
		    child_nodes; /* child graphs: the number of nodes behind this one that lie in it, at any depth */
		/*
		 * event nodes: in a trace, a number that is unique in the process; in an artifact, in the graph, or the
		 * graph's number of nodes plus the place in the order in which its communication library made events
		 */
		uint32_t event;
	};
	uint64_t sequence; /* trace only: position of the launch that made the node, which says what was live then */
};

#define MD_CHILD_DEPTH_MAX 16u /* child graphs inside one another */

/*
 * The child graph that each node belongs to, MD_NONE for nodes of the graph itself. False when child graphs reach past
 * the one they are in, or lie too deep.
 */
bool md_nodes_parents(const struct md_node *nodes, uint32_t count, uint32_t *parents);

/*
 * In pointers, bytes below this are in a kernel node's parameter block; from here on they are in the values of its
 * attributes.
 */
#define MD_ATTRIBUTES_AT 65536u
/* The attribute whose value starts at this byte; NULL if none does. */
struct md_attribute *md_node_attribute_at(const struct md_node *node, uint32_t at);

struct md_kernel {
	uint32_t image;          /* index into the image table; MD_NONE when its load was not seen */
	char *name;              /* mangled; owned */
	struct md_param *params; /* owned */
	uint32_t param_count;
	struct md_func_state state;
};

/* The kind of a parameter: from the kernel's mangled name or, if the name says nothing, from the parameter's size. */
enum md_param_kind {
	MD_PARAM_STRUCT,  /* may have bytes that nobody sets (padding); also parameters of unknown kind */
	MD_PARAM_SCALAR,  /* a number: all of its bytes are set */
	MD_PARAM_ADDRESS, /* a pointer */
	MD_PARAM_WORD,    /* 8 bytes of a kernel whose name has no types: a number or an address */
};

/* kinds: one md_param_kind for each of the kernel's parameters. */
void md_kernel_param_kinds(const struct md_kernel *kernel, uint8_t *kinds);

struct md_image_frame {          /* in an artifact's file; stored is 0 when the image's bytes are not there */
	uint64_t offset, stored; /* in the section image_data, bytes */
	uint64_t checksum;       /* of the stored bytes */
};

struct md_pointer;

struct md_image_value {              /* of a variable that the engine writes before its graphs run */
	char *name;                  /* owned */
	uint64_t size;               /* bytes, at most MD_IMAGE_VALUE_MAX */
	uint8_t *data;               /* owned; pointer bytes are zero */
	struct md_pointer *pointers; /* like the pointers of contents, see artifact/artifact.h; owned */
	uint32_t pointer_count;
};

#define MD_IMAGE_VALUE_MAX (16u << 20)

struct md_image {
	struct md_hash hash;
	enum md_image_kind kind;
	uint64_t size;
	char *path;     /* owned; NULL when it lies in no file */
	char *build_id; /* owned, hex; NULL when none */
	/*
	 * owned; a variable that the engine writes without a provable value, so only its own copy of the image is
	 * right; NULL: none
	 */
	char *variable;
	uint64_t file_offset;
	struct md_image_value *values; /* owned; set after the image was loaded */
	uint32_t value_count;
	uint8_t *data; /* owned; NULL when not stored, or not read yet */
	struct md_image_frame frame;
};

static inline bool md_image_is_stored(const struct md_image *image)
{
	return image->data || image->frame.stored;
}

/*
 * The engine sets this mark to say that a capture or a verification may end: what it does from then on does not matter.
 */
#define MD_MARK_COMPLETE "complete"

/* KV capacity, measured once offline; see kvprofile/. */
struct md_kv {
	bool present;
	uint64_t baseline_free;   /* bytes free before the profiling forward, weights loaded */
	uint64_t peak;            /* bytes the profiling forward needed on top */
	uint64_t graph_bytes;     /* bytes the graphs, and whatever came with them, took beside cache and peak */
	uint64_t kv_bytes;        /* the answer: bytes for the KV cache */
	uint64_t block_bytes;     /* bytes of one KV block over all layers */
	uint64_t blocks;          /* kv_bytes / block_bytes */
	uint32_t utilization_ppm; /* share of the device's memory, in parts per million */
	char key[256];            /* the engine's own fingerprint of its configuration */
};

/* Copies and sets outside of stream captures; those inside are nodes. */
enum md_transfer_kind {
	MD_TRANSFER_TO_DEVICE = 0, /* from host memory */
	MD_TRANSFER_TO_HOST = 1,
	MD_TRANSFER_WITHIN_DEVICE = 2,
	MD_TRANSFER_ANY = 3, /* the addresses decide (cuMemcpy) */
	MD_TRANSFER_SET = 4,
};
#define MD_TRANSFER_KINDS 5

struct md_transfers {
	uint64_t count, bytes;
};

struct md_stage_time {
	char name[64];
	uint64_t ns;
};

#endif
