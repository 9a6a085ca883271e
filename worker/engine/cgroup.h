/* SPDX-License-Identifier: Apache-2.0 */
/* A cgroup for each engine: no process of it leaves that by itself, so all can be ended, and be seen to have ended. */
#ifndef MD_WORKER_ENGINE_CGROUP_H
#define MD_WORKER_ENGINE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct md_cgroups; /* where a daemon makes them */
struct md_cgroup;  /* of one engine */

/*
 * wanted: medusa.cgroup. "off": there are none; "auto": below the daemon's own cgroup, if it may make some there; else a
 * folder of cgroups that must be of use, or the message names it. *made NULL: there are none, and the log says why. place: the
 * folder of the keeper, which is what tells this daemon's cgroups from another one's; NULL: nobody else shall know them.
 */
enum md_status md_cgroups_create(const char *wanted, const char *place, struct md_cgroups **made, struct md_error *err);
void md_cgroups_destroy(struct md_cgroups *cgroups); /* those of engines stay; NULL is fine */
/* The folder, if it names one. forks: with a process of its own, which the caller may start while it has one thread. */
enum md_status md_cgroups_check(const char *wanted, bool forks, struct md_error *err);
/* Of an earlier daemon in this place, and this one's own; each is closed by the caller. `take` gets what it may keep. */
void md_cgroups_list(const struct md_cgroups *cgroups, void (*take)(void *context, struct md_cgroup *cgroup),
		     void *context);

struct md_cgroup *md_cgroup_create(struct md_cgroups *cgroups, const char *model, struct md_error *err);
/* The one at that path, in which the process must be, and which an earlier daemon has made. NULL: err says why not. */
struct md_cgroup *md_cgroup_open(const char *path, pid_t pid, struct md_error *err);
/* The one at that path if daemons of this place have made it, whoever is in it. NULL: err says why not. */
struct md_cgroup *md_cgroups_open(const struct md_cgroups *cgroups, const char *path, struct md_error *err);
bool md_cgroup_has(const struct md_cgroup *cgroup, pid_t pid); /* the process is in it, or in one below it */
const char *md_cgroup_path(const struct md_cgroup *cgroup);
int md_cgroup_folder(const struct md_cgroup *cgroup); /* for the calls of cgroup_folder.h */
void md_cgroup_close(struct md_cgroup *cgroup);       /* the folder stays; NULL is fine */
/* The same, and the folder is removed with those in it, if no process lives there; else that is said. */
void md_cgroup_remove(struct md_cgroup *cgroup);

#endif
