/* SPDX-License-Identifier: Apache-2.0 */
/* Ends an engine whose notes say that it is broken, while somebody else waits for it. */
#ifndef MD_TOOLS_REPEAT_WATCH_H
#define MD_TOOLS_REPEAT_WATCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"

struct md_repeat_watch {
	const char *notes; /* not owned */
	atomic_bool stop;
	pthread_t thread;
};

enum md_status md_repeat_watch_start(struct md_repeat_watch *watch, const char *notes, struct md_error *err);
/* Call this when the command has ended: what is left of it is ended, too, if it was to be ended. */
void md_repeat_watch_stop(struct md_repeat_watch *watch);

#endif
