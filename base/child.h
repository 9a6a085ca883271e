/* SPDX-License-Identifier: Apache-2.0 */
/* A child that the engine forks: it has this process's memory, and none of the threads that hold Medusa's locks. */
#ifndef MD_BASE_CHILD_H
#define MD_BASE_CHILD_H

struct md_child_renewal {
	void (*renew)(void);
	struct md_child_renewal *next; /* next in the list of registered renewals */
};

/*
 * Registers a renewal; called when a library is loaded. In each child, renew is called before the child takes one of
 * Medusa's locks; it makes the locks anew and ends what the child cannot continue. renew takes no lock, allocates no
 * memory and logs nothing. The struct must outlive the process.
 */
void md_child_register(struct md_child_renewal *renewal);

/*
 * Called before a lock is taken. After fork() the renewals have run already; a child that was made by a system call
 * (clone) is noticed here, at the cost of a few instructions. A child of vfork() shares its parent's memory, where the
 * holder of a lock still runs, so it does not count as a copy.
 */
void md_child_check(void);

#endif
