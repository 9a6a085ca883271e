/* SPDX-License-Identifier: Apache-2.0 */
/* Votes and decisions in shared memory; nothing here waits for ever, or believes an index that another rank wrote. */
#include "ranks/rounds.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ranks/rank.h"
#include "ranks/rounds_memory.h"

#define NS_PER_S UINT64_C(1000000000)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SAYING_NS UINT64_C(100000000) /* a rank may die between a decision and its reason */

enum { OPEN, YES, NO, NO_LATE, NO_ENDED }; /* in the low byte of a decision; NO: with the rank above it */

static uint32_t by_rank(uint32_t what, uint32_t rank)
{
	return what | (rank << 8);
}

/* ---- the memory ---- */

enum md_status md_rounds_create(uint32_t ranks, int *fd, struct md_error *err)
{
	struct md_rounds made;
	struct rlimit most;
	if (!getrlimit(RLIMIT_FSIZE, &most) &&
	    most.rlim_cur < sizeof(struct md_rounds_memory)) /* else a signal comes */
		return md_error_set(err, MD_ERR_NO_MEMORY,
				    "out of memory for the decisions of ranks: they take %zu bytes, and the limit of a "
				    "file's size (ulimit -f) is %" PRIu64,
				    sizeof(struct md_rounds_memory), (uint64_t)most.rlim_cur);
	MD_AUTO_FD int file = memfd_create("medusa-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0 || ftruncate(file, sizeof(struct md_rounds_memory)) || fcntl(file, F_ADD_SEALS, SEALS))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the decisions of ranks: %s",
				    strerror(errno));
	void *memory = mmap(NULL, sizeof(struct md_rounds_memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the decisions of ranks: %s",
				    strerror(errno));
	made.memory = memory;
	made.memory->magic = MD_ROUNDS_MAGIC;
	made.memory->version = MD_ROUNDS_VERSION;
	made.memory->ranks = ranks;
	md_rounds_unmap(&made);
	*fd = md_steal_fd(&file);
	return MD_OK;
}

enum md_status md_rounds_map(int fd, uint32_t ranks, uint32_t own, struct md_rounds *out, struct md_error *err)
{
	struct stat info;
	int seals = fcntl(fd, F_GET_SEALS); /* -1, which has all bits, of a file that cannot be sealed */
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &info) ||
	    info.st_size != (off_t)sizeof(struct md_rounds_memory))
		return md_error_set(err, MD_ERR_CORRUPT, "the memory that ranks share is not such memory");
	void *memory = mmap(NULL, sizeof(struct md_rounds_memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the decisions of ranks: %s",
				    strerror(errno));
	struct md_rounds rounds = {.memory = memory, .ranks = ranks, .own = own};
	enum md_status status = MD_OK;
	if (rounds.memory->magic != MD_ROUNDS_MAGIC || rounds.memory->ranks != ranks || own >= ranks ||
	    ranks > MD_RANKS_MOST)
		status = md_error_set(err, MD_ERR_CORRUPT, "the memory that ranks share is of another job");
	else if (rounds.memory->version != MD_ROUNDS_VERSION)
		status = md_error_set(err, MD_ERR_VERSION,
				      "the memory that ranks share has version %u, this Medusa knows version %u",
				      rounds.memory->version, MD_ROUNDS_VERSION);
	if (status == MD_OK)
		*out = rounds;
	else
		md_rounds_unmap(&rounds);
	return status;
}

void md_rounds_unmap(struct md_rounds *rounds)
{
	if (rounds->memory)
		munmap(rounds->memory, sizeof(struct md_rounds_memory));
	rounds->memory = NULL;
}

/* ---- waiting ---- */

void md_rounds_wake(struct md_rounds_memory *memory)
{
	atomic_fetch_add(&memory->changes, 1);
	syscall(SYS_futex, &memory->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void md_rounds_doze(struct md_rounds_memory *memory, uint32_t seen, uint64_t most_ns)
{
	uint64_t ns = most_ns < MD_ROUNDS_LOOK_NS ? most_ns : MD_ROUNDS_LOOK_NS;
	struct timespec most = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	syscall(SYS_futex, &memory->changes, FUTEX_WAIT, seen, &most, NULL, 0);
}

/* ---- reasons ---- */

static void write_text(struct md_rounds_text *text, uint32_t writer, const char *format, va_list args)
{
	uint32_t none = 0;
	if (!atomic_compare_exchange_strong(&text->writer, &none, writer))
		return;
	vsnprintf(text->bytes, sizeof(text->bytes), format, args);
	atomic_store(&text->written, writer);
}

/* False: whoever has decided has not written why. */
static bool read_text(struct md_rounds_text *text, uint32_t writer, char out[MD_ROUNDS_TEXT])
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint64_t until = md_clock_ns() + SAYING_NS;
	while (atomic_load(&text->written) != writer && md_clock_ns() < until)
		nanosleep(&pause, NULL);
	memcpy(out, text->bytes, MD_ROUNDS_TEXT);
	out[MD_ROUNDS_TEXT - 1] = '\0';
	return atomic_load(&text->written) == writer && *out;
}

/* ---- the end ---- */

void md_rounds_end(struct md_rounds *rounds, enum md_rounds_end how, uint32_t rank, const char *format, ...)
{
	uint32_t none = 0, end = by_rank(how, rank);
	va_list args;
	if (!atomic_compare_exchange_strong(&rounds->memory->ended, &none, end))
		return;
	va_start(args, format);
	write_text(&rounds->memory->end, end, format, args);
	va_end(args);
	md_rounds_wake(rounds->memory);
}

static const char *end_word(uint32_t how)
{
	switch (how & 0xff) {
	case MD_ROUNDS_GONE:
		return "has ended";
	case MD_ROUNDS_LATE:
		return "is late";
	case MD_ROUNDS_OTHER:
		return "does something else than the others";
	default:
		return "has asked for too many graphs";
	}
}

bool md_rounds_ended(const struct md_rounds *rounds, struct md_error *err)
{
	uint32_t how = atomic_load(&rounds->memory->ended);
	char why[MD_ROUNDS_TEXT];
	if (!how)
		return false;
	if (err && read_text(&rounds->memory->end, how, why))
		md_error_set(err, MD_ERR_MISMATCH, "%s", why);
	else
		md_error_set(err, MD_ERR_MISMATCH, "rank %u %s", how >> 8, end_word(how));
	return true;
}

bool md_rounds_arrive(struct md_rounds *rounds, uint32_t rank, uint32_t *process)
{
	uint32_t before = 0;
	if (atomic_compare_exchange_strong(&rounds->memory->seats[rank].process, &before, *process))
		return true;
	*process = before;
	return false;
}

/* ---- votes ---- */

static void decide(struct md_rounds *rounds, struct md_round *round, uint32_t decision)
{
	uint32_t open = OPEN;
	atomic_compare_exchange_strong(&round->decision, &open, decision);
	md_rounds_wake(rounds->memory);
}

__attribute__((format(printf, 3, 4))) static void vote_no(struct md_rounds *rounds, struct md_round *round,
							  const char *format, ...)
{
	va_list args;
	va_start(args, format);
	write_text(&round->why, by_rank(NO, rounds->own), format, args);
	va_end(args);
	decide(rounds, round, by_rank(NO, rounds->own));
}

/* The first rank that has not voted on it; the number of ranks: there is none. */
static uint32_t find_late(const struct md_rounds *rounds, uint32_t number)
{
	uint32_t rank = 0;
	while (rank < rounds->ranks && atomic_load(&rounds->memory->seats[rank].votes) > number)
		rank++;
	return rank;
}

static void give_up(struct md_rounds *rounds, struct md_round *round, uint32_t number, bool for_good,
		    uint64_t waited_ns)
{
	uint32_t late = find_late(rounds, number);
	if (late == rounds->ranks) /* all have voted, and one of them is about to decide */
		late = rounds->own;
	uint32_t process = atomic_load(&rounds->memory->seats[late].process);
	decide(rounds, round, by_rank(NO_LATE, late));
	if (!for_good || (atomic_load(&round->decision) & 0xff) == YES)
		return;
	if (process)
		md_rounds_end(rounds, MD_ROUNDS_LATE, late,
			      "rank %u (process %u) has not asked for graph %u in %" PRIu64
			      " s, and rank %u waits no longer",
			      late, process, number + 1, waited_ns / NS_PER_S, rounds->own);
	else
		md_rounds_end(rounds, MD_ROUNDS_LATE, late,
			      "rank %u has not come in %" PRIu64 " s, and rank %u waits no longer", late,
			      waited_ns / NS_PER_S, rounds->own);
}

static uint32_t await(struct md_rounds *rounds, struct md_round *round, uint32_t number, const struct md_vote *vote)
{
	uint64_t began = md_clock_ns();
	for (;;) {
		uint32_t seen = atomic_load(&rounds->memory->changes), decision = atomic_load(&round->decision);
		uint64_t now = md_clock_ns(), waited = now - began;
		if (decision != OPEN)
			return decision;
		if (!vote->connected(vote->user) || md_rounds_ended(rounds, NULL))
			decide(rounds, round, NO_ENDED);
		else if (waited >= vote->patience_ns || now >= vote->deadline_ns)
			give_up(rounds, round, number, waited >= vote->patience_ns, waited);
		else
			md_rounds_doze(rounds->memory, seen,
				       vote->deadline_ns - now < vote->patience_ns - waited
					   ? vote->deadline_ns - now
					   : vote->patience_ns - waited);
	}
}

static enum md_status read_decision(struct md_rounds *rounds, struct md_round *round, uint32_t decision,
				    struct md_error *err)
{
	char why[MD_ROUNDS_TEXT];
	uint32_t rank = decision >> 8;
	switch (decision & 0xff) {
	case YES:
		return MD_OK;
	case NO:
		if (read_text(&round->why, decision, why))
			return md_error_set(err, MD_ERR_MISMATCH, "rank %u cannot restore it: %s", rank, why);
		return md_error_set(err, MD_ERR_MISMATCH, "rank %u cannot restore it", rank);
	case NO_LATE:
		if (!md_rounds_ended(rounds, err))
			md_error_set(err, MD_ERR_TIMEOUT, "rank %u has not asked for it in time", rank);
		return err->status;
	default:
		if (!md_rounds_ended(rounds, err))
			md_error_set(err, MD_ERR_CORRUPT, "the ranks' decision %u is none", decision);
		return err->status;
	}
}

/* False: the ranks' numbers differ there. */
static bool same_for_all(_Atomic uint64_t *word, uint64_t own)
{
	uint64_t first = 0;
	return atomic_compare_exchange_strong(word, &first, own) || first == own;
}

static void cast(struct md_rounds *rounds, struct md_round *round, uint32_t number, const struct md_vote *vote)
{
	if (vote->why_not)
		vote_no(rounds, round, "%s", vote->why_not);
	else if (!same_for_all(&round->with, vote->with))
		vote_no(rounds, round, "other graphs belong to its group there");
	else if (atomic_fetch_add(&round->yes, 1) + 1 == rounds->ranks)
		decide(rounds, round, YES);
	atomic_store(&rounds->memory->seats[rounds->own].votes, number + 1);
}

/* Graphs of two captures may differ, even if they have one name; then one rank's would wait for what the other's never does. */
static void check_common(struct md_rounds *rounds, uint32_t number, const struct md_vote *vote)
{
	if (vote->bundle && !same_for_all(&rounds->memory->bundle, vote->bundle))
		md_rounds_end(rounds, MD_ROUNDS_OTHER, rounds->own,
			      "rank %u restores from another bundle than the others: give all ranks the same one",
			      rounds->own);
	else if (!same_for_all(&rounds->memory->rounds[number].name, vote->name))
		md_rounds_end(rounds, MD_ROUNDS_OTHER, rounds->own,
			      "rank %u has asked for another graph than the others (graph %u in its order)",
			      rounds->own, number + 1);
}

enum md_status md_rounds_vote(struct md_rounds *rounds, uint32_t number, const struct md_vote *vote,
			      struct md_error *err)
{
	if (number >= MD_ROUNDS_MOST)
		md_rounds_end(rounds, MD_ROUNDS_FULL, rounds->own, "rank %u has asked for more than %u graphs",
			      rounds->own, MD_ROUNDS_MOST);
	bool connected = vote->connected(vote->user); /* a rank that nobody sees any more must not say yes */
	if (md_rounds_ended(rounds, err))
		return err->status;
	if (!connected)
		return md_error_set(err, MD_ERR_NOT_FOUND, "rank %u has lost the other ranks", rounds->own);
	struct md_round *round = &rounds->memory->rounds[number];
	check_common(rounds, number, vote);
	if (md_rounds_ended(rounds, err))
		return err->status;
	cast(rounds, round, number, vote);
	return read_decision(rounds, round, await(rounds, round, number, vote), err);
}
