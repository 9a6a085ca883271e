/* SPDX-License-Identifier: Apache-2.0 */
/* Whose process has a socket: found while the loop goes on, and forgotten by whoever does not want it any more. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/engine/port_owner.h"
#include "worker/engine/port_search.h"
#include "worker/engine/process_facts.h"

#define NOT_CALLED (-2)

static struct event_base *base;
static sem_t go, reached;
static atomic_bool held; /* whoever reads a link waits */
static pid_t owner;

/* In the place of the C library's: what looks into processes calls it. */
ssize_t readlinkat(int folder, const char *restrict path, char *restrict link, size_t size)
{
	ssize_t (*real)(int, const char *, char *, size_t) =
	    (ssize_t(*)(int, const char *, char *, size_t))dlsym(RTLD_NEXT, "readlinkat");
	if (atomic_exchange(&held, false)) {
		sem_post(&reached);
		sem_wait(&go);
	}
	return real(folder, path, link, size);
}

static void begin(void)
{
	base = event_base_new();
	cr_assert(base && !sem_init(&go, 0, 0) && !sem_init(&reached, 0, 0));
	owner = NOT_CALLED;
}

static void end(void)
{
	event_base_free(base);
}

TestSuite(worker_port_search, .init = begin, .fini = end, .timeout = 60);

static uint64_t listen_somewhere(int *fd)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct stat facts;
	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(*fd >= 0 && !bind(*fd, (struct sockaddr *)&any, sizeof(any)) && !listen(*fd, 1) &&
		  !fstat(*fd, &facts));
	return facts.st_ino;
}

static void on_found(void *context, const void *found)
{
	*(pid_t *)context = md_port_search_owner(found);
	event_base_loopbreak(base);
}

static struct md_search_thread *search_for(uint64_t inode, pid_t group, const char *mark)
{
	struct md_search_thread *made = md_port_search_begin(base, inode, group, mark, on_found, &owner);
	cr_assert(made != NULL);
	return made;
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	++*(unsigned *)context;
	event_base_loopbreak(base);
}

static void run_once(void)
{
	unsigned turns = 0;
	struct event *timer = evtimer_new(base, on_timer, &turns);
	cr_assert(timer && !event_add(timer, &(struct timeval){0}));
	event_base_dispatch(base);
	cr_assert_eq(turns, 1u);
	event_free(timer);
}

Test(worker_port_search, the_loop_goes_on_meanwhile)
{
	int fd;
	uint64_t inode = listen_somewhere(&fd);
	atomic_store(&held, true);
	search_for(inode, getpgrp(), "mark");
	sem_wait(&reached);
	for (unsigned i = 0; i < 10; i++)
		run_once();
	cr_assert_eq(owner, NOT_CALLED, "the search has not ended");
	sem_post(&go);
	event_base_dispatch(base);
	cr_assert_eq(owner, 0, "process %d has it, and this group is the right one", owner);
	close(fd);
}

Test(worker_port_search, nobody_waits_for_one_that_is_forgotten)
{
	int fd;
	uint64_t inode = listen_somewhere(&fd);
	atomic_store(&held, true);
	struct md_search_thread *search = search_for(inode, getpgrp(), "mark");
	sem_wait(&reached);
	md_search_thread_forget(search);
	run_once();
	sem_post(&go);
	search_for(inode, getpgrp(), "mark");
	event_base_dispatch(base);
	cr_assert_eq(owner, 0, "the second one was answered");
	md_search_thread_forget(NULL);
	close(fd);
}

/* A process in a group of its own, which has no socket. */
static pid_t start_other(void)
{
	int line[2];
	char byte;
	cr_assert_eq(pipe(line), 0);
	pid_t pid = fork();
	if (!pid) {
		setpgid(0, 0);
		_exit(write(line[1], "x", 1) == 1 && !close(line[1]) && pause());
	}
	cr_assert(pid > 0 && read(line[0], &byte, 1) == 1);
	close(line[0]);
	close(line[1]);
	return pid;
}

/* When a process that begins now has begun. */
static uint64_t now_in_ticks(void)
{
	pid_t pid = start_other();
	uint64_t began = md_process_began(pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return began;
}

Test(worker_port_search, who_began_before_the_engine_is_another)
{
	int fd = -1;
	while (now_in_ticks() <= md_process_began(getpid()))
		;
	pid_t engine = start_other();
	uint64_t inode = listen_somewhere(&fd);
	search_for(inode, engine, "mark");
	event_base_dispatch(base);
	cr_assert_eq(owner, getpid());
	kill(engine, SIGKILL);
	waitpid(engine, NULL, 0);
	close(fd);
}
