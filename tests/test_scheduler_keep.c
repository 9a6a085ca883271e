/* SPDX-License-Identifier: Apache-2.0 */
/* What is brought to GPUs ahead of requests, and stays there: host memory, a restart, requests that come meanwhile. */
#include "tests/scheduler_fixture.h"

static struct script r;

static struct medusa_sched_function kept_model(double gb)
{
	struct medusa_sched_function f = script_model(gb);
	f.min_replicas = 1;
	return f;
}

static void gone(uint32_t function)
{
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = function});
}

/* Its library has no room in host memory: nothing is sent for, and nothing evicted from the GPU, until there is some. */
Test(scheduler_keep, nothing_is_sent_for_without_room_in_host_memory)
{
	struct medusa_sched_function f = kept_model(20);
	f.in_host = 0;
	f.library_bytes = GB;
	script_start(&r, &(struct setup){.gb = 40, .host_gb = 30});
	script_add(&r, script_model(30));
	script_serve(&r, 1, 0);
	script_add(&r, f);
	script_forget(&r);
	script_wait(&r, 60 * SECOND);
	script_timer(&r);
	expect(&r, "");
	gone(0);
	expect(&r, "offload weights f0 gpu0\noffload weights f0 host\npreload t2 library f1 host cold\n"
		   "preload t3 weights f1 gpu0 cold\n");
	script_end(&r);
}
