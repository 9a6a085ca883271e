/* SPDX-License-Identifier: Apache-2.0 */
/* Fills md_cuda with the real entry points of libcuda.so.1. */
#include "driver/cuda_driver.h"
#include "driver/cuda_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/environment.h"

struct md_cuda md_cuda;
struct md_cuda md_cuda_real;

/*
 * driver/interpose.c defines it; it is linked into preloaded libraries only. These export the very names that are
 * looked up here, and must not find themselves. Elsewhere it is NULL, and plain dlsym is right, because it finds the
 * hooks of a preloaded library.
 */
extern void *md_interpose_real_dlsym(void *handle, const char *name) __attribute__((weak));
extern void md_interpose_check_order(void) __attribute__((weak));

enum need { REQUIRED, OPTIONAL };

static const struct entry {
	const char *symbol;
	size_t slot;
	enum need need;
} entries[] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args)                                                \
	{#symbol, offsetof(struct md_cuda, symbol), need},
#include "driver/cuda_api.def"
};

static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool published;
static struct md_error outcome;

static void renew(void)
{
	pthread_mutex_init(&publish_lock, NULL);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

static const char *library_name(void)
{
	const char *name = md_environment_get("MEDUSA_LIBCUDA");
	return name && *name ? name : "libcuda.so.1";
}

static void *look_up(void *library, const char *symbol)
{
	return md_interpose_real_dlsym ? md_interpose_real_dlsym(library, symbol) : dlsym(library, symbol);
}

/* Fills the table even when something required is missing, because hooks must still pass calls on. */
static void fill(void *library, struct md_cuda *table, struct md_error *error)
{
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *address = look_up(library, entries[i].symbol);
		if (!address && entries[i].need == REQUIRED && error->status == MD_OK)
			md_error_set(error, MD_ERR_DRIVER_MISSING,
				     "%s has no %s: a driver for CUDA 12.4 (version 550) or later is needed",
				     library_name(), entries[i].symbol);
		memcpy((char *)table + entries[i].slot, &address, sizeof(address));
	}
}

/*
 * Takes no lock while the dynamic linker works: a constructor that runs under the linker's lock may be waiting for this
 * very table. Threads that come at the same time each look up the same addresses, and the first one to finish publishes
 * them.
 */
static void load(void)
{
	struct md_error error = {0};
	struct md_cuda table;
	void *library = dlopen(library_name(), RTLD_NOW);
	bool first = false;
	memset(&table, 0, sizeof(table));
	if (library) {
		fill(library, &table, &error);
		dlerror(); /* the program need not hear of missing optional entry points */
	} else {
		const char *reason = dlerror();
		md_error_set(&error, MD_ERR_DRIVER_MISSING, "cannot load the CUDA driver library: %s",
			     reason ? reason : library_name());
	}
	md_child_check();
	pthread_mutex_lock(&publish_lock);
	if (!atomic_load_explicit(&published, memory_order_relaxed)) {
		first = true;
		md_cuda_real = table;
		if (md_cuda_layer)
			md_cuda_layer(&table);
		md_cuda = table;
		outcome = error;
		atomic_store_explicit(&published, true, memory_order_release);
	}
	pthread_mutex_unlock(&publish_lock);
	if (first && md_interpose_check_order)
		md_interpose_check_order();
}

enum md_status md_cuda_load(struct md_error *err)
{
	if (!atomic_load_explicit(&published, memory_order_acquire))
		load();
	if (outcome.status != MD_OK)
		md_error_set(err, outcome.status, "%s", outcome.message);
	return outcome.status;
}

bool md_cuda_present(void)
{
	void *library;
	if (atomic_load_explicit(&published, memory_order_acquire) && md_cuda.cuInit)
		return true;
	library = dlopen(library_name(), RTLD_NOW | RTLD_NOLOAD);
	if (library)
		dlclose(library);
	else
		dlerror();
	return library != NULL;
}
