/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses no device, and asks engines by the functions of medusa/swap.h: swap_asker out|in|full|release|status NAME,
 * swap_asker gpu NAME GPU, swap_asker neighbours NAME (in), swap_asker list. A fourth word with neighbours: what is not allowed. */
#include <stdio.h>
#include <string.h>

#include "medusa/medusa.h"
#include "medusa/swap.h"

static int print(const struct medusa_swap_engine *engine, void *user)
{
	printf("%s processes %llu out %llu bytes %llu of %llu stays %llu held %llu cached %llu pool %llu outs %llu ins "
	       "%llu released %d moving %d full %d silent %llu\n",
	       engine->name, (unsigned long long)engine->processes, (unsigned long long)engine->processes_out,
	       (unsigned long long)engine->out, (unsigned long long)engine->swappable,
	       (unsigned long long)engine->stays, (unsigned long long)engine->pool_held,
	       (unsigned long long)engine->pool_cached, (unsigned long long)engine->pool_bytes,
	       (unsigned long long)engine->outs, (unsigned long long)engine->ins, engine->released, engine->moving,
	       engine->full, (unsigned long long)engine->processes_silent);
	return user != NULL;
}

static int ask(const char *verb, const char *name, const char *gpu)
{
	struct medusa_swap_options options = {
	    .size = sizeof(options), .deadline_ns = 300000000, .verify = 1, .full = !strcmp(verb, "full")};
	options.gpu_neighbours = !strcmp(verb, "neighbours") || (gpu && !strcmp(gpu, "neighbours"));
	options.gpu = options.gpu_neighbours ? NULL : gpu;
	if (gpu && !strcmp(gpu, "overlap")) {
		options.verify = 0;
		options.overlap = 1;
	}
	struct medusa_swap_report report = {.size = sizeof(report)};
	struct medusa_swap_engine engine = {.size = sizeof(engine)};
	int result;
	if (!strcmp(verb, "status")) {
		result = medusa_swap_status(name, &engine);
		return result ? result : print(&engine, NULL);
	}
	if (!strcmp(verb, "release"))
		return medusa_swap_release(name);
	result = !strcmp(verb, "out") || options.full ? medusa_swap_out(name, &options, &report)
						      : medusa_swap_in(name, &options, &report);
	if (!result)
		printf("%s bytes %llu copied %llu equal %llu total_ns %llu checkpoint %d restore %d neighbours %llu\n",
		       verb, (unsigned long long)report.bytes, (unsigned long long)report.copied,
		       (unsigned long long)report.hashed_equal, (unsigned long long)report.total_ns,
		       report.driver_lock_ns && report.checkpoint_ns, report.restore_ns && report.driver_unlock_ns,
		       (unsigned long long)report.neighbour_bytes);
	return result;
}

int main(int argc, char **argv)
{
	int result = argc > 2 ? ask(argv[1], argv[2], argc > 3 ? argv[3] : NULL)
			      : medusa_swap_list(print, argc > 1 && !strcmp(argv[1], "first") ? argv : NULL);
	printf("%s: %s\n", medusa_result_name((enum medusa_result)result), medusa_reason());
	return result;
}
