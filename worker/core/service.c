/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_contents.h"
#include "worker/core/service.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/accounting/ledger.h"
#include "worker/cluster/cluster_tls.h"
#include "worker/control/control_place.h"
#include "worker/control/socket.h"
#include "worker/control/verbs.h"
#include "worker/core/adopt.h"
#include "worker/core/api_keys.h"
#include "worker/core/clients.h"
#include "worker/core/gpu_memory.h"
#include "worker/core/long_pages.h"
#include "worker/core/loop_turn.h"
#include "worker/core/node_broker.h"
#include "worker/core/notify.h"
#include "worker/core/state_lock.h"
#include "worker/core/templates.h"
#include "worker/core/worker.h"
#include "worker/engine/cgroup.h"
#include "worker/engine/keeper.h"
#include "worker/engine/swap_sockets.h"
#include "worker/page/performance.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define TICK_S 1
#define SWEEP_TICKS 60u
#define SWEEP_FIRST 2u  /* engines of a daemon that was killed end soon after it */
#define DRAIN_MS 30000u /* for requests, when the daemon ends */
#define TOLD_MS 100     /* for telling clients that they get no answer */

/* All that would end the daemon by themselves, without its engines. */
static const int ending_signals[] = {SIGINT,  SIGTERM,   SIGQUIT, SIGUSR1, SIGUSR2,
				     SIGALRM, SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR};

struct service {
	struct md_worker worker;
	struct event *hangup, *tick;
	struct event *ends[sizeof(ending_signals) / sizeof(*ending_signals)];
	char *etcd_password;        /* of the environment; NULL: none, or the cluster has it */
	int state;                  /* its lock; -1: none */
	struct md_control *control; /* NULL: none */
	struct md_verbs *verbs;
	unsigned ticks;
	bool ending; /* requests may end first */
	bool cut;    /* they may not */
};

/* ---- the end ---- */

static void end_now(struct service *service)
{
	event_base_loopbreak(service->worker.base);
}

static void on_signal(evutil_socket_t signal, short what, void *context)
{
	struct service *service = context;
	(void)what;
	if (service->cut) {
		end_now(service);
		return;
	}
	if (service->ending) {
		static const struct timeval told = {.tv_usec = TOLD_MS * 1000};
		service->cut = true;
		if (!md_drain_cut(service->worker.drain) || event_base_loopexit(service->worker.base, &told))
			end_now(service);
		return;
	}
	md_info("SIG%s: no new requests; those that run may end", sigabbrev_np((int)signal));
	service->ending = true;
	md_drain_begin(service->worker.drain, DRAIN_MS, true, true);
}

static void on_hangup(evutil_socket_t signal, short what, void *context)
{
	struct service *service = context;
	(void)signal, (void)what;
	if (!md_reload_begin(service->worker.reload, NULL, NULL))
		md_error_log("SIGHUP: out of memory for reading the configuration anew");
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	md_model_look(context);
}

static void on_look_on(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	md_model_look_on(context);
}

/* ---- now and then ---- */

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct service *service = context;
	struct md_worker *worker = &service->worker;
	(void)fd, (void)what;
	md_model_look(worker);
	md_reload_look(worker->reload);
	md_unload_look(worker);
	md_model_keep_look(worker);
	md_gpus_look(worker);
	md_gpu_memory_look(worker->gpu_memory);
	md_clients_look(worker);
	md_verbs_look(service->verbs);
	if (service->ticks++ % SWEEP_TICKS == SWEEP_FIRST)
		md_swap_sockets_sweep();
	if (md_drain_look(worker->drain))
		end_now(service);
}

/* ---- beginning and end ---- */

/* Nobody has asked for the default socket, so a daemon that can't have it serves without. */
static enum md_status open_control(struct service *service, const char *path, struct md_error *err)
{
	struct md_error why = {0};
	const struct md_engine_keeper *keeper = md_engine_processes_keeper(service->worker.processes);
	if (md_engine_keeper_is_taken(keeper)) /* that daemon has the socket, or will have it */
		md_error_set(&why, MD_ERR_BUSY, "the control socket: another daemon has its engines beside it");
	else if (md_control_create(service->worker.base, path, md_verbs_take, service->verbs, &service->control,
				   &why) == MD_OK)
		return MD_OK;
	if (*path)
		return md_error_set(err, why.status, "%s", why.message);
	md_warn("no control socket: %s; say --control PATH to have another one", why.message);
	return MD_OK;
}

static const char *control_path(const struct service *service, const struct md_service_options *options)
{
	return options->control && *options->control ? options->control : service->worker.config->node.control;
}

/* Beside the control socket, because one daemon has that. False: there is none, and it is said why. */
static bool find_place(const char *control, char place[PATH_MAX])
{
	struct md_http_address address;
	struct md_error why = {0};
	if (md_control_place(control, true, &address, &why) != MD_OK) {
		md_warn("engines end with this daemon: %s", why.message);
		return false;
	}
	snprintf(place, PATH_MAX, "%s.engines", address.local.sun_path);
	return true;
}

/* Engines that nobody else can reach have the memory of the GPUs: none is started beside them. */
static enum md_status check_keeper(const struct md_worker *worker, const char *place, struct md_error *err)
{
	pid_t pid;
	char process[32] = "";
	if (!md_engine_keeper_is_silent(md_engine_processes_keeper(worker->processes), &pid))
		return MD_OK;
	if (pid)
		snprintf(process, sizeof(process), "process %d, ", (int)pid);
	return md_error_set(
	    err, MD_ERR_BUSY,
	    "medusa-keeper, %swhich has the engines of an earlier daemon (%.200s), does not answer for 5 "
	    "seconds: let it go on (SIGCONT) or kill it, and start again",
	    process, place);
}

/* The keeper has made the folder that tells this daemon's cgroups from those of others. */
static enum md_status begin_cgroups(struct md_worker *worker, const char *place, struct md_error *err)
{
	struct md_cgroups *made;
	bool has_place = md_engine_keeper_has_place(md_engine_processes_keeper(worker->processes));
	MD_FORWARD(md_cgroups_create(worker->config->node.cgroup, has_place ? place : NULL, &made, err));
	md_engine_processes_use_cgroups(worker->processes, made);
	return MD_OK;
}

enum md_status md_service_check(const struct md_worker_config *config, struct md_error *err)
{
	return md_cgroups_check(config->node.cgroup, true, err);
}

/* A proxy's name in Via needs no meaning, but no other node may have it. */
static void name_node(struct md_worker *worker)
{
	unsigned char random[8];
	evutil_secure_rng_get_bytes(random, sizeof(random));
	size_t used = (size_t)snprintf(worker->node_name, sizeof(worker->node_name), "medusa-");
	for (size_t i = 0; i < sizeof(random); i++)
		used += (size_t)snprintf(worker->node_name + used, sizeof(worker->node_name) - used, "%02x", random[i]);
}

static void forget_password(struct service *service)
{
	if (service->etcd_password)
		sodium_memzero(service->etcd_password, strlen(service->etcd_password));
	free(md_steal_ptr(&service->etcd_password));
}

static enum md_status begin(struct service *service, const struct md_service_options *options, struct md_error *err)
{
	static const struct md_http_front_events events = {
	    .request = md_router_take, .admit = md_router_admit, .refused = md_router_refuse};
	struct md_worker *worker = &service->worker;
	struct md_http_trust *trust;
	struct md_http_limits limits;
	struct timeval tick = {.tv_sec = TICK_S};
	char place[PATH_MAX];
	MD_FORWARD(md_cluster_password_take(&worker->config->node.cluster, &service->etcd_password, err));
	MD_FORWARD(md_state_lock(options->state, &service->state, err));
	bool has_place = find_place(control_path(service, options), place);
	worker->base = event_base_new();
	if (worker->base)
		event_base_priority_init(worker->base, MD_WORKER_PRIORITIES);
	worker->processes = worker->base ? md_engine_processes_create(worker->base, has_place ? place : NULL) : NULL;
	if (!worker->processes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an event loop");
	MD_FORWARD(check_keeper(worker, place, err));
	MD_FORWARD(begin_cgroups(worker, place, err));
	worker->log_writer = md_log_writer_create(worker->base, false);
	if (!worker->log_writer)
		return md_error_set(err, MD_ERR_NO_MEMORY, "the process that writes the logs of engines: %s",
				    strerror(errno));
	worker->drain = md_drain_create(worker);
	worker->notify = md_notify_create(worker->base);
	if (*worker->config->node.state) {
		worker->ledger =
		    md_ledger_create(worker->base, worker->config->node.state, worker->config->node.trace_ns);
		if (!worker->ledger)
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the ledger");
	}
	worker->look = event_new(worker->base, -1, 0, on_look, worker);
	worker->look_on = evtimer_new(worker->base, on_look_on, worker);
	worker->reload = md_reload_create(worker, options->config_file, options->config_folder);
	worker->pages = md_long_pages_create(worker);
	worker->performance = md_performance_create(worker);
	service->verbs = md_verbs_create(worker);
	if (!worker->drain || !worker->notify || !worker->look || !worker->look_on || !worker->reload ||
	    !worker->pages || !worker->performance || !service->verbs)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for commands");
	worker->began = time(NULL);
	name_node(worker);
	worker->began_ns = md_clock_ns();
	worker->directory = options->state;
	worker->passes_keys = !md_keys_wanted(worker->config);
	MD_FORWARD(md_decisions_begin(worker, err));
	MD_FORWARD(md_templates_create(worker, has_place ? place : options->state, err));
	MD_FORWARD(md_pool_begin(worker, err));
	MD_FORWARD(md_node_broker_begin(worker, has_place ? place : "", err));
	MD_FORWARD(md_models_create(worker, err));
	MD_FORWARD(md_peers_trust(worker->config, &trust, err));
	MD_FORWARD(md_peers_create(worker, worker->config, NULL, trust, &worker->peers, err));
	MD_FORWARD(md_gpu_memory_begin(worker, &worker->gpu_memory, err));
	for (size_t i = 0; i < sizeof(ending_signals) / sizeof(*ending_signals); i++) {
		service->ends[i] = evsignal_new(worker->base, ending_signals[i], on_signal, service);
		if (!service->ends[i] || event_add(service->ends[i], NULL))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for signals");
	}
	service->hangup = evsignal_new(worker->base, SIGHUP, on_hangup, service);
	service->tick = event_new(worker->base, -1, EV_PERSIST, on_tick, service);
	if (!service->hangup || !service->tick || event_add(service->hangup, NULL) || event_add(service->tick, &tick))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for signals");
	struct md_cluster_options cluster = {.endpoints = options->cluster,
					     .node = options->node,
					     .advertise = options->advertise,
					     .listen = options->listen,
					     .etcd_password = service->etcd_password,
					     .state = options->state};
	MD_FORWARD(md_cluster_create(worker, &cluster, &worker->cluster, err));
	forget_password(service);
	MD_FORWARD(md_contents_create(worker, options->state, &worker->contents, err));
	MD_FORWARD(open_control(service, control_path(service, options), err));
	md_clients_limits(worker->config, &limits);
	MD_FORWARD(md_http_front_create(worker->base, options->listen, &limits, &events, worker, &worker->front, err));
	MD_FORWARD(md_cluster_listen(worker->cluster, &limits, &events, err));
	md_engine_processes_listen(worker->processes, md_http_front_inode(worker->front));
	worker->port = md_http_front_port(worker->front);
	md_models_say_ours(worker);
	MD_FORWARD(md_adopt_begin(worker, place, err));
	MD_FORWARD(md_pool_make(worker, err));
	return md_cluster_join(worker->cluster, md_http_front_port(worker->front), err);
}

/* One after the other, as far as they fit. What fails is said, and starts again with the first request. */
static void load_first(struct md_worker *worker)
{
	const struct md_config_members *first = &worker->config->preload;
	md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER}); /* min_replicas */
	for (uint32_t i = 0; i < first->count; i++)
		if (!md_job_load(worker->current[first->items[i]], NULL, NULL))
			md_error_log("hooks.on_startup.preload: out of memory for %s",
				     worker->config->models[first->items[i]].id);
}

static void free_event(struct event *event)
{
	if (event)
		event_free(event);
}

static void end(struct service *service)
{
	struct md_worker *worker = &service->worker;
	forget_password(service);
	md_cluster_leave(worker->cluster);
	md_control_destroy(service->control);
	md_http_front_destroy(worker->front);
	md_cluster_unlisten(worker->cluster);
	md_long_pages_destroy(worker->pages);
	md_performance_destroy(worker->performance);
	md_verbs_destroy(service->verbs);
	md_job_end_all(worker);
	md_passed_end_all(worker);
	md_peers_retire(worker->peers);
	md_contents_destroy(worker->contents);
	md_cluster_destroy(worker->cluster);
	md_adopt_end(worker);
	md_gpu_memory_end(worker->gpu_memory);
	md_models_destroy(worker);
	md_node_broker_end(worker);
	md_pool_end(worker);
	md_templates_destroy(worker);
	md_decisions_end(worker);
	md_drain_destroy(worker->drain);
	md_reload_destroy(worker->reload);
	md_notify_destroy(worker->notify);
	md_ledger_destroy(worker->ledger);
	free_event(worker->look);
	free_event(worker->look_on);
	for (size_t i = 0; i < sizeof(ending_signals) / sizeof(*ending_signals); i++)
		free_event(service->ends[i]);
	free_event(service->hangup);
	free_event(service->tick);
	md_engine_processes_destroy(worker->processes);
	md_log_writer_destroy(worker->log_writer);
	if (worker->base) {
		event_base_loop(worker->base, EVLOOP_NONBLOCK); /* lookups of names that were cancelled end in it */
		event_base_free(worker->base);
	}
	if (service->state >= 0)
		close(service->state);
}

/* Without it libevent writes to stderr by itself. */
static void log_for_libevent(int severity, const char *message)
{
	enum md_log_level level = severity == EVENT_LOG_DEBUG  ? MD_LOG_DEBUG
				  : severity == EVENT_LOG_MSG  ? MD_LOG_INFO
				  : severity == EVENT_LOG_WARN ? MD_LOG_WARN
							       : MD_LOG_ERROR;
	md_log(level, MD_LOG_DOMAIN, "libevent: %s", message);
}

enum md_status md_service_run(const struct md_worker_config *config, const struct md_service_options *options,
			      struct md_error *err)
{
	struct service service = {.worker = {.config = config, .pool = {.fds = {-1, -1}}}, .state = -1};
	event_set_log_callback(log_for_libevent);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of writing */
	enum md_status status = begin(&service, options, err);
	if (status == MD_OK) {
		unsigned port = service.worker.port;
		const char *colon = strrchr(options->listen, ':');
		if (port)
			printf("listening on %.*s:%u\n", (int)(colon - options->listen), options->listen, port);
		else
			printf("listening on %s\n", options->listen);
		if (fflush(stdout))
			md_warn("standard output, which says where the daemon listens: %s", strerror(errno));
		clearerr(stdout); /* it serves all the same */
		load_first(&service.worker);
		md_notify_ready(service.worker.notify);
		md_loop_turn_begin();
		event_base_dispatch(service.worker.base);
	}
	end(&service);
	return status;
}
