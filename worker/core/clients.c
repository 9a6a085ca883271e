/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/clients.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define KEPT_BACK 128u /* descriptors for starts of engines, health checks, swaps, logs of further models */
#define SECOND 1000000000u

/* ---- limits ---- */

/* Descriptors of this process that are open; 0: not known. */
static unsigned count_open(void)
{
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");
	while (folder && readdir(folder))
		count++;
	if (folder)
		closedir(folder);
	return count;
}

/* A connection and one to its engine for each client. With few descriptors, half of them are kept back for the rest. */
static uint64_t most_connections(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	uint64_t open = count_open(), free = limit.rlim_cur > open ? limit.rlim_cur - open : 0;
	uint64_t most = (free - (free / 2 < KEPT_BACK ? free / 2 : KEPT_BACK)) / 2;
	return most ? most : 1;
}

static unsigned seconds(uint64_t ns)
{
	uint64_t whole = ns / SECOND + (ns % SECOND != 0);
	return whole < UINT32_MAX ? (unsigned)whole : UINT32_MAX;
}

void md_clients_limits(const struct md_worker_config *config, struct md_http_limits *limits)
{
	const struct md_config_node *node = &config->node;
	uint64_t most = most_connections();
	*limits = (struct md_http_limits){.connections = node->connection_limit,
					  .body_bytes = node->body_limit,
					  .bodies_bytes = node->bodies_limit,
					  .write_s = seconds(node->write_ns)};
	if (most >= limits->connections)
		return;
	md_warn("medusa.connection_limit is %u, and there are descriptors for %" PRIu64
		" connections: raise the limit of open files (ulimit -n, LimitNOFILE=)",
		limits->connections, most);
	limits->connections = (uint32_t)most;
}

/* ---- clients that take nothing ---- */

static bool is_somebody_waiting(struct md_worker_job *const *jobs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (jobs[i]->stage != MD_JOB_RUNNING)
			return true;
	return false;
}

void md_clients_look(struct md_worker *worker)
{
	size_t count;
	unsigned most = seconds(worker->config->node.write_waiting_ns);
	struct md_worker_job **jobs = md_job_list(worker, &count);
	bool wanted = is_somebody_waiting(jobs, count);
	for (size_t i = 0; wanted && i < count; i++) {
		struct md_http_exchange *exchange = jobs[i]->stage == MD_JOB_RUNNING ? jobs[i]->relay.exchange : NULL;
		if (!exchange || md_http_exchange_stalled_s(exchange) < most)
			continue;
		md_info("model %s: a client has taken nothing of its answer for %u s while others wait: its "
			"connection is closed",
			jobs[i]->model->id, md_http_exchange_stalled_s(exchange));
		md_http_exchange_drop(exchange);
	}
	free(jobs);
}
