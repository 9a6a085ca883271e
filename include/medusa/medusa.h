/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface for engines: bind buffers by name, label graphs, take restored graphs, ask for KV capacity. */
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
 * Link with -lmedusa. That library does nothing: every call returns at once, and the engine runs as it does without
 * Medusa. medusa-capture preloads a library whose functions of the same names record; medusa-restore and medusa-swap
 * preload libraries whose functions restore. An engine is written once, for all of them.
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
	MEDUSA_ERR_MISMATCH = 60    /* restoring would not be proven right: another device, a damaged file ... */
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
	MEDUSA_BIND_CONSTANT = 1, /* weights: not written after the engine has asked for graphs */
	MEDUSA_BIND_STATE = 2,    /* read and written by graphs: KV cache, counters */
	MEDUSA_BIND_INPUT = 3,    /* the engine writes it before a replay */
	MEDUSA_BIND_OUTPUT = 4    /* graphs write it, the engine reads it */
};

/* "constant", "state", "input" or "output"; never NULL. */
const char *medusa_role_name(enum medusa_role role);

/*
 * Binds the memory [address, address + bytes), on the device or page-locked on the host, under the name `name`. In
 * every start, an engine binds everything that it owns and that graphs read or write, before it asks for graphs. All
 * other memory that graphs use is private to the graphs, and a restore makes it anew. Names are unique. Binding a name
 * again moves the binding, until a graph that uses it was handed out; after that the call fails, and no graph with the
 * old address is handed out any more. A restore refuses graphs whose binding is missing or has another size. (MEDUSA,
 * section 4.)
 *
 * A binding is a range of addresses: memory that is mapped there later (by an engine that suspends and resumes) is
 * bound, too; freed memory is not. Memory that others reach as well (another process, the host as in managed memory,
 * the engine by a second address) is never private: it must be bound, or graphs that use it are refused.
 *
 * An engine that binds nothing is bound by sequence: in the capture and in every start, all memory that it has
 * allocated on the device before it first calls medusa_graph_get is matched by order, size, and how addresses compare
 * (allocators take the lowest of equal blocks). Memory that was freed before that call counts in the order, but is not
 * bound; memory that a profiling forward of medusa_kv_capacity allocates does not count. At the first allocation that
 * differs the whole artifact is refused. These bindings are called "@allocation.N"; no other name may begin with '@'.
 *
 * Unbound memory that graphs use belongs to the graphs alone: a restored graph has other memory in its place. Therefore
 * bind memory to which addresses in bound memory lead (a table of pointers). Memory that kernels or copies outside of
 * graphs use as well, after the graphs are made (scratch memory, the workspace of a library's handle, a table), must be
 * bound, or be a declared output (medusa_graph_output); a capture refuses graphs for which it sees other uses.
 */
int medusa_bind(const char *name, medusa_deviceptr address, size_t bytes, enum medusa_role role);

/*
 * Contents that warm-up leaves in unbound memory are saved with the graphs that need them, as they were in the capture.
 * They may have been made from the weights (packed, transposed or quantized copies). A graph with such contents is
 * therefore handed out only if everything that is bound as MEDUSA_BIND_CONSTANT has the hash that it had in the
 * capture. Contents that were made from anything else (buffers of other roles, host memory, configuration) must be the
 * same in every start; otherwise bind that memory, or state its source with medusa_fingerprint_add. For an engine that
 * binds nothing, all memory that is bound by sequence is hashed when it first calls medusa_graph_get: its weights must
 * be loaded by then.
 */

/*
 * Graphs that pass values to each other in unbound memory (pieces of a model, with the hidden state between them) are
 * one group: either all of them use Medusa's copy of that memory, or all of them use the engine's. Therefore they are
 * restored together or not at all: medusa_graph_get waits until all graphs of a group are ready, and fails for all of
 * them if it fails for one. An engine asks for all of them, and captures live those that it does not get. It labels the
 * graphs that it captures, because the other graphs of their group are not handed out from then on. Each graph must be
 * launched after another one has written what it reads; state that a graph passes to its own next replay must be bound.
 */

/*
 * States a fact about the engine, beyond device and driver: "torch" = "2.11.0+cu130", "model" = a hash of its code. A
 * capture records the facts. A restore hands out no graph unless all recorded facts, and no others, have been stated
 * again with the same values. Another value refuses the whole artifact at once (MEDUSA_ERR_MISMATCH), and so does
 * asking for a graph before all facts were stated. Graphs that were made are then freed, except for those that were
 * handed out already, which stay until medusa_release. Names are unique; a name that is stated again gets the new
 * value. State all facts before binding. The call needs no context.
 *
 * An engine that states facts must state everything that its graphs depend on and that bindings do not show. An engine
 * that states none must have the same arguments as in the capture (medusa-capture --vary names those that may differ).
 */
int medusa_fingerprint_add(const char *name, const char *value);

/*
 * Takes the restored graph (label, batch): *exec (a CUgraphExec) is instantiated, uploaded and ready to launch, and
 * belongs to Medusa (do not destroy it; medusa_release does). Waits up to timeout_ns (UINT64_MAX: without a limit).
 * Fails when nothing is restored: the engine then captures as before, and calls medusa_graph_label. In a capture or
 * verify run the call always fails with MEDUSA_ERR_NOT_FOUND. The call also fails while a limit of the context
 * (cuCtxSetLimit: stack, heap and others) is lower than in the capture: an engine must set its limits before it asks
 * for graphs, and not in its warm-up.
 *
 * The first call for a graph with contents that may be made from the weights waits for the context (cuCtxSynchronize)
 * and hashes all constant bindings, in one pass at the speed of the device's memory. The engine must have submitted all
 * work that writes its weights before that call. No stream capture may be in progress (MEDUSA_ERR_TIMEOUT: ask again,
 * or capture live). A buffer that is bound again is hashed again.
 */
int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec);

/* 1 if medusa_graph_get would return a graph at once (all graphs of its group are ready), else 0. Never waits. */
int medusa_graph_ready(const char *label, unsigned batch);

/* Names batch sizes to restore first, in this order. Optional; the default order ascends. Call it before binding. */
int medusa_graph_want(const char *label, const unsigned *batches, size_t count);

/*
 * Names a graph that the engine has captured and instantiated itself. In a restore, the other graphs of its group are
 * not handed out from then on; the call fails with MEDUSA_ERR_MISMATCH if one of them was handed out before, because
 * its values do not reach this graph. Here and in the three functions below, exec may be NULL: the graph that this
 * thread instantiated last (a framework may not show its handle). Call the three functions before the graph is
 * labelled.
 */
int medusa_graph_label(void *exec, const char *label, unsigned batch);

/*
 * Declares the device memory [address, address + bytes) as output `index` (0, 1, 2 ...) of a graph: the engine reads
 * it after a replay. For outputs in unbound memory, such as a framework's graph memory pool; a restored graph has its
 * outputs at other addresses (medusa_graph_output_get).
 */
int medusa_graph_output(void *exec, unsigned index, medusa_deviceptr address, size_t bytes);

/* Stores up to 64 KiB of the engine's own data with a graph, such as shapes and types of its outputs. */
int medusa_graph_note(void *exec, const void *data, size_t bytes);

/*
 * Says that a graph must not be materialized, and why, in one sentence: for graphs that depend on state which no
 * restore could give back. A capture leaves the graph out by name; a verification reports it as failed. In a
 * verification the function may also be called later, for a graph that the engine has launched and found wrong.
 */
int medusa_graph_refuse(void *exec, const char *why);

/*
 * Returns the place of output `index` of a graph that medusa_graph_get has handed out. Valid until medusa_release.
 * Graphs share their private memory as they did in the capture: a replay of one graph may overwrite the outputs of
 * another.
 */
int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, medusa_deviceptr *address,
			    size_t *bytes);

/*
 * Says that from now on only graphs use the device memory [address, address + bytes): free blocks of a pool from which
 * nothing but stream captures allocates. No other code uses an address in it. The statement ends when a stream
 * capture begins in the process, as a capture may allocate there, and when the memory is freed; state it again
 * afterwards. It is for kernels outside of graphs whose struct parameters have members that nobody sets, which may hold
 * an old address in such memory: a capture does not refuse graphs for these words, and says so in the artifact. A
 * pointer that is a parameter of its own, a copy and a set still refuse them. In a restore the call does nothing.
 */
int medusa_graph_scratch(medusa_deviceptr address, size_t bytes);

/*
 * States that the contents of the device memory [address, address + bytes) are not needed: when medusa-swap takes the
 * engine's memory away, these bytes are not saved, and when the memory comes back, they are zero. Later writes there may
 * be lost as well, until medusa_swap_needed is called for the memory, or it is freed and allocated again. medusa-swap
 * works with blocks of 2 MiB: a block of which any byte is needed is saved whole. Without medusa-swap both calls do
 * nothing.
 */
int medusa_swap_discardable(medusa_deviceptr address, size_t bytes);
/* States that the contents of [address, address + bytes) are needed from now on. Call it before the memory is written. */
int medusa_swap_needed(medusa_deviceptr address, size_t bytes);

/* Returns the note of a graph that was handed out; *bytes is 0 if there was none. Valid until medusa_release. */
int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes);

/*
 * Registers a function that makes the driver load kernels, for example by running the model's first layer once, for
 * artifacts that store no images. medusa_graph_get calls run(user), at most once, on its caller's thread; run returns 0
 * on success. (MEDUSA, section 5.)
 */
int medusa_trigger(const char *name, int (*run)(void *user), void *user);

/*
 * Reports a named moment of the start ("ready"): medusa-capture --until mark=NAME ends recording there. By the mark
 * "complete" an engine says that it has made all its graphs and has launched them on inputs that vary, so that a capture
 * or a verification need not see more: unless --until says otherwise, both end there and tell the command to end, which
 * a server does not do by itself. No harm is done if the engine is killed after that.
 */
int medusa_mark(const char *name);

/* Reports the time of one stage of the start: "weights", "kv", "warmup", "capture" ... */
int medusa_stage(const char *name, uint64_t ns);

struct medusa_kv_request {
	size_t size;                /* sizeof(struct medusa_kv_request) */
	const char *key;            /* the engine's fingerprint of its own configuration: model, shapes, batch limits */
	uint64_t block_bytes;       /* one KV block over all layers */
	double utilization;         /* part of the device's memory that the engine may use, 0..1 */
	int (*profile)(void *user); /* runs one profiling forward at the largest shape; 0 on success */
	void *user;
	const uint64_t *most; /* NULL, or what the engine measures itself in profile(), bytes: the answer is no more */
};

struct medusa_kv {
	size_t size;      /* sizeof(struct medusa_kv), set by the caller */
	uint64_t bytes;   /* memory for the KV cache */
	uint64_t blocks;  /* bytes / block_bytes */
	int from_profile; /* 1: answered from the artifact, without running profile() */
	uint64_t ns;      /* time taken */
};

/*
 * Says how much memory the KV cache may have. In a restore the artifact answers at once, if the fingerprint, the facts
 * stated so far and the key match, and cache, peak and graphs fit: up to half of what they left over in the capture may
 * be taken by others now (medusa_reason() has the numbers then). Otherwise (medusa_reason() says why), and without
 * Medusa, the profiling forward is run. Call the function after the weights are loaded and before the KV cache is
 * allocated. (MEDUSA, section 6.)
 *
 * An engine must give its cache the size in the answer: a restore refuses graphs whose bindings have other sizes. An
 * engine that also measures by itself therefore states through request->most how much it would take. The number is read
 * after profile() has run; the smaller one of the two is answered and stored, in whole blocks.
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
	uint64_t image_bytes;    /* bytes of the images that Medusa loaded */
	uint64_t heap_ns;        /* preparing host memory that the driver will need, before the graphs or with them */
	uint64_t constants_ns;   /* hashing constant bindings from which contents may be made, in medusa_graph_get */
};

/* Fills *out with what has been restored so far. MEDUSA_ERR_NOT_FOUND outside of a restore. */
int medusa_stats_read(struct medusa_stats *out);

/*
 * Destroys the restored graphs and frees their memory, including outputs and notes; the caller must have stopped
 * launching them. Nothing is restored after that. In a capture the call does nothing. In a verification, graphs that
 * are labelled or launched afterwards are not compared; a graph that was not compared each time is not published
 * (medusa-capture) or is skipped (medusa-verify), with that reason. Call it when the engine needs no graph any more.
 */
void medusa_release(void);

#ifdef __cplusplus
}
#endif

#endif
