/* SPDX-License-Identifier: Apache-2.0 */
/* Where the cgroup of a process lies in the file system, and what a folder for a model in it is called. */
#ifndef MD_WORKER_ENGINE_CGROUP_PLACE_H
#define MD_WORKER_ENGINE_CGROUP_PLACE_H

#include <limits.h>
#include <stddef.h>

#include "base/status.h"

#define MD_CGROUP_LEAF "medusa-daemon" /* DelegateSubgroup= of the unit: beside it the engines have theirs */
#define MD_CGROUP_NAME_BYTES 128       /* of a folder's name, with its NUL */

/*
 * The folder of a process's cgroup of version 2. cgroups: the text of /proc/PID/cgroup; mounts: that of
 * /proc/self/mountinfo. Refused if there is none, or none that this process can see or write to.
 */
enum md_status md_cgroup_place(const char *cgroups, const char *mounts, char path[PATH_MAX], struct md_error *err);
/*
 * A name that no other folder has: "medusa-", the tag of the daemon, what file names may have of the model's ID, and a
 * number. All of a daemon begin with md_cgroup_name_prefix.
 */
void md_cgroup_name(const char *tag, const char *model, unsigned long long number, char name[MD_CGROUP_NAME_BYTES]);
size_t md_cgroup_name_prefix(const char *tag, char prefix[MD_CGROUP_NAME_BYTES]); /* its length */

#endif
