/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads that take none of the engine's signals. */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int md_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t blocked, before;
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&blocked, own[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, &before); /* the new thread inherits the mask */
	int failure = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure;
}
