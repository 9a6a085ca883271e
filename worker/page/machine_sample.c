/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/machine_sample.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MIB_KB 1024u
#define LINE_BYTES 512u

/* ---- processors ---- */

/* A line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice. */
static bool read_core(const char *line, uint64_t *busy, uint64_t *all)
{
	uint64_t part[8] = {0};
	unsigned number;
	int found = sscanf(
	    line, "cpu%u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
	    &number, &part[0], &part[1], &part[2], &part[3], &part[4], &part[5], &part[6], &part[7]);
	if (found < 5)
		return false;
	*all = 0;
	for (unsigned i = 0; i < 8; i++)
		*all += part[i];
	*busy = *all - part[3] - part[4];
	return true;
}

void md_machine_cores_read(struct md_machine_cores *cores)
{
	char line[LINE_BYTES];
	MD_AUTO_FILE FILE *file = fopen("/proc/stat", "re");
	cores->count = 0;
	while (file && cores->count < MD_MACHINE_CORES_MAX && fgets(line, sizeof(line), file))
		cores->count += !strncmp(line, "cpu", 3) && line[3] != ' ' &&
				read_core(line, &cores->busy[cores->count], &cores->all[cores->count]);
}

static json_t *list_cores(struct md_machine_cores *before)
{
	struct md_machine_cores *now = malloc(sizeof(*now));
	json_t *list = json_array();
	if (!now)
		return list;
	md_machine_cores_read(now);
	for (uint32_t i = 0; i < now->count && i < before->count; i++) {
		uint64_t all = now->all[i] > before->all[i] ? now->all[i] - before->all[i] : 0;
		uint64_t busy = now->busy[i] > before->busy[i] ? now->busy[i] - before->busy[i] : 0;
		json_array_append_new(list, json_real(all ? 100 * (double)busy / (double)all : 0));
	}
	*before = *now;
	free(now);
	return list;
}

/* ---- memory and load ---- */

static void put_mib(json_t *sample, const char *name, uint64_t kb)
{
	json_object_set_new(sample, name, json_integer((json_int_t)(kb / MIB_KB)));
}

/* What is free is what a program could get: the page cache counts as free. */
static void put_memory(json_t *sample)
{
	uint64_t total = 0, available = 0, swap = 0, swap_free = 0;
	char line[LINE_BYTES];
	MD_AUTO_FILE FILE *file = fopen("/proc/meminfo", "re");
	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "MemTotal: %" SCNu64, &total);
		sscanf(line, "MemAvailable: %" SCNu64, &available);
		sscanf(line, "SwapTotal: %" SCNu64, &swap);
		sscanf(line, "SwapFree: %" SCNu64, &swap_free);
	}
	put_mib(sample, "mem_total_mb", total);
	put_mib(sample, "mem_used_mb", total > available ? total - available : 0);
	put_mib(sample, "mem_free_mb", available);
	put_mib(sample, "swap_total_mb", swap);
	put_mib(sample, "swap_used_mb", swap > swap_free ? swap - swap_free : 0);
}

static void put_load(json_t *sample)
{
	double load[3] = {0};
	if (getloadavg(load, 3) != 3)
		return;
	json_object_set_new(sample, "load_avg_1", json_real(load[0]));
	json_object_set_new(sample, "load_avg_5", json_real(load[1]));
	json_object_set_new(sample, "load_avg_15", json_real(load[2]));
}

/* ---- network ---- */

/* A line of /proc/net/dev: "NAME: bytes and seven others that were received, bytes that were sent, ..." */
static json_t *read_interface(char *line)
{
	uint64_t received, sent;
	char *colon = strchr(line, ':');
	if (!colon || sscanf(colon + 1, "%" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &received, &sent) != 2)
		return NULL;
	*colon = '\0';
	return json_pack("{s:s, s:I, s:I}", "name", line + strspn(line, " "), "bytes_recv", (json_int_t)received,
			 "bytes_sent", (json_int_t)sent);
}

static json_t *list_interfaces(void)
{
	char line[LINE_BYTES];
	json_t *list = json_array();
	MD_AUTO_FILE FILE *file = fopen("/proc/net/dev", "re");
	while (file && fgets(line, sizeof(line), file)) {
		json_t *interface = read_interface(line);
		if (interface) /* else it is one of the first two lines */
			json_array_append_new(list, interface);
	}
	return list;
}

json_t *md_machine_sample(struct md_machine_cores *before)
{
	json_t *sample = json_object();
	json_object_set_new(sample, "cpu_util_per_core", list_cores(before));
	put_memory(sample);
	put_load(sample);
	json_object_set_new(sample, "net_io", list_interfaces());
	return sample;
}
