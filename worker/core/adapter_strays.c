/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_strays.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "worker/core/adapter_call.h"
#include "worker/core/adapter_words.h"
#include "worker/core/adopt.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define STRAYS_MAX 4096u /* of one engine */

struct md_adapter_stray {
	struct md_adapter_stray *next;
	char *name, *path;
	bool is_there;    /* and should not be */
	unsigned unloads; /* that have failed */
};

/* ---- what was loaded ---- */

static void free_stray(struct md_adapter_stray *stray)
{
	free(stray->name);
	free(stray->path);
	free(stray);
}

static struct md_adapter_stray **find(struct md_model *model, const char *name, const char *path, unsigned *count)
{
	struct md_adapter_stray **at = &model->host.strays;
	for (*count = 0; *at && (strcmp((*at)->name, name) || strcmp((*at)->path, path)); at = &(*at)->next)
		++*count;
	return at;
}

/* False: it is known, or cannot be remembered. */
static bool add(struct md_model *model, const char *name, const char *path)
{
	unsigned count;
	struct md_adapter_stray **at = find(model, name, path, &count);
	struct md_adapter_stray *stray = *at || count >= STRAYS_MAX ? NULL : calloc(1, sizeof(*stray));
	if (!stray)
		return false;
	stray->name = strdup(name);
	stray->path = strdup(path);
	if (!stray->name || !stray->path) {
		free_stray(stray);
		return false;
	}
	*at = stray;
	return true;
}

void md_adapter_strays_note(struct md_model *adapter)
{
	const char *name = adapter->config->use_model_name, *path = adapter->config->path;
	if (add(adapter->base, name, path))
		md_adopt_note_adapter(adapter->base, name, path);
}

static void take(void *context, const char *name, const char *path)
{
	add(context, name, path);
}

void md_adapter_strays_adopt(struct md_model *model)
{
	md_adopt_each_adapter(model, take, model);
}

static void end_call(struct md_model *model)
{
	if (model->host.stray_call)
		md_buf_finish(&model->host.answer);
	model->host.stray_call = NULL;
}

void md_adapter_strays_forget(struct md_model *model)
{
	md_http_call_cancel(model->host.stray_call);
	end_call(model);
	for (struct md_adapter_stray *stray; (stray = model->host.strays); free_stray(stray))
		model->host.strays = stray->next;
}

/* ---- which are there ---- */

static bool is_named(const struct md_model *model, const struct md_adapter_stray *stray)
{
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		if (!strcmp(adapter->config->use_model_name, stray->name))
			return true;
	for (const char *const *word = model->config->argv; word && *word; word++)
		if (strstr(*word, stray->path))
			return true;
	return false;
}

bool md_adapter_strays_find(struct md_model *model, const char *answer, size_t size)
{
	bool some = false;
	for (struct md_adapter_stray *stray = model->host.strays; stray; stray = stray->next) {
		stray->is_there = stray->unloads < MD_ADAPTER_UNLOADS_MAX && !is_named(model, stray) &&
				  md_adapter_find(answer, size, stray->name, stray->path) == MD_ADAPTER_LISTED;
		some |= stray->is_there;
	}
	return some;
}

static struct md_adapter_stray *first_there(const struct md_model *model)
{
	struct md_adapter_stray *stray = model->host.strays;
	while (stray && !stray->is_there)
		stray = stray->next;
	return stray;
}

bool md_adapter_strays_wait(const struct md_model *model)
{
	return first_there(model) != NULL;
}

/* ---- unloading ---- */

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_model *model = context;
	model->host.status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_model *model = context;
	md_adapter_keep_answer(&model->host.answer, bytes, size);
}

/* The one that is unloaded is still the first: lists are not asked meanwhile. */
static void ended(struct md_model *model, const char *why)
{
	struct md_adapter_stray *stray = first_there(model);
	struct md_adapter_host *host = &model->host;
	char words[200];
	md_adapter_words("did not unload it", why ? 0 : host->status, &host->answer, why, words, sizeof(words));
	end_call(model);
	if (!why && (host->status / 100 == 2 || host->status == 404)) {
		md_warn("model %s: its engine had adapter %s of an earlier configuration, which was unloaded",
			model->id, stray->name);
		stray->unloads = 0;
	} else if (++stray->unloads < MD_ADAPTER_UNLOADS_MAX) {
		md_adapter_rest(model);
	} else {
		md_warn("model %s: its engine has adapter %s of an earlier configuration, and %s: it keeps its place",
			model->id, stray->name, words);
	}
	stray->is_there = false;
	md_adapter_pump(model);
	event_active(model->worker->look, EV_TIMEOUT, 0);
}

static void on_end(void *context)
{
	ended(context, NULL);
}

static void on_failed(void *context, const char *why)
{
	ended(context, why);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

void md_adapter_strays_unload(struct md_model *model)
{
	struct md_adapter_host *host = &model->host;
	struct md_adapter_stray *stray = host->stray_call ? NULL : first_there(model);
	char *body = stray ? md_adapter_order(stray->name, NULL) : NULL;
	if (!stray)
		return;
	host->status = 0;
	md_buf_init(&host->answer);
	if (body)
		host->stray_call = md_adapter_call(model, "POST", "/v1/unload_lora_adapter", body, MD_ADAPTER_UNLOAD_S,
						   &calling, model);
	free(body);
	if (!host->stray_call)
		ended(model, "out of memory for the order");
}
