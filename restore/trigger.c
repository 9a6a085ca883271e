/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the engine's trigger once, and then lets the kernels that waited for it be looked for again. */
#define MD_LOG_DOMAIN "restore"

#include "restore/trigger.h"

#include "base/log.h"

bool md_restore_has_step(const struct md_restore *r, enum md_step step)
{
	for (unsigned i = 0; i < r->step_count; i++)
		if (r->steps[i] == step)
			return true;
	return false;
}

enum md_kernel_state md_restore_trigger_state(const struct md_restore *r)
{
	return r->trigger_done ? MD_KERNEL_PENDING : MD_KERNEL_TRIGGER;
}

static void wake_triggered(struct md_restore *r) MD_RESTORE_HELD
{
	r->trigger_done = true;
	r->trigger_running = false;
	for (uint32_t i = 0; r->kernels && i < r->artifact.kernel_count; i++)
		if (r->kernels[i].state == MD_KERNEL_TRIGGER)
			r->kernels[i].state = MD_KERNEL_PENDING;
	pthread_cond_broadcast(&r->changed);
}

void md_restore_trigger_pull(struct md_restore *r)
{
	int (*run)(void *user) = !r->trigger_done && md_restore_has_step(r, MD_STEP_TRIGGER) ? r->trigger : NULL;
	void *user = r->trigger_user;
	r->trigger_running = true;
	pthread_mutex_unlock(&md_restore_lock);
	int failed = run ? run(user) : 0;
	pthread_mutex_lock(&md_restore_lock);
	if (failed)
		md_warn("the trigger failed with %d; what it loaded before is used", failed);
	wake_triggered(r);
}
