/* SPDX-License-Identifier: Apache-2.0 */
/* A file for each engine that runs, for the daemon that comes after this one: which process it is, and in which state. */
#ifndef MD_WORKER_ENGINE_ADOPT_RECORD_H
#define MD_WORKER_ENGINE_ADOPT_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/status.h"

/* Texts have no control characters. */
struct md_adopt_record {
	char model[512];                  /* its ID */
	pid_t pid;                        /* of its first process, which leads its process group */
	uint64_t began;                   /* md_process_began */
	char boot[64];                    /* md_process_boot */
	char command[MD_HASH_TEXT_BYTES]; /* hash of all that it was made from */
	char mark[48];                    /* of MD_ENGINE_MARK in its environment; "": a template has forked it */
	char template[108];               /* of MD_ENGINE_TEMPLATE_SOCKET there, if a template has forked it; else "" */
	char swap_name[49];               /* for medusa-swap; "": its memory is not taken away */
	char state[16];                   /* md_engine_state_name */
	uint32_t gpu;                     /* index in the configuration */
	char gpu_uuid[128];               /* "": the configuration names none */
	char cgroup[4096];                /* path of its cgroup; "": none, and the file does not say it */
};

/* Whether a name in the folder is that of a record. */
bool md_adopt_record_is_name(const char *name);
/* Writes the record of this process, in place of an earlier one. A reader finds the old one or the new one. */
enum md_status md_adopt_record_write(const char *folder, const struct md_adopt_record *record, struct md_error *err);
void md_adopt_record_remove(const char *folder, pid_t pid); /* with its adapters */
/* The message of an error names the file, and what is wrong in it. */
enum md_status md_adopt_record_read(const char *folder, const char *name, struct md_adopt_record *record,
				    struct md_error *err);
/*
 * Whether the process that it names is there, and is the one that was meant. *pidfd (md_process_open) is the caller's.
 * MD_ERR_NOT_FOUND: it has ended. MD_ERR_MISMATCH: the process of this ID is another one.
 */
enum md_status md_adopt_record_find(const struct md_adopt_record *record, int *pidfd, struct md_error *err);

#endif
