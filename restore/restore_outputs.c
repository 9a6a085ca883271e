/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs and notes of graphs: where those of restored graphs lie,
 * and what the engine states about its live graphs (verify mode).
 */
#include <stdio.h>

#include "api/api.h"
#include "base/uncancelled.h"
#include "driver/interpose.h"
#include "restore/agree.h"
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/graph_state.h"
#include "restore/groups.h"
#include "restore/restore.h"
#include "restore/restore_api.h"
#include "restore/restore_outputs.h"
#include "restore/verify/live_graphs.h"

enum md_status md_restore_outputs_check(const struct md_artifact *a, const struct md_artifact_graph *graph,
					struct md_error *err)
{
	for (uint32_t i = 0; i < graph->output_count; i++) {
		const struct md_artifact_output *output = &graph->outputs[i];
		if (!output->size)
			continue;
		if (output->alloc >= a->alloc_count)
			return md_error_set(err, MD_ERR_CORRUPT, "output %u lies in allocation %u of %u", i,
					    output->alloc, a->alloc_count);
		uint64_t room = a->allocs[output->alloc].size;
		if (output->size > room || output->offset > room - output->size)
			return md_error_set(err, MD_ERR_CORRUPT,
					    "output %u: %llu bytes at offset %llu, its allocation has %llu", i,
					    (unsigned long long)output->size, (unsigned long long)output->offset,
					    (unsigned long long)room);
	}
	return MD_OK;
}

/* ---- restored graphs ---- */

static enum md_status find_handed_out(struct md_restore *r, const char *label, unsigned batch,
				      const struct md_restore_graph **out, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	if (atomic_load(&r->off))
		return md_error_set(err, MD_ERR_NOT_FOUND, "%s", MD_RESTORE_OFF);
	if (r->released)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the engine has released its graphs");
	const struct md_restore_graph *graph = md_restore_find(r, label, batch);
	if (!graph || !graph->handed_out)
		return md_error_set(err, MD_ERR_NOT_FOUND, "graph %s/%u was not handed out", label, batch);
	*out = graph;
	return MD_OK;
}

/* Finds an output. Its address holds for as long as the engine has the graph. */
static enum md_status find_output(struct md_restore *r, const char *label, unsigned batch, unsigned index,
				  medusa_deviceptr *address, size_t *bytes, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	const struct md_restore_graph *graph;
	MD_FORWARD(find_handed_out(r, label, batch, &graph, err));
	const struct md_artifact_graph *stored = graph->stored;
	if (index >= stored->output_count || !stored->outputs[index].size)
		return md_error_set(err, MD_ERR_NOT_FOUND, "graph %s/%u has no output %u", label, batch, index);
	*address = md_restore_output_address(r, &stored->outputs[index]);
	*bytes = stored->outputs[index].size;
	return MD_OK;
}

uint64_t md_restore_output_address(const struct md_restore *r, const struct md_artifact_output *output)
{
	return md_restore_alloc_address(r, output->alloc) + output->offset;
}

MD_EXPORT int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, medusa_deviceptr *address,
				      size_t *bytes)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	if (md_api_check_output_get(label, address, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = find_output(r, label, batch, index, address, bytes, &err);
	pthread_mutex_unlock(&md_restore_lock);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes)
{
	MD_UNCANCELLED;
	struct md_restore *r = &md_restore;
	const struct md_restore_graph *graph;
	struct md_error err = {0};
	if (md_api_check_note_get(label, data, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	md_restore_init();
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = find_handed_out(r, label, batch, &graph, &err);
	if (status == MD_OK) {
		*data = graph->stored->note;
		*bytes = graph->stored->note_size;
	}
	pthread_mutex_unlock(&md_restore_lock);
	return md_api_answer(status, &err);
}

/* ---- live graphs: only a verification wants to know ---- */

static bool verifying(void)
{
	md_restore_init();
	return md_restore.verify && !atomic_load(&md_restore.off) && md_guard_enter();
}

static int answer_verifying(enum md_status status, const struct md_error *err)
{
	md_guard_leave();
	return md_api_answer(status, err);
}

/* In a restore: the engine captures this graph live. */
static int captured(const char *label, unsigned batch)
{
	struct md_restore *r = &md_restore;
	struct md_error err = {0};
	if (r->verify || atomic_load(&r->off))
		return md_api_ok();
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = md_restore_group_captured(r, label, batch, &err);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	md_restore_agree_captured(r, label, batch);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_graph_label(void *exec, const char *label, unsigned batch)
{
	MD_UNCANCELLED;
	struct md_error err = {0};
	if (md_api_check_label(label, &err) != MD_OK)
		return md_api_fail(&err);
	if (!verifying())
		return captured(label, batch);
	return answer_verifying(md_verify_label(exec, label, batch, &err), &err);
}

MD_EXPORT int medusa_graph_output(void *exec, unsigned index, medusa_deviceptr address, size_t bytes)
{
	MD_UNCANCELLED;
	struct md_error err = {0};
	if (md_api_check_output(index, address, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	if (!verifying())
		return md_api_ok();
	return answer_verifying(md_verify_output(exec, index, address, bytes, &err), &err);
}

MD_EXPORT int medusa_graph_note(void *exec, const void *data, size_t bytes)
{
	struct md_error err = {0};
	(void)exec;
	return md_api_answer(md_api_check_note(data, bytes, &err), &err);
}

MD_EXPORT int medusa_graph_refuse(void *exec, const char *why)
{
	MD_UNCANCELLED;
	struct md_error err = {0};
	if (md_api_check_refuse(why, &err) != MD_OK)
		return md_api_fail(&err);
	if (!verifying())
		return md_api_ok();
	return answer_verifying(md_verify_refuse(exec, why, &err), &err);
}

MD_EXPORT int medusa_graph_scratch(medusa_deviceptr address, size_t bytes)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_memory("medusa_graph_scratch", address, bytes, &err), &err);
}
