/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that shares backbones, told what to do by lines on stdin; each answer is a line:
 *   share NAME LAYOUT BYTES [DEADLINE_MS [VERIFY]]   fill or read, or a result and the reason
 *   set VALUE     all words of the memory that was shared last; a result of the driver's
 *   commit, end   of that memory
 *   sum           of the first and the last word there
 *   room          bytes that the device has free
 *   child         forks a process that sleeps until it is killed
 *   close         has a file of its own at all numbers from 900 to 1,019, whatever was there
 *   own           how many of these are open
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "medusa/share.h"
#include "tests/subjects/subject.h"

static medusa_deviceptr at;
static size_t size;

static void answer(const char *word, int result)
{
	printf("%s %s%s%s\n", word, medusa_result_name((enum medusa_result)result), result ? ": " : "",
	       result ? medusa_reason() : "");
}

static void share(const char *line)
{
	struct medusa_share_options options = {.size = sizeof(options)};
	int filled = 0;
	char name[128], layout[2048];
	unsigned long long bytes, deadline_ms = 0;
	sscanf(line, "%127s %2047s %llu %llu %d", name, layout, &bytes, &deadline_ms, &options.verify);
	options.deadline_ns = deadline_ms * 1000000;
	int result = medusa_share(name, layout, bytes, &options, &at, &filled);
	if (!result)
		size = bytes;
	answer(result ? "none" : filled ? "read" : "fill", result);
}

static void set(unsigned value)
{
	CUresult result = md_cuda.cuMemsetD32_v2(at, value, size / 4);
	if (!result)
		result = md_cuda.cuCtxSynchronize();
	printf("set %s\n", md_cuda_error_name(result));
}

static void sum(void)
{
	unsigned first, last;
	CUresult result = md_cuda.cuMemcpyDtoH_v2(&first, at, 4);
	if (!result)
		result = md_cuda.cuMemcpyDtoH_v2(&last, at + size - 4, 4);
	printf("sum %llu\n", result ? 0 : (unsigned long long)first + last);
}

static void room(void)
{
	size_t left, all;
	TRY(cuMemGetInfo_v2, &left, &all);
	printf("room %zu\n", left);
}

static void fork_child(void)
{
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		close(0);
		close(1);
		for (;;)
			pause();
	}
	printf("child %d\n", (int)child);
}

static void close_all(void)
{
	for (int fd = 900; fd < 1020; fd++)
		dup2(1, fd);
	puts("closed");
}

static void count_own(void)
{
	struct stat mine, other;
	int count = 0;
	fstat(1, &mine);
	for (int fd = 900; fd < 1020; fd++)
		count += !fstat(fd, &other) && other.st_ino == mine.st_ino && other.st_dev == mine.st_dev;
	printf("own %d\n", count);
}

int main(void)
{
	char line[4096];
	load_driver();
	open_context();
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "share ", 6))
			share(line + 6);
		else if (!strncmp(line, "set ", 4))
			set((unsigned)strtoul(line + 4, NULL, 10));
		else if (!strcmp(line, "commit\n"))
			answer("commit", medusa_share_commit(at));
		else if (!strcmp(line, "end\n"))
			answer("end", medusa_share_end(at));
		else if (!strcmp(line, "sum\n"))
			sum();
		else if (!strcmp(line, "room\n"))
			room();
		else if (!strcmp(line, "child\n"))
			fork_child();
		else if (!strcmp(line, "close\n"))
			close_all();
		else if (!strcmp(line, "own\n"))
			count_own();
	}
	return 0;
}
