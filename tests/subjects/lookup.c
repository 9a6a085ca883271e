/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded or not: asks for every entry point in every way, and compares with what the loader underneath answers. */
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/cuda_driver.h"

/*
 * lookup LIBRARY|none: LIBRARY is the file name of what is preloaded. dlvsym is not interposed and leads past it. An
 * answer must be the one from underneath, except for hooked entry points, whose answer is LIBRARY's export of that
 * name. Prints each answer that is wrong; exits 1 then.
 */

enum hook { NONE, CAPTURE, RESTORE, BOTH, CORE };

static const struct entry {
	const char *symbol, *base;
	int version;
	unsigned flags; /* for cuGetProcAddress */
	enum hook hook;
} entries[] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) {#symbol, #base, version, 1, hook},
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args) {#symbol, #base, version, 2, hook},
#include "driver/cuda_api.def"
};
#define ENTRY_COUNT (sizeof(entries) / sizeof(entries[0]))

typedef void *dlsym_function(void *, const char *);
typedef CUresult lookup_function(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult old_lookup_function(const char *, void **, int, cuuint64_t);

static dlsym_function *under; /* the dlsym of the C library */
static void *driver, *preloaded;
static enum hook own; /* hooks of this kind, of both libraries and of the core are the preloaded library's */
static unsigned wrong, asked, swapped;

/* The question in progress: a driver that crashes on one names it. */
static char asking[256];

static void on_crash(int number)
{
	(void)!write(STDOUT_FILENO, asking, strlen(asking));
	_exit(128 + number);
}

static bool is_hooked(const struct entry *entry)
{
	return preloaded && (entry->hook == CORE || entry->hook == BOTH || entry->hook == own);
}

/* An entry point has the address of its export, and the one that cuGetProcAddress gives for its first version. */
static bool is_address_of(const struct entry *entry, void *real)
{
	lookup_function *look = (lookup_function *)under(driver, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;
	void *queried = NULL;
	if (under(driver, entry->symbol) == real)
		return true;
	return look && look(entry->base, &queried, entry->version, entry->flags, &status) == CUDA_SUCCESS &&
	       queried == real;
}

/* What the answer must be, given the one from underneath. */
static void *expected(void *real)
{
	for (size_t i = 0; driver && real && i < ENTRY_COUNT; i++)
		if (is_hooked(&entries[i]) && is_address_of(&entries[i], real)) {
			void *hook = under(preloaded, entries[i].symbol);
			if (hook)
				return hook;
			printf("%s is hooked, but not exported\n", entries[i].symbol);
			wrong++;
		}
	return real;
}

static bool lies_in(void *address, void *library)
{
	struct link_map *map;
	Dl_info info;
	return dladdr(address, &info) && !dlinfo(library, RTLD_DI_LINKMAP, &map) &&
	       !strcmp(info.dli_fname, map->l_name);
}

static void check(const char *way, const char *symbol, int version, unsigned flags, void *answer, void *real)
{
	void *want = expected(real);
	Dl_info info = {0};
	asked++;
	swapped += want != real;
	if (driver && preloaded && real && lies_in(real, preloaded)) {
		wrong++;
		printf("%s(%s, %d, %u): the driver itself hands out a hook; is it linked with -Bsymbolic?\n", way,
		       symbol, version, flags);
	}
	if (answer == want)
		return;
	wrong++;
	if (answer)
		dladdr(answer, &info);
	printf("%s(%s, %d, %u): %p (%s %s), not %p; underneath %p\n", way, symbol, version, flags, answer,
	       info.dli_fname ? info.dli_fname : "-", info.dli_sname ? info.dli_sname : "-", want, real);
}

static void check_same(const char *what, const char *symbol, long long got, long long want)
{
	if (got == want)
		return;
	wrong++;
	printf("%s of %s: %lld, not %lld\n", what, symbol, got, want);
}

/* ---- before the driver is there ---- */

static void check_without_driver(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cuInit", "cuNothing", "puts",
					    "no_such"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *answer, *real = strcmp(names[i], "puts") ? NULL : under(RTLD_DEFAULT, names[i]);
		dlerror();
		answer = dlsym(RTLD_DEFAULT, names[i]);
		check_same("dlerror after a failed dlsym", names[i], dlerror() != NULL, real == NULL);
		check("dlsym without a driver", names[i], 0, 0, answer, real);
	}
	if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
		wrong++;
		printf("looking for names has loaded the driver\n");
	}
}

static void check_other_names(void)
{
	static const char *const names[] = {"malloc", "getppid", "cuda_nothing", "c", "cu", ""};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		check("dlsym(RTLD_NEXT)", names[i], 0, 0, dlsym(RTLD_NEXT, names[i]), under(RTLD_NEXT, names[i]));
		check("dlsym(RTLD_DEFAULT)", names[i], 0, 0, dlsym(RTLD_DEFAULT, names[i]),
		      under(RTLD_DEFAULT, names[i]));
	}
}

/* ---- with the driver ---- */

static void check_exports(void)
{
	for (size_t i = 0; i < ENTRY_COUNT; i++) {
		void *answer, *real = under(driver, entries[i].symbol);
		dlerror();
		answer = dlsym(driver, entries[i].symbol);
		check_same("dlerror after dlsym", entries[i].symbol, dlerror() != NULL, real == NULL);
		check("dlsym", entries[i].symbol, 0, 0, answer, real);
		if (strcmp(entries[i].symbol, entries[i].base))
			check("dlsym", entries[i].base, 0, 0, dlsym(driver, entries[i].base),
			      under(driver, entries[i].base));
	}
}

static void check_query(const char *name, int version, unsigned flags, lookup_function *look,
			lookup_function *real_look)
{
	CUdriverProcAddressQueryResult status = 99, real_status = 99;
	void *answer = NULL, *real = NULL;
	snprintf(asking, sizeof(asking), "crashed on cuGetProcAddress_v2(%s, %d, %u)\n", name, version, flags);
	CUresult result = look(name, &answer, version, flags, &status);
	CUresult real_result = real_look(name, &real, version, flags, &real_status);

	check("cuGetProcAddress_v2", name, version, flags, answer, real);
	check_same("result", name, result, real_result);
	check_same("symbol status", name, status, real_status);
}

static void check_old_query(const char *name, int version, unsigned flags, old_lookup_function *look,
			    old_lookup_function *real_look)
{
	void *answer = NULL, *real = NULL;
	snprintf(asking, sizeof(asking), "crashed on cuGetProcAddress(%s, %d, %u)\n", name, version, flags);
	CUresult result = look(name, &answer, version, flags);

	check_same("result", name, result, real_look(name, &real, version, flags));
	check("cuGetProcAddress", name, version, flags, answer, real);
}

/* The list's versions: asked for the first version of an entry point, the driver must not hand out another export. */
static void check_version(const struct entry *entry, lookup_function *real_look)
{
	CUdriverProcAddressQueryResult status;
	void *queried = NULL, *real = under(driver, entry->symbol);
	Dl_info info;
	snprintf(asking, sizeof(asking), "crashed on the first version of %s\n", entry->symbol);
	if (!real || real_look(entry->base, &queried, entry->version, entry->flags, &status) || !queried ||
	    queried == real || !dladdr(queried, &info) || !info.dli_sname || info.dli_saddr != queried)
		return;
	wrong++;
	printf("cuGetProcAddress_v2(%s, %d, %u) gives %s, not %s\n", entry->base, entry->version, entry->flags,
	       info.dli_sname, entry->symbol);
}

static void check_queries(void)
{
	static const int versions[] = {2000,  3020,  4000,  7000,  8000,  9000,  10000, 10020, 11000, 11020,
				       11030, 11040, 11060, 12000, 12030, 12040, 12050, 12080, 13000, 99000};
	lookup_function *look = (lookup_function *)dlsym(driver, "cuGetProcAddress_v2");
	lookup_function *real_look = (lookup_function *)under(driver, "cuGetProcAddress_v2");
	old_lookup_function *old = (old_lookup_function *)dlsym(driver, "cuGetProcAddress");
	old_lookup_function *real_old = (old_lookup_function *)under(driver, "cuGetProcAddress");
	if (!real_look)
		return;
	for (size_t i = 0; i < ENTRY_COUNT; i++) {
		for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++)
			for (unsigned flags = 0; flags <= 2; flags++) {
				check_query(entries[i].base, versions[v], flags, look, real_look);
				if (real_old)
					check_old_query(entries[i].base, versions[v], flags, old, real_old);
			}
		check_query(entries[i].symbol, 13000, 0, look, real_look);
		check_version(&entries[i], real_look);
	}
	check_query("cuNothing", 12000, 0, look, real_look);
}

int main(int argc, char *argv[])
{
	static const char *const tags[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	struct md_error err = {0};
	for (size_t i = 0; !under && i < sizeof(tags) / sizeof(tags[0]); i++)
		under = (dlsym_function *)dlvsym(RTLD_DEFAULT, "dlsym", tags[i]);
	if (argc != 2 || !under)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0); /* what was wrong before a crash must be seen too */
	signal(SIGSEGV, on_crash);
	if (strcmp(argv[1], "none")) {
		preloaded = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
		own = strstr(argv[1], "capture") ? CAPTURE : RESTORE;
		check_same("preload", argv[1], preloaded != NULL, 1);
		check_same("interposed dlsym", argv[1], (dlsym_function *)dlsym != under, 1);
	}
	check_without_driver();
	check_other_names();
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		printf("%s\n", dlerror());
		return 2;
	}
	check_other_names();
	snprintf(asking, sizeof(asking), "crashed on dlsym\n");
	check_exports();
	snprintf(asking, sizeof(asking), "crashed in cuInit\n");
	check_same("cuInit", "libcuda.so.1", ((CUresult(*)(unsigned))under(driver, "cuInit"))(0), CUDA_SUCCESS);
	check_queries();
	check_same("md_cuda_load", "libcuda.so.1", md_cuda_load(&err), MD_OK);
	check("the program's own table", "cuMemAlloc_v2", 0, 0, (void *)md_cuda.cuMemAlloc_v2,
	      under(driver, "cuMemAlloc_v2"));
	printf("%u asked, %u swapped, %u wrong\n", asked, swapped, wrong);
	return wrong || (preloaded && !swapped);
}
