/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_foreign.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/core/adapter_words.h"
#include "worker/core/body_scan.h"
#include "worker/core/body_text.h"
#include "worker/core/target.h"
#include "worker/core/worker.h"

#define KNOWN_MAX 256u       /* names of one engine; the one that was used longest ago is forgotten for a further one */
#define BODY_MAX (1u << 20)  /* bytes: of a longer request it is not known which adapter it uses */
#define NAME_MAX_BYTES 1024u /* with its NUL */

struct md_adapter_foreign {
	struct md_adapter_foreign *next;
	char *name;
	uint64_t used_at; /* md_clock_ns(): the last request for it began or ended */
	unsigned users;   /* requests that have not ended */
	bool dropped;     /* it is in no list any more, and its last user frees it */
};

/* ---- what is known ---- */

static void free_foreign(struct md_adapter_foreign *foreign)
{
	free(foreign->name);
	free(foreign);
}

static void drop(struct md_adapter_foreign **at)
{
	struct md_adapter_foreign *foreign = *at;
	*at = foreign->next;
	foreign->dropped = true;
	if (!foreign->users)
		free_foreign(foreign);
}

void md_adapter_foreign_forget(struct md_model *model)
{
	while (model->host.foreign)
		drop(&model->host.foreign);
}

static struct md_adapter_foreign *find(const struct md_model *model, const char *name)
{
	struct md_adapter_foreign *at = model->host.foreign;
	while (at && strcmp(at->name, name) != 0)
		at = at->next;
	return at;
}

/* The name that was used longest ago makes room. */
static void bound(struct md_model *model)
{
	struct md_adapter_foreign **oldest = NULL;
	unsigned count = 0;
	for (struct md_adapter_foreign **at = &model->host.foreign; *at; at = &(*at)->next, count++)
		if (!(*at)->users && (!oldest || (*at)->used_at < (*oldest)->used_at))
			oldest = at;
	if (count >= KNOWN_MAX && oldest)
		drop(oldest);
}

/* NULL: out of memory. */
static struct md_adapter_foreign *note(struct md_model *model, const char *name)
{
	struct md_adapter_foreign *found = find(model, name), *made;
	if (found)
		return found;
	bound(model);
	made = calloc(1, sizeof(*made));
	if (made)
		made->name = strdup(name);
	if (!made || !made->name) {
		free(made);
		return NULL;
	}
	made->next = model->host.foreign;
	return model->host.foreign = made;
}

/* ---- requests ---- */

static bool is_configured(const struct md_model *model, const char *name)
{
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		if (!strcmp(adapter->config->use_model_name, name))
			return true;
	return false;
}

/* Requests name it as model, loads as lora_name. */
static bool read_name(const char *body, size_t size, char name[NAME_MAX_BYTES])
{
	struct md_body_object object;
	struct md_body_failure failure;
	bool found = false;
	if (size > BODY_MAX || !md_body_scan(body, size, &object, &failure))
		return false;
	for (uint32_t i = 0; !found && i < object.count; i++) {
		const struct md_body_member *at = &object.members[i];
		const char *key = body + at->key, *value = body + at->value;
		if (*value == '"' &&
		    (md_body_text_is(key, at->key_size, "model") || md_body_text_is(key, at->key_size, "lora_name")))
			found = md_body_text_copy(value + 1, at->value_size - 2, name, NAME_MAX_BYTES);
	}
	md_body_object_finish(&object);
	return found;
}

void md_adapter_foreign_begin(struct md_worker_job *job)
{
	const struct md_http_head *head = md_http_exchange_head(job->relay.exchange);
	struct md_model *model = md_model_with_engine(job->model);
	char path[MD_TARGET_MAX], name[NAME_MAX_BYTES];
	size_t size;
	const char *body = md_http_exchange_body(job->relay.exchange, &size);
	if (!model->config->own.adapted || !size || !md_target_path(md_http_head_target(head), path, sizeof(path)) ||
	    strncmp(path, "/upstream/", 10) != 0 || !read_name(body, size, name) || is_configured(model, name))
		return;
	job->foreign = note(model, name);
	if (!job->foreign)
		return;
	job->foreign->users++;
	job->foreign->used_at = md_clock_ns();
}

void md_adapter_foreign_end(struct md_worker_job *job)
{
	struct md_adapter_foreign *foreign = job->foreign;
	job->foreign = NULL;
	if (!foreign)
		return;
	foreign->used_at = md_clock_ns();
	if (!--foreign->users && foreign->dropped)
		free_foreign(foreign);
}

/* ---- which one leaves ---- */

struct search {
	const struct md_model *model;
	unsigned count; /* adapters that the engine has */
	char *name, *path;
	uint64_t used_at;
	bool failed;
};

/* Of those that were used equally long ago, such as before this daemon began, the first of the list leaves. */
static void look(void *context, const char *name, const char *path)
{
	struct search *search = context;
	const struct md_model *model = search->model;
	const struct md_adapter_foreign *known = find(model, name);
	uint64_t used_at = known ? known->used_at : 0;
	search->count++;
	if (is_configured(model, name) || (known && known->users) || (search->name && used_at >= search->used_at) ||
	    md_adapter_is_in_command(model->config->argv, name, path))
		return;
	free(search->name);
	free(search->path);
	search->name = strdup(name);
	search->path = strdup(path);
	search->used_at = used_at;
	search->failed |= !search->name || !search->path;
}

bool md_adapter_foreign_pick(const struct md_model *model, const char *answer, size_t size, char **name, char **path)
{
	struct search search = {.model = model};
	md_adapter_each(answer, size, look, &search);
	uint32_t slots = model->config->own.adapter_slots;
	if (search.name && !search.failed && slots && search.count >= slots) {
		*name = search.name;
		*path = search.path;
		return true;
	}
	free(search.name);
	free(search.path);
	return false;
}
