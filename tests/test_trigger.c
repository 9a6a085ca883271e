/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's trigger runs once, also when a kernel is found to need it just as it ends. */
#include <criterion/criterion.h>

#include "restore/restore.h"
#include "restore/trigger.h"

static struct md_restore restore;
static struct md_restore_kernel kernel;
static int runs;

static int run(void *user)
{
	(void)user;
	return runs++, 0;
}

static void set_up(void)
{
	restore.artifact.kernel_count = 1;
	restore.kernels = &kernel;
	restore.steps[restore.step_count++] = MD_STEP_TRIGGER;
	restore.trigger = run;
}

static void pull(void)
{
	pthread_mutex_lock(&md_restore_lock);
	md_restore_trigger_pull(&restore);
	pthread_mutex_unlock(&md_restore_lock);
}

Test(trigger, runs_once, .init = set_up)
{
	kernel.state = MD_KERNEL_TRIGGER;
	pull();
	cr_assert(runs == 1 && kernel.state == MD_KERNEL_PENDING);
	kernel.state = MD_KERNEL_TRIGGER; /* by a thread that looked before the trigger had ended */
	pull();
	cr_assert_eq(runs, 1, "the trigger ran again");
	cr_assert_eq(kernel.state, MD_KERNEL_PENDING, "the kernel is looked for in what the trigger has loaded");
}

Test(trigger, is_waited_for_until_it_has_run, .init = set_up)
{
	pthread_mutex_lock(&md_restore_lock);
	cr_assert_eq(md_restore_trigger_state(&restore), MD_KERNEL_TRIGGER);
	md_restore_trigger_pull(&restore);
	cr_assert_eq(md_restore_trigger_state(&restore), MD_KERNEL_PENDING);
	pthread_mutex_unlock(&md_restore_lock);
}

Test(trigger, is_not_run_where_the_order_of_steps_lacks_it, .init = set_up)
{
	restore.step_count = 0;
	pull();
	cr_assert(runs == 0 && restore.trigger_done);
}
