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
#include "swap/pool.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define LINK "/memfd:medusa-swap-pool"
#define WORDS_MOST 65536u

/* ---- what engines will need ---- */

static uint64_t memory_of_machine(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
}

void md_pool_begin(struct md_worker *worker)
{
	worker->pool = (struct md_worker_pool){.fd = -1, .bytes = worker->config->node.pool_bytes};
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

static int open_entry(const char *folder, const char *name)
{
	char path[PATH_MAX], target[64];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ssize_t size = readlink(path, target, sizeof(target) - 1);
	target[size > 0 ? size : 0] = '\0';
	return strncmp(target, LINK, strlen(LINK)) ? -1 : open(path, O_RDWR | O_CLOEXEC);
}

/* -1: it cannot be had. */
static int open_pool_of(pid_t pid)
{
	char folder[64];
	const struct dirent *entry;
	int fd = -1;
	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	DIR *all = opendir(folder);
	while (all && fd < 0 && (entry = readdir(all)))
		fd = open_entry(folder, entry->d_name);
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
	MD_AUTO_FD int fd = open_pool_of(pid);
	if (fd < 0 || md_swap_pool_look(fd, &counts, &err) != MD_OK) {
		md_warn("model %s: the pool of its engine cannot be had from process %d: %s", model, (int)pid,
			fd < 0 ? "no descriptor of it can be opened" : err.message);
		return false;
	}
	if (!worker->pool.bytes)
		return true; /* it goes with the last engine that has it */
	if (worker->pool.fd >= 0)
		return same_file(fd, worker->pool.fd);
	uint64_t bytes = counts.blocks * (uint64_t)MD_SWAP_BLOCK;
	worker->pool.fd = md_steal_fd(&fd);
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
	if (!worker->pool.bytes || worker->pool.fd >= 0)
		return MD_OK;
	if (md_swap_pool_create(worker->pool.bytes, &worker->pool.fd, err) != MD_OK)
		return md_error_prefix(err, "medusa.pool_bytes");
	md_info("engines that are swapped out share %" PRIu64 " bytes", worker->pool.bytes);
	return MD_OK;
}

void md_pool_end(struct md_worker *worker)
{
	if (worker->pool.fd >= 0)
		close(worker->pool.fd);
	worker->pool.fd = -1;
}

/* ---- how full it is ---- */

bool md_pool_sizes(const struct md_worker *worker, struct md_worker_pool_sizes *sizes)
{
	struct md_swap_pool_counts counts;
	struct md_error none = {0};
	if (worker->pool.fd < 0 || md_swap_pool_look(worker->pool.fd, &counts, &none) != MD_OK)
		return false;
	*sizes = (struct md_worker_pool_sizes){.bytes = counts.blocks * (uint64_t)MD_SWAP_BLOCK,
					       .held = counts.held * (uint64_t)MD_SWAP_BLOCK,
					       .cached = counts.cached * (uint64_t)MD_SWAP_BLOCK,
					       .free = counts.free * (uint64_t)MD_SWAP_BLOCK};
	return true;
}

void md_pool_is_full(struct md_model *model)
{
	struct md_worker_pool_sizes sizes;
	model->worker->pool.full++;
	if (md_pool_sizes(model->worker, &sizes))
		md_warn("model %s: its engine is stopped and not swapped, because the pool is full: medusa.pool_bytes "
			"is %" PRIu64 ", of which engines that are out hold %" PRIu64,
			model->id, sizes.bytes, sizes.held);
	else
		md_warn(
		    "model %s: its engine is stopped and not swapped, because its pool is too small: host memory is "
		    "short",
		    model->id);
}
