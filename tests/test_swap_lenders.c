/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to lenders: which are taken, how they end, and who keeps rooms. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "swap/lenders.h"

static struct md_swap_lenders lenders;
static int gives; /* what medusa-swap run has */

static void set_up(void)
{
	int ends[2];
	struct md_error err = {0};
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	gives = ends[1];
	md_swap_lenders_init(&lenders, ends[0]);
}

TestSuite(swap_lenders, .init = set_up, .timeout = 60);

/* Returns the lender's end. */
static int give(uint32_t kind)
{
	int ends[2];
	struct md_error err = {0};
	struct md_carry_message message = {.kind = kind};
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_carry_wire_send(gives, &message, ends[0], &err), MD_OK, "%s", err.message);
	close(ends[0]);
	return ends[1];
}

/* One that has got a room. */
static int take(unsigned number, int pid)
{
	int fd = give(MD_CARRY_LENDER);
	md_swap_lenders_accept(&lenders);
	cr_assert_eq(lenders.count, number + 1);
	struct md_swap_lender *lender = &lenders.list[number];
	lender->way = MD_LENDER_PUSHES;
	lender->rooms = 1;
	lender->pid = pid;
	snprintf(lender->gpu, sizeof(lender->gpu), "GPU-of-it");
	return fd;
}

static bool is_closed(int fd)
{
	char byte;
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

static uint32_t heard(int fd)
{
	struct md_carry_message message = {0};
	struct md_error none = {0};
	bool there = false;
	int passed = -1;
	return md_carry_wire_receive(fd, &message, &passed, &there, &none) == MD_OK && there ? message.kind : 0;
}

static void say(int fd, struct md_carry_message message)
{
	struct md_error err = {0};
	cr_assert_eq(md_carry_wire_send(fd, &message, -1, &err), MD_OK, "%s", err.message);
}

Test(swap_lenders, as_many_as_there_can_be)
{
	int fds[MD_CARRY_LENDERS + 1];
	int odd = give(MD_CARRY_OFFER);
	for (size_t i = 0; i <= MD_CARRY_LENDERS; i++)
		fds[i] = give(MD_CARRY_LENDER);
	md_swap_lenders_accept(&lenders);
	cr_assert_eq(lenders.count, MD_CARRY_LENDERS);
	cr_assert(is_closed(odd) && is_closed(fds[MD_CARRY_LENDERS]) && !is_closed(fds[0]), "one more, and no lender");
	cr_assert_eq(send(gives, "hello", 5, 0), 5);
	md_swap_lenders_accept(&lenders);
	cr_assert_lt(lenders.coming, 0, "what makes no sense ends it");
	uint64_t times[MD_PEER_TIMES] = {0}, began = md_clock_ns();
	md_swap_lenders_finish(&lenders, times);
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		cr_assert(is_closed(fds[i]), "lender %zu, which has got nothing", i);
	cr_assert_not(md_swap_lenders_await());
	cr_assert_lt(md_clock_ns() - began, 200000000ull, "nobody is waited for");
}

Test(swap_lenders, rooms_are_given_up_and_times_are_added)
{
	uint64_t times[MD_PEER_TIMES] = {[MD_PEER_COPIES] = 3, [MD_PEER_READY] = 5};
	int one = take(0, 1), other = take(1, 2), gone = take(2, 3);
	md_swap_lenders_end(&lenders);
	cr_assert(heard(one) == MD_CARRY_END && heard(other) == MD_CARRY_END, "they are told");
	say(one, (struct md_carry_message){.kind = MD_CARRY_DONE});
	say(one, (struct md_carry_message){.kind = MD_CARRY_END, .times = {[MD_PEER_COPIES] = 4, [MD_PEER_READY] = 9}});
	say(other, (struct md_carry_message){.kind = MD_CARRY_FAILED, .text = "it goes out"});
	close(gone);
	md_swap_lenders_finish(&lenders, times);
	cr_assert(times[MD_PEER_COPIES] == 7 && times[MD_PEER_READY] == 5, "of who copies alone");
	cr_assert_eq(heard(one), 0, "once");
	cr_assert(is_closed(one) && is_closed(other), "all is over");
	cr_assert_not(md_swap_lenders_await(), "nobody has rooms");
}

static void *answer_later(void *fd)
{
	nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
	say(*(int *)fd, (struct md_carry_message){.kind = MD_CARRY_END});
	return NULL;
}

Test(swap_lenders, one_that_answers_late_is_waited_for_by_who_needs_room)
{
	uint64_t times[MD_PEER_TIMES] = {0}, began = md_clock_ns();
	int fd = take(0, 1);
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, answer_later, &fd), 0);
	md_swap_lenders_finish(&lenders, times);
	cr_assert_lt(md_clock_ns() - began, 650000000ull, "the command does not wait so long");
	cr_assert(md_swap_lenders_await(), "the allocation does");
	cr_assert_geq(md_clock_ns() - began, 650000000ull);
	pthread_join(thread, NULL);
	cr_assert_not(md_swap_lenders_await());
	cr_assert_eq(heard(fd), MD_CARRY_END);
	cr_assert(is_closed(fd));
}

static char *said(int log)
{
	static char text[4096];
	ssize_t size = pread(log, text, sizeof(text) - 1, 0);
	text[size > 0 ? size : 0] = '\0';
	return text;
}

Test(swap_lenders, one_that_keeps_rooms_is_named)
{
	uint64_t times[MD_PEER_TIMES] = {0};
	int fd = take(0, 4711), log = memfd_create("log", MFD_CLOEXEC);
	cr_assert(dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0,
		  "both, so that it is still standard error");
	md_swap_lenders_finish(&lenders, times);
	uint64_t began = md_clock_ns();
	cr_assert(md_swap_lenders_await());
	cr_assert_geq(md_clock_ns() - began, 2900000000ull);
	cr_assert(strstr(said(log), "process 4711 on GPU-of-it has not given back memory"), "%s", said(log));
	cr_assert_eq(heard(fd), MD_CARRY_END);
	cr_assert(is_closed(fd), "it finds the end of the connection when it goes on");
	close(fd);
	cr_assert(md_swap_lenders_await(), "it was still there");
	cr_assert_not(md_swap_lenders_await(), "it has ended");
}

/* As in an engine that closes descriptors which it has not opened. */
Test(swap_lenders, a_number_that_is_somebody_elses)
{
	uint64_t times[MD_PEER_TIMES] = {0};
	int fd = take(0, 1), ours = lenders.list[0].fd;
	md_swap_lenders_finish(&lenders, times);
	close(ours);
	int others = memfd_create("others", MFD_CLOEXEC);
	cr_assert_eq(dup2(others, ours), ours);
	uint64_t began = md_clock_ns();
	md_swap_lenders_await();
	cr_assert_lt(md_clock_ns() - began, 1000000000ull, "nothing is waited for");
	cr_assert_eq(write(ours, "x", 1), 1, "it is open");
	close(fd);
}

Test(swap_lenders, more_than_can_be_remembered)
{
	uint64_t times[MD_PEER_TIMES] = {0};
	int fds[20];
	for (size_t i = 0; i < 20; i++) {
		fds[i] = take((unsigned)(i % 4), (int)i);
		if (i % 4 == 3) {
			md_swap_lenders_finish(&lenders, times);
			set_up();
		}
	}
	cr_assert(heard(fds[0]) == MD_CARRY_END && is_closed(fds[0]), "it is told, all the same");
	for (size_t i = 0; i < 20; i++)
		close(fds[i]);
	md_swap_lenders_await();
	cr_assert_not(md_swap_lenders_await());
}
