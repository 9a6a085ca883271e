/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours: which signals they leave to the program, and that the thread that starts them keeps its own mask. */
#include "base/thread.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <unistd.h>

static void *read_mask(void *mask)
{
	pthread_sigmask(SIG_BLOCK, NULL, mask);
	return NULL;
}

Test(thread, takes_no_signal_but_those_of_its_own_mistakes)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t mask, before, after;
	pthread_t thread;
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	sigemptyset(&mask);
	cr_assert_eq(md_thread_start(&thread, read_mask, &mask), 0);
	pthread_join(thread, NULL);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		cr_assert_not(sigismember(&mask, own[i]), "signal %d is blocked", own[i]);
	for (int signal = SIGHUP; signal <= SIGTERM; signal++) {
		bool is_own = signal == SIGKILL; /* which nobody can block */
		for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
			is_own |= signal == own[i];
		cr_assert(is_own || sigismember(&mask, signal), "signal %d is not blocked", signal);
	}
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int signal = SIGHUP; signal <= SIGTERM; signal++)
		cr_assert_eq(sigismember(&before, signal), sigismember(&after, signal), "signal %d", signal);
}

static void *wait_for_end(void *pipe)
{
	char byte;
	return read(*(const int *)pipe, &byte, 1) < 0 ? pipe : NULL;
}

Test(thread, leaves_a_signal_to_the_process_to_the_thread_that_waits_for_it)
{
	struct timespec soon = {.tv_sec = 60};
	pthread_t thread;
	sigset_t set;
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(md_thread_start(&thread, wait_for_end, &ends[0]), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR1); /* whose default ends the process */
	cr_assert_eq(sigtimedwait(&set, NULL, &soon), SIGUSR1);
	close(ends[1]);
	pthread_join(thread, NULL);
	close(ends[0]);
}
