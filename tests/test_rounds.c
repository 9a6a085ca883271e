/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of ranks in shared memory: whoever lags or dies, no two ranks read different ones, and nobody waits for ever. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "ranks/rank.h"
#include "ranks/rounds.h"

#define MS UINT64_C(1000000)
enum { RANKS = 4, ROUNDS = 300 };

static bool always(void *user)
{
	(void)user;
	return true;
}

static const struct md_vote yes = {
    .name = 7, .with = 1, .deadline_ns = UINT64_MAX, .patience_ns = 50 * MS, .connected = always};

static const struct md_vote hasty = {.name = 7, .with = 1, .patience_ns = 50 * MS, .connected = always};

static struct md_rounds seats(uint32_t ranks, uint32_t own, int *fd)
{
	struct md_rounds out = {0};
	struct md_error err = {0};
	if (*fd < 0)
		cr_assert_eq(md_rounds_create(ranks, fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_rounds_map(*fd, ranks, own, &out, &err), MD_OK, "%s", err.message);
	return out;
}

Test(rounds, all_say_yes)
{
	int fd = -1;
	struct md_error err = {0};
	struct md_rounds one = seats(1, 0, &fd);
	cr_assert_eq(md_rounds_vote(&one, 0, &yes, &err), MD_OK, "a rank alone decides: %s", err.message);
	cr_assert(!md_rounds_ended(&one, NULL));
}

Test(rounds, nobody_waits_once_one_has_said_no, .timeout = 60)
{
	int fd = -1;
	struct md_error err = {0};
	struct md_rounds first = seats(2, 0, &fd), second = seats(2, 1, &fd);
	struct md_vote no = yes, patient = yes;
	no.why_not = "it lacks a kernel";
	no.patience_ns = patient.patience_ns = UINT64_MAX / 2; /* who waited would wait for the test's end */
	cr_assert_eq(md_rounds_vote(&second, 0, &no, &err), MD_ERR_MISMATCH);
	cr_assert_eq(md_rounds_vote(&first, 0, &patient, &err), MD_ERR_MISMATCH);
	cr_assert_str_eq(err.message, "rank 1 cannot restore it: it lacks a kernel");
	cr_assert(!md_rounds_ended(&first, NULL), "they go on with the next one");
}

Test(rounds, should_fail_what_ranks_do_not_have_in_common)
{
	int fd = -1;
	struct md_error err = {0};
	struct md_rounds first = seats(2, 0, &fd), second = seats(2, 1, &fd);
	struct md_vote other = yes;
	cr_assert_neq(md_rounds_vote(&first, 0, &hasty, &err), MD_OK, "its deadline has passed");
	cr_assert_neq(md_rounds_vote(&second, 0, &other, &err), MD_OK, "it is over for the other one, too");
	cr_assert(!md_rounds_ended(&first, NULL));
	other.name = 8;
	cr_assert_neq(md_rounds_vote(&second, 1, &hasty, &err), MD_OK);
	cr_assert_neq(md_rounds_vote(&first, 1, &other, &err), MD_OK);
	cr_assert_str_eq(err.message, "rank 0 has asked for another graph than the others (graph 2 in its order)");
	cr_assert(md_rounds_ended(&second, &err), "nothing more is decided");
	fd = -1;
	first = seats(2, 0, &fd);
	second = seats(2, 1, &fd);
	struct md_vote unknown = hasty, one = hasty, another = hasty;
	one.bundle = 5;
	another.bundle = 6;
	cr_assert_neq(md_rounds_vote(&first, 0, &one, &err), MD_OK);
	cr_assert_neq(md_rounds_vote(&second, 0, &unknown, &err), MD_OK);
	cr_assert(!md_rounds_ended(&first, NULL), "a rank without a bundle has no other one");
	cr_assert_neq(md_rounds_vote(&second, 1, &another, &err), MD_OK);
	cr_assert_str_eq(err.message,
			 "rank 1 restores from another bundle than the others: give all ranks the same one");
	cr_assert(md_rounds_ended(&first, NULL), "nothing more is decided");
	cr_assert_neq(md_rounds_vote(&second, 2, &yes, &err), MD_OK);
}

Test(rounds, should_fail_other_groups)
{
	int fd = -1, status;
	struct md_error err = {0};
	struct md_rounds first = seats(2, 0, &fd), second = seats(2, 1, &fd);
	struct md_vote vote = yes;
	vote.patience_ns = 20000 * MS;
	pid_t child = fork();
	if (!child)
		_exit(md_rounds_vote(&second, 0, &vote, &err) == MD_OK);
	vote.with = 2;
	cr_assert_eq(md_rounds_vote(&first, 0, &vote, &err), MD_ERR_MISMATCH);
	cr_assert(strstr(err.message, " cannot restore it: other graphs belong to its group there"), "%s", err.message);
	waitpid(child, &status, 0);
	cr_assert_eq(status, 0, "the other one has a no, too");
	cr_assert(!md_rounds_ended(&first, NULL));
}

Test(rounds, a_rank_that_does_not_come_is_named, .timeout = 60)
{
	int fd = -1;
	struct md_error err = {0};
	struct md_rounds first = seats(3, 0, &fd), third = seats(3, 2, &fd);
	uint32_t process = 41;
	uint64_t began = md_clock_ns();
	cr_assert_neq(md_rounds_vote(&third, 0,
				     &(struct md_vote){.name = 7, .with = 1, .why_not = "", .connected = always}, &err),
		      MD_OK);
	cr_assert_neq(md_rounds_vote(&third, 1, &hasty, &err), MD_OK, "it has no time");
	cr_assert_str_eq(err.message, "rank 0 has not asked for it in time");
	cr_assert(md_rounds_arrive(&first, 1, &process));
	process = 42;
	cr_assert(!md_rounds_arrive(&first, 1, &process), "a rank comes once");
	cr_assert_eq(process, 41);
	cr_assert_neq(md_rounds_vote(&first, 2, &yes, &err), MD_OK);
	cr_assert(md_clock_ns() - began > 45 * MS, "it waits as long as it may");
	cr_assert_str_eq(err.message,
			 "rank 1 (process 41) has not asked for graph 3 in 0 s, and rank 0 waits no longer");
}

Test(rounds, should_fail_memory_that_is_none)
{
	struct md_rounds out;
	struct md_error err = {0};
	int fd = -1, file = memfd_create("other", MFD_ALLOW_SEALING);
	seats(2, 0, &fd);
	cr_assert_eq(md_rounds_map(fd, 3, 0, &out, &err), MD_ERR_CORRUPT, "of another number of ranks");
	cr_assert_eq(md_rounds_map(fd, 2, 2, &out, &err), MD_ERR_CORRUPT, "without this rank");
	cr_assert_eq(md_rounds_map(file, 2, 0, &out, &err), MD_ERR_CORRUPT, "that may be cut off");
	fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_assert_eq(md_rounds_map(file, 2, 0, &out, &err), MD_ERR_CORRUPT, "without a byte");
	cr_assert_eq(md_rounds_map(STDIN_FILENO, 2, 0, &out, &err), MD_ERR_CORRUPT, "that is a terminal or pipe");
	FILE *copy = tmpfile();
	char head[64];
	cr_assert(copy && pread(fd, head, sizeof(head), 0) == sizeof(head));
	cr_assert(pwrite(fileno(copy), head, sizeof(head), 0) == sizeof(head));
	cr_assert(!ftruncate(fileno(copy), lseek(fd, 0, SEEK_END)));
	cr_assert_eq(md_rounds_map(fileno(copy), 2, 0, &out, &err), MD_ERR_CORRUPT, "in a file that has no seals");
	fclose(copy);
	cr_assert_eq(ftruncate(fd, 0), -1, "who has the memory cannot cut it off");
}

Test(rounds, should_fail_below_the_limit_of_files)
{
	struct rlimit few = {1000, 1000};
	struct md_error err = {0};
	int fd = -1;
	signal(SIGXFSZ, SIG_DFL);
	setrlimit(RLIMIT_FSIZE, &few);
	cr_assert_eq(md_rounds_create(2, &fd, &err), MD_ERR_NO_MEMORY, "and no signal comes");
}

/* ---- whatever happens, they read the same ---- */

static void run_rank(int fd, uint32_t own, uint64_t seed, uint8_t *results)
{
	struct md_rounds rounds;
	struct md_error err = {0};
	uint64_t state = md_random_mix(seed + own);
	if (md_rounds_map(fd, RANKS, own, &rounds, &err) != MD_OK)
		_exit(1);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct md_vote vote = yes;
		uint64_t dice = md_random_next(&state);
		vote.name = i + 1;
		vote.patience_ns = 1500 * MS;
		vote.why_not = dice % 29 == 0 ? "the dice say so" : NULL;
		if (dice % 7 == 0)
			vote.deadline_ns = md_clock_ns() + (dice >> 8) % (MS / 4);
		if (dice % 5 == 0)
			usleep((unsigned)(dice >> 20) % 400);
		if (dice % 1000 == 0 && own)
			raise(SIGKILL);
		results[i] = md_rounds_vote(&rounds, i, &vote, &err) == MD_OK ? 1 : 2;
	}
	_exit(0);
}

static void play(uint64_t seed, unsigned decided[3])
{
	uint8_t(*results)[ROUNDS] =
	    mmap(NULL, RANKS * ROUNDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = -1, status;
	struct md_error err = {0};
	cr_assert_eq(md_rounds_create(RANKS, &fd, &err), MD_OK);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (!fork())
			run_rank(fd, rank, seed, results[rank]);
	while (wait(&status) > 0 || errno == EINTR)
		cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !WEXITSTATUS(status));
	for (unsigned i = 0; i < ROUNDS; i++)
		for (unsigned rank = 0; rank < RANKS; rank++) {
			decided[results[rank][i]]++;
			for (unsigned other = 0; other < RANKS; other++)
				cr_assert(results[rank][i] * results[other][i] != 2,
					  "seed %lu, round %u: rank %u and rank %u have read different decisions",
					  (unsigned long)seed, i, rank, other);
		}
	munmap(results, RANKS * ROUNDS);
	close(fd);
}

Test(rounds, no_two_ranks_read_different_decisions, .timeout = 120)
{
	unsigned decided[3] = {0};
	for (uint64_t seed = 1; seed <= 12; seed++)
		play(seed * MD_RANDOM_STEP, decided);
	cr_assert(decided[0] > 0, "some die");
	cr_assert(decided[1] > 500, "some are yes: %u", decided[1]);
	cr_assert(decided[2] > 500, "some are no: %u", decided[2]);
}
