/* SPDX-License-Identifier: Apache-2.0 */
/* Lending memory to borrowers: what is offered, what they ask for, who does not give it back, and allocations meanwhile. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "swap/layer.h"
#include "swap/lending.h"
#include "swap/physical.h"
#include "tests/hostcuda_fixture.h"

enum { PARTS = 2, BLOCKS = 3 };

static struct md_swap_lending lending;
static struct md_swap_book book;
static struct md_swap_wire wire;
static int run; /* the other end of the wire */
static uint64_t freed;

static enum md_status lend_known(uint64_t serial, int *fd, struct md_error *err)
{
	if (serial == freed)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the engine has freed it");
	*fd = memfd_create("lent", MFD_CLOEXEC);
	return MD_OK;
}

static const struct md_swap_below below = {.driver = &md_cuda, .lend_known = lend_known};

static struct md_hash hash_of(size_t block)
{
	return (struct md_hash){.bytes = {1, (uint8_t)block}};
}

/* Two parts of three blocks; the second one of each is zeros. */
static void write_book(void)
{
	struct md_hash_range hashes[PARTS * BLOCKS] = {0};
	uint32_t blocks[PARTS * BLOCKS];
	struct md_swap_part parts[PARTS + 1];
	struct md_swap_contents contents = {
	    .parts = parts, .part_count = PARTS + 1, .hashes = hashes, .blocks = blocks, .block_count = PARTS * BLOCKS};
	for (size_t i = 0; i < PARTS * BLOCKS; i++) {
		hashes[i] = (struct md_hash_range){.size = MD_SWAP_BLOCK, .hash = hash_of(i)};
		blocks[i] = i % BLOCKS == 1 ? MD_SWAP_ZERO : (uint32_t)i;
	}
	for (size_t i = 0; i < PARTS; i++)
		parts[i] = (struct md_swap_part){
		    .range = {.bytes = BLOCKS * MD_SWAP_BLOCK, .serial = 10 + i}, .first = i * BLOCKS, .count = BLOCKS};
	parts[PARTS] = (struct md_swap_part){.range = {.bytes = MD_SWAP_BLOCK, .serial = 50}, .count = 1}; /* small */
	md_swap_book_write(&book, &contents);
}

static void set_up(void)
{
	int ends[2];
	device_open();
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	md_swap_wire_init(&wire, ends[0]);
	run = ends[1];
	write_book();
	md_swap_lending_init(&lending, &below, &book);
}

static void tear_down(void)
{
	md_swap_lending_finish(&lending);
	md_swap_book_clear(&book);
	md_swap_wire_finish(&wire);
	close(run);
}

TestSuite(swap_lending, .init = set_up, .fini = tear_down, .timeout = 60);

/* ---- a borrower ---- */

static int borrow(void)
{
	int ends[2];
	struct md_error err = {0};
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	md_swap_lending_begin(&lending, ends[0]);
	return ends[1];
}

static bool serve(void)
{
	return md_swap_lending_wait(&lending, &wire, 10);
}

/* *passed: the caller closes it. False: the connection is closed. */
static bool hear(int fd, struct md_carry_message *message, int *passed)
{
	struct md_error none = {0};
	bool there = false;
	for (int i = 0; i < 100 && !there; i++) {
		if (md_carry_wire_receive(fd, message, passed, &there, &none) != MD_OK)
			return false;
		if (!there)
			serve();
	}
	return there;
}

static void say(int fd, struct md_carry_message message)
{
	struct md_error err = {0};
	cr_assert_eq(md_carry_wire_send(fd, &message, -1, &err), MD_OK, "%s", err.message);
}

/* What is offered; 0: nothing. */
static size_t offered(int fd, struct md_carry_offered list[PARTS * BLOCKS])
{
	struct md_carry_message message;
	int file = -1;
	if (!hear(fd, &message, &file))
		return 0;
	cr_assert_eq(message.kind, MD_CARRY_OFFER);
	cr_assert(!strncmp(message.gpus[0], "GPU-", 4), "%s", message.gpus[0]);
	cr_assert(file >= 0 && message.bytes <= PARTS * BLOCKS * sizeof(*list), "%zu bytes", (size_t)message.bytes);
	cr_assert_eq(pread(file, list, message.bytes, 0), (ssize_t)message.bytes);
	close(file);
	return message.bytes / sizeof(*list);
}

static uint32_t asked(int fd, uint32_t part, uint64_t *bytes)
{
	struct md_carry_message message;
	int memory = -1;
	say(fd, (struct md_carry_message){.kind = MD_CARRY_PART, .part = part});
	cr_assert(hear(fd, &message, &memory), "an answer");
	cr_assert_eq(message.part, part);
	cr_assert_eq(memory >= 0, message.kind == MD_CARRY_PART, "memory comes with a part");
	if (memory >= 0)
		close(memory);
	*bytes = message.bytes;
	return message.kind;
}

static bool is_closed(int fd)
{
	char byte;
	serve();
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* ---- what is lent ---- */

Test(swap_lending, blocks_that_came_in_are_offered)
{
	struct md_carry_offered list[PARTS * BLOCKS];
	uint64_t bytes;
	int fd = borrow();
	cr_assert_eq(offered(fd, list), 4);
	for (size_t i = 0; i < 4; i++) {
		struct md_hash hash = hash_of(list[i].part * BLOCKS + list[i].block);
		cr_assert(list[i].block != 1 && md_hash_equal(&list[i].hash, &hash), "block %zu", i);
	}
	cr_assert_eq(asked(fd, 0, &bytes), MD_CARRY_PART);
	cr_assert_eq(bytes, BLOCKS * MD_SWAP_BLOCK);
	freed = 11;
	cr_assert_eq(asked(fd, 1, &bytes), MD_CARRY_NOT, "it was freed");
	cr_assert_eq(asked(fd, 2, &bytes), MD_CARRY_NOT, "small memory is not lent");
	cr_assert_eq(asked(fd, UINT32_MAX, &bytes), MD_CARRY_NOT);
	close(fd);
}

/* Asks for a part again and again, each time when it has the answer; then the wire has something. */
static void *ask_and_ask(void *fd)
{
	struct pollfd ready = {.fd = *(int *)fd, .events = POLLIN};
	for (unsigned i = 0; i < 5; i++) {
		struct md_carry_message message = {.kind = MD_CARRY_PART};
		struct md_error none = {0};
		bool there = false;
		int memory = -1;
		md_carry_wire_send(ready.fd, &message, -1, &none);
		while (!there && poll(&ready, 1, 30000) == 1 &&
		       md_carry_wire_receive(ready.fd, &message, &memory, &there, &none) == MD_OK)
			;
		if (memory >= 0)
			close(memory);
	}
	cr_assert_eq(write(run, "\n", 1), 1);
	return NULL;
}

Test(swap_lending, a_borrower_is_answered_before_the_engine_does_other_things)
{
	struct md_carry_offered list[PARTS * BLOCKS];
	pthread_t thread;
	int fd = borrow();
	cr_assert_eq(offered(fd, list), 4);
	cr_assert_eq(pthread_create(&thread, NULL, ask_and_ask, &fd), 0);
	cr_assert(md_swap_lending_wait(&lending, &wire, 30000), "one wait is for all questions");
	pthread_join(thread, NULL);
	close(fd);
}

Test(swap_lending, what_was_found_to_differ_is_not_offered_again)
{
	struct md_carry_offered list[PARTS * BLOCKS];
	int fd = borrow();
	cr_assert_eq(offered(fd, list), 4);
	say(fd, (struct md_carry_message){
		    .kind = MD_CARRY_STALE, .count = 3, .takes = {{0, UINT32_MAX, 2}, {0, 1, UINT32_MAX}, {0, 1, 2}}});
	serve();
	int other = borrow();
	cr_assert_eq(offered(other, list), 3);
	for (size_t i = 0; i < 3; i++)
		cr_assert(list[i].part == 0 || list[i].block == 0, "part %u, block %u", list[i].part, list[i].block);
	close(fd);
	close(other);
}

Test(swap_lending, should_fail_what_makes_no_sense)
{
	struct md_carry_offered list[PARTS * BLOCKS];
	int fd = borrow();
	cr_assert_eq(offered(fd, list), 4);
	cr_assert_eq(send(fd, "hello", 5, 0), 5);
	cr_assert(is_closed(fd), "five bytes");
	close(fd);
	fd = borrow();
	cr_assert_eq(offered(fd, list), 4);
	say(fd, (struct md_carry_message){.kind = MD_CARRY_CHUNK});
	cr_assert(is_closed(fd), "a chunk");
	close(fd);
}

Test(swap_lending, should_fail_too_many_borrowers)
{
	int fds[MD_CARRY_LENDERS + 1];
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		fds[i] = borrow();
		cr_assert_not(is_closed(fds[i]), "borrower %zu", i);
		struct md_carry_message message;
		int file = -1;
		cr_assert(hear(fds[i], &message, &file), "an offer");
		close(file);
	}
	fds[MD_CARRY_LENDERS] = borrow();
	cr_assert(is_closed(fds[MD_CARRY_LENDERS]), "one more");
	close(fds[0]);
	serve();
	int next = borrow();
	cr_assert_not(is_closed(next), "there is a place again");
	close(next);
	for (size_t i = 1; i <= MD_CARRY_LENDERS; i++)
		close(fds[i]);
}

Test(swap_lending, should_fail_an_empty_book)
{
	md_swap_book_clear(&book);
	int fd = borrow();
	cr_assert(is_closed(fd), "nothing has come in");
	close(fd);
}

/* ---- the end of loans ---- */

static atomic_bool go_on;

static void *close_later(void *argument)
{
	while (!atomic_load(&go_on))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	close(*(int *)argument);
	return NULL;
}

static pthread_t later(int *fd)
{
	pthread_t thread;
	atomic_store(&go_on, false);
	cr_assert_eq(pthread_create(&thread, NULL, close_later, fd), 0);
	return thread;
}

Test(swap_lending, memory_is_called_back)
{
	struct md_carry_offered list[PARTS * BLOCKS];
	struct md_carry_message message;
	struct md_error err = {0};
	int fd = borrow(), other = borrow(), passed = -1;
	uint64_t bytes;
	cr_assert_eq(offered(fd, list), 4);
	cr_assert_eq(offered(other, list), 4);
	cr_assert_eq(asked(fd, 0, &bytes), MD_CARRY_PART);
	cr_assert_eq(md_swap_lending_recall(&lending, 0, &err), MD_ERR_BUSY, "%s", err.message);
	cr_assert(hear(other, &message, &passed) && message.kind == MD_CARRY_FAILED, "all are told");
	cr_assert(is_closed(other), "who has got nothing is not waited for");
	close(other);
	cr_assert(strstr(err.message, "does not give it back"), "%s", err.message);
	cr_assert(hear(fd, &message, &passed) && message.kind == MD_CARRY_FAILED, "it was asked to");
	pthread_t thread = later(&fd);
	say(fd, (struct md_carry_message){.kind = MD_CARRY_PART});
	atomic_store(&go_on, true);
	cr_assert_eq(md_swap_lending_recall(&lending, 0, &err), MD_OK, "%s", err.message);
	pthread_join(thread, NULL);
	fd = borrow();
	cr_assert_eq(offered(fd, list), 4, "if it does not go out after all");
	cr_assert_eq(asked(fd, 0, &bytes), MD_CARRY_PART);
	close(fd);
}

Test(swap_lending, nothing_is_handed_over_while_it_is_called_back)
{
	struct md_carry_offered list[PARTS * BLOCKS];
	struct md_carry_message message;
	struct md_error err = {0};
	int fd = borrow(), passed = -1;
	uint64_t bytes;
	cr_assert_eq(offered(fd, list), 4);
	cr_assert_eq(asked(fd, 0, &bytes), MD_CARRY_PART);
	say(fd, (struct md_carry_message){.kind = MD_CARRY_PART});
	cr_assert_eq(md_swap_lending_recall(&lending, 0, &err), MD_ERR_BUSY);
	cr_assert(hear(fd, &message, &passed) && message.kind == MD_CARRY_FAILED);
	cr_assert(hear(fd, &message, &passed) && message.kind == MD_CARRY_NOT && passed < 0, "kind %u", message.kind);
	close(fd);
}

static struct md_cuda real;
static int creates;

static CUresult CUDAAPI no_room_at_first(CUmemGenericAllocationHandle *handle, size_t size,
					 const CUmemAllocationProp *prop, unsigned long long flags)
{
	return creates++ ? real.cuMemCreate(handle, size, prop, flags) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	struct md_swap_physical *made;
	creates = 0;
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = md_swap_physical_create(MD_SWAP_BLOCK, &prop, 0, &made);
	if (result == CUDA_SUCCESS)
		md_swap_physical_drop(made);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

Test(swap_lending, an_allocation_waits_for_memory_that_is_lent)
{
	struct md_cuda table = md_swap_real;
	md_swap_layer(&table); /* the reference brings the layer into this program */
	real = md_swap_real;
	md_swap_real.cuMemCreate = no_room_at_first;
	cr_assert_eq(create(), CUDA_ERROR_OUT_OF_MEMORY, "nothing is lent");
	cr_assert_eq(creates, 1);
	int fd = borrow();
	pthread_t thread = later(&fd);
	atomic_store(&go_on, true);
	cr_assert_eq(create(), CUDA_SUCCESS, "it has come back");
	cr_assert_eq(creates, 2);
	pthread_join(thread, NULL);
	fd = borrow();
	cr_assert_eq(create(), CUDA_SUCCESS, "nobody waits for ever");
	close(fd);
}
