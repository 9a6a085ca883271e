/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of ours among an engine's: high numbers, known again, and writes that send nobody a signal. */
#include "base/descriptor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static void count(int number)
{
	(void)number;
	handled++;
}

static int broken_pipe(void)
{
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	close(ends[0]);
	return ends[1];
}

/* How often the signal waits in this thread and its process; takes it. */
static int pending_times(int number)
{
	sigset_t set;
	int times = 0;
	sigemptyset(&set);
	sigaddset(&set, number);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	while (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) == number)
		times++;
	return times;
}

Test(descriptor, a_broken_pipe_sends_no_signal)
{
	int fd = broken_pipe();
	signal(SIGPIPE, count);
	cr_assert_eq(md_descriptor_write(fd, "x", 1), EPIPE);
	cr_assert_eq(handled, 0, "the engine's handler has run");
	cr_assert_eq(pending_times(SIGPIPE), 0, "the signal still waits");
	signal(SIGPIPE, SIG_DFL);
	cr_assert_eq(md_descriptor_write(fd, "x", 1), EPIPE, "and does not kill");
}

Test(descriptor, what_waits_already_goes_on_waiting)
{
	static const struct {
		const char *of;
		int thread, process;
	} cases[] = {{"thread", 1, 0}, {"process", 0, 1}, {"both", 1, 1}};
	int fd = broken_pipe();
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (cases[i].thread)
			raise(SIGPIPE);
		if (cases[i].process)
			kill(getpid(), SIGPIPE);
		cr_assert_eq(md_descriptor_write(fd, "x", 1), EPIPE);
		cr_assert_eq(pending_times(SIGPIPE), cases[i].thread + cases[i].process, "pending of %s", cases[i].of);
	}
}

Test(descriptor, a_limit_on_files_sends_no_signal)
{
	struct rlimit limit = {3, RLIM_INFINITY};
	char path[] = "/tmp/medusa-test-XXXXXX";
	int fd = mkstemp(path);
	unlink(path);
	signal(SIGXFSZ, count);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert_eq(md_descriptor_write(fd, "123456", 6), EFBIG);
	limit.rlim_cur = RLIM_INFINITY;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0); /* this program's own words go to a file, too */
	cr_assert_eq(handled, 0, "the engine's handler has run");
	cr_assert_eq(pending_times(SIGXFSZ), 0, "the signal still waits");
}

Test(descriptor, numbers_are_high_and_closed_by_exec)
{
	int fd = md_descriptor_open("/dev/null", O_RDONLY, 0);
	cr_assert_geq(fd, 400, "number %d", fd);
	cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	cr_assert_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0, "for opening only");
	close(fd);
	FILE *stream = md_descriptor_read_stream("/proc/self/maps");
	cr_assert_not_null(stream);
	cr_assert_geq(fileno(stream), 400, "number %d", fileno(stream));
	fclose(stream);
}

Test(descriptor, standard_numbers_are_never_taken)
{
	struct rlimit limit = {5, 5};
	close(0);
	int fd = md_descriptor_open("/dev/null", O_RDONLY, 0);
	cr_assert_gt(fd, 2, "number %d", fd);
	close(fd);
	while (dup(1) >= 0) /* ... also when there is hardly any left */
		;
	close(0);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	fd = md_descriptor_open("/dev/null", O_RDONLY, 0);
	cr_assert_eq(fd, -1, "number %d", fd);
	cr_assert_eq(errno, EMFILE);
	cr_assert_eq(fcntl(0, F_GETFD), -1, "number 0 is held");
	close(4);
	fd = md_descriptor_open("/dev/null", O_RDONLY, 0);
	cr_assert_eq(fd, 4, "number %d", fd);
}

/* A reader's end that nobody has opened must not stop whoever opens the other. */
Test(descriptor, a_pipe_without_reader_is_not_waited_for, .timeout = 60)
{
	char folder[] = "/tmp/medusa-test-XXXXXX", path[64];
	cr_assert_not_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/pipe", folder);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_assert_eq(md_descriptor_open(path, O_WRONLY, 0), -1);
	cr_assert_eq(errno, ENXIO);
	unlink(path);
	rmdir(folder);
}

/* What the kernel calls FDSize, or -1. */
static int table_size(void)
{
	char line[128];
	int size = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (status && size < 0 && fgets(line, sizeof(line), status))
		if (!strncmp(line, "FDSize:", 7))
			size = atoi(line + 7);
	if (status)
		fclose(status);
	return size;
}

Test(descriptor, the_table_has_room_before_there_are_threads)
{
	int status = 0;
	cr_assert_geq(table_size(), 961);
	pid_t child = fork();
	if (!child)
		_exit(table_size() > 960 ? 0 : 1);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0, "the table of a child is small");
}

Test(descriptor, a_number_that_is_another_files_is_left_alone)
{
	struct md_descriptor kept = MD_DESCRIPTOR_NONE;
	cr_assert(!md_descriptor_keep(&kept, -1));
	cr_assert(!md_descriptor_is_ours(&kept), "there is none");
	cr_assert(md_descriptor_keep(&kept, md_descriptor_open("/dev/null", O_RDONLY, 0)));
	cr_assert(md_descriptor_is_ours(&kept));
	int other = open("/dev/zero", O_RDONLY), number = kept.fd;
	cr_assert_eq(dup2(other, number), number);
	cr_assert(!md_descriptor_is_ours(&kept));
	md_descriptor_drop(&kept);
	cr_assert_eq(kept.fd, -1);
	cr_assert_geq(fcntl(number, F_GETFD), 0, "the other file was closed");
}
