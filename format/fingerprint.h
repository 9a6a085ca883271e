/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts that must be equal for restored state to be right: the
 * device, the driver, and the libraries that chose the kernels.
 */
#ifndef MD_FORMAT_FINGERPRINT_H
#define MD_FORMAT_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arguments.h"
#include "base/status.h"

struct md_fingerprint_library {
	char *path;     /* owned; compared by file name and build_id, not by folder */
	char *build_id; /* owned, hex; "" when the object has none */
};

#define MD_FACT_NAME_MAX 256 /* bytes */
#define MD_FACT_VALUE_MAX 4096
#define MD_FACTS_MAX 1024

struct md_fingerprint_fact { /* a fact that the engine states (medusa_fingerprint_add) */
	char *name, *value;  /* owned */
};

/* Limits of the context, by CUlimit: stack, printf buffer, device heap, depth and pending number of device launches. */
#define MD_LIMITS 5

struct md_fingerprint {
	char device_name[256];
	int32_t compute_major, compute_minor;
	int32_t multiprocessors;
	uint64_t device_memory;                   /* bytes, cuDeviceTotalMem */
	int32_t driver_version;                   /* cuDriverGetVersion, e.g. 13000 */
	struct md_fingerprint_library *libraries; /* owned; the files that kernel images came from */
	uint32_t library_count;
	struct md_fingerprint_fact *facts; /* owned; ascending by name */
	uint32_t fact_count;
	/*
	 * The engine's command line (empty: not known), and patterns of arguments that may differ. Used only if the
	 * engine states no facts.
	 */
	struct md_argument_list arguments, vary;
	uint64_t limits[MD_LIMITS]; /* bytes or numbers: the highest limits with which graphs were made; 0: not known */
};

/* Reads device and driver facts of the current context's device. libraries stay empty. */
enum md_status md_fingerprint_read(struct md_fingerprint *out, struct md_error *err);
/* MD_ERR_MISMATCH with "device name: artifact has X, this machine Y" at the first difference of device or driver. */
enum md_status md_fingerprint_compare(const struct md_fingerprint *stored, const struct md_fingerprint *now,
				      struct md_error *err);

/* Keeps a copy of both. A name that is stated again gets the new value. Facts stay ascending by name. */
enum md_status md_fingerprint_set_fact(struct md_fingerprint *fingerprint, const char *name, const char *value,
				       struct md_error *err);
/* MD_ERR_MISMATCH at the first fact, by name, that one side lacks or that has another value; both ascend by name. */
enum md_status md_fingerprint_compare_facts(const struct md_fingerprint *stored, const struct md_fingerprint *now,
					    struct md_error *err);
/* For engines that state no facts: MD_ERR_MISMATCH at the first argument that differs and may not. */
enum md_status md_fingerprint_compare_arguments(const struct md_fingerprint *stored, const struct md_argument_list *now,
						struct md_error *err);

/* limits.c: reads the limits of the current context; a limit that the driver does not tell is 0. */
void md_limits_read(uint64_t limits[MD_LIMITS]);
/* Raises each limit to the other one, if that is greater. */
void md_limits_raise(uint64_t limits[MD_LIMITS], const uint64_t others[MD_LIMITS]);
/* MD_ERR_MISMATCH at the first limit that is lower now, or not known, with a remedy. */
enum md_status md_limits_compare(const uint64_t stored[MD_LIMITS], const uint64_t now[MD_LIMITS], struct md_error *err);
/* Compares with the current context, and asks the driver for no more than that takes. */
enum md_status md_limits_check(const uint64_t stored[MD_LIMITS], struct md_error *err);
/* "stack", and its key in files: "stack_limit". */
const char *md_limit_name(unsigned limit);
const char *md_limit_key(unsigned limit);

void md_fingerprint_finish(struct md_fingerprint *fingerprint);

#endif
