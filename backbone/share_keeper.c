/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/share_keeper.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "backbone/share_lease.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"

#define KEEP_NS 500000000ull /* for an answer that waits for nobody */

/* Held while the broker is asked, which is not for long: nothing but "own" waits for others. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_swap_wire wire MD_GUARDED_BY(lock) = {.fd = -1, .passed = -1, .passed_too = -1};
static struct md_descriptor connection MD_GUARDED_BY(lock) = {.fd = -1};
static _Atomic uint64_t connections; /* how many there have been */
static _Atomic uint64_t current;     /* the number of the one that is there; 0: none */

static void drop_connection(void) MD_REQUIRES(lock)
{
	atomic_store(&current, 0);
	md_descriptor_drop(&connection);
	wire.fd = -1; /* closed, or the engine's own by now */
	md_swap_wire_finish(&wire);
	md_swap_wire_init(&wire, -1);
}

static bool is_there(void) MD_REQUIRES(lock)
{
	struct pollfd polled = {.fd = connection.fd, .events = POLLRDHUP};
	if (!atomic_load(&current))
		return false;
	if (md_descriptor_is_ours(&connection) && (poll(&polled, 1, 0) <= 0 || !polled.revents))
		return true;
	drop_connection();
	return false;
}

static enum md_status connect_broker(struct md_error *err) MD_REQUIRES(lock)
{
	char path[PATH_MAX];
	int fd;
	MD_FORWARD(md_backbone_socket(path, err));
	MD_FORWARD(md_swap_wire_connect_now(path, &fd, err));
	fd = md_descriptor_raise(fd);
	if (!md_descriptor_keep(&connection, fd))
		return md_error_set(err, MD_ERR_IO, "the connection to medusa-backbone is not open");
	md_swap_wire_init(&wire, fd);
	atomic_store(&current, atomic_fetch_add(&connections, 1) + 1);
	return MD_OK;
}

/* ---- asking ---- */

static enum md_status begin(const struct md_share *share, const char *what, struct md_swap_letter *letter,
			    struct md_error *err)
{
	MD_FORWARD(md_swap_letter_begin(letter, err));
	md_json_number(&letter->json, "medusa_backbone", MD_BACKBONE_PROTOCOL);
	md_json_text(&letter->json, "do", what);
	md_json_number(&letter->json, "lease", share->number);
	return MD_OK;
}

/*
 * The answer about this lease; those about others came too late for who had asked. So may one about this lease, of a keep or
 * a commit: that an engine may have memory of its own is said with "alone" only.
 */
static bool is_answer(const struct md_share *share, const struct md_swap_message *answer, bool to_own)
{
	if (!md_swap_message_has(answer, "lease"))
		return true;
	if (md_swap_message_number(answer, "lease") != share->number)
		return false;
	return !to_own || !md_swap_message_number(answer, "ok") || md_swap_message_has(answer, "alone");
}

static enum md_status await(const struct md_share *share, bool to_own, uint64_t deadline,
			    struct md_swap_message *answer, struct md_error *err) MD_REQUIRES(lock)
{
	for (;;) {
		uint64_t now = md_clock_ns();
		if (now >= deadline)
			return md_error_set(err, MD_ERR_TIMEOUT, "medusa-backbone does not answer about backbone %s",
					    share->name);
		enum md_status status = md_swap_wire_await(&wire, (int)((deadline - now) / 1000000 + 1), answer, err);
		if (status == MD_ERR_TIMEOUT)
			continue;
		MD_FORWARD(status);
		if (is_answer(share, answer, to_own))
			return md_swap_message_number(answer, "ok") ? MD_OK : md_share_read_refusal(answer, err);
	}
}

/* alone: NULL, or what the answer says of that. */
static enum md_status ask(const struct md_share *share, struct md_swap_letter *letter, uint64_t deadline, bool *alone,
			  struct md_error *err) MD_REQUIRES(lock)
{
	struct md_swap_message *answer = malloc(sizeof(*answer)); /* large */
	enum md_status status = md_swap_letter_ask(letter, wire.fd, -1, err);
	if (status == MD_OK)
		status = answer ? await(share, alone != NULL, deadline, answer, err)
				: md_error_set(err, MD_ERR_TIMEOUT, "out of memory for the answer about backbone %s",
					       share->name);
	if (status == MD_OK && alone)
		*alone = md_swap_message_number(answer, "alone") != 0;
	free(answer);
	return status;
}

/* ---- leases ---- */

static enum md_status keep(struct md_share *share, struct md_error *err) MD_REQUIRES(lock)
{
	struct md_swap_letter letter;
	if (!is_there())
		MD_FORWARD(connect_broker(err));
	MD_FORWARD(begin(share, "keep", &letter, err));
	md_json_text(&letter.json, "id", share->id);
	md_json_number(&letter.json, "asks", share->asks);
	return ask(share, &letter, md_clock_ns() + KEEP_NS, NULL, err);
}

void md_share_keep(struct md_share *share)
{
	struct md_error err = {0};
	md_child_check();
	pthread_mutex_lock(&lock);
	enum md_status status = keep(share, &err);
	/* without an answer either connection may have the lease, so that both are given back in the end */
	bool may_be = (status == MD_OK || status == MD_ERR_TIMEOUT) && is_there();
	share->kept_by = may_be ? atomic_load(&current) : 0;
	pthread_mutex_unlock(&lock);
	if (status == MD_OK && may_be)
		md_share_drop_lease(share);
	else
		md_debug("backbone %s has a connection of its own: %s", share->name, err.message);
}

enum md_status md_share_keeper_commit(struct md_share *share, uint64_t deadline, struct md_error *err)
{
	struct md_swap_letter letter;
	char text[MD_HASH_TEXT_BYTES];
	md_hash_format(&share->hash, text);
	pthread_mutex_lock(&lock);
	enum md_status status =
	    is_there() && md_share_is_kept(share)
		? begin(share, "commit", &letter, err)
		: md_error_set(err, MD_ERR_NOT_FOUND, "the connection to medusa-backbone was closed");
	if (status == MD_OK) {
		md_json_text(&letter.json, "hash", text);
		status = ask(share, &letter, deadline, NULL, err);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

enum md_status md_share_keeper_own(struct md_share *share, uint64_t deadline, bool *alone, struct md_error *err)
{
	struct md_swap_letter letter;
	pthread_mutex_lock(&lock);
	enum md_status status = is_there() && md_share_is_kept(share)
				    ? begin(share, "own", &letter, err)
				    : md_error_set(err, MD_ERR_BUSY, "medusa-backbone is not there to be asked");
	if (status == MD_OK)
		status = ask(share, &letter, deadline, alone, err);
	pthread_mutex_unlock(&lock);
	return status;
}

void md_share_keeper_leave(struct md_share *share)
{
	struct md_swap_letter letter;
	struct md_error none = {0};
	if (!share->kept_by)
		return;
	pthread_mutex_lock(&lock);
	if (is_there() && md_share_is_kept(share) && begin(share, "leave", &letter, &none) == MD_OK &&
	    md_swap_letter_send(&letter, wire.fd, -1, &none) != MD_OK)
		drop_connection();
	share->kept_by = 0;
	pthread_mutex_unlock(&lock);
}

bool md_share_is_kept(const struct md_share *share)
{
	return share->kept_by && share->kept_by == atomic_load(&current);
}

int md_share_keeper_look(void)
{
	pthread_mutex_lock(&lock);
	int fd = is_there() ? connection.fd : -1;
	pthread_mutex_unlock(&lock);
	return fd;
}

/* A child must not keep its parent's leases. */
static void renew(void) MD_LOCKS_UNCHECKED
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	atomic_store(&current, 0);
	md_descriptor_drop(&connection);
	md_swap_wire_init(&wire, -1);
}

__attribute__((constructor)) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
