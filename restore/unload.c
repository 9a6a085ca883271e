/* SPDX-License-Identifier: Apache-2.0 */
/* Handles modules, libraries and contexts that are unloaded or destroyed, and graphs whose kernels were found in them. */
#define MD_LOG_DOMAIN "restore"

#include "restore/unload.h"

#include <stdlib.h>

#include "base/log.h"
#include "restore/graph_state.h"
#include "restore/image_registry.h"
#include "restore/stages.h"

#define EXIT_WATCHES 4096u

static atomic_bool exiting;

static void exit_begins(void)
{
	atomic_store(&exiting, true);
}

/* An exit handler that unloads modules was registered before they were loaded, so it runs after ours. */
void md_restore_watch_exit(void)
{
	static atomic_uint asked;
	if (atomic_fetch_add(&asked, 1) < EXIT_WATCHES)
		atexit(exit_begins);
}

static void refuse_users(struct md_restore *r, uint32_t kernel, struct md_restore_graph *graph)
    MD_REQUIRES(md_restore_lock)
{
	struct md_error err = {0};
	for (uint32_t k = 0; k < graph->kernel_count; k++) {
		if (graph->kernels[k] != kernel || graph->handed_out || graph->state == MD_GRAPH_REFUSED)
			continue;
		md_error_set(&err, MD_ERR_MISMATCH, "kernel %s: the engine unloaded the module that it was found in",
			     r->artifact.kernels[kernel].name);
		/*
		 * At exit no engine asks for a graph any more. In a verify
		 * run none is handed out, and the report has the reason.
		 */
		md_restore_refuse_at(r, graph, &err, r->verify || atomic_load(&exiting) ? MD_LOG_INFO : MD_LOG_WARN);
		md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, graph);
	}
}

static void forget_kernels(struct md_restore *r, void *handle) MD_REQUIRES(md_restore_lock)
{
	for (uint32_t i = 0; r->kernels && i < r->artifact.kernel_count; i++) {
		struct md_restore_kernel *kernel = &r->kernels[i];
		if (kernel->state != MD_KERNEL_RESOLVED || kernel->home != handle)
			continue;
		for (uint32_t g = 0; r->graphs && g < r->artifact.graph_count; g++) /* NULL: still being read */
			refuse_users(r, i, &r->graphs[g]);
		kernel->state = MD_KERNEL_REFUSED;
		md_error_set(&kernel->reason, MD_ERR_MISMATCH, "kernel %s: the engine unloaded its module",
			     r->artifact.kernels[i].name);
	}
}

void md_restore_module_gone(void *handle)
{
	struct md_restore *r = &md_restore;
	if (atomic_load(&r->off))
		return;
	pthread_mutex_lock(&md_restore_work);
	md_registry_remove(&r->registry, handle);
	pthread_mutex_lock(&md_restore_lock);
	forget_kernels(r, handle);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	pthread_mutex_unlock(&md_restore_work);
}

/* The context's modules go with it, and the next context may get the same handle. */
void md_restore_context_gone(CUcontext context)
{
	struct md_restore *r = &md_restore;
	if (atomic_load(&r->off))
		return;
	pthread_mutex_lock(&md_restore_work);
	md_registry_remove_context(&r->registry, context);
	pthread_mutex_unlock(&md_restore_work);
}
