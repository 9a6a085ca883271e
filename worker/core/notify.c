/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

struct md_notify {
	int fd; /* connected to the service manager; -1: there is none */
	struct event *watchdog;
	bool stopping;
};

/* ---- the service manager ---- */

/* "@name" is in the abstract namespace, where a NUL stands for the sign. */
static int reach(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t size = strlen(name);
	if ((*name != '/' && *name != '@') || size >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, name, size);
	if (*name == '@')
		address.sun_path[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 &&
	    !connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)))
		return fd;
	md_warn("NOTIFY_SOCKET: %s: %s", name, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

static void say(struct md_notify *notify, const char *text)
{
	if (notify && notify->fd >= 0 && send(notify->fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		md_warn("the service manager does not take a message: %s", strerror(errno));
}

static void on_watchdog(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	say(context, "WATCHDOG=1");
}

void md_notify_ready(struct md_notify *notify)
{
	say(notify, "READY=1");
}

void md_notify_reloading(struct md_notify *notify)
{
	char text[64];
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, md_clock_ns() / 1000);
	say(notify, text);
}

void md_notify_stopping(struct md_notify *notify)
{
	if (notify && !notify->stopping)
		say(notify, "STOPPING=1");
	if (notify)
		notify->stopping = true;
}

/* ---- beginning and end ---- */

/* 0: the service manager does not watch this process. */
static uint64_t watchdog_us(void)
{
	const char *given = secure_getenv("WATCHDOG_USEC"), *whom = secure_getenv("WATCHDOG_PID");
	if (!given || (whom && strtol(whom, NULL, 10) != getpid()))
		return 0;
	return strtoull(given, NULL, 10);
}

struct md_notify *md_notify_create(struct event_base *base)
{
	struct md_notify *made = calloc(1, sizeof(*made));
	const char *name = secure_getenv("NOTIFY_SOCKET");
	uint64_t half = watchdog_us() / 2;
	struct timeval wait = {.tv_sec = (time_t)(half / 1000000), .tv_usec = (suseconds_t)(half % 1000000)};
	if (!made)
		return NULL;
	made->fd = name ? reach(name) : -1;
	if (made->fd >= 0 && half) {
		made->watchdog = event_new(base, -1, EV_PERSIST, on_watchdog, made);
		if (!made->watchdog || event_add(made->watchdog, &wait)) {
			md_notify_destroy(made);
			return NULL;
		}
	}
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return made;
}

void md_notify_destroy(struct md_notify *notify)
{
	if (!notify)
		return;
	if (notify->watchdog)
		event_free(notify->watchdog);
	if (notify->fd >= 0)
		close(notify->fd);
	free(notify);
}
