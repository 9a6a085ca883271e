/* SPDX-License-Identifier: Apache-2.0 */
/* The place where a command writes an output: checked before anything runs, locked, with a private folder. */
#ifndef MD_TOOLS_WORKPLACE_H
#define MD_TOOLS_WORKPLACE_H

#include <limits.h>

#include "base/status.h"

/*
 * Whether the artifact can be written later, and where it really is: *absolute is its path with links resolved. Folders that are
 * no bundle, devices and pipes, folders that cannot be written to, read-only and full file systems are MD_ERR_IO or
 * MD_ERR_INVALID, with the path and the reason. Nothing is made or changed.
 */
enum md_status md_output_check_artifact(const char *path, char absolute[PATH_MAX], struct md_error *err);

/* The same of a report that may go to a device or a pipe as well. */
enum md_status md_output_check_report(const char *path, struct md_error *err);

struct md_workplace {
	char output[PATH_MAX]; /* absolute */
	char folder[PATH_MAX]; /* private, beside the output or in TMPDIR; "" when there is none */
	char lock[PATH_MAX];   /* OUTPUT.lock, "" when there is none */
	char secret[20];       /* part of names that other users must not guess */
	int lock_fd;
};

/*
 * Takes OUTPUT.lock, which says who holds it, and makes a private folder beside the output. MD_ERR_BUSY names the
 * process that works on the output already. What a run that was killed has left is removed, with a word on stderr.
 */
enum md_status md_workplace_open(const char *output, struct md_workplace *out, struct md_error *err);
/* A private folder in TMPDIR (or /tmp), without output or lock. */
enum md_status md_workplace_open_temporary(struct md_workplace *out, struct md_error *err);
/*
 * Creates an empty file in the folder, and returns its path, so that an engine that has given up its rights can still
 * open it: for everybody who knows its name if this process is root's, otherwise for this user alone. A trace (.mtrace)
 * is created under the name that it has while it is written. The file is removed when the process is told to end, and
 * by md_workplace_close.
 */
enum md_status md_workplace_file(const struct md_workplace *workplace, const char *name, const char *suffix,
				 char path[PATH_MAX], struct md_error *err);
/* Empties the same file for another run. */
enum md_status md_workplace_renew(const char *path, const char *suffix, struct md_error *err);
/* Gives the same rights, for reading only, to a file of the folder that was written in another way. */
void md_workplace_share(const char *path);
/*
 * A folder inside of it, which everybody may read who knows its name; "" in path on failure. When it is published, it gets the
 * output's name; a bundle that has that name is replaced in one step, or, where the file system cannot do that, put
 * back if the new one cannot be put in its place.
 */
enum md_status md_workplace_folder(const struct md_workplace *workplace, const char *name, char path[PATH_MAX],
				   struct md_error *err);
enum md_status md_workplace_publish_folder(const struct md_workplace *workplace, const char *folder,
					   struct md_error *err);
/* Removes the folder with all that is in it, and the lock. */
void md_workplace_close(struct md_workplace *workplace);

#endif
