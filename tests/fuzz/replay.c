/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files: each in a process of its own, within 10 seconds (of processor time) and 1 GiB, and
 * without a leak. */
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/fuzz/fuzz.h"

#define SECONDS_MAX 10
#define MEMORY_MAX_KIB (1L << 20)

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
	(void)data, (void)max_size;
	return size;
}

static uint8_t *read_file(const char *path, size_t *size)
{
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	if (!file || fseek(file, 0, SEEK_END))
		return NULL;
	long end = ftell(file);
	rewind(file);
	*size = end > 0 ? (size_t)end : 0;
	uint8_t *data = malloc(*size ? *size : 1);
	if (data && fread(data, 1, *size, file) != *size) {
		free(data);
		return NULL;
	}
	return data;
}

static bool starts_with(const char *path, const char *prefix)
{
	const char *slash = strrchr(path, '/');
	return !strncmp(slash ? slash + 1 : path, prefix, strlen(prefix));
}

#ifndef MD_SANITIZED /* leaks are the sanitizer's to find, and it has no mallinfo */
/* Bytes in use, of both kinds that malloc has. */
static size_t heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
}
#endif

/* Of the processor: a machine with other work makes nothing hang. */
static void limit_time(void)
{
	const struct itimerval limit = {.it_value.tv_sec = SECONDS_MAX};
	setitimer(ITIMER_PROF, &limit, NULL);
}

/* In the child. The first run may leave what the C library keeps; the second must leave nothing more. */
static int run(const char *path)
{
	size_t size;
	uint8_t *data = read_file(path, &size);
	FUZZ_REQUIRE(data, "%s: cannot be read", path);
	limit_time();
	LLVMFuzzerTestOneInput(data, size);
#ifndef MD_SANITIZED
	size_t before = heap_bytes();
	limit_time();
	LLVMFuzzerTestOneInput(data, size);
	FUZZ_REQUIRE(heap_bytes() <= before, "leaks %zu bytes a run", heap_bytes() - before);
#endif
	free(data);
	FUZZ_REQUIRE(!starts_with(path, "ok-") || fuzz_accepted, "was refused, but is to be read");
	FUZZ_REQUIRE(!starts_with(path, "should-fail-") || !fuzz_accepted, "was read, but is to be refused");
	return 0;
}

static bool replay(const char *path)
{
	struct rusage used = {0};
	int status = 0;
	fflush(NULL);
	pid_t child = fork();
	if (child == 0)
		exit(run(path));
	if (child < 0 || wait4(child, &status, 0, &used) != child) {
		perror(path);
		return false;
	}
	if (WIFSIGNALED(status))
		printf("%s: signal %d%s\n", path, WTERMSIG(status), WTERMSIG(status) == SIGPROF ? " (hangs)" : "");
	else if (WEXITSTATUS(status))
		printf("%s: exit code %d\n", path, WEXITSTATUS(status));
	else if (used.ru_maxrss > MEMORY_MAX_KIB)
		printf("%s: takes %ld MiB\n", path, used.ru_maxrss >> 10);
	else
		return true;
	return false;
}

int main(int argc, char **argv)
{
	/* Cached blocks would count as used. And what is allocated is to be filled at once, or gigabytes that nobody
	 * writes to would not show in the memory that a process takes. */
	static const char tunables[] = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165";
	int failed = 0;
	if (!getenv("GLIBC_TUNABLES") && setenv("GLIBC_TUNABLES", tunables, 1) == 0)
		execv("/proc/self/exe", argv);
	for (int i = 1; i < argc; i++)
		failed += !replay(argv[i]);
	printf("%d inputs, %d failed\n", argc - 1, failed);
	return failed || argc < 2;
}
