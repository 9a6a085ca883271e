/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the artifact's graphs on a thread of their own, while kernels are resolved whose images have come. */
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "driver/interpose.h"
#include "driver/maker.h"
#include "restore/background.h"
#include "restore/graphs_read.h"
#include "restore/resolve.h"
#include "restore/restore_facts.h"

struct reading {
	struct md_restore *r;
	enum md_status status;
	struct md_error err;
	bool done; /* under lock */
};

static void *reader_main(void *argument)
{
	struct reading *reading = argument;
	struct md_restore *r = reading->r;
	uint64_t start = md_clock_ns();
	md_guard_enter();
	prctl(PR_SET_NAME, "medusa-graphs");
	reading->status = md_artifact_read_graphs(r->file, &r->artifact, &reading->err);
	pthread_mutex_lock(&md_restore_lock);
	uint64_t ns = md_clock_ns() - start;
	r->stats.open_ns += ns;
	r->stats.own_ns += ns;
	reading->done = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	return NULL;
}

/* Which kernels take no stored image is known from the graphs. */
static bool communicates(const struct md_artifact *artifact)
{
	bool any = false;
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		any |= md_maker_is_name(artifact->bindings[i].name);
	return any;
}

/* The next kernel whose image a loader has loaded. Nothing else is known to be wanted while the graphs are read. */
static uint32_t next_early(struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	if (!md_restore_limits_fit(r) || communicates(&r->artifact))
		return MD_NONE;
	for (uint32_t i = 0; i < r->artifact.kernel_count; i++) {
		uint32_t image = r->artifact.kernels[i].image;
		if (r->kernels[i].state == MD_KERNEL_PENDING && image != MD_NONE &&
		    r->images[image].state == MD_IMAGE_LOADED)
			return i;
	}
	return MD_NONE;
}

static void resolve_early(struct md_restore *r, const struct reading *reading)
{
	struct md_pace_turn turn;
	pthread_mutex_lock(&md_restore_lock);
	while (!reading->done) {
		uint32_t kernel = next_early(r);
		bool soon = kernel != MD_NONE && !r->holds && !atomic_load(&r->stop);
		if (!soon || !md_pace_begin(&r->pace, MD_PACE_FUNCTION, 1, r->awaited > 0, &turn)) {
			md_restore_wait(r, soon ? md_clock_ns() + turn.wait_ns : UINT64_MAX);
			continue;
		}
		pthread_mutex_unlock(&md_restore_lock);
		pthread_mutex_lock(&md_restore_work);
		md_restore_kernel_resolve(r, kernel);
		pthread_mutex_unlock(&md_restore_work);
		md_pace_end(&r->pace, &turn);
		pthread_mutex_lock(&md_restore_lock);
	}
	pthread_mutex_unlock(&md_restore_lock);
}

enum md_status md_restore_graphs_read(struct md_restore *r, struct md_error *err)
{
	struct reading reading = {.r = r};
	pthread_t thread;
	if (r->loader_count && md_thread_start(&thread, reader_main, &reading) == 0) {
		resolve_early(r, &reading);
		pthread_join(thread, NULL);
	} else {
		reading.status = md_artifact_read_graphs(r->file, &r->artifact, &reading.err);
	}
	return reading.status == MD_OK ? MD_OK : md_error_set(err, reading.status, "%s", reading.err.message);
}
