/* SPDX-License-Identifier: Apache-2.0 */
/* Medusa's own threads in an engine's process. */
#ifndef MD_BASE_THREAD_H
#define MD_BASE_THREAD_H

#include <pthread.h>

/*
 * pthread_create for a thread that blocks the engine's signals, so that a signal to the process goes to the threads
 * that the engine has for it. Signals of the thread's own faults (SIGSEGV) stay unblocked, because the engine may have
 * a handler for them (a crash report, a sandbox). Returns what pthread_create returns.
 */
int md_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
