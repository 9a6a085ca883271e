/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a benchmark runs on, as the pages of results name it. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stdio.h>
#include <string.h>

static inline void print_machine(void)
{
	char line[256], model[256] = "unknown";
	FILE *info = fopen("/proc/cpuinfo", "r");
	while (info && fgets(line, sizeof(line), info))
		if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
			snprintf(model, sizeof(model), "%s", strchr(line, ':') + 2);
			model[strcspn(model, "\n")] = 0;
			break;
		}
	if (info)
		fclose(info);
	printf("Machine: %s, one thread.\n", model);
}

#endif
