/* SPDX-License-Identifier: Apache-2.0 */
/* Where kernels come from: modules and libraries that the process has loaded, and images of the artifact. */
#ifndef MD_RESTORE_KERNEL_SOURCES_H
#define MD_RESTORE_KERNEL_SOURCES_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "driver/cuda_driver.h"
#include "format/artifact/artifact.h"

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
	void *home;      /* module or library of the process in which it was found; NULL: in ours */
	bool of_library; /* it is handed memory of a communication library */
	struct md_error reason;
};

#endif
