/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/obey.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define AGAIN_NS UINT64_C(30000000000) /* a model that requests for others have sent away is not loaded again at once */

struct md_obey {
	struct md_worker *worker;
	void *job;     /* a load that has not ended; NULL: none */
	char *loading; /* its model's ID */
	json_t *tried; /* {"MODEL": when, in ns of md_clock_ns()} */
};

struct md_obey *md_obey_create(struct md_worker *worker)
{
	struct md_obey *obey = calloc(1, sizeof(*obey));
	if (!obey)
		return NULL;
	*obey = (struct md_obey){.worker = worker, .tried = json_object()};
	if (obey->tried)
		return obey;
	free(obey);
	return NULL;
}

void md_obey_destroy(struct md_obey *obey)
{
	if (!obey)
		return;
	if (obey->job)
		md_job_forget(obey->job);
	json_decref(obey->tried);
	free(obey->loading);
	free(obey);
}

/* ---- what is kept ---- */

static void keep(struct md_model *model, bool kept)
{
	if (model->placed == kept)
		return;
	model->placed = kept;
	md_info("cluster: model %s is %s", model->id,
		kept ? "kept on this node's GPUs" : "no longer kept on this node's GPUs by the cluster");
	md_model_keep_changed(model);
}

/* ---- what is wanted ---- */

static void on_loaded(void *context, const char *why)
{
	struct md_obey *obey = context;
	obey->job = NULL;
	if (why)
		md_info("cluster: model %s, which is wanted on this node, was not loaded: %s", obey->loading, why);
	free(md_steal_ptr(&obey->loading));
}

/* A user who has unloaded it knows better, and so does an engine that rests because it fails. */
static bool may_load(const struct md_obey *obey, const struct md_model *model, uint64_t now)
{
	const json_t *tried = json_object_get(obey->tried, model->id);
	enum md_engine_state state = md_model_state(model);
	return (state == MD_ENGINE_STOPPED || state == MD_ENGINE_SWAPPED) && !model->unwanted &&
	       !md_model_keep_rest(model) && !(tried && now - (uint64_t)json_integer_value(tried) < AGAIN_NS);
}

static void load(struct md_obey *obey, struct md_model *model, uint64_t now)
{
	obey->loading = strdup(model->id);
	if (!obey->loading)
		return;
	json_object_set_new(obey->tried, model->id, json_integer((json_int_t)now));
	obey->job = md_job_load(model, on_loaded, obey);
	if (!obey->job)
		free(md_steal_ptr(&obey->loading));
}

void md_obey_look(struct md_obey *obey, const json_t *models, bool loads)
{
	struct md_worker *worker = obey->worker;
	uint64_t now = md_clock_ns();
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		struct md_model *model = worker->current[i];
		const char *wanted = json_string_value(json_object_get(models, model->id));
		if (model->base)
			continue;
		bool here = !wanted || md_contents_want(model) == MD_CONTENTS_HERE;
		keep(model, wanted && here && !strcmp(wanted, "kept"));
		if (wanted && here && !strcmp(wanted, "wanted") && loads && !obey->job && may_load(obey, model, now))
			load(obey, model, now);
	}
}
