/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adopt.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/core/adapter_strays.h"
#include "worker/core/worker.h"
#include "worker/engine/adopt_adapters.h"
#include "worker/engine/adopt_record.h"
#include "worker/engine/cgroup.h"
#include "worker/engine/keeper.h"
#include "worker/engine/port_owner.h"
#include "worker/engine/process_facts.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define STRAY_S 10 /* from SIGTERM to SIGKILL */

/* An engine of an earlier daemon that no model wants. */
struct stray {
	struct stray *next;
	struct md_worker *worker;
	struct md_engine_process *process;
	struct event *deadline;
	pid_t pid;
};

struct md_adopt {
	char *folder;
	char boot[64];
	struct stray *strays;
	bool failed; /* a record could not be written, which was said */
};

/* ---- engines that nobody wants ---- */

static void free_stray(struct stray *stray)
{
	if (stray->deadline)
		event_free(stray->deadline);
	free(stray);
}

static void on_stray_ended(void *context, int status)
{
	struct stray *stray = context, **at = &stray->worker->adopt->strays;
	(void)status;
	while (*at != stray)
		at = &(*at)->next;
	*at = stray->next;
	md_adopt_record_remove(stray->worker->adopt->folder, stray->pid);
	event_active(stray->worker->look, EV_TIMEOUT, 0);
	free_stray(stray);
}

static void on_stray_deadline(evutil_socket_t fd, short what, void *context)
{
	struct stray *stray = context;
	(void)fd, (void)what;
	md_engine_process_signal(stray->process, SIGKILL);
}

/* Without memory for it, it is killed with what is not adopted. */
static void end_stray(struct md_worker *worker, const struct md_adopt_record *record, const struct md_engine_left *left,
		      const char *why)
{
	struct timeval wait = {.tv_sec = STRAY_S};
	struct md_error err = {0};
	struct stray *stray = calloc(1, sizeof(*stray));
	/* memory that is away would come back on its way out, where there may be no room */
	bool away = !strcmp(record->state, md_engine_state_name(MD_ENGINE_SWAPPED));
	md_warn("process %d, the engine that an earlier daemon started for model %s, is %s: %s", (int)record->pid,
		record->model, away ? "killed" : "told to end", why);
	if (stray) {
		*stray = (struct stray){.next = worker->adopt->strays, .worker = worker, .pid = record->pid};
		stray->deadline = evtimer_new(worker->base, on_stray_deadline, stray);
	}
	if (!stray || !stray->deadline || event_add(stray->deadline, &wait) ||
	    md_engine_process_adopt(worker->processes, left->pid, left->pidfd, on_stray_ended, stray, &stray->process,
				    &err) != MD_OK) {
		close(left->pidfd);
		md_cgroup_close(left->cgroup);
		if (stray)
			free_stray(stray);
		return;
	}
	if (left->cgroup)
		md_engine_process_keep_cgroup(stray->process, left->cgroup);
	worker->adopt->strays = stray;
	md_engine_process_signal(stray->process, away ? SIGKILL : SIGTERM);
}

bool md_adopt_has_strays(const struct md_worker *worker)
{
	return worker->adopt && (worker->adopt->strays || md_engine_processes_has_left(worker->processes));
}

/* ---- which engine is whose ---- */

/* The NUL keeps texts apart; no text is not the empty one. */
static void add_text(struct md_hash_stream *hash, const char *text)
{
	md_hash_stream_add(hash, text ? text : "\1", (text ? strlen(text) : 1) + 1);
}

/* Of all that another engine would be started for if it changed. False: out of memory. */
static bool hash_command(const struct md_model *model, char text[MD_HASH_TEXT_BYTES])
{
	static const char *const words[] = {
	    [MD_ENGINE_SWAP_NEVER] = NULL, [MD_ENGINE_SWAP_RUN] = "swap", [MD_ENGINE_SWAP_CHECKPOINT] = "checkpoint"};
	const struct md_config_model *config = model->config;
	struct md_hash_stream *stream = md_hash_stream_begin();
	struct md_hash hash;
	if (!stream)
		return false;
	for (const char *const *word = config->argv; *word; word++)
		add_text(stream, *word);
	add_text(stream, NULL);
	for (uint32_t i = 0; i < config->env.count; i++)
		add_text(stream, config->env.items[i]);
	add_text(stream, NULL);
	add_text(stream, config->proxy);
	add_text(stream, config->own.artifact);
	add_text(stream, words[model->settings.swapping]);
	if (config->own.share == MD_CONFIG_SHARE_ON)
		add_text(stream, "share");
	if (config->own.share == MD_CONFIG_SHARE_AUTO)
		add_text(stream, "share constant");
	md_hash_stream_finish(stream, &hash);
	md_hash_format(&hash, text);
	return true;
}

static const char *name_of(const struct md_worker *worker, uint32_t gpu)
{
	const char *name = md_gpus_visible(worker->gpus, gpu);
	return name ? name : "";
}

/* Where the GPU stands in this configuration; a GPU without a name is found by its place. */
static bool find_gpu(const struct md_worker *worker, const struct md_adopt_record *record, uint32_t *gpu)
{
	uint32_t count;
	md_gpus_list(worker->gpus, &count);
	for (*gpu = *record->gpu_uuid ? 0 : record->gpu; *gpu < count; ++*gpu)
		if (!strcmp(name_of(worker, *gpu), record->gpu_uuid))
			return true;
		else if (!*record->gpu_uuid)
			break;
	return false;
}

static struct md_model *find_model(const struct md_worker *worker, const char *id)
{
	const struct md_config_model *found = md_config_find_model(worker->config, id);
	return found && !strcmp(found->id, id) ? worker->current[found - worker->config->models] : NULL;
}

/* NULL: it fits. */
static const char *misfit(const struct md_model *model, const struct md_adopt_record *record, uint32_t *gpu)
{
	char command[MD_HASH_TEXT_BYTES];
	if (!model)
		return "the configuration has no such model";
	if (md_engine_state(model->engine) != MD_ENGINE_STOPPED)
		return "the model has an engine already";
	if (!hash_command(model, command) || strcmp(command, record->command) != 0 ||
	    !model->settings.swap_name != !*record->swap_name)
		return "the model's command, variables, proxy, artifact, way of sharing or way of swapping are others "
		       "now";
	if (!find_gpu(model->worker, record, gpu))
		return "the configuration does not have its GPU";
	if (!strcmp(record->state, md_engine_state_name(MD_ENGINE_STOPPING)))
		return "it was told so before";
	return NULL;
}

/* ---- adopting ---- */

/* The hash of the command says that the record's engine is swapped as the model's. */
static bool was(const struct md_model *model, const struct md_adopt_record *record, enum md_engine_state state)
{
	return model->settings.swapping != MD_ENGINE_SWAP_NEVER && !strcmp(record->state, md_engine_state_name(state));
}

static void take_names(struct md_model *model, const struct md_adopt_record *record)
{
	memcpy(model->swap_name, record->swap_name, sizeof(model->swap_name));
	if (*record->mark)
		snprintf(model->mark, sizeof(model->mark), "%s=%s", MD_ENGINE_MARK, record->mark);
}

/* What is left is taken over. */
static void adopt(struct md_model *model, const struct md_adopt_record *record, const struct md_engine_left *left,
		  uint32_t gpu)
{
	struct md_worker *worker = model->worker;
	struct md_error err = {0};
	bool swapped = was(model, record, MD_ENGINE_SWAPPED), leaving = was(model, record, MD_ENGINE_LEAVING);
	take_names(model, record);
	model->gpu = gpu;
	model->adopting = true;
	model->host.unsure = model->host.pump != NULL; /* which adapters it has */
	/*
	 * What is in host memory needs no word: the scheduler believes all models to be there. What is on its way there has
	 * its memory until that is done, and keeps it if that fails.
	 */
	model->adopts_memory = !swapped;
	if (model->shared_backbone != MEDUSA_SCHED_NONE) /* which stays while the engine is swapped */
		md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RESIDENT,
								      .artifact = MEDUSA_SCHED_CLASS_BACKBONE,
								      .gpu = gpu,
								      .backbone = model->shared_backbone,
								      .function = model->function});
	if (model->adopts_memory)
		md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RESIDENT,
								      .artifact = model->backbone == MEDUSA_SCHED_NONE
										      ? MEDUSA_SCHED_CLASS_WEIGHTS
										      : MEDUSA_SCHED_CLASS_BACKBONE,
								      .gpu = gpu,
								      .backbone = model->backbone,
								      .function = model->function});
	md_warn("model %s: adopts process %d, its engine of an earlier daemon (state: %s)", model->id, (int)record->pid,
		record->state);
	if (md_engine_adopt(model->engine, left, swapped || leaving, record->template, &err) == MD_OK) {
		md_adapter_strays_adopt(model);
		return;
	}
	close(left->pidfd);
	md_cgroup_close(left->cgroup);
	md_engine_stop(model->engine);
}

/*
 * A record that names another cgroup than that of its process costs no engine, and is believed only where daemons of this
 * place alone make cgroups: the process has left it then, and others of its engine may still be there.
 */
static struct md_cgroup *find_cgroup(const struct md_worker *worker, const struct md_adopt_record *record)
{
	struct md_error err = {0}, none;
	struct md_cgroup *found = *record->cgroup ? md_cgroup_open(record->cgroup, record->pid, &err) : NULL;
	if (!*record->cgroup || found)
		return found;
	found = md_engine_processes_find_cgroup(worker->processes, record->cgroup, &none);
	md_warn("model %s: its engine of an earlier daemon is not in the cgroup of its record%s: %s", record->model,
		found ? ", which ends with it all the same" : "", err.message);
	return found;
}

static void take_record(struct md_worker *worker, const char *name)
{
	struct md_adopt_record record;
	struct md_engine_left left;
	struct md_error err = {0};
	uint32_t gpu = 0;
	if (md_adopt_record_read(worker->adopt->folder, name, &record, &err) != MD_OK) {
		md_warn("this record of an engine is ignored: %s", err.message);
		return;
	}
	if (md_adopt_record_find(&record, &left.pidfd, &err) != MD_OK) {
		md_warn("model %s: its engine of an earlier daemon is not adopted: %s", record.model, err.message);
		md_adopt_record_remove(worker->adopt->folder, record.pid);
		return;
	}
	left.pid = record.pid;
	left.cgroup = find_cgroup(worker, &record);
	struct md_model *model = find_model(worker, record.model);
	const char *why = misfit(model, &record, &gpu);
	if (*record.swap_name && !md_pool_adopt(worker, record.model, record.pid) && !why)
		why = "its pool is not the one that all engines share";
	if (why)
		end_stray(worker, &record, &left, why);
	else
		adopt(model, &record, &left, gpu);
}

static int is_record(const struct dirent *entry)
{
	return md_adopt_record_is_name(entry->d_name);
}

/* All names first: what is adopted is written down anew, and could be listed again. */
static void look_around(struct md_worker *worker)
{
	struct dirent **names;
	int count = scandir(worker->adopt->folder, &names, is_record, alphasort);
	for (int i = 0; i < count; i++) {
		take_record(worker, names[i]->d_name);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

/* ---- writing down ---- */

static void write_record(struct md_model *model, pid_t pid)
{
	struct md_adopt *adopt = model->worker->adopt;
	struct md_adopt_record record = {.pid = pid, .began = md_process_began(pid), .gpu = model->gpu};
	struct md_error err = {0};
	snprintf(record.model, sizeof(record.model), "%s", model->id);
	snprintf(record.boot, sizeof(record.boot), "%s", adopt->boot);
	snprintf(record.template, sizeof(record.template), "%s", md_engine_origin(model->engine));
	if (!*record.template)
		snprintf(record.mark, sizeof(record.mark), "%s", strchr(model->mark, '=') + 1);
	snprintf(record.swap_name, sizeof(record.swap_name), "%s",
		 model->settings.swap_name ? model->settings.swap_name : "");
	const struct md_cgroup *cgroup = md_engine_cgroup(model->engine);
	snprintf(record.cgroup, sizeof(record.cgroup), "%s", cgroup ? md_cgroup_path(cgroup) : "");
	snprintf(record.state, sizeof(record.state), "%s", md_engine_state_name(md_engine_state(model->engine)));
	snprintf(record.gpu_uuid, sizeof(record.gpu_uuid), "%s", name_of(model->worker, model->gpu));
	if (!hash_command(model, record.command))
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for the hash of its command");
	else if (md_adopt_record_write(adopt->folder, &record, &err) == MD_OK)
		model->recorded = pid;
	if (err.status != MD_OK && !adopt->failed)
		md_warn("model %s: a later daemon cannot adopt its engine: %s", model->id, err.message);
	if (err.status != MD_OK) /* an older one says where its memory was */
		md_adopt_record_remove(adopt->folder, pid);
	adopt->failed = err.status != MD_OK;
}

void md_adopt_note(struct md_model *model)
{
	struct md_adopt *adopt = model->worker->adopt;
	pid_t pid = md_engine_process_of(model->engine);
	if (!adopt)
		return;
	if (model->recorded && model->recorded != pid) {
		md_adopt_record_remove(adopt->folder, model->recorded);
		model->recorded = 0;
	}
	if (pid)
		write_record(model, pid);
}

void md_adopt_note_adapter(struct md_model *model, const char *name, const char *path)
{
	struct md_adopt *adopt = model->worker->adopt;
	pid_t pid = model->recorded;
	struct md_error err = {0};
	if (adopt && pid && md_adopt_adapters_add(adopt->folder, pid, md_process_began(pid), name, path, &err) != MD_OK)
		md_warn("model %s: a later daemon does not know that its engine has adapter %s: %s", model->id, name,
			err.message);
}

void md_adopt_drop_adapter(struct md_model *model, const char *name)
{
	struct md_adopt *adopt = model->worker->adopt;
	pid_t pid = model->recorded;
	struct md_error err = {0};
	if (adopt && pid && md_adopt_adapters_drop(adopt->folder, pid, md_process_began(pid), name, &err) != MD_OK)
		md_warn("model %s: a later daemon does not know that its engine has unloaded adapter %s: %s", model->id,
			name, err.message);
}

void md_adopt_each_adapter(struct md_model *model, void (*take)(void *context, const char *name, const char *path),
			   void *context)
{
	struct md_adopt *adopt = model->worker->adopt;
	pid_t pid = md_engine_process_of(model->engine);
	struct md_error err = {0};
	if (adopt && pid &&
	    md_adopt_adapters_read(adopt->folder, pid, md_process_began(pid), take, context, &err) != MD_OK)
		md_warn("model %s: which adapters were loaded into its engine is not known: %s", model->id,
			err.message);
}

/* ---- beginning and end ---- */

void md_adopt_serves(struct md_worker *worker)
{
	md_engine_keeper_serves(md_engine_processes_keeper(worker->processes),
				worker->config->node.adopt_ns / 1000000u);
}

static void on_cleared(void *context)
{
	struct md_worker *worker = context;
	event_active(worker->look, EV_TIMEOUT, 0);
}

enum md_status md_adopt_begin(struct md_worker *worker, const char *folder, struct md_error *err)
{
	if (md_engine_keeper_has_place(md_engine_processes_keeper(worker->processes))) {
		worker->adopt = calloc(1, sizeof(*worker->adopt));
		if (worker->adopt)
			worker->adopt->folder = strdup(folder);
		if (!worker->adopt || !worker->adopt->folder)
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for engines of an earlier daemon");
		md_process_boot(worker->adopt->boot, sizeof(worker->adopt->boot));
		look_around(worker);
		md_engine_processes_clear(worker->processes, on_cleared, worker);
	}
	md_adopt_serves(worker);
	return MD_OK;
}

void md_adopt_end(struct md_worker *worker)
{
	struct md_adopt *adopt = worker->adopt;
	if (!adopt)
		return;
	while (adopt->strays) {
		struct stray *stray = adopt->strays;
		adopt->strays = stray->next;
		md_engine_process_kill(stray->process);
		md_adopt_record_remove(adopt->folder, stray->pid);
		free_stray(stray);
	}
	for (struct md_model *model = NULL; (model = md_models_next(worker, model));)
		if (model->recorded)
			md_adopt_record_remove(adopt->folder, model->recorded);
	worker->adopt = NULL;
	free(adopt->folder);
	free(adopt);
}
