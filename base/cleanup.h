/* SPDX-License-Identifier: Apache-2.0 */
/* Cleanup attributes: what a scope owns is released when the scope ends, unless it was moved out (md_steal_ptr). */
#ifndef MD_BASE_CLEANUP_H
#define MD_BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void md_cleanup_free(void *slot)
{
	free(*(void **)slot);
}

static inline void md_cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void md_cleanup_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define MD_CLEANUP(function) __attribute__((cleanup(function)))
#define MD_AUTO_FREE MD_CLEANUP(md_cleanup_free)
#define MD_AUTO_FD MD_CLEANUP(md_cleanup_fd)
#define MD_AUTO_FILE MD_CLEANUP(md_cleanup_file)

/* Takes the pointer out of slot, leaving NULL: the cleanup attribute then has nothing to do. */
#define md_steal_ptr(slot)                                                                                             \
	({                                                                                                             \
		__typeof__(*(slot)) md_stolen_ = *(slot);                                                              \
		*(slot) = NULL;                                                                                        \
		md_stolen_;                                                                                            \
	})

/* The same for a descriptor, leaving -1. */
static inline int md_steal_fd(int *slot)
{
	int stolen = *slot;
	*slot = -1;
	return stolen;
}

#endif
