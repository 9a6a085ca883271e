/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that says each second that work goes on. */
#define MD_LOG_DOMAIN "swap"

#include "swap/pulse.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/child.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/thread.h"
#include "swap/wire.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool started MD_GUARDED_BY(lock);
static const struct md_descriptor *connection MD_GUARDED_BY(lock); /* NULL: nothing is being done */
static uint64_t work MD_GUARDED_BY(lock);
static atomic_ullong steps;

/* Errors are found by whoever sends the answer. */
static void send_pulse(void) MD_REQUIRES(lock)
{
	struct md_swap_letter letter;
	struct md_error none;
	if (!md_descriptor_is_ours(connection) || md_swap_letter_begin(&letter, &none) != MD_OK)
		return;
	md_json_number(&letter.json, "id", work);
	md_json_bool(&letter.json, "pulse", true);
	md_json_number(&letter.json, "steps", atomic_load(&steps));
	md_swap_letter_send(&letter, connection->fd, -1, &none);
}

/* True after a second in which nothing has changed. */
static bool wait_a_second(void) MD_REQUIRES(lock)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	return pthread_cond_timedwait(&changed, &lock, &until) != 0;
}

static void *beat(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		if (!connection)
			pthread_cond_wait(&changed, &lock);
		else if (wait_a_second() && connection)
			send_pulse();
	}
	return NULL;
}

static void start(void) MD_REQUIRES(lock)
{
	pthread_condattr_t attributes;
	pthread_t thread;
	if (started)
		return;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attributes);
	pthread_condattr_destroy(&attributes);
	int failure = md_thread_start(&thread, beat, NULL);
	if (failure) {
		md_warn(
		    "starting a thread that tells medusa-swap run of the work: %s; a swap that takes more than a few "
		    "seconds counts as one that does not end",
		    strerror(failure));
		return;
	}
	pthread_detach(thread);
	started = true;
}

void md_swap_pulse_begin(const struct md_descriptor *to, uint64_t id)
{
	pthread_mutex_lock(&lock);
	start();
	connection = to;
	work = id;
	send_pulse();
	if (started)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void md_swap_pulse_end(void)
{
	pthread_mutex_lock(&lock);
	connection = NULL;
	if (started)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void md_swap_pulse_step(void)
{
	atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed);
}

/* In a child, which has one thread. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_init(&lock, NULL);
	started = false;
	connection = NULL;
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
