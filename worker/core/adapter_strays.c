/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_strays.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "worker/core/adapter_call.h"
#include "worker/core/adapter_foreign.h"
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
	bool foreign;     /* somebody else has loaded it */
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

/* All of that name, whose text may be in one of them. */
static void left(struct md_model *model, const char *name)
{
	struct md_adapter_stray *gone = NULL;
	md_adopt_drop_adapter(model, name);
	for (struct md_adapter_stray **at = &model->host.strays, *stray; (stray = *at);) {
		if (strcmp(stray->name, name)) {
			at = &stray->next;
			continue;
		}
		*at = stray->next;
		stray->next = gone;
		gone = stray;
	}
	for (struct md_adapter_stray *stray; (stray = gone); free_stray(stray))
		gone = stray->next;
}

void md_adapter_strays_left(struct md_model *adapter)
{
	left(adapter->base, adapter->config->use_model_name);
}

static void take(void *context, const char *name, const char *path)
{
	add(context, name, path);
}

void md_adapter_strays_adopt(struct md_model *model)
{
	md_adopt_each_adapter(model, take, model);
}

void md_adapter_strays_forget(struct md_model *model)
{
	md_adapter_call_cancel(&model->host.stray_call);
	for (struct md_adapter_stray *stray; (stray = model->host.strays); free_stray(stray))
		model->host.strays = stray->next;
}

/* ---- which are there ---- */

static bool is_named(const struct md_model *model, const struct md_adapter_stray *stray)
{
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		if (!strcmp(adapter->config->use_model_name, stray->name))
			return true;
	return md_adapter_is_in_command(model->config->argv, stray->name, stray->path);
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

bool md_adapter_strays_evict(struct md_model *model, const char *answer, size_t size)
{
	MD_AUTO_FREE char *name = NULL, *path = NULL;
	unsigned count;
	if (!md_adapter_foreign_pick(model, answer, size, &name, &path))
		return false;
	bool added = add(model, name, path);
	struct md_adapter_stray *stray = *find(model, name, path, &count);
	if (!stray || stray->unloads >= MD_ADAPTER_UNLOADS_MAX)
		return false;
	stray->is_there = true;
	stray->foreign |= added;
	return true;
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

/* The one that is unloaded is still the first: lists are not asked meanwhile. */
static void ended(void *context, const struct md_adapter_answer *answer)
{
	struct md_model *model = context;
	struct md_adapter_stray *stray = first_there(model);
	char words[200];
	md_adapter_words("did not unload it", answer, words, sizeof(words));
	stray->is_there = false;
	const char *whose = stray->foreign ? "that a client has loaded" : "of an earlier configuration";
	if (answer->status / 100 == 2 || answer->status == 404) {
		md_warn("model %s: its engine had adapter %s %s, which was unloaded", model->id, stray->name, whose);
		left(model, stray->name);
	} else if (++stray->unloads < MD_ADAPTER_UNLOADS_MAX) {
		md_adapter_rest(model);
	} else {
		md_warn("model %s: its engine has adapter %s %s, and %s: it keeps its place", model->id, stray->name,
			whose, words);
	}
	md_adapter_pump(model);
	event_active(model->worker->look, EV_TIMEOUT, 0);
}

void md_adapter_strays_unload(struct md_model *model)
{
	struct md_adapter_call *call = &model->host.stray_call;
	struct md_adapter_stray *stray = call->http ? NULL : first_there(model);
	char *body = stray ? md_adapter_order(stray->name, NULL) : NULL;
	struct md_buf none;
	if (!stray)
		return;
	md_buf_init(&none);
	if (!body ||
	    !md_adapter_call_begin(call, model, "/v1/unload_lora_adapter", body, MD_ADAPTER_UNLOAD_S, ended, model))
		ended(model, &(struct md_adapter_answer){.why = "out of memory for the order", .body = &none});
	free(body);
}
