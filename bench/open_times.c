/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long it takes to open artifacts and to read their graphs, as a cold start does, and how much memory is touched
 * for the first time: open_times ROUNDS FILE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "format/artifact/artifact.h"

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static long faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static long touched; /* pages, when a file was opened last */

static uint64_t open_once(const char *path)
{
	struct md_artifact_file *file;
	struct md_artifact artifact;
	struct md_error err = {0};
	long before = faults();
	uint64_t start = md_clock_ns();
	if (md_artifact_open(path, &file, &artifact, &err) != MD_OK ||
	    md_artifact_read_graphs(file, &artifact, &err) != MD_OK) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	uint64_t took = md_clock_ns() - start;
	touched = faults() - before;
	md_artifact_close(file);
	md_artifact_finish(&artifact);
	return took;
}

int main(int argc, char *argv[])
{
	int rounds = argc > 2 ? atoi(argv[1]) : 0;
	uint64_t *times = calloc((size_t)(rounds > 0 ? rounds : 1) * (size_t)argc, sizeof(*times));
	if (rounds < 1 || !times)
		return 2;
	for (int round = 0; round < rounds; round++) /* in turn, so that other work disturbs all of them */
		for (int i = 2; i < argc; i++)
			times[(size_t)i * (size_t)rounds + (size_t)round] = open_once(argv[i]);
	for (int i = 2; i < argc; i++) {
		uint64_t *of = &times[(size_t)i * (size_t)rounds];
		qsort(of, (size_t)rounds, sizeof(*of), compare);
		printf("%.3f ms (fastest %.3f, %ld faults) %s\n", (double)of[rounds / 2] / 1e6, (double)of[0] / 1e6,
		       touched, argv[i]);
	}
	free(times);
	return 0;
}
