/* SPDX-License-Identifier: Apache-2.0 */
/* A process that the engine makes as a copy of this one: it has our memory, and none of the threads that hold our locks. */
#ifndef MD_BASE_CHILD_H
#define MD_BASE_CHILD_H

struct md_child_renewal {
	void (*renew)(void);
	struct md_child_renewal *next; /* the registry's */
};

/*
 * Said when a library is loaded: renew is called in each child before a lock of ours is taken there, to make the locks
 * anew and to end what the child cannot go on with. It takes no lock and no memory, and logs nothing. The renewal stays
 * where it is.
 */
void md_child_register(struct md_child_renewal *renewal);

/*
 * fork() tells by itself; a child that was made by a system call is noticed here, in a few instructions. Called before
 * a lock is taken. A child of vfork() shares our memory, where the holder of a lock is still at work: it is no copy.
 */
void md_child_check(void);

#endif
