/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the end of the process, which are registered when the memory goes out and removed when it is back. */
#include "swap/leave.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "swap/gate.h"

/* Of the C++ ABI, which glibc has for C, too: handlers of one owner can be removed. */
extern int __cxa_atexit(void (*handler)(void *), void *argument, void *owner);
extern void __cxa_finalize(void *owner);

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* held for ever once the process ends */
static atomic_bool out, disarming, leaving;
static bool armed; /* of our thread */
static char owner;

static void on_exit_of_process(void *argument)
{
	(void)argument;
	if (atomic_load(&disarming) || atomic_exchange(&leaving, true))
		return;
	pthread_mutex_lock(&busy);
	if (atomic_load(&out))
		md_swap_gate_abandon();
}

void md_swap_leave_watch(void)
{
	static atomic_bool watched;
	if (!atomic_exchange(&watched, true))
		__cxa_atexit(on_exit_of_process, NULL, NULL);
}

void md_swap_leave_arm(void)
{
	armed = armed || __cxa_atexit(on_exit_of_process, NULL, &owner) == 0;
}

/* __cxa_finalize runs each handler that it removes. */
void md_swap_leave_disarm(void)
{
	if (!armed)
		return;
	atomic_store(&disarming, true);
	__cxa_finalize(&owner);
	atomic_store(&disarming, false);
	armed = false;
}

void md_swap_leave_hold(void)
{
	pthread_mutex_lock(&busy);
}

void md_swap_leave_release(void)
{
	pthread_mutex_unlock(&busy);
}

void md_swap_leave_is_out(bool is_out)
{
	atomic_store(&out, is_out);
}

void md_swap_leave_renew(void)
{
	pthread_mutex_init(&busy, NULL);
	atomic_store(&out, false);
	atomic_store(&leaving, false);
}
