/* SPDX-License-Identifier: Apache-2.0 */
/* For test_abi.sh: structs of an older and of a newer program, given to the libraries; prints what became of them. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <medusa/medusa.h>
#include <medusa/scheduler.h>

enum { CANARY = 0x5a, OLDER = offsetof(struct medusa_stats, heap_ns) };

static void read_stats(void)
{
	struct {
		struct medusa_stats known;
		uint64_t later;
	} newer = {{.size = sizeof(newer)}, 1};
	struct medusa_stats older;
	int result;
	result = medusa_stats_read(&newer.known);
	printf("newer stats: %s, known %d, later %d\n", medusa_result_name((enum medusa_result)result),
	       newer.known.size == sizeof(newer.known), (int)newer.later);
	memset(&older, CANARY, sizeof(older));
	older.size = OLDER;
	result = medusa_stats_read(&older);
	printf("older stats: %s, behind its end %x\n", medusa_result_name((enum medusa_result)result),
	       ((unsigned char *)&older)[OLDER]);
}

/* The second GPU is found behind the larger first one. */
static void create_scheduler(uint64_t later)
{
	struct {
		struct medusa_sched_gpu known;
		uint64_t later;
	} gpus[2] = {{{.size = sizeof(gpus[0]), .memory_bytes = 1000}, later},
		     {{.size = sizeof(gpus[0]), .memory_bytes = 2000}, later}};
	struct medusa_sched_node node = {
	    .size = sizeof(node), .gpus = &gpus[0].known, .gpu_count = 2, .host_bytes_per_s = 1e9};
	struct medusa_sched_gpu_state state = {.size = offsetof(struct medusa_sched_gpu_state, artifact_bytes)};
	struct medusa_sched *sched = NULL;
	int result = medusa_sched_create(&node, NULL, &sched);
	state.artifact_bytes = CANARY;
	if (result == MEDUSA_SCHED_OK)
		medusa_sched_gpu_get(sched, 1, &state);
	printf("newer gpus, later %d: %s, limit %d, behind its end %x\n", (int)later,
	       medusa_sched_result_name((enum medusa_sched_result)result), (int)state.limit_bytes,
	       (unsigned)state.artifact_bytes);
	medusa_sched_destroy(sched);
}

int main(void)
{
	read_stats();
	create_scheduler(0);
	create_scheduler(1);
	return 0;
}
