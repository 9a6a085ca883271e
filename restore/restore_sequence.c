/* SPDX-License-Identifier: Apache-2.0 */
/* Binding by sequence: what the engine has allocated when it asks for its first graph, matched by order and size. */
#define MD_LOG_DOMAIN "restore"

#include <string.h>

#include "base/log.h"
#include "driver/alloc_sequence.h"
#include "restore/restore.h"

static struct md_alloc_sequence sequence;
static pthread_mutex_t sequence_lock = PTHREAD_MUTEX_INITIALIZER;

void md_restore_sequence_alloc(uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&sequence_lock);
	md_sequence_add(&sequence, address, size);
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

static void close_sequence(void)
{
	pthread_mutex_lock(&sequence_lock);
	sequence.closed = true;
	pthread_mutex_unlock(&sequence_lock);
}

/* The sequence is closed. */
static enum md_status check_item(const struct md_binding *binding, size_t index, struct md_error *err)
{
	const struct md_sequence_item *item = index < sequence.count ? &sequence.items[index] : NULL;
	unsigned long long then = (unsigned long long)binding->size;

	if (sequence.broken)
		return md_error_set(err, MD_ERR_NO_MEMORY, "too many allocations to bind them by sequence");
	if (!item)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "allocation %zu: artifact has %llu bytes, but this process made only %zu before it "
				    "asked for a graph",
				    index, then, sequence.count);
	if (item->size != binding->size)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "allocation %zu: artifact has %llu bytes, this process %llu: there the sequences part", index, then,
		    (unsigned long long)item->size);
	if (!item->live)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "allocation %zu (%llu bytes) was freed before the engine asked for a graph", index,
				    then);
	return MD_OK;
}

/* The first one in the order of the sequence that does not match. Under lock, while open. */
static enum md_status check_all(const struct md_restore *r, struct md_error *err)
{
	size_t first = SIZE_MAX, index;

	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		struct md_error now = {0};
		if (!md_sequence_index(r->artifact.bindings[i].name, &index) || index >= first ||
		    check_item(&r->artifact.bindings[i], index, &now) == MD_OK)
			continue;
		first = index;
		*err = now;
	}
	return err->status;
}

/* Under lock, while open. */
static enum md_status bind_all(struct md_restore *r, struct md_error *err)
{
	size_t index;

	MD_FORWARD(check_all(r, err));
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		const struct md_binding *binding = &r->artifact.bindings[i];
		if (!md_sequence_index(binding->name, &index))
			continue;
		struct md_bound what = {binding->name, sequence.items[index].address, binding->size, binding->role};
		MD_FORWARD(md_restore_bind_new(r, &what, err));
	}
	return MD_OK;
}

void md_restore_sequence_bind(struct md_restore *r, uint64_t deadline_ns)
{
	struct md_error err = {0};

	close_sequence();
	pthread_mutex_lock(&r->lock);
	bool due = !r->sequence_bound && md_restore_wait_open(r, deadline_ns) && r->phase == MD_PHASE_OPEN;
	if (due) {
		r->sequence_bound = true;
		bind_all(r, &err);
	}
	pthread_mutex_unlock(&r->lock);
	if (err.status)
		md_restore_refuse_all(r, &err);
}
