/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of medusa-swap run: connections, the pool, and its pages, which get memory before they are needed. */
#include "tools/swap_serve.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"
#include "tools/stop.h"
#include "swap/numa.h"
#include "swap/spill_file.h"
#include "swap/swap_place.h"
#include "tools/swap_child.h"
#include "tools/swap_server.h"

#define TICK_MS 100
#define POPULATE_TICK_US 20000
#define HELLO_NS 5000000000ull /* for the first line of a connection */
#define PULSE_NS 1000000000ull

/* ---- clients ---- */

/* The connection that has said nothing for the longest time makes room. */
static struct md_swap_client *oldest_idle(const struct md_swap_server *s)
{
	struct md_swap_client *oldest = NULL;
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		if (client->role == MD_SWAP_NEW && !client->gone && (!oldest || client->since < oldest->since))
			oldest = client;
	}
	return oldest;
}

static void remove_gone(struct md_swap_server *s)
{
	bool engine = false;
	for (size_t i = 0; i < s->client_count;) {
		struct md_swap_client *client = s->clients[i];
		if (!client->gone) {
			i++;
			continue;
		}
		md_swap_serve_lost(s, client);
		engine = engine || client->role == MD_SWAP_ENGINE;
		md_swap_wire_finish(&client->wire);
		free(client);
		s->clients[i] = s->clients[--s->client_count];
	}
	if (engine)
		md_swap_pool_sweep(s->pool);
}

/* False: all places are taken by engines and by commands that wait. */
static bool make_room(struct md_swap_server *s)
{
	struct md_swap_client *idle = s->client_count >= MD_SWAP_CONNECTIONS ? oldest_idle(s) : NULL;
	if (idle) {
		idle->gone = true;
		remove_gone(s);
	}
	return s->client_count < MD_SWAP_CONNECTIONS;
}

static void refuse(int fd, bool last)
{
	struct md_swap_client refused = {.role = MD_SWAP_NEW};
	struct md_error why;
	if (last)
		md_error_set(&why, MD_ERR_TIMEOUT,
			     "medusa-swap run has no descriptor left: start it with a larger limit (ulimit -n)");
	else
		md_error_set(&why, MD_ERR_TIMEOUT,
			     "%u engines and commands that wait are connected, and no more can be: try again later",
			     MD_SWAP_CONNECTIONS);
	md_swap_wire_init(&refused.wire, fd);
	md_swap_say_failure(&refused, &why);
	md_swap_wire_finish(&refused.wire);
}

static void accept_one(struct md_swap_server *s)
{
	struct md_error err = {0};
	bool last;
	int fd = md_acceptor_next(&s->acceptor, &last);
	if (fd < 0)
		return;
	if (md_swap_wire_check_peer(fd, &err) != MD_OK) {
		close(fd);
		return;
	}
	struct md_swap_client *client = !last && make_room(s) ? calloc(1, sizeof(*client)) : NULL;
	if (!client) {
		refuse(fd, last);
		return;
	}
	md_swap_wire_init(&client->wire, fd);
	client->since = md_clock_ns();
	s->clients[s->client_count++] = client;
}

/* Whoever connects says what for; a command that waits is told each second that it is not forgotten. */
static void look_after(struct md_swap_server *s)
{
	uint64_t now = md_clock_ns();
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		uint64_t since = client->since > s->resumed_at ? client->since : s->resumed_at;
		if (client->role == MD_SWAP_NEW && now > since + HELLO_NS)
			client->gone = true;
		if (!client->wants_pulses || client->gone || now <= client->pulsed_at + PULSE_NS)
			continue;
		client->pulsed_at = now;
		md_swap_say_pulse(client);
	}
}

static enum md_status hear_all(struct md_swap_server *s, struct md_swap_client *client, struct md_error *err)
{
	static struct md_swap_message message; /* large; of this thread alone */
	bool there = true;
	MD_FORWARD(md_swap_wire_take(&client->wire, err));
	while (there && !client->gone) {
		MD_FORWARD(md_swap_wire_next(&client->wire, &message, &there, err));
		if (there)
			MD_FORWARD(md_swap_serve_message(s, client, &message, err));
	}
	return MD_OK;
}

static void hear(struct md_swap_server *s, struct md_swap_client *client)
{
	struct md_error err = {0};
	enum md_status status = hear_all(s, client, &err);
	if (status == MD_ERR_TRUNCATED)
		client->gone = true;
	else if (status != MD_OK)
		md_swap_say_failure(client, &err);
}

/* ---- pages ---- */

/* Wants twice as many blocks as engines have: once for their memory, once for later changes. */
static void note_wanted(struct md_swap_server *s)
{
	uint64_t wanted = 0;
	for (size_t i = 0; i < s->client_count; i++)
		wanted += 2 * (s->clients[i]->swappable / MD_SWAP_BLOCK + 1);
	if (wanted > UINT32_MAX)
		wanted = UINT32_MAX;
	if (wanted > atomic_load(&s->wanted))
		atomic_store(&s->wanted, (uint32_t)wanted);
}

/* A shared pool gets as much memory as all engines want, from one of those that have it. */
static void *populate(void *argument)
{
	struct md_swap_server *s = argument;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	while (!atomic_load(&s->stop)) {
		bool useless = atomic_load(&s->useless);
		md_swap_pool_want(s->pool, useless ? 0 : atomic_load(&s->wanted));
		if (useless && !s->shares && md_swap_pool_empty(s->pool))
			return NULL;
		if (!useless && atomic_load(&s->placed))
			md_swap_pool_populate(s->pool, md_swap_pool_wanted(s->pool),
					      cores > 2 ? (unsigned)cores / 2 : 1, &s->stop);
		usleep(POPULATE_TICK_US);
	}
	return NULL;
}

/* ---- the thread ---- */

static void turn(struct md_swap_server *s, int wait_ms)
{
	struct pollfd ready[2 + MD_SWAP_CLIENTS] = {{.fd = s->listening, .events = md_acceptor_events(&s->acceptor)},
						    {.fd = s->wake, .events = POLLIN}};
	size_t count = s->client_count;
	for (size_t i = 0; i < count; i++)
		ready[2 + i] = (struct pollfd){.fd = s->clients[i]->wire.fd, .events = POLLIN};
	if (poll(ready, 2 + count, wait_ms) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (ready[2 + i].revents)
			hear(s, s->clients[i]);
	if (ready[0].revents & POLLIN)
		accept_one(s);
	if (md_stop_signal())
		md_swap_serve_end(s);
	md_swap_serve_advance(s);
	look_after(s);
	remove_gone(s);
	md_swap_child_reap_all(s);
	md_swap_serve_advance(s);
}

static void *run(void *argument)
{
	struct md_swap_server *s = argument;
	while (!atomic_load(&s->stop)) {
		turn(s, TICK_MS);
		note_wanted(s);
	}
	return NULL;
}

bool md_swap_serve_has_engine(struct md_swap_server *server, pid_t *pid)
{
	*pid = atomic_load(&server->engine);
	return *pid != 0;
}

/* ---- beginning and end ---- */

static void finish(struct md_swap_server *s)
{
	for (size_t i = 0; i < s->client_count; i++) {
		md_swap_wire_finish(&s->clients[i]->wire);
		free(s->clients[i]);
	}
	if (s->listening >= 0) {
		unlink(s->path);
		close(s->listening);
	}
	md_acceptor_finish(&s->acceptor);
	if (s->wake >= 0)
		close(s->wake);
	md_swap_pool_close(s->pool);
	if (s->pool_fd >= 0)
		close(s->pool_fd);
	if (s->spill_fd >= 0)
		close(s->spill_fd);
	free(s->path);
	free(s);
}

static enum md_status make_pool(struct md_swap_server *s, const struct md_swap_serve_pool *pool, struct md_error *err)
{
	struct md_swap_spill_file spill = MD_SWAP_NO_SPILL;
	if (!pool->spill)
		return md_swap_pool_create(pool->bytes, &s->pool_fd, err);
	MD_FORWARD(md_swap_spill_create(pool->spill, pool->spill_bytes, &spill, err));
	s->spill_fd = spill.kept.fd;
	return md_swap_pool_create_spilling(pool->bytes, &spill, &s->pool_fd, err);
}

static enum md_status open_pool(struct md_swap_server *s, const struct md_swap_serve_pool *pool, struct md_error *err)
{
	s->shares = pool->fd >= 0;
	s->stays_out = pool->stays_out;
	s->share_constant = pool->share_constant;
	s->pool_fd = pool->fd;
	s->spill_fd = pool->spill_fd;
	if (!s->shares)
		MD_FORWARD(make_pool(s, pool, err));
	return md_swap_pool_open_spilling(s->pool_fd, s->spill_fd, &s->pool, err);
}

static enum md_status open_all(struct md_swap_server *s, const struct md_swap_serve_pool *pool, struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(open_pool(s, pool, err));
	s->wake = eventfd(0, EFD_CLOEXEC);
	if (s->wake < 0)
		return md_error_set(err, MD_ERR_IO, "eventfd: %s", strerror(errno));
	MD_FORWARD(md_swap_place_listen(s->name, path, &s->listening, err));
	md_acceptor_init(&s->acceptor, s->listening, true);
	s->path = strdup(path);
	if (!s->path) {
		unlink(path);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the path of a socket");
	}
	md_stop_remove(s->path);
	return MD_OK;
}

static enum md_status start_threads(struct md_swap_server *s, struct md_error *err)
{
	int failure = md_thread_start(&s->thread, run, s);
	if (failure)
		return md_error_set(err, MD_ERR_IO, "starting a thread of medusa-swap run: %s", strerror(failure));
	s->populates = md_thread_start(&s->populator, populate, s) ==
		       0; /* without this thread, pages get memory when they are used */
	return MD_OK;
}

enum md_status md_swap_serve_start(const char *name, const struct md_swap_serve_pool *pool,
				   struct md_swap_server **server, const char **path, struct md_error *err)
{
	struct md_swap_server *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of processes");
	made->name = name;
	made->listening = made->acceptor.spare = made->wake = made->pool_fd = made->spill_fd = -1;
	made->prepares_carrier = pool->neighbours || pool->peers;
	made->lends = pool->peers;
	enum md_status status = open_all(made, pool, err);
	atomic_store(&made->placed, md_swap_numa_nodes("/sys") == 1);
	atomic_store(&made->wanted, pool->populated ? UINT32_MAX : 0);
	if (status == MD_OK)
		status = start_threads(made, err);
	if (status != MD_OK) {
		finish(made);
		return status;
	}
	*server = made;
	*path = made->path;
	return MD_OK;
}

void md_swap_serve_stop(struct md_swap_server *server)
{
	uint64_t one = 1;
	if (!server)
		return;
	atomic_store(&server->stop, true);
	if (write(server->wake, &one, sizeof(one)) < 0)
		usleep(TICK_MS * 1000);
	pthread_join(server->thread, NULL);
	if (server->populates)
		pthread_join(server->populator, NULL);
	finish(server);
}
