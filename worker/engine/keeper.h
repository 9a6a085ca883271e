/* SPDX-License-Identifier: Apache-2.0 */
/* A process that outlives the daemon by a moment, and kills the process groups that the daemon has left behind. */
#ifndef MD_WORKER_ENGINE_KEEPER_H
#define MD_WORKER_ENGINE_KEEPER_H

#include <sys/types.h>

struct md_engine_keeper;

/*
 * Forks; call it while the process has one thread. When the daemon ends in whatever way, SIGKILL included, a pipe to the
 * keeper closes, and the keeper sends SIGKILL to the groups that were added and not removed, so grandchildren that stay in
 * their engine's group end, too. NULL: errno says why there is no keeper.
 */
struct md_engine_keeper *md_engine_keeper_create(void);
/* The keeper kills what is left, and has ended on return. NULL is fine. */
void md_engine_keeper_destroy(struct md_engine_keeper *keeper);

/* NULL is fine. add: call it before the group has done anything that must not stay. */
void md_engine_keeper_add(struct md_engine_keeper *keeper, pid_t group);
void md_engine_keeper_remove(struct md_engine_keeper *keeper, pid_t group);

#endif
