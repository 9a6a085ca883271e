/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of ranks in shared memory: all take one or none does, whoever lags, dies or does something else. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "ranks/rounds_memory.h"
#include "ranks/steps.h"

#define MS UINT64_C(1000000)
enum { RANKS = 4, STEPS = 400 };

static bool always(void *user)
{
	(void)user;
	return true;
}

static bool never(void *user)
{
	(void)user;
	return false;
}

static struct md_step step_of(const char *text, uint64_t patience_ns)
{
	return (struct md_step){.text = text, .patience_ns = patience_ns, .connected = always};
}

static struct md_rounds seat(uint32_t ranks, uint32_t own, int *fd)
{
	struct md_rounds out = {0};
	struct md_error err = {0};
	if (*fd < 0)
		cr_assert_eq(md_rounds_create(ranks, fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_rounds_map(*fd, ranks, own, &out, &err), MD_OK, "%s", err.message);
	return out;
}

/* The other rank, in a process of its own, says these texts one after the other; exits with 0 if all but the marked step were taken. */
static pid_t other_rank(struct md_rounds *rounds, const char *const *texts, uint32_t count, uint32_t differs)
{
	pid_t child = fork();
	if (child)
		return child;
	for (uint32_t i = 0; i < count; i++) {
		bool all;
		struct md_error err = {0};
		struct md_step step = step_of(texts[i], 20000 * MS);
		if ((md_rounds_step(rounds, i, &step, &all, &err) == MD_OK) == (i == differs))
			_exit(1);
	}
	_exit(0);
}

static void assert_ends_well(pid_t child)
{
	int status = -1;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0, "the other rank has been told the same");
}

Test(steps, ranks_that_do_different_things_go_on_with_the_next, .timeout = 60)
{
	int fd = -1;
	bool all = false;
	struct md_error err = {0};
	struct md_rounds first = seat(2, 0, &fd), second = seat(2, 1, &fd);
	static const char *const theirs[] = {"begin", "replay 1", "the end", "begin", "replay 1"};
	static const char *const own[] = {"begin", "replay 1", "replay 2", "begin", "replay 1"};
	pid_t child = other_rank(&second, theirs, 5, 2);
	for (uint32_t i = 0; i < 5; i++) {
		struct md_step step = step_of(own[i], 20000 * MS);
		enum md_status status = md_rounds_step(&first, i, &step, &all, &err);
		cr_assert_eq(status, i == 2 ? MD_ERR_MISMATCH : MD_OK, "step %u: %s", i, err.message);
		if (i == 2)
			cr_assert_str_eq(err.message, "rank 1 is at: the end; rank 0 is at: replay 2");
	}
	cr_assert(!md_rounds_ended(&first, NULL));
	assert_ends_well(child);
}

Test(steps, texts_that_are_the_same_as_far_as_they_are_kept, .timeout = 60)
{
	int fd = -1;
	bool all = false;
	struct md_error err = {0};
	struct md_rounds first = seat(2, 0, &fd), second = seat(2, 1, &fd);
	char own[600], other[600];
	memset(own, 'a', sizeof(own) - 1);
	own[sizeof(own) - 1] = 0;
	memcpy(other, own, sizeof(own));
	other[590] = 'b';
	pid_t child = other_rank(&second, (const char *const[]){other}, 1, 0);
	struct md_step step = step_of(own, 20000 * MS);
	cr_assert_eq(md_rounds_step(&first, 0, &step, &all, &err), MD_ERR_MISMATCH, "their ends differ");
	assert_ends_well(child);
}

Test(steps, a_rank_that_does_not_come_is_named, .timeout = 60)
{
	int fd = -1;
	bool all = false;
	struct md_error err = {0};
	struct md_rounds first = seat(2, 0, &fd), second = seat(2, 1, &fd);
	uint32_t process = 41;
	uint64_t began = md_clock_ns();
	struct md_step step = step_of("replay 7", 60 * MS), late = step_of("replay 7", 20000 * MS);
	cr_assert(md_rounds_arrive(&second, 1, &process));
	cr_assert_neq(md_rounds_step(&first, 0, &step, &all, &err), MD_OK);
	cr_assert(md_clock_ns() - began > 55 * MS, "it waits as long as it may");
	cr_assert_str_eq(err.message, "rank 1 (process 41) has not come in 0 s to: replay 7");
	cr_assert_neq(md_rounds_step(&second, 0, &late, &all, &err), MD_OK, "and it does not take the step alone");
	cr_assert_str_eq(err.message, "rank 1 (process 41) has not come in 0 s to: replay 7");
}

Test(steps, should_fail_when_the_others_are_lost, .timeout = 60)
{
	int fd = -1;
	bool all = false;
	struct md_error err = {0};
	struct md_rounds first = seat(2, 0, &fd);
	struct md_step step = {.text = "replay", .patience_ns = 20000 * MS, .connected = never};
	cr_assert_eq(md_rounds_step(&first, 0, &step, &all, &err), MD_ERR_NOT_FOUND);
	cr_assert_str_eq(err.message, "rank 0 has lost the other ranks");
	step.connected = always;
	md_rounds_end(&first, MD_ROUNDS_GONE, 1, "rank 1 has gone");
	cr_assert_eq(md_rounds_step(&first, 1, &step, &all, &err), MD_ERR_MISMATCH);
	cr_assert_str_eq(err.message, "rank 1 has gone");
}

static bool only_at_first(void *user)
{
	return (*(unsigned *)user)++ == 0;
}

/* Else it would write over what it has said in the step before the last, which a slower rank may still be reading. */
Test(steps, a_rank_says_nothing_after_a_step_that_was_given_up, .timeout = 60)
{
	int fd = -1;
	bool all = false;
	unsigned asked = 0;
	struct md_error err = {0};
	struct md_rounds first = seat(2, 0, &fd), second = seat(2, 1, &fd);
	struct md_step alone = {
	    .text = "replay 2", .patience_ns = 20000 * MS, .connected = only_at_first, .user = &asked};
	struct md_step next = step_of("replay 3", 20000 * MS);
	pid_t child = other_rank(&second, (const char *const[]){"replay 1"}, 1, 1);
	struct md_step both = step_of("replay 1", 20000 * MS);
	cr_assert_eq(md_rounds_step(&first, 0, &both, &all, &err), MD_OK, "%s", err.message);
	assert_ends_well(child);
	cr_assert_eq(md_rounds_step(&first, 1, &alone, &all, &err), MD_ERR_NOT_FOUND);
	cr_assert_str_eq(err.message, "ranks have lost each other at: replay 2");
	cr_assert(!md_rounds_ended(&first, NULL), "nobody has said yet that it is the end");
	cr_assert_eq(md_rounds_step(&first, 2, &next, &all, &err), MD_ERR_NOT_FOUND);
	cr_assert_str_eq(err.message, "ranks have lost each other at: replay 3");
	cr_assert_str_eq(first.memory->seats[0].said[0].text, "replay 1");
	cr_assert_eq(atomic_load(&first.memory->seats[0].steps), 2);
}

static void answer(struct md_rounds *rounds, const bool answers[4][2], uint32_t own)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct md_error err = {0};
		struct md_step step = step_of("equal?", 20000 * MS);
		bool all = !(answers[i][0] && answers[i][1]);
		step.yes = answers[i][own];
		cr_assert_eq(md_rounds_step(rounds, i, &step, &all, &err), MD_OK, "%s", err.message);
		cr_assert_eq(all, answers[i][0] && answers[i][1], "question %u in rank %u", i, own);
	}
}

Test(steps, each_rank_knows_whether_all_say_yes, .timeout = 60)
{
	static const bool answers[4][2] = {{true, true}, {true, false}, {false, true}, {false, false}};
	int fd = -1;
	struct md_rounds first = seat(2, 0, &fd), second = seat(2, 1, &fd);
	pid_t child = fork();
	answer(child ? &first : &second, answers, child == 0);
	if (!child)
		_exit(0);
	assert_ends_well(child);
}

/* ---- whatever happens, they take the same steps ---- */

static void run_rank(int fd, uint32_t own, uint64_t seed, uint8_t *results)
{
	struct md_rounds rounds;
	uint64_t state = md_random_mix(seed + own);
	if (md_rounds_map(fd, RANKS, own, &rounds, NULL) != MD_OK)
		_exit(1);
	for (uint32_t i = 0; i < STEPS; i++) {
		char text[32];
		bool all;
		struct md_error err = {0};
		uint64_t dice = md_random_next(&state);
		snprintf(text, sizeof(text), "step %u%s", i, dice % 41 == 0 ? " otherwise" : "");
		struct md_step step = step_of(text, dice % 211 == 0 ? (dice >> 8) % (MS / 2) : 1500 * MS);
		if (dice % 5 == 0)
			usleep((unsigned)(dice >> 20) % 400);
		if (dice % 1500 == 0)
			raise(SIGKILL);
		results[i] = md_rounds_step(&rounds, i, &step, &all, &err) == MD_OK ? 1 : 2;
	}
	_exit(0);
}

static void play(uint64_t seed, unsigned taken[3])
{
	uint8_t(*results)[STEPS] = mmap(NULL, RANKS * STEPS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = -1, status;
	cr_assert_eq(md_rounds_create(RANKS, &fd, NULL), MD_OK);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (!fork())
			run_rank(fd, rank, seed, results[rank]);
	while (wait(&status) > 0 || errno == EINTR)
		cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !WEXITSTATUS(status));
	for (unsigned i = 0; i < STEPS; i++)
		for (unsigned rank = 0; rank < RANKS; rank++) {
			taken[results[rank][i]]++;
			for (unsigned other = 0; other < RANKS; other++)
				cr_assert(results[rank][i] * results[other][i] != 2,
					  "seed %lu, step %u: of rank %u and rank %u one alone has taken it",
					  (unsigned long)seed, i, rank, other);
		}
	munmap(results, RANKS * STEPS);
	close(fd);
}

Test(steps, all_ranks_take_a_step_or_none_does, .timeout = 120)
{
	unsigned taken[3] = {0};
	for (uint64_t seed = 1; seed <= 12; seed++)
		play(seed * MD_RANDOM_STEP, taken);
	cr_assert(taken[0] > 0, "some die");
	cr_assert(taken[1] > 500, "some are taken: %u", taken[1]);
	cr_assert(taken[2] > 500, "some are not: %u", taken[2]);
}
