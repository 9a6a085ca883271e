/* SPDX-License-Identifier: Apache-2.0 */
/* KV capacity: answered from the artifact, corrected for what Medusa holds, or measured live. */
#define MD_LOG_DOMAIN "restore"

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/uncancelled.h"
#include "driver/interpose.h"
#include "kvprofile/kvprofile.h"
#include "restore/agree.h"
#include "restore/image_load.h"
#include "restore/restore.h"
#include "restore/restore_api.h"
#include "restore/restore_sequence.h"
#include "restore/background.h"

/* Under lock: waits until the fingerprint was compared; graphs may still be read, and images loaded. */
static void wait_for_head(struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	while (r->phase == MD_PHASE_OPENING && !r->head_known && !atomic_load(&r->stop))
		md_restore_wait(r, UINT64_MAX);
}

static uint64_t less(uint64_t from, uint64_t bytes)
{
	return bytes < from ? from - bytes : 0;
}

/*
 * The measured capacity, corrected for memory that Medusa holds in this process: the
 * profile has not seen it, or has counted it as memory of graphs. Free memory is reduced
 * by the most that Medusa may hold; what must still fit is reduced by the least.
 */
static struct md_kv kv_beside_ours(const struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	struct md_kv kv = r->artifact.kv;
	uint64_t arena = r->stats.private_bytes;
	kv.baseline_free = less(kv.baseline_free, md_restore_images_held(r, true) + arena);
	kv.graph_bytes = less(kv.graph_bytes, md_restore_images_held(r, false) + arena);
	return kv;
}

static void hold_driver(struct md_restore *r, int change)
{
	pthread_mutex_lock(&md_restore_lock);
	r->holds += (unsigned)change;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

/* The stored answer, provided that the artifact could be opened, which includes the fingerprint. */
static enum md_status stored_capacity(const struct medusa_kv_request *request, struct md_kv *out, struct md_error *err)
{
	struct md_restore *r = &md_restore;
	struct md_kv stored = {0}, then = {0};
	MD_FORWARD(md_restore_begin(err));
	pthread_mutex_lock(&md_restore_lock);
	wait_for_head(r);
	enum md_status status = MD_OK;
	if (r->refusal.status) {
		status = md_error_set(err, r->refusal.status, "%s", r->refusal.message);
	} else if (r->phase != MD_PHASE_FAILED && r->head_known) {
		stored = kv_beside_ours(r);
		then = r->artifact.kv;
	} else {
		status = md_error_set(err, MD_ERR_NOT_FOUND, "%s",
				      r->failure.status ? r->failure.message : "nothing is being restored");
	}
	pthread_mutex_unlock(&md_restore_lock);
	if (status != MD_OK)
		return status;
	hold_driver(r, +1); /* each loader ends its current image: the question waits for four images at most */
	status = md_kvprofile_answer(&stored, request, out, err);
	if (status == MD_OK) {
		out->baseline_free = then.baseline_free;
		out->graph_bytes = then.graph_bytes;
	}
	hold_driver(r, -1);
	return status;
}

/* Why nothing at all is restored has been logged already. */
static void log_live_kv(const struct md_error *why)
{
	struct md_restore *r = &md_restore;
	pthread_mutex_lock(&md_restore_lock);
	bool known = r->phase == MD_PHASE_FAILED || r->refusal.status;
	pthread_mutex_unlock(&md_restore_lock);
	md_log(known ? MD_LOG_INFO : MD_LOG_WARN, MD_LOG_DOMAIN, "KV capacity is measured live: %s", why->message);
}

MD_EXPORT int medusa_kv_capacity(const struct medusa_kv_request *request, struct medusa_kv *out)
{
	MD_UNCANCELLED;
	struct md_error why = {0}, err = {0};
	struct md_kv kv = {0};
	uint64_t start = md_clock_ns();
	enum md_status status = md_kvprofile_check(request, out, &err);
	if (status != MD_OK)
		return md_api_answer(status, &err);
	status = md_restore_agree_capacity(&md_restore, stored_capacity(request, &kv, &why), &why);
	if (status == MD_OK) {
		md_kvprofile_to_public(&kv, 1, md_clock_ns() - start, out);
		if (*why.message)
			md_info("%s", why.message);
		return md_api_ok_but(why.message);
	}
	log_live_kv(&why);
	md_restore_sequence_pause(+1);
	status = md_kvprofile_measure(request, &kv, &err);
	md_restore_sequence_pause(-1);
	if (status != MD_OK)
		return md_api_answer(status, &err);
	md_kvprofile_to_public(&kv, 0, md_clock_ns() - start, out);
	return md_api_ok_but(why.message);
}
