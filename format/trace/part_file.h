/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a trace is written to, PATH.part until it is complete: locked by its process, checked before writes. */
#ifndef MD_FORMAT_TRACE_PART_FILE_H
#define MD_FORMAT_TRACE_PART_FILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/descriptor.h"
#include "base/status.h"

struct md_trace_part {
	struct md_descriptor file;
	char *path; /* owned; PATH.part */
};

#define MD_TRACE_PART_NONE ((struct md_trace_part){.file = MD_DESCRIPTOR_NONE})

/*
 * Opens PATH.part (O_CREAT in flags makes it if it is not there), which only its owner may read (0600); it is neither
 * locked nor emptied. A symbolic link is not followed. MD_ERR_IO says why it cannot be opened.
 */
enum md_status md_trace_part_open(const char *path, int flags, struct md_trace_part *out, struct md_error *err);
/*
 * Makes an open file its owner's alone (0600), also one that was there before. Not when root has made it for everybody
 * (0666), as medusa-capture does for an engine that gives up its rights, under a name that nobody can guess; nor a file
 * of another user. False and errno if its mode cannot be changed.
 */
bool md_trace_part_restrict(int fd);
/*
 * A lock of this process alone, not of its children. It ends with the process, or when anything in the process closes
 * the file. False when another process has it: *holder is its number, or 0 if it is on another machine. True where
 * files cannot be locked (devices, some network file systems).
 */
bool md_trace_part_lock(const struct md_trace_part *part, pid_t *holder);
/* True if another process has locked a file at this path. */
bool md_trace_part_is_held(const char *path, pid_t *holder);
/*
 * Called before each batch of writes: checks that the descriptor still stands for our file. If the engine has closed
 * it, the file is opened and locked again, and writing goes on at its end; if that fails, MD_ERR_IO says why.
 */
enum md_status md_trace_part_check(struct md_trace_part *part, struct md_error *err);
/* Closes it, unless the descriptor is not ours any more. */
void md_trace_part_close(struct md_trace_part *part);

#endif
