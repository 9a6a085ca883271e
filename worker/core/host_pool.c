/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/host_pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptor.h"
#include "swap/pool.h"
#include "swap/pool_spill.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define LINK "/memfd:medusa-swap-pool"
#define GONE " (deleted)" /* at the end of a link to a file without a name */
#define WORDS_MOST 65536u

/* ---- what engines will need ---- */

static uint64_t memory_of_machine(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
}

/* The configuration may be read anew, so the folder's name is kept. */
enum md_status md_pool_begin(struct md_worker *worker, struct md_error *err)
{
	const struct md_config_node *node = &worker->config->node;
	worker->pool =
	    (struct md_worker_pool){.fds = {-1, -1}, .bytes = node->pool_bytes, .spill_bytes = node->spill_bytes};
	if (!*node->spill)
		return MD_OK;
	worker->pool.spill = strdup(node->spill);
	return worker->pool.spill ? MD_OK
				  : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the name of medusa.spill");
}

static void note_needs(const struct md_worker *worker)
{
	uint64_t sum = 0, all = memory_of_machine();
	unsigned models = 0;
	for (const struct md_model *model = NULL; (model = md_models_next(worker, model));) {
		if (!model->settings.swap_name)
			continue;
		models++;
		sum += model->config->own.memory_bytes;
	}
	if (!worker->pool.bytes && sum > all)
		md_warn("%u models whose engines are swapped have %" PRIu64
			" bytes in all, and this machine has %" PRIu64
			": each engine has a pool of its own, of up to twice its size. Set medusa.pool_bytes",
			models, sum, all);
	if (worker->pool.bytes > all)
		md_warn("medusa.pool_bytes: %" PRIu64 " bytes are more than this machine has (%" PRIu64 ")",
			worker->pool.bytes, all);
}

/* ---- the pool of an earlier daemon ---- */

/* Whether medusa-swap run was handed its pool: --pool-fd stands before the engine's command. */
static bool shares(pid_t pid)
{
	char path[64];
	MD_AUTO_FREE char *words = calloc(1, WORDS_MOST);
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	MD_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = words && fd >= 0 ? read(fd, words, WORDS_MOST - 1) : 0;
	for (const char *at = words; at && at < words + size && strcmp(at, "--") != 0; at += strlen(at) + 1)
		if (!strcmp(at, "--pool-fd"))
			return true;
	return false;
}

/* Such a file has no name any more, or never had one. */
static bool may_be(const char *target, bool spill)
{
	size_t size = strlen(target), end = strlen(GONE);
	return spill ? size > end && !strcmp(target + size - end, GONE) && *target == '/'
		     : !strncmp(target, LINK, strlen(LINK));
}

/* pool_fd: the pool whose spill file is wanted; -1: a pool is. */
static int open_entry(const char *folder, const char *name, int pool_fd)
{
	char path[PATH_MAX], target[PATH_MAX];
	struct stat info;
	struct md_error none = {0};
	bool is = pool_fd < 0;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ssize_t size = readlink(path, target, sizeof(target) - 1);
	target[size > 0 ? size : 0] = '\0';
	if (!may_be(target, pool_fd >= 0) || stat(path, &info) || !S_ISREG(info.st_mode))
		return -1;
	MD_AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && pool_fd >= 0 && md_swap_pool_is_spill(pool_fd, fd, &is, &none) != MD_OK)
		is = false;
	return is ? md_steal_fd(&fd) : -1;
}

/* -1: it cannot be had. */
static int open_of(pid_t pid, int pool_fd)
{
	char folder[64];
	const struct dirent *entry;
	int fd = -1;
	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	DIR *all = opendir(folder);
	while (all && fd < 0 && (entry = readdir(all)))
		fd = open_entry(folder, entry->d_name, pool_fd);
	if (all)
		closedir(all);
	return fd;
}

static bool same_file(int a, int b)
{
	struct stat one, other;
	return !fstat(a, &one) && !fstat(b, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool md_pool_adopt(struct md_worker *worker, const char *model, pid_t pid)
{
	struct md_swap_pool_counts counts;
	struct md_error err = {0};
	if (!shares(pid)) {
		if (worker->pool.bytes)
			md_warn("model %s: its engine has a pool of its own, which does not count towards "
				"medusa.pool_bytes until the engine is started anew",
				model);
		return true;
	}
	MD_AUTO_FD int fd = open_of(pid, -1);
	MD_AUTO_FD int spill = -1;
	if (fd < 0 || md_swap_pool_look(fd, &counts, &err) != MD_OK) {
		md_warn("model %s: the pool of its engine cannot be had from process %d: %s", model, (int)pid,
			fd < 0 ? "no descriptor of it can be opened" : err.message);
		return false;
	}
	if (!worker->pool.bytes)
		return true; /* it goes with the last engine that has it */
	if (worker->pool.fds[0] >= 0)
		return same_file(fd, worker->pool.fds[0]);
	if ((counts.spill.blocks != 0) != (worker->pool.spill != NULL)) {
		md_warn("model %s: the pool of its engine has %s spill file, and medusa.spill is %s", model,
			counts.spill.blocks ? "a" : "no", worker->pool.spill ? worker->pool.spill : "not set");
		return false;
	}
	spill = counts.spill.blocks ? open_of(pid, fd) : -1;
	if (counts.spill.blocks && spill < 0) {
		md_warn("model %s: the spill file of its engine's pool cannot be had from process %d", model, (int)pid);
		return false;
	}
	uint64_t bytes = counts.blocks * (uint64_t)MD_SWAP_BLOCK;
	worker->pool.fds[0] = md_descriptor_raise(md_steal_fd(&fd));
	worker->pool.fds[1] = spill < 0 ? -1 : md_descriptor_raise(md_steal_fd(&spill));
	md_warn("the pool of an earlier daemon, of %" PRIu64 " bytes, stays in use", bytes);
	if (worker->pool.bytes / MD_SWAP_BLOCK != counts.blocks && worker->pool.bytes >= MD_SWAP_BLOCK)
		md_warn("medusa.pool_bytes is %" PRIu64
			", which is so once this daemon and its engines have been stopped",
			worker->pool.bytes);
	return true;
}

/* ---- beginning and end ---- */

enum md_status md_pool_make(struct md_worker *worker, struct md_error *err)
{
	note_needs(worker);
	struct md_worker_pool *pool = &worker->pool;
	if (!pool->bytes || pool->fds[0] >= 0)
		return MD_OK;
	struct md_swap_spill_file spill = MD_SWAP_NO_SPILL;
	if (pool->spill && md_swap_spill_create(pool->spill, pool->spill_bytes, &spill, err) != MD_OK)
		return md_error_prefix(err, "medusa.spill");
	int fd = -1;
	if (md_swap_pool_create_spilling(pool->bytes, pool->spill ? &spill : NULL, &fd, err) != MD_OK) {
		md_swap_spill_close(&spill);
		return md_error_prefix(err, "medusa.pool_bytes");
	}
	pool->fds[0] = md_descriptor_raise(fd);
	pool->fds[1] = pool->spill ? md_descriptor_raise(spill.kept.fd) : -1;
	md_info("engines that are swapped out share %" PRIu64 " bytes, and %" PRIu64 " in a file", pool->bytes,
		spill.blocks * (uint64_t)MD_SWAP_BLOCK);
	return MD_OK;
}

void md_pool_end(struct md_worker *worker)
{
	for (unsigned i = 0; i < 2; i++) {
		if (worker->pool.fds[i] >= 0)
			close(worker->pool.fds[i]);
		worker->pool.fds[i] = -1;
	}
	free((char *)worker->pool.spill);
	worker->pool.spill = NULL;
}

/* ---- how full it is ---- */

bool md_pool_sizes(const struct md_worker *worker, struct md_worker_pool_sizes *sizes)
{
	struct md_swap_pool_counts counts;
	struct md_error none = {0};
	if (worker->pool.fds[0] < 0 || md_swap_pool_look(worker->pool.fds[0], &counts, &none) != MD_OK)
		return false;
	*sizes = (struct md_worker_pool_sizes){.bytes = counts.blocks * (uint64_t)MD_SWAP_BLOCK,
					       .held = counts.held * (uint64_t)MD_SWAP_BLOCK,
					       .cached = counts.cached * (uint64_t)MD_SWAP_BLOCK,
					       .free = counts.free * (uint64_t)MD_SWAP_BLOCK,
					       .spill_bytes = counts.spill.blocks * (uint64_t)MD_SWAP_BLOCK,
					       .spill_held = counts.spill.held * (uint64_t)MD_SWAP_BLOCK,
					       .spill_cached = counts.spill.cached * (uint64_t)MD_SWAP_BLOCK,
					       .spill_free = counts.spill.free * (uint64_t)MD_SWAP_BLOCK};
	return true;
}

void md_pool_is_full(struct md_model *model)
{
	struct md_worker_pool_sizes sizes;
	model->worker->pool.full++;
	bool known = md_pool_sizes(model->worker, &sizes);
	if (known && sizes.spill_bytes)
		md_warn(
		    "model %s: its engine is stopped and not swapped, because the pool and its spill file are full, or "
		    "the file fails: medusa.pool_bytes is %" PRIu64 ", medusa.spill in %s has %" PRIu64
		    ", and engines that are out hold %" PRIu64 " and %" PRIu64 " (the engine's log has the reason)",
		    model->id, sizes.bytes, model->worker->pool.spill ? model->worker->pool.spill : "",
		    sizes.spill_bytes, sizes.held, sizes.spill_held);
	else if (known)
		md_warn("model %s: its engine is stopped and not swapped, because the pool is full: medusa.pool_bytes "
			"is %" PRIu64 ", of which engines that are out hold %" PRIu64,
			model->id, sizes.bytes, sizes.held);
	else
		md_warn(
		    "model %s: its engine is stopped and not swapped, because its pool is too small: host memory is "
		    "short",
		    model->id);
}
