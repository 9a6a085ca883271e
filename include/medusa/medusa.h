/* SPDX-License-Identifier: Apache-2.0 */
/* How an engine speaks with Medusa: bind buffers by name, label graphs, take restored graphs, ask for KV capacity. */
#ifndef MEDUSA_MEDUSA_H
#define MEDUSA_MEDUSA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Each function has a manual page in section 3, with its codes, its rules for threads, and an example; medusa(7) is the
 * overview.
 *
 * Link with -lmedusa. That library does nothing: every call answers at once and the engine runs as it always did.
 * medusa-capture preloads a library whose functions of the same names record; medusa-restore preloads one whose
 * functions restore. An engine is written once, for all three.
 *
 * CUDA handles are void * here, so that this header needs no cuda.h: CUgraphExec, CUgraph and CUcontext convert by
 * themselves. A device address is a medusa_deviceptr, the type that CUdeviceptr has in cuda.h, so that a CUdeviceptr
 * and a pointer to one can be given without a cast. All functions may be called from any thread that has the context
 * current, and none of them ever exits or aborts. Functions that return int return 0 or a MEDUSA_ERR_* code;
 * medusa_reason() then says why, in one sentence.
 *
 * A program that is linked with one release runs with later ones; docs/abi.md says what may change and what may not.
 *
 * Workers: a process that is forked before its parent uses the device, or started by exec, restores for itself; after
 * that a forked child gets MEDUSA_ERR_NOT_FOUND, as it cannot use CUDA either.
 */

typedef unsigned long long medusa_deviceptr;

enum medusa_result {
	MEDUSA_OK = 0,
	MEDUSA_ERR_INVALID = 1,     /* an argument: medusa_reason() names function, argument and what is wrong */
	MEDUSA_ERR_NO_MEMORY = 2,   /* of the host or of the device */
	MEDUSA_ERR_NOT_FOUND = 4,   /* no such graph in the artifact, or nothing is being restored */
	MEDUSA_ERR_UNSUPPORTED = 5, /* a driver without the call */
	MEDUSA_ERR_TIMEOUT = 6,     /* still being restored */
	MEDUSA_ERR_DRIVER = 40,     /* a driver call failed */
	MEDUSA_ERR_MISMATCH = 60,   /* restoring would not be proven right: another device, a damaged file ... */
};

enum medusa_mode { MEDUSA_MODE_NONE = 0, MEDUSA_MODE_CAPTURE = 1, MEDUSA_MODE_RESTORE = 2, MEDUSA_MODE_VERIFY = 3 };

/* What the preloaded library does in this process. */
enum medusa_mode medusa_mode(void);

/* One sentence on the last failure in this thread; "" if there was none. Valid until the thread's next call. */
const char *medusa_reason(void);

/* A word for logs: "not found", "restore" ... Never NULL; "unknown ..." for a value that this library does not know. */
const char *medusa_result_name(enum medusa_result result);
const char *medusa_mode_name(enum medusa_mode mode);

enum medusa_role {
	MEDUSA_BIND_CONSTANT = 1, /* weights: nobody writes it once graphs are asked for */
	MEDUSA_BIND_STATE = 2,    /* read and written by graphs: KV cache, counters */
	MEDUSA_BIND_INPUT = 3,    /* the engine writes it before a replay */
	MEDUSA_BIND_OUTPUT = 4,   /* graphs write it, the engine reads it */
};

/* "constant", "state", "input" or "output"; never NULL. */
const char *medusa_role_name(enum medusa_role role);

/*
 * Says that the memory [address, address + bytes), of the device or page-locked, is `name`. Everything that graphs read
 * or write and that the engine owns is bound, in every start, before graphs are asked for; the rest is private to the
 * graphs, and a restore makes it anew. Names are unique; binding a name again moves it (only before the first graph was
 * handed out that uses it; later that fails, and no graph with the old address is handed out any more). A restore
 * refuses graphs whose binding is missing or has another size. (MEDUSA, section 4.)
 *
 * A binding is of addresses: what is mapped there later (by an engine that suspends and resumes) is bound, too; freed
 * memory no longer is. Memory that another process shares is never private: graphs use it bound, or are refused.
 *
 * An engine that binds nothing is bound by sequence: what it has allocated on the device when it first calls
 * medusa_graph_get, in the capture as in every start, is matched by order, size, and how addresses compare (allocators
 * take the lowest of equal blocks). What was freed by then counts, but is not bound; what a profiling forward of
 * medusa_kv_capacity allocates does not count. At the first allocation that differs the whole artifact is refused.
 * These bindings are called "@allocation.N"; no other name may begin with '@'.
 *
 * What graphs use and nobody binds is theirs alone: a restored graph has memory of its own in its place. So what bound
 * memory leads to by addresses (a table of pointers) is bound, too. What kernels
 * or copies outside of graphs use, too, once the graphs are made (scratch memory, the workspace of a library's handle,
 * a table), must be bound, or be a declared output (medusa_graph_output); the capture refuses graphs where it sees
 * more.
 */
int medusa_bind(const char *name, medusa_deviceptr address, size_t bytes, enum medusa_role role);

/*
 * What warm-up leaves in memory that nobody binds is saved with the graphs that need it, as it was in the capture. It
 * may have been made of the weights: packed, transposed, quantized copies of them. So a graph with such contents is
 * handed out only if everything that is bound as MEDUSA_BIND_CONSTANT has the hash that it had then. What was made of
 * anything else (buffers of other roles, host memory, configuration) must be the same in every start, be bound itself,
 * or be told by medusa_fingerprint_add. Of an engine that binds nothing, all that is bound by sequence is hashed, when
 * it first calls medusa_graph_get: what it loads must be there by then.
 */

/*
 * Graphs that hand values on to each other in memory that nobody binds (pieces of a model, with the hidden state
 * between them) are one group: Medusa has a copy of that memory, which all of them use, or the engine's is used by all.
 * So they are restored together or not at all: medusa_graph_get waits until all of a group are ready, and fails for all
 * of them when it fails for one. An engine asks for all of them, and captures live those that it is refused; it labels
 * what it captures, for a group of which it has captured one is not handed out any more. Each is launched after another
 * one has written what it reads; state that a graph hands to its own next replay must be bound.
 */

/*
 * Says what the engine is, beyond device and driver: "torch" = "2.11.0+cu130", "model" = a hash of its code. A capture
 * records it. A restore hands out no graph unless all that was recorded has been said again with the same values, and
 * nothing else; saying another value refuses the whole artifact at once (MEDUSA_ERR_MISMATCH), and so does asking for a
 * graph before all was said. What was made is freed then, except for graphs that were handed out already: they stay
 * until medusa_release. Names are unique, a name said again has a new value; say all before binding. It needs no
 * context.
 *
 * Whoever states facts states all that graphs depend on and that bindings do not show. An engine that states none is
 * held to the arguments that it was captured with (medusa-capture --vary names those that may be others).
 */
int medusa_fingerprint_add(const char *name, const char *value);

/*
 * Takes the restored graph (label, batch): *exec (a CUgraphExec) is instantiated, uploaded and ready to launch, and
 * belongs to Medusa (do not destroy it; medusa_release does). Waits up to timeout_ns (UINT64_MAX: as long as it takes).
 * Fails when nothing is restored: the engine then captures as before, and calls medusa_graph_label. In a capture or
 * verify run it always fails with MEDUSA_ERR_NOT_FOUND. It fails as well while a limit of the context (cuCtxSetLimit:
 * stack, heap and such) is lower than in the capture: an engine sets its limits before it asks, and not in its warm-up.
 *
 * The first graph with contents that may be made of the weights waits for the context (cuCtxSynchronize) and hashes
 * what is bound as constant, one pass at the speed of the device's memory; the engine must have submitted all that
 * writes its weights. No stream may be in capture then (MEDUSA_ERR_TIMEOUT: ask again, or capture live). Binding a
 * buffer again has it hashed again.
 */
int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec);

/* 1 if medusa_graph_get would answer at once with a graph (all of its group are ready), else 0. Never waits. */
int medusa_graph_ready(const char *label, unsigned batch);

/* Batch sizes to restore first, most wanted first. Optional; without it, ascending batch. Call before binding. */
int medusa_graph_want(const char *label, const unsigned *batches, size_t count);

/*
 * Names a graph that the engine has captured and instantiated itself. In a restore, the others of its group are not
 * handed out from then on; MEDUSA_ERR_MISMATCH when one of them was handed out before, whose values do not reach this
 * one. exec may be NULL
 * here and in the four functions below: the graph that this thread instantiated last (a framework may not show its
 * handle). What the other four say about a graph must be said before it is labelled.
 */
int medusa_graph_label(void *exec, const char *label, unsigned batch);

/*
 * Says that the device memory [address, address + bytes) is output `index` (0, 1, 2 ...) of a graph: the engine reads
 * it after a replay. For outputs that lie where no binding does, as in a framework's graph memory pool; a restored
 * graph has them elsewhere (medusa_graph_output_get).
 */
int medusa_graph_output(void *exec, unsigned index, medusa_deviceptr address, size_t bytes);

/* Keeps up to 64 KiB of the engine's own data with a graph: shapes and types of its outputs, say. */
int medusa_graph_note(void *exec, const void *data, size_t bytes);

/*
 * Says that a graph must not be materialized, and why, in one sentence: the engine knows of state that no restore could
 * give back. A capture leaves the graph out by name; a verification reports it as failed, and there it may also be said
 * later, of a graph that the engine has launched and found wrong.
 */
int medusa_graph_refuse(void *exec, const char *why);

/*
 * Where output `index` of a graph lies that medusa_graph_get has handed out. Valid until medusa_release. Graphs share
 * their private memory as they did in the capture: what one has left there, a replay of another may overwrite.
 */
int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, medusa_deviceptr *address,
			    size_t *bytes);

/* The note of a graph that medusa_graph_get has handed out; *bytes is 0 if there was none. Valid until medusa_release.
 */
int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes);

/*
 * A function that makes the driver load kernels (run the model's first layer once, say), for artifacts that store no
 * images: medusa_graph_get calls it, at most once, on its caller's thread. 0 on success. (MEDUSA, section 5.)
 */
int medusa_trigger(const char *name, int (*run)(void *user), void *user);

/* A named moment of the start ("ready"): medusa-capture --until mark=NAME ends recording there. */
int medusa_mark(const char *name);

/* Time of one stage of the start, for reports: "weights", "kv", "warmup", "capture" ... */
int medusa_stage(const char *name, uint64_t ns);

struct medusa_kv_request {
	size_t size;                /* sizeof(struct medusa_kv_request) */
	const char *key;            /* the engine's fingerprint of its own configuration: model, shapes, batch limits */
	uint64_t block_bytes;       /* one KV block over all layers */
	double utilization;         /* part of the device's memory that the engine may use, 0..1 */
	int (*profile)(void *user); /* runs one profiling forward at the largest shape; 0 on success */
	void *user;
};

struct medusa_kv {
	size_t size;      /* sizeof(struct medusa_kv), set by the caller */
	uint64_t bytes;   /* memory for the KV cache */
	uint64_t blocks;  /* bytes / block_bytes */
	int from_profile; /* 1: answered from the artifact, without running profile() */
	uint64_t ns;      /* time taken */
};

/*
 * How much memory the KV cache may have. In a restore the answer comes from the artifact at once, provided that the
 * fingerprint, the facts said so far and the key match and at least as much memory is free as was then; otherwise
 * (medusa_reason() says why) and without Medusa the profiling forward is run. Call it with weights loaded and before
 * the KV cache is allocated. (MEDUSA, section 6.)
 */
int medusa_kv_capacity(const struct medusa_kv_request *request, struct medusa_kv *out);

struct medusa_stats {
	size_t size; /* sizeof(struct medusa_stats), set by the caller */
	uint32_t graphs_total, graphs_restored, graphs_refused;
	uint64_t nodes, pointers;      /* restored */
	uint32_t kernels_loaded_image; /* resolved from an image already loaded in this process */
	uint32_t kernels_stored_image; /* from a stored or file-backed image */
	uint32_t kernels_triggered;    /* by triggering kernel and module enumeration */
	uint64_t open_ns, images_ns, functions_ns, arena_ns, patch_ns, build_ns, instantiate_ns, upload_ns;
	uint64_t own_ns;         /* decode and patch: restore's own work, driver calls excluded */
	uint64_t first_ready_ns; /* from "functions loaded and all bindings there" to the first launchable graph */
	uint64_t total_ns;       /* time in which any of the stages above was at work; they overlap */
	uint64_t private_bytes;  /* device memory that Medusa holds for graphs */
	uint64_t image_bytes;    /* bytes of images it loaded */
	uint64_t heap_ns;        /* bringing in host memory for the driver, ahead of the graphs or with them */
	uint64_t constants_ns;   /* hashing constant bindings that contents may be made of, in medusa_graph_get */
};

/* What has been restored so far. MEDUSA_ERR_NOT_FOUND outside of a restore. */
int medusa_stats_read(struct medusa_stats *out);

/*
 * Destroys the restored graphs and frees their memory, their outputs and notes with it; the caller has stopped
 * launching them. Nothing is restored after that. A capture is not touched by it. While restored graphs are verified,
 * what is labelled or launched afterwards is not compared, and a graph that was not compared each time is not published
 * (medusa-capture) or skipped (medusa-verify), with that reason: release when the graphs have served.
 */
void medusa_release(void);

#ifdef __cplusplus
}
#endif

#endif
