/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binding by sequence: the allocations that the engine has made when
 * it asks for its first graph, matched by order, size and place.
 */
#define MD_LOG_DOMAIN "restore"

#include <string.h>

#include "base/log.h"
#include "driver/alloc_sequence.h"
#include "restore/background.h"
#include "restore/constants.h"
#include "restore/restore.h"
#include "restore/restore_api.h"
#include "restore/restore_facts.h"
#include "restore/restore_sequence.h"

static pthread_mutex_t sequence_lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_alloc_sequence sequence; /* under sequence_lock until it is closed; then it stays as it is */

void md_restore_sequence_alloc(enum md_alloc_family family, uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&sequence_lock);
	md_sequence_add(&sequence, family, address, size);
	pthread_mutex_unlock(&sequence_lock);
}

void md_restore_sequence_free(uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&sequence_lock);
	md_sequence_remove(&sequence, address, size);
	pthread_mutex_unlock(&sequence_lock);
}

void md_restore_sequence_pause(int change)
{
	pthread_mutex_lock(&sequence_lock);
	sequence.paused += (unsigned)change;
	pthread_mutex_unlock(&sequence_lock);
}

void md_restore_sequence_renew(void)
{
	pthread_mutex_init(&sequence_lock, NULL);
}

static void close_sequence(void)
{
	pthread_mutex_lock(&sequence_lock);
	sequence.closed = true;
	pthread_mutex_unlock(&sequence_lock);
}

static bool bound_by_sequence(const struct md_artifact *artifact)
{
	size_t index;
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		if (md_sequence_index(artifact->bindings[i].name, &index))
			return true;
	return false;
}

/* The sequence is closed. */
static enum md_status check_all(const struct md_artifact *artifact, struct md_error *err)
{
	const struct md_sequence_side then = {artifact->requests, artifact->request_count, "artifact",
					      "in the artifact"};
	const struct md_sequence_side now = {sequence.items, sequence.count, "this process", "here"};
	if (sequence.broken)
		return md_error_set(err, MD_ERR_NO_MEMORY, "too many allocations to bind them by sequence");
	if (!artifact->request_count)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "the artifact does not say how the addresses of the engine's allocations compare: "
				    "capture again");
	return md_sequence_compare(&then, &now, err);
}

/* Binds all of them. The artifact is open. */
static enum md_status bind_all(struct md_restore *r, struct md_error *err) MD_REQUIRES(md_restore_lock)
{
	size_t index;
	if (!bound_by_sequence(&r->artifact))
		return MD_OK;
	MD_FORWARD(check_all(&r->artifact, err));
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		const struct md_binding *binding = &r->artifact.bindings[i];
		if (!md_sequence_index(binding->name, &index) || index >= sequence.count)
			continue;
		struct md_bound what = {.name = binding->name,
					.address = sequence.addresses[index],
					.size = binding->size,
					.role = binding->role};
		MD_FORWARD(md_restore_bind_new(r, &what, err));
	}
	return MD_OK;
}

void md_restore_sequence_bind(struct md_restore *r, uint64_t deadline_ns)
{
	struct md_error err = {0};
	close_sequence();
	pthread_mutex_lock(&md_restore_lock);
	bool due = !r->sequence_bound && md_restore_wait_open(r, deadline_ns) && r->phase == MD_PHASE_OPEN;
	if (due) {
		r->sequence_bound = true;
		bind_all(r, &err);
	}
	pthread_mutex_unlock(&md_restore_lock);
	if (due && !err.status && md_restore_constants_settle(r, &err) != MD_OK) {
		md_info("%s", err.message); /* the next call tries again, with the memory of that time */
		return;
	}
	if (err.status)
		md_restore_refuse_all(r, &err);
}
