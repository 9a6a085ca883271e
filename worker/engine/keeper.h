/* SPDX-License-Identifier: Apache-2.0 */
/* A process that outlives the daemon: keeps its process groups for the next daemon, and kills them if none comes. */
#ifndef MD_WORKER_ENGINE_KEEPER_H
#define MD_WORKER_ENGINE_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MD_ENGINE_KEEPER_SOCKET "keeper" /* in its folder, beside "lock" */

struct md_engine_keeper;

/*
 * Asks the keeper that an earlier daemon has left in the folder `place`, which is made if need be; else forks one: call it
 * while the process has one thread. Of all daemons with this folder one has its keeper. When the daemon ends in whatever
 * way, SIGKILL included, the keeper sends SIGKILL to the groups that were added and not removed, at once or after the
 * time of md_engine_keeper_serves, so grandchildren that stay in their engine's group end, too. place NULL, or it can't be
 * had, which is logged: no other daemon can adopt them. NULL: errno says why there is no keeper.
 */
struct md_engine_keeper *md_engine_keeper_create(const char *place);
/*
 * The keeper of an earlier daemon lives and did not answer within 5 seconds, so the engines that it has are out of reach:
 * whoever starts others could have two daemons' engines on one GPU. *pid is its process ID; 0: not known. NULL is fine.
 */
bool md_engine_keeper_is_silent(const struct md_engine_keeper *keeper, pid_t *pid);
/* A descriptor that can be read when the keeper has ended; see md_engine_keeper_has_ended. */
int md_engine_keeper_line(const struct md_engine_keeper *keeper);
bool md_engine_keeper_has_ended(const struct md_engine_keeper *keeper);
/*
 * Forks another one in the place of one that has ended. It knows no group until md_engine_keeper_add says each again, and then
 * md_engine_keeper_serves_again what the last one was told. False: errno says why there is none.
 */
bool md_engine_keeper_renew(struct md_engine_keeper *keeper);
void md_engine_keeper_serves_again(struct md_engine_keeper *keeper);
/*
 * If the daemon has served (md_engine_keeper_serves), the keeper kills what is left, and has ended on return; else
 * groups stay for the next daemon, as they were found. NULL is fine.
 */
void md_engine_keeper_destroy(struct md_engine_keeper *keeper);

/* False: it has no folder, so engines can neither be adopted nor left to the next daemon. NULL is fine. */
bool md_engine_keeper_has_place(const struct md_engine_keeper *keeper);
/* No folder, because another daemon has it. NULL is fine. */
bool md_engine_keeper_is_taken(const struct md_engine_keeper *keeper);
/* From now on groups wait so long for the next daemon; engines of an earlier daemon that were not added are killed. */
void md_engine_keeper_serves(struct md_engine_keeper *keeper, uint64_t wait_ms);
/*
 * A group that begins, or that was found. Call it before the group has done anything that must not stay. helper: it ends by
 * itself, and is let go on whatever the next daemon adopts. NULL is fine.
 */
void md_engine_keeper_add(struct md_engine_keeper *keeper, pid_t group, bool helper);
/* The cgroup of a group that was added: all of it is killed with the group, and its folder is removed. NULL is fine. */
void md_engine_keeper_add_cgroup(struct md_engine_keeper *keeper, pid_t group, const char *path);
void md_engine_keeper_remove(struct md_engine_keeper *keeper, pid_t group);

#endif
