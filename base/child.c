/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that this process is a copy, whichever way it was made: the kernel clears one page in every copy
 * (MADV_WIPEONFORK).
 */
#include "base/child.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COPY = 0, RENEWING, KNOWN }; /* COPY: the kernel has cleared the page */

static atomic_uint *page;  /* cleared in every copy; NULL: not supported, process ids are compared */
static atomic_int process; /* the id of the process that is known, where there is no page */
static struct md_child_renewal *renewals;

static void renew_all(void)
{
	for (struct md_child_renewal *at = renewals; at; at = at->next)
		at->renew();
}

static void check_process(void)
{
	int known = atomic_load_explicit(&process, memory_order_relaxed), now = (int)getpid();
	if (known != now && atomic_compare_exchange_strong(&process, &known, now))
		renew_all();
}

static void check_page(void)
{
	unsigned state = COPY;
	if (atomic_compare_exchange_strong(page, &state, RENEWING)) {
		renew_all();
		atomic_store_explicit(page, KNOWN, memory_order_release);
	}
	while (atomic_load_explicit(page, memory_order_acquire) != KNOWN)
		sched_yield(); /* another thread of the child runs the renewals */
}

void md_child_check(void)
{
	if (!page)
		check_process();
	else if (__builtin_expect(atomic_load_explicit(page, memory_order_acquire) != KNOWN, 0))
		check_page();
}

static void begin(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	atomic_store(&process, (int)getpid());
	if (memory != MAP_FAILED && madvise(memory, bytes, MADV_WIPEONFORK) == 0) {
		page = memory;
		atomic_store(page, KNOWN);
	} else if (memory != MAP_FAILED) {
		munmap(memory, bytes);
	}
	pthread_atfork(NULL, NULL, md_child_check);
}

/* Constructors run in one thread. */
void md_child_register(struct md_child_renewal *renewal)
{
	if (!renewals)
		begin();
	renewal->next = renewals;
	renewals = renewal;
}
