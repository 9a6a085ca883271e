/* SPDX-License-Identifier: Apache-2.0 */
/* Who comes to the socket of a job's ranks: what a well-formed greeting may get wrong, and what the others are told. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "ranks/greeting.h"
#include "ranks/meeting.h"

#define NS_PER_S UINT64_C(1000000000)

static char folder[] = "/tmp/medusa-meeting.XXXXXX";

static struct md_rank rank_of(uint32_t number)
{
	struct md_rank rank = {.meets = true, .rank = number, .ranks = 2, .job = 0x1234, .patience_ns = 20 * NS_PER_S};
	snprintf(rank.folder, sizeof(rank.folder), "%s", folder);
	return rank;
}

static enum md_status ask(uint32_t number, bool *over, struct md_error *err)
{
	static struct md_rank rank; /* outlives the thread at the socket */
	const struct md_question question = {.name = 7, .with = 1, .deadline_ns = UINT64_MAX};
	rank = rank_of(number);
	return md_ranks_ask(&rank, &question, over, err);
}

/* Rank 0 in a process of its own, which writes what it is answered. */
static pid_t start_host(int *answer)
{
	int ends[2];
	cr_assert(mkdtemp(folder) && !pipe(ends));
	pid_t child = fork();
	if (!child) {
		struct md_error err = {0};
		bool over = false;
		if (ask(0, &over, &err) == MD_OK)
			snprintf(err.message, sizeof(err.message), "yes");
		dprintf(ends[1], "%s%s", over ? "over: " : "", err.message);
		_exit(0);
	}
	close(ends[1]);
	*answer = ends[0];
	return child;
}

static int connect_there(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int made = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/ranks-0000000000001234.socket", folder);
	for (unsigned turn = 0; turn < 1000 && connect(made, (struct sockaddr *)&address, sizeof(address)); turn++)
		usleep(10000);
	return made;
}

static void assert_answer(int answer, const char *text)
{
	char said[1024] = "";
	ssize_t got = read(answer, said, sizeof(said) - 1);
	cr_assert_gt(got, 0);
	cr_assert(strstr(said, text), "\"%s\" in \"%s\"", text, said);
}

static void seal(struct md_greeting *greeting)
{
	greeting->checksum = md_hash_checksum(greeting, offsetof(struct md_greeting, checksum));
}

/* why: what both the guest and the host are told. */
static void assert_ends(void (*spoil)(struct md_greeting *greeting), const char *why)
{
	struct md_rank rank = rank_of(1);
	struct md_greeting greeting;
	struct md_error err = {0};
	int answer, memory = -1;
	pid_t host = start_host(&answer);
	int there = connect_there();
	md_greeting_write(&greeting, &rank);
	spoil(&greeting);
	seal(&greeting);
	cr_assert_eq(send(there, &greeting, sizeof(greeting), 0), sizeof(greeting));
	cr_assert_eq(md_greeting_answer_take(there, md_clock_ns() + 10 * NS_PER_S, &memory, &err), MD_ERR_MISMATCH,
		     "%s", err.message);
	cr_assert_str_eq(err.message, why);
	assert_answer(answer, why);
	waitpid(host, NULL, 0);
}

static void of_another_version(struct md_greeting *greeting)
{
	greeting->version = 7;
}

Test(meeting, should_fail_another_version)
{
	assert_ends(of_another_version, "rank 1 has another Medusa than rank 0: they meet by versions 7 and 2");
}

static void of_another_number(struct md_greeting *greeting)
{
	greeting->ranks = 3;
}

Test(meeting, should_fail_another_number_of_ranks)
{
	assert_ends(of_another_number, "rank 1 says that there are 3 ranks, and rank 0 says 2");
}

static void beyond_the_others(struct md_greeting *greeting)
{
	greeting->rank = UINT32_MAX;
}

Test(meeting, should_fail_a_rank_beyond_the_others)
{
	assert_ends(beyond_the_others, "rank 4294967295 has come, and there are 2 ranks");
}

static void of_another_job(struct md_greeting *greeting)
{
	greeting->job++;
}

Test(meeting, should_fail_another_job)
{
	assert_ends(of_another_job, "rank 1 of another job has come");
}

Test(meeting, whoever_is_no_rank_changes_nothing)
{
	struct md_rank rank = rank_of(1);
	struct md_greeting greeting;
	struct md_error err = {0};
	bool over = true;
	int answer;
	pid_t host = start_host(&answer);
	rank = rank_of(1);
	md_greeting_write(&greeting, &rank);
	greeting.checksum++;
	int there = connect_there();
	cr_assert_eq(send(there, &greeting, sizeof(greeting), 0), sizeof(greeting));
	char byte;
	cr_assert_eq(recv(there, &byte, 1, 0), 0, "it is sent away");
	cr_assert_eq(ask(1, &over, &err), MD_OK, "and the rank that comes after it is welcome: %s", err.message);
	cr_assert(!over);
	assert_answer(answer, "yes");
	waitpid(host, NULL, 0);
}

Test(meeting, a_rank_that_is_killed_ends_it)
{
	int answer;
	pid_t host = start_host(&answer), guest = fork();
	if (!guest) {
		struct md_rank rank = rank_of(1);
		struct md_greeting greeting;
		int there = connect_there(), memory = -1;
		md_greeting_write(&greeting, &rank);
		if (send(there, &greeting, sizeof(greeting), 0) != sizeof(greeting) ||
		    md_greeting_answer_take(there, md_clock_ns() + 10 * NS_PER_S, &memory, NULL) != MD_OK)
			_exit(1);
		raise(SIGKILL);
	}
	char why[128];
	snprintf(why, sizeof(why), "over: the ranks of this job do not restore together: rank 1 (process %d) has ended",
		 (int)guest);
	assert_answer(answer, why);
	waitpid(guest, NULL, 0);
	waitpid(host, NULL, 0);
}

Test(meeting, a_child_is_no_rank)
{
	int answer;
	pid_t host = start_host(&answer);
	struct md_error err = {0};
	bool over = false;
	cr_assert_eq(ask(1, &over, &err), MD_OK, "%s", err.message);
	pid_t child = fork();
	if (!child) {
		enum md_status status = ask(1, &over, &err);
		_exit(status == MD_OK || !over || !strstr(err.message, "a child of a rank is no rank"));
	}
	int status;
	waitpid(child, &status, 0);
	cr_assert_eq(status, 0, "a child gets no answer, and knows it");
	assert_answer(answer, "yes");
	waitpid(host, NULL, 0);
}
