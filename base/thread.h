/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours inside of an engine's process. */
#ifndef MD_BASE_THREAD_H
#define MD_BASE_THREAD_H

#include <pthread.h>

/*
 * pthread_create for a thread that takes none of the engine's signals: a signal to the process goes to the threads
 * that the engine has for it. Signals of a thread's own mistakes stay open, because the engine may have a handler for
 * them (a crash report, a sandbox). Returns what pthread_create returns.
 */
int md_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
