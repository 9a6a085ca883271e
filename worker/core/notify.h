/* SPDX-License-Identifier: Apache-2.0 */
/* Tells systemd what the daemon does, as sd_notify(3) describes; without a service manager, nothing happens. */
#ifndef MD_WORKER_CORE_NOTIFY_H
#define MD_WORKER_CORE_NOTIFY_H

#include <event2/event.h>

struct md_notify;

/*
 * Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment, so that engines do not get them. From now
 * on WATCHDOG=1 is sent twice in that time, from the loop: a loop that hangs is found out. NULL: out of memory.
 */
struct md_notify *md_notify_create(struct event_base *base);
void md_notify_destroy(struct md_notify *notify); /* NULL is fine */

void md_notify_ready(struct md_notify *notify); /* at the start, and when a reload has ended */
void md_notify_reloading(struct md_notify *notify);
void md_notify_stopping(struct md_notify *notify);

#endif
