/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that others have started: finds those of a tree that use the driver, and lets the driver checkpoint them. */
#include "tools/swap_process.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/plain.h"
#include "driver/process_checkpoint.h"
#include "swap/wire.h"
#include "tools/family.h"
#include "tools/swap_freeze.h"

#define TREE_MOST 4096u

struct tree {
	pid_t all[TREE_MOST]; /* the process that was named, and its descendants */
	size_t count;
	pid_t users[MD_CHECKPOINT_PROCESSES]; /* of these, those that use the driver */
	CUprocessState states[MD_CHECKPOINT_PROCESSES];
	size_t user_count;
	bool frozen;  /* since they were checkpointed */
	bool already; /* they were where they should be */
};

/* ---- who is meant ---- */

bool md_swap_process_is_id(const char *text)
{
	return *text && strlen(text) < 10 && strspn(text, "0123456789") == strlen(text);
}

static enum md_status find_root(const char *whom, pid_t *pid, struct md_error *err)
{
	pid_t found[8];
	char list[128] = "";
	if (md_swap_process_is_id(whom)) {
		*pid = (pid_t)atoi(whom);
		return MD_OK;
	}
	size_t count = md_family_named(whom, found, sizeof(found) / sizeof(found[0]));
	*pid = found[0];
	if (count == 1)
		return MD_OK;
	if (!count)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no process is called %s", whom);
	for (size_t i = 0, used = 0; i < count && i < sizeof(found) / sizeof(found[0]); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, " %d", (int)found[i]);
	return md_error_set(err, MD_ERR_AMBIGUOUS, "%zu processes are called %s: name one by its id:%s", count, whom,
			    list);
}

/* Whether the process has loaded the driver; true if that cannot be read. */
static bool may_use_driver(pid_t pid)
{
	char path[64], line[PATH_MAX + 256];
	bool read = false, loaded = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	while (file && !loaded && fgets(line, sizeof(line), file)) {
		read = true;
		loaded = strstr(line, "/libcuda.so") != NULL;
	}
	return loaded || !read;
}

/* The driver would wait for it, without a limit. */
static bool is_stopped(pid_t pid)
{
	char path[64], line[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	const char *end = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	return end && (!strncmp(end, ") T", 3) || !strncmp(end, ") t", 3));
}

static enum md_status add_user(struct tree *tree, pid_t pid, struct md_error *err)
{
	CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
	bool known = true;
	if (pid == getpid() || !may_use_driver(pid))
		return MD_OK;
	if (!tree->frozen && is_stopped(pid))
		return md_error_set(err, MD_ERR_TIMEOUT,
				    "process %d is stopped (SIGSTOP, a debugger): continue it, since the driver waits "
				    "for it",
				    (int)pid);
	if (!tree->frozen) /* one that is frozen does not answer */
		MD_FORWARD(md_checkpoint_state(pid, &known, &state, err));
	if (!known)
		return MD_OK;
	if (tree->user_count == MD_CHECKPOINT_PROCESSES)
		return md_error_set(err, MD_ERR_TOO_LARGE, "more than %u processes use the driver",
				    MD_CHECKPOINT_PROCESSES);
	tree->users[tree->user_count] = pid;
	tree->states[tree->user_count++] = state;
	return MD_OK;
}

/* Processes that are to come in are thawed. */
static enum md_status find_tree(const char *verb, pid_t root, struct tree *tree, struct md_error *err)
{
	tree->user_count = 0;
	if (tree->frozen && !strcmp(verb, "in")) {
		MD_FORWARD(md_swap_freeze_end(root, err));
		tree->frozen = false;
	}
	tree->count = md_family_tree(root, tree->all, TREE_MOST);
	if (!tree->count)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no process has the id %d", (int)root);
	if (tree->count > TREE_MOST)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%zu processes: at most %u can be looked at", tree->count,
				    TREE_MOST);
	for (size_t i = 0; i < tree->count; i++)
		MD_FORWARD(add_user(tree, tree->all[i], err));
	if (tree->user_count)
		return MD_OK;
	return md_error_set(err, MD_ERR_NOT_FOUND,
			    "neither process %d nor one that it has started has initialized the CUDA driver",
			    (int)root);
}

/* ---- what is not allowed ---- */

/* The name of the engine of medusa-swap run that the process belongs to; "": of none that is served. */
static void find_engine(pid_t pid, char name[64])
{
	char path[64], text[PATH_MAX];
	size_t size = 0;
	MD_AUTO_FREE char *entry = NULL;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	*name = '\0';
	while (file && getdelim(&entry, &size, '\0', file) > 0) {
		struct md_error none;
		int fd = -1;
		if (sscanf(entry, "MEDUSA_SWAP_CONTROL=%4095s", text) != 1 ||
		    md_swap_wire_connect(text, &fd, &none) != MD_OK)
			continue;
		close(fd);
		const char *slash = strrchr(text, '/');
		snprintf(name, 64, "%.*s", (int)strcspn(slash ? slash + 1 : text, "."), slash ? slash + 1 : text);
	}
}

static enum md_status check_out(const struct md_swap_process_question *question, const struct tree *tree,
				struct md_error *err)
{
	char name[64], list[128] = "";
	for (size_t i = 0, used = 0; i < tree->user_count; i++) {
		find_engine(tree->users[i], name);
		if (*name)
			return md_error_set(err, MD_ERR_BUSY,
					    "process %d belongs to the engine %s of medusa-swap run: use \"medusa-swap "
					    "out %s --full\"",
					    (int)tree->users[i], name, name);
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, " %d", (int)tree->users[i]);
	}
	if (tree->user_count == 1 || question->unshared)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "%zu processes use the driver (%s ): device memory that they share would silently become a "
			    "copy in each; if they share none, say so by --unshared",
			    tree->user_count, list);
}

/* "OLD:NEW" */
static enum md_status plan_move(const char *text, struct md_checkpoint_move *move, struct md_error *err)
{
	CUuuid from, to;
	char old[64];
	const char *colon = text ? strchr(text, ':') : NULL;
	if (!text)
		return MD_OK;
	if (!colon || colon - text >= (ptrdiff_t)sizeof(old))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "--gpu: \"%.60s\" is not OLD:NEW, which is needed for a process that medusa-swap run "
		    "has not started",
		    text);
	snprintf(old, sizeof(old), "%.*s", (int)(colon - text), text);
	MD_FORWARD(md_checkpoint_gpu(old, &from, err));
	MD_FORWARD(md_checkpoint_gpu(colon + 1, &to, err));
	return md_checkpoint_plan(&from, &to, move, err);
}

/* ---- what is asked ---- */

/* Signals that would end this process between two steps wait from here on, until all steps are done or undone. */
static enum md_status hold_signals(void *freeze, struct md_error *err)
{
	sigset_t held;
	sigemptyset(&held);
	sigaddset(&held, SIGINT), sigaddset(&held, SIGTERM), sigaddset(&held, SIGHUP);
	sigprocmask(SIG_BLOCK, &held, NULL);
	const pid_t *root = freeze; /* NULL: nothing is to be frozen */
	return root ? md_swap_freeze_prepare(*root, err) : MD_OK;
}

static enum md_status freeze_all(const struct tree *tree, struct md_error *err)
{
	struct md_checkpoint_times none;
	struct md_error why = {0};
	if (md_swap_freeze(tree->all, tree->count, &why) == MD_OK)
		return MD_OK;
	md_error_set(err, why.status, "the processes could not be frozen, and run on: %s", why.message);
	if (md_checkpoint_in(tree->users, tree->user_count, NULL, NULL, &none, &why) == MD_OK)
		return err->status;
	return md_error_set(err, why.status, "the processes could not be frozen, and do not come back: %s",
			    why.message);
}

static enum md_status go_out(const struct md_swap_process_question *question, struct tree *tree,
			     struct md_checkpoint_times *times, struct md_error *err)
{
	const struct md_checkpoint_begin begin = {hold_signals, question->freeze ? tree->all : NULL};
	struct md_error none;
	MD_FORWARD(check_out(question, tree, err));
	enum md_status status =
	    md_checkpoint_out(tree->users, tree->user_count, question->deadline_ms, &begin, times, err);
	if (status == MD_OK && question->freeze)
		status = freeze_all(tree, err);
	if (status != MD_OK && question->freeze)
		md_swap_freeze_end(tree->all[0], &none);
	return status;
}

static enum md_status come_in(const struct md_swap_process_question *question, const struct tree *tree,
			      struct md_checkpoint_times *times, struct md_error *err)
{
	const struct md_checkpoint_begin begin = {hold_signals, NULL};
	struct md_checkpoint_move move = {.count = 0};
	MD_FORWARD(plan_move(question->gpu, &move, err));
	return md_checkpoint_in(tree->users, tree->user_count, &move, &begin, times, err);
}

/* ---- answers ---- */

static void state_of(const struct tree *tree, char text[64])
{
	CUprocessState most = CU_PROCESS_STATE_RUNNING;
	bool equal = true;
	for (size_t i = 0; i < tree->user_count; i++) {
		equal = equal && tree->states[i] == tree->states[0];
		most = tree->states[i] > most ? tree->states[i] : most;
	}
	snprintf(text, 64, "%s%s", equal ? "" : "partly ", md_checkpoint_state_name(most));
}

static void print_json(const struct md_swap_process_question *question, const struct tree *tree,
		       const struct md_checkpoint_times *times)
{
	struct md_json json;
	char state[64], key[24];
	state_of(tree, state);
	md_json_init(&json, stdout);
	md_json_object(&json, NULL);
	md_json_bool(&json, "ok", true);
	md_json_text(&json, "status", md_status_name(MD_OK));
	md_json_text(&json, "name", question->whom);
	md_json_text(&json, "method", "checkpoint");
	md_json_text(&json, "state", state);
	md_json_bool(&json, "frozen", tree->frozen);
	md_json_bool(&json, "already", tree->already);
	md_json_number(&json, "engines", tree->user_count);
	md_json_number(&json, "ns_lock", times->ns_lock);
	md_json_number(&json, "ns_checkpoint", times->ns_checkpoint);
	md_json_number(&json, "ns_restore", times->ns_restore);
	md_json_number(&json, "ns_unlock", times->ns_unlock);
	md_json_object(&json, "processes");
	for (size_t i = 0; i < tree->user_count; i++) {
		snprintf(key, sizeof(key), "%d", (int)tree->users[i]);
		md_json_text(&json, key, md_checkpoint_state_name(tree->states[i]));
	}
	md_json_end(&json);
	md_json_end(&json);
}

static void print_text(const struct md_swap_process_question *question, const struct tree *tree,
		       const struct md_checkpoint_times *times)
{
	char state[64];
	uint64_t ns = times->ns_lock + times->ns_checkpoint + times->ns_restore + times->ns_unlock;
	state_of(tree, state);
	if (tree->already)
		md_plain_line(stdout, "%s: the memory is %s already", question->whom, question->verb);
	else if (!strcmp(question->verb, "status"))
		md_plain_line(stdout, "%s: %s%s; %zu process%s", question->whom, state, tree->frozen ? ", frozen" : "",
			      tree->user_count, tree->user_count == 1 ? "" : "es");
	else
		md_plain_line(stdout, "%s: %s: %s, in %.1f ms; %zu process%s", question->whom, question->verb, state,
			      (double)ns / 1e6, tree->user_count, tree->user_count == 1 ? "" : "es");
}

static bool are_all(const struct tree *tree, CUprocessState state)
{
	for (size_t i = 0; i < tree->user_count; i++)
		if (tree->states[i] != state)
			return false;
	return true;
}

static enum md_status do_verb(const struct md_swap_process_question *question, struct tree *tree,
			      struct md_checkpoint_times *times, struct md_error *err)
{
	bool goes = !strcmp(question->verb, "out");
	if (!goes && strcmp(question->verb, "in") != 0)
		return MD_OK;
	tree->already = goes ? are_all(tree, CU_PROCESS_STATE_CHECKPOINTED) && (tree->frozen || !question->freeze)
			     : are_all(tree, CU_PROCESS_STATE_RUNNING) && !question->gpu;
	if (tree->already)
		return MD_OK;
	MD_FORWARD(goes ? go_out(question, tree, times, err) : come_in(question, tree, times, err));
	for (size_t i = 0; i < tree->user_count; i++)
		tree->states[i] = goes ? CU_PROCESS_STATE_CHECKPOINTED : CU_PROCESS_STATE_RUNNING;
	return MD_OK;
}

/* Processes that were frozen, and that do not come in, are frozen again. */
static enum md_status carry_out(const struct md_swap_process_question *question, struct tree *tree,
				struct md_checkpoint_times *times, struct md_error *err)
{
	pid_t root;
	struct md_error none;
	MD_FORWARD(find_root(question->whom, &root, err));
	bool frozen = tree->frozen = md_swap_freeze_is_frozen(root);
	enum md_status status = find_tree(question->verb, root, tree, err);
	if (status == MD_OK)
		status = do_verb(question, tree, times, err);
	if (status == MD_OK)
		tree->frozen = md_swap_freeze_is_frozen(root);
	else if (frozen && !tree->frozen && md_swap_freeze_prepare(root, &none) == MD_OK)
		md_swap_freeze(tree->all, tree->count, &none);
	return status;
}

enum md_status md_swap_process_ask(const struct md_swap_process_question *question, struct md_error *err)
{
	static struct tree tree; /* large */
	struct md_checkpoint_times times = {0};
	sigset_t before;
	unsetenv("CUDA_VISIBLE_DEVICES"); /* which says nothing of GPUs that other processes see */
	MD_FORWARD(md_checkpoint_open(err));
	sigprocmask(SIG_BLOCK, NULL, &before);
	enum md_status status = carry_out(question, &tree, &times, err);
	if (status == MD_OK && question->json)
		print_json(question, &tree, &times);
	else if (status == MD_OK)
		print_text(question, &tree, &times);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}
