/* SPDX-License-Identifier: Apache-2.0 */
/* Injected faults: HOSTCUDA_FAULT=cuMemCreate:3:OUT_OF_MEMORY,cuX:*:ERR,@libfoo.so:17:ERR,cuX/thread:*:SLOW makes calls fail. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "hostcuda/device_state.h"

/*
 * A fault names the entry point: by symbol, with its version suffix, or by the name that cuGetProcAddress is asked for.
 * With @ it names the calling object instead, and counts all calls of that object, except those that it only forwards:
 * an export of the object with the entry point's name calls for somebody else. /THREAD after either name means calls of
 * the threads of this name alone.
 */
struct fault {
	char name[96];
	char thread[16];  /* as prctl(2) names it; empty: every thread */
	unsigned long at; /* 0: every call */
	unsigned long seen;
	CUresult result; /* CUDA_SUCCESS: the call is made, but takes SLOW_NS longer */
};

#define SLOW_NS 20000000
#define MAX_FAULTS 16
static struct fault faults[MAX_FAULTS];
static size_t fault_count;
static bool callers_matter;
static const char *lost_file; /* HOSTCUDA_LOST; NULL: devices are not lost */
static bool lost;
static char program[4096]; /* the loader knows it by argv[0] only, which may be anything */
static pthread_once_t faults_once = PTHREAD_ONCE_INIT;

static bool parse_error(const char *text, CUresult *result)
{
	*result = CUDA_SUCCESS;
	if (!strcmp(text, "SLOW"))
		return true;
	for (int code = 1; code < 1000; code++) {
		const char *name;
		if (hc_cuGetErrorName((CUresult)code, &name) != CUDA_SUCCESS)
			continue;
		if (!strcmp(name, text) || (!strncmp(name, "CUDA_ERROR_", 11) && !strcmp(name + 11, text))) {
			*result = (CUresult)code;
			return true;
		}
	}
	return false;
}

static void parse_fault(char *text)
{
	struct fault *fault = &faults[fault_count];
	char *at = strchr(text, ':'), *error = at ? strchr(at + 1, ':') : NULL;
	if (!error || fault_count == MAX_FAULTS) {
		fprintf(stderr, "hostcuda: HOSTCUDA_FAULT: '%s' is not NAME:CALL:ERROR, or one too many\n", text);
		return;
	}
	*at++ = *error++ = '\0';
	if (!parse_error(error, &fault->result) || (strcmp(at, "*") && !strtoul(at, NULL, 10))) {
		fprintf(stderr, "hostcuda: HOSTCUDA_FAULT: bad call number '%s' or error '%s' for %s\n", at, error,
			text);
		return;
	}
	fault->at = strcmp(at, "*") ? strtoul(at, NULL, 10) : 0;
	char *thread = strchr(text, '/');
	snprintf(fault->thread, sizeof(fault->thread), "%s", thread ? thread + 1 : "");
	if (thread)
		*thread = '\0';
	snprintf(fault->name, sizeof(fault->name), "%s", text);
	callers_matter |= *text == '@';
	fault_count++;
}

static void parse_faults(void)
{
	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		*program = '\0';
	lost_file = secure_getenv("HOSTCUDA_LOST");
	const char *setting = secure_getenv("HOSTCUDA_FAULT");
	char *copy = setting ? strdup(setting) : NULL, *rest = NULL;
	for (char *item = copy ? strtok_r(copy, ",", &rest) : NULL; item; item = strtok_r(NULL, ",", &rest))
		parse_fault(item);
	free(copy);
}

/* The file name of the calling object, or NULL if it only forwards the call. */
static const char *calling_object(const char *symbol, const void *caller)
{
	Dl_info info;
	struct link_map *map = NULL;
	if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) ||
	    (info.dli_sname && !strcmp(info.dli_sname, symbol)))
		return NULL;
	const char *path = map && *map->l_name ? map->l_name : program;
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_meant(const struct fault *fault, const char *symbol, const char *base, const char *object)
{
	char thread[16];
	if (*fault->thread && (prctl(PR_GET_NAME, thread) != 0 || strcmp(fault->thread, thread) != 0))
		return false;
	if (*fault->name == '@')
		return object && !strcmp(fault->name + 1, object);
	return !strcmp(fault->name, symbol) || !strcmp(fault->name, base);
}

/* Says which call failed: a user who makes calls fail by number needs to know which call that was, and that it came. */
static void say(const struct fault *fault, const char *symbol)
{
	const char *name = "";
	hc_cuGetErrorName(fault->result, &name);
	fprintf(stderr, "hostcuda: call %lu of %s is %s: %s\n", fault->at, fault->name + (*fault->name == '@'), symbol,
		name);
}

/* A process that has lost the device once does not get it back, as with a GPU that has fallen off the bus. */
static bool is_lost(void)
{
	if (lost_file && !__atomic_load_n(&lost, __ATOMIC_RELAXED) && !access(lost_file, F_OK))
		__atomic_store_n(&lost, true, __ATOMIC_RELAXED);
	return __atomic_load_n(&lost, __ATOMIC_RELAXED);
}

CUresult hc_fault_due(const char *symbol, const char *base, const void *caller)
{
	pthread_once(&faults_once, parse_faults);
	if (is_lost())
		return CUDA_ERROR_UNKNOWN;
	const char *object = callers_matter ? calling_object(symbol, caller) : NULL;
	for (size_t i = 0; i < fault_count; i++) {
		if (!is_meant(&faults[i], symbol, base, object))
			continue;
		unsigned long seen = __atomic_add_fetch(&faults[i].seen, 1, __ATOMIC_RELAXED);
		if (faults[i].at && faults[i].at != seen)
			continue;
		if (faults[i].at)
			say(&faults[i], symbol);
		if (faults[i].result == CUDA_SUCCESS)
			nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
		return faults[i].result;
	}
	return CUDA_SUCCESS;
}
