/* SPDX-License-Identifier: Apache-2.0 */
/* The artifact (.medusa): everything a cold start needs to restore graphs. Writer for analysis, reader for restore. */
#ifndef MD_FORMAT_ARTIFACT_ARTIFACT_H
#define MD_FORMAT_ARTIFACT_ARTIFACT_H

#include "driver/alloc_sequence.h"
#include "base/element.h"
#include "format/artifact/caches.h"
#include "format/fingerprint.h"
#include "format/model.h"
#include "format/signature.h"

#define MD_ARTIFACT_MAGIC "MEDUSA\r\n"
#define MD_ARTIFACT_VERSION 2
#define MD_ARTIFACT_OLDEST_READER 1

/*
 * File: header | section table | sections. Each section is msgpack in a zstd frame with an XXH3-64 checksum; the
 * section table and header have one of their own. Sections: fingerprint, allocations, bindings, kernels, images,
 * graphs, pointers, contents, kv, provenance; and image_data, caches, cache_data and signature, which may be missing.
 * docs/format.md is normative.
 */

enum md_binding_class {
	MD_CLASS_BOUND = 1,    /* the engine registers it: bindings[binding] */
	MD_CLASS_SEQUENCE = 2, /* matched by order and size */
	MD_CLASS_PRIVATE = 3,  /* restore owns it, in one arena */
	MD_CLASS_VARIABLE = 4, /* a variable of an image that restore has loaded */
};

#define MD_ARENA_ALIGNMENT 512u /* bytes, of each private allocation in the arena */

/* An allocation that some pointer refers to. The indirect index pointer is (index into this table, offset). */
struct md_artifact_alloc {
	enum md_binding_class class;
	enum md_alloc_family family;
	uint32_t binding;      /* MD_CLASS_BOUND: index into bindings, else MD_NONE */
	uint32_t order;        /* position in the allocation sequence of the capture */
	uint64_t size;         /* bytes */
	uint64_t arena_offset; /* MD_CLASS_PRIVATE: place in the arena, a multiple of MD_ARENA_ALIGNMENT */
	uint32_t image;        /* MD_CLASS_VARIABLE: index into images; else 0 */
	char *variable;        /* MD_CLASS_VARIABLE: its name, owned; else NULL */
};

#define MD_BINDING_ALIGN_MAX 32u /* bytes of a kernel's widest access to memory; a greater alignment has no effect */

struct md_binding {
	char *name; /* owned */
	uint64_t size;
	enum md_bind_role role;
	bool hashed; /* contents may have been made from it; `hash` is the hash of its bytes */
	/* it had other bytes in the second capture, so contents that are equal in both do not depend on it */
	bool varied;
	struct md_hash hash;
	/* some launch has both an address in binding `before` and the address where `before` ends and this begins */
	bool adjoins;
	uint32_t before; /* index into bindings */
	uint32_t align;  /* its address was a multiple of this in every capture; 1: alignment does not matter */
	bool overlaps; /* it lay `distance` bytes behind the start of binding `within`, and shares memory with it or */
	uint32_t within; /* with another one that names it */
	uint64_t distance;
};

enum md_pointer_kind {
	MD_POINTER_PLAIN = 0,      /* 8 bytes: address of the allocation + offset */
	MD_POINTER_TENSOR_MAP = 1, /* 128 bytes (CUtensorMap): cuTensorMapReplaceAddress */
};

struct md_pointer {
	uint32_t node;  /* index in its graph */
	uint32_t at;    /* byte offset in params (kernel), in md_memset/md_memcpy order for others; see model.h */
	uint32_t alloc; /* index into allocs */
	uint8_t kind;   /* md_pointer_kind */
	int64_t offset; /* from the allocation's start; may be negative or past the end (virtual origin) */
};

enum md_proof {
	MD_PROOF_NONE = 0,   /* one capture (--single) */
	MD_PROOF_TWO = 1,    /* pointers are settled by two captures */
	MD_PROOF_REPLAY = 2, /* and tested by replay with noise and private memory changed (medusa-verify) */
};

struct md_artifact_output { /* memory of a graph that the engine reads after a replay */
	uint32_t alloc;     /* index into allocs */
	uint64_t offset, size;
};

/*
 * A word that points into live memory in both captures, but not to the same place: a stale pointer, or a pointer into
 * blocks that swapped places. Only a replay can tell which. An artifact with such words must not be published; a
 * restore refuses their graphs, except in a verification.
 */
struct md_doubtful {
	uint32_t node, at; /* the 8 bytes at `at` in the parameters of kernel node `node` */
	/*
	 * index into allocs: where the word points in the first capture; MD_NONE: nowhere, and the word is restored as
	 * zero
	 */
	uint32_t alloc;
	int64_t offset;
	uint32_t order[2]; /* index of the allocation in the sequence of each capture */
	uint64_t place[2]; /* bytes from the start of that allocation */
};

/*
 * Private memory through which a graph hands values on to other graphs, or receives them. The engine has not bound it,
 * so all graphs that use it must use the same copy: they form one group, which is restored together or not at all.
 */
struct md_artifact_handed {
	uint32_t alloc; /* index into allocs, of class PRIVATE */
	uint64_t offset, size;
	bool reads, writes; /* whether the graph reads or writes it */
};

#define MD_HANDED_MAX 4096   /* of a graph */
#define MD_DOUBTFUL_MAX 1024 /* of a graph; words that are not alike take two replays each */
#define MD_OUTPUTS_MAX 4096
#define MD_NOTE_MAX (64u << 10) /* bytes */

struct md_artifact_graph {
	char *label; /* owned */
	uint32_t batch;
	enum md_proof proof;
	uint64_t instantiate_flags;
	struct md_node *nodes; /* pointer and noise bytes in params are zero */
	uint32_t node_count;
	struct md_edge *edges;
	uint32_t edge_count;
	struct md_pointer *pointers; /* ascending by (node, at) */
	uint32_t pointer_count;
	/*
	 * Bytes that differed between the captures and have no meaning; ascending (node, at). A verify run fills them
	 * with random values.
	 */
	struct md_noise {
		uint32_t node, at, size;
	} * noise;
	uint32_t noise_count;
	struct md_doubtful *doubtful; /* ascending (node, at); owned */
	uint32_t doubtful_count;
	struct md_artifact_output *outputs; /* by index; owned */
	uint32_t output_count;
	uint32_t group;                    /* 0: none */
	struct md_artifact_handed *handed; /* ascending (alloc, offset); of a graph in a group; owned */
	uint32_t handed_count;
	uint8_t *note; /* the engine's own; owned, NULL when there is none */
	uint64_t note_size;
	/* if given: the graph is nondeterministic, and the user accepted this tolerance */
	struct md_tolerance accepted;
	uint64_t constant_words, pointer_words, noise_words; /* statistics, 8-byte words of all parameter blocks */
	void *arena;                                         /* owns params and attributes of the nodes */
	bool pooled; /* the artifact's pool owns them, and nodes, edges, pointers and noise */
};

struct md_artifact_refusal { /* a graph that was captured but refused */
	char *label;         /* owned */
	uint32_t batch;
	char *why; /* owned */
};

struct md_artifact_content {
	uint32_t alloc; /* index into allocs, of class PRIVATE */
	uint64_t offset, size;
	bool compared;               /* both captures saved the same bytes */
	uint8_t *data;               /* owned */
	struct md_pointer *pointers; /* words inside that are pointers: node = MD_NONE, at = offset in data; owned */
	uint32_t pointer_count;
};

struct md_provenance {
	char *tool_version, *command, *created; /* owned; created is RFC 3339 UTC */
	/* owned; which weaker checks the user accepted for the verification of medusa-capture; NULL: none */
	char *verification;
	char *checks; /* owned; names from format/checks.def, separated by blanks; NULL: from an older version */
	/*
	 * number of addresses that kernels outside of graphs were given in memory that only graphs use, as the engine
	 * states; the artifact relies on that statement
	 */
	uint64_t scratch_addresses;
	uint32_t capture_count;       /* 1 or 2 */
	struct md_stage_time *stages; /* owned; of the (first) capture: "warmup", "capture", "instantiate" ... */
	uint32_t stage_count;
};

/* The signature of the file that was read. Writing keeps it, and fails if it does not match the written file. */
struct md_artifact_signature {
	bool present;
	struct md_public_key key;
	uint8_t bytes[MD_SIGNATURE_BYTES];
};

struct md_artifact {
	struct md_fingerprint fingerprint;
	struct md_artifact_alloc *allocs;
	uint32_t alloc_count;
	uint64_t arena_size; /* bytes of private memory */
	struct md_binding *bindings;
	uint32_t binding_count;
	struct md_sequence_request *requests; /* all allocations of the engine, if it binds nothing */
	uint32_t request_count;
	struct md_image *images;
	uint32_t image_count;
	struct md_kernel *kernels;
	uint32_t kernel_count;
	struct md_artifact_graph *graphs;
	uint32_t graph_count;
	struct md_artifact_refusal *refusals;
	uint32_t refusal_count;
	struct md_artifact_content *contents;
	uint32_t content_count;
	struct md_kv kv;
	struct md_provenance provenance;
	struct md_caches caches; /* empty in what a cold start opens: see md_cache_source_open */
	struct md_artifact_signature signature;
	void *pool; /* an arena for graphs; NULL: each graph has its own memory */
};

struct md_artifact_section_size { /* for medusa-inspect and the benchmarks */
	char name[16];
	uint64_t stored, raw; /* bytes in the file, bytes uncompressed */
};

#define MD_ARTIFACT_SECTIONS_MAX 16

struct md_artifact_sizes {
	uint64_t file;
	uint32_t section_count;
	struct md_artifact_section_size sections[MD_ARTIFACT_SECTIONS_MAX];
};

/* Atomic: the file is written beside path and renamed; an existing artifact stays until then. sizes may be NULL. */
enum md_status md_artifact_write(const struct md_artifact *artifact, const char *path, struct md_artifact_sizes *sizes,
				 struct md_error *err);

/*
 * Everything that is read is checked (indices against their tables, offsets, sizes, edges without cycles, pointers
 * inside of parameter blocks), and memory is limited before it is allocated. Errors name section and offset.
 */
enum md_status md_artifact_read(const char *path, struct md_artifact *out, struct md_artifact_sizes *sizes,
				struct md_error *err);
enum md_status md_artifact_parse(const void *data, size_t size, struct md_artifact *out,
				 struct md_artifact_sizes *sizes, struct md_error *err);
void md_artifact_finish(struct md_artifact *artifact);

/*
 * The same in parts, for a cold start. Opening reads all sections except graphs, pointers and contents, and the places
 * of stored images. The graphs come next, while images load already. The bytes of an image are read when they are
 * wanted, from any thread; out must have room for the image's size. Each part is checked when it is read, as above; the
 * caller checks the hash of an image. Close the file after the last image; the artifact stays, and has its own finish.
 */
struct md_artifact_file;
enum md_status md_artifact_open(const char *path, struct md_artifact_file **out, struct md_artifact *artifact,
				struct md_error *err);
enum md_status md_artifact_read_graphs(struct md_artifact_file *file, struct md_artifact *artifact,
				       struct md_error *err);
enum md_status md_artifact_read_image(const struct md_artifact_file *file, const struct md_artifact *artifact,
				      uint32_t image, void *out, struct md_error *err);
void md_artifact_close(struct md_artifact_file *file);

/*
 * Tells artifacts apart: a hash of what the section table says of the sections, their checksums too, without the signature.
 * So a signature does not change it, and damage inside of a section is found by whoever reads the section.
 */
enum md_status md_artifact_identity(const char *path, struct md_hash *out, struct md_error *err);
enum md_status md_artifact_file_identity(const struct md_artifact_file *file, struct md_hash *out,
					 struct md_error *err);

/*
 * A signature is checked whenever its file is read, part by part. With a list of trusted keys, a file that has no
 * signature, or one by a key that is not trusted, is MD_ERR_MISMATCH before anything in it is decompressed.
 */
enum md_status md_artifact_open_trusted(const char *path, const struct md_trust *trust, struct md_artifact_file **out,
					struct md_artifact *artifact, struct md_error *err);
/*
 * Writes the file again, with a signature by key in place of an old one; everything else stays bit for bit. The whole
 * file is read and checked first. out_path may be path.
 */
enum md_status md_artifact_sign(const char *path, const char *out_path, const struct md_secret_key *key,
				struct md_error *err);

/* "node 3, bytes 16..23: points to offset 0 of allocation 47 in the first capture and ..." */
#define MD_DOUBTFUL_TEXT 256
void md_doubtful_describe(const struct md_doubtful *doubtful, char text[MD_DOUBTFUL_TEXT]);
/* Whether both are the same bytes of parameters of the same kernel. */
bool md_doubtful_alike(const struct md_artifact_graph *graph, const struct md_doubtful *one,
		       const struct md_doubtful *other);
/* The first graph with doubtful words; NULL: there is none. */
const struct md_artifact_graph *md_artifact_doubtful(const struct md_artifact *artifact);
/* How many bytes of a graph's noise lie in which kind of parameter. */
struct md_unset {
	uint64_t struct_bytes; /* in parameters that are structs, or whose kind is not known */
	uint64_t other_bytes;  /* in the gaps between parameters, or in addresses */
	/* number of parameters that are plain numbers: the user accepted their values, or they were stale addresses */
	uint32_t scalars;
};
enum md_status md_artifact_unset(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
				 struct md_unset *out, struct md_error *err);
/* Turns the doubtful word into noise. */
enum md_status md_doubtful_settle(struct md_artifact_graph *graph, uint32_t index, struct md_error *err);

/* Whether a launch of the graph has the address where binding `behind` begins, and an address in `before`. */
bool md_artifact_graph_adjoins(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
			       uint32_t before, uint32_t behind);

/*
 * Checks that a KV profile is consistent in itself and with the device; MD_ERR_CORRUPT names the numbers that are not.
 */
enum md_status md_artifact_check_kv(const struct md_kv *kv, uint64_t device_memory, struct md_error *err);

/* The same checks on an artifact in memory; the writer and the reader of the text twin make them, too. */
enum md_status md_artifact_check(const struct md_artifact *artifact, struct md_error *err);

/* Text twin, both directions (docs/format.md). */
#include <stdio.h>
enum md_status md_artifact_print_text(const struct md_artifact *artifact, FILE *out, struct md_error *err);
enum md_status md_artifact_parse_text(FILE *in, struct md_artifact *out, struct md_error *err);

/* Memory that lives as long as its graph: nodes' params and attributes. NULL when out of memory. */
void *md_arena_alloc(void **arena, size_t bytes);
/* For many graphs at once, some MiB: memory by the huge page. False: there is none, and the arena is an ordinary one. */
bool md_arena_open_pool(void **arena);
/* How many bytes md_arena_alloc would take from the heap; 0: none, the arena has room. */
size_t md_arena_need(void *const *arena, size_t bytes);
void md_arena_free(void **arena);

#endif
