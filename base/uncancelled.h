/* SPDX-License-Identifier: Apache-2.0 */
/* Until the scope ends, pthread_cancel does not end this thread: it would end while it holds Medusa's locks. */
#ifndef MD_BASE_UNCANCELLED_H
#define MD_BASE_UNCANCELLED_H

#include <pthread.h>

#include "base/cleanup.h"

static inline int md_uncancelled_begin(void)
{
	int state = PTHREAD_CANCEL_ENABLE;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

static inline void md_uncancelled_end(int *state)
{
	pthread_setcancelstate(*state, NULL);
}

#define MD_UNCANCELLED                                                                                                 \
	MD_CLEANUP(md_uncancelled_end) int md_uncancelled_ __attribute__((unused)) = md_uncancelled_begin()

#endif
