/* SPDX-License-Identifier: Apache-2.0 */
/* In with blocks of other engines, which write them themselves or are read by the carrier: offers, right and wrong bytes, refusals, deaths, lies. */
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include "driver/device_hash.h"
#include "driver/process_checkpoint.h"
#include "swap/carry.h"
#include "swap/contents_stage.h"
#include "tests/swap_carrier_fixture.h"

enum manner {
	HONEST,
	WRONG_BYTES,  /* of each third chunk */
	REFUSES,      /* to give chunks, after some */
	DIES,         /* after some chunks, having written others wrongly */
	OTHER_BLOCKS, /* offers what nobody wants */
	BAD_NUMBERS,  /* offers parts that it does not have; it refuses them */
	SHORT_FILE,   /* says that the offer is longer than it is */
	ODD_SIZE,     /* of an offer */
	HUGE_OFFER,   /* more than can be */
	NO_FILE,      /* an offer that is none */
	SAME_GPU,     /* as the engine */
	TWO_LENDERS,  /* have the same; one of them refuses */
	LAST_OF_OFFERS,
	LIES_OF_CHUNK, /* DONE of a chunk that was not asked for */
	LIES_OF_NOT,   /* the same of NOT */
	LIES_OF_BYTES, /* DONE of fewer bytes */
	MANNERS,
	CARRIER_DIES /* which copies from the pool, in allocations into which a lender's chunks come as well */
};

/* Who copies: the carrier, which has got the lenders' connections, or a lender, which writes into rooms. */
static bool pushes;

static struct {
	enum manner manner;
	int fd; /* to the carrier */
	int lenders[2], coming;
	unsigned lender_count, handed;               /* handed: to the carrier */
	struct md_carry_message late[MOST * BLOCKS]; /* chunks that were not said to be done */
	size_t late_count;
	unsigned done, stale, asked_for_rooms;
	bool over;                          /* it does no more */
	struct md_carry_message kept[MOST]; /* that the lender answers when the carrier has died */
	unsigned kept_count;
	bool chunk;        /* the carrier has one */
	uint32_t bad_room; /* 1 + the room that cannot be had; 0: none */
	bool silent;       /* lenders do not answer to the first room */
	atomic_bool killed;
} carrier;

static bool staged = true; /* chunks come through rooms */
static bool calls_fail;    /* so there may be no rooms */

static uint64_t what_of(size_t i, size_t block)
{
	return 1 + (i << 40) + (block << 30);
}

static void write_words(void *to, uint64_t what)
{
	uint64_t *words = to;
	for (size_t i = 0; i < MD_SWAP_BLOCK / 8; i++)
		words[i] = md_random_mix(what + i);
}

/* ---- the carrier, in this process ---- */

static void send_packet(int fd, struct md_carry_message *message, int passed)
{
	struct md_error none = {0};
	md_carry_wire_send(fd, message, passed, &none);
}

/* Lender 1 has other numbers than the engine. */
static size_t part_at(uint32_t lender, size_t part)
{
	return lender == 1 ? MOST - 1 - part : part;
}

/* Of each block of the engine, or of others; each is hashed once. */
static struct md_hash hash_of(size_t i, size_t block, bool others)
{
	static struct md_hash hashes[2][MOST][BLOCKS];
	static bool known[2][MOST][BLOCKS];
	if (!known[others][i][block]) {
		static uint8_t bytes[MD_SWAP_BLOCK];
		write_words(bytes, what_of(i, block) + others);
		hashes[others][i][block] = md_device_hash_bytes(bytes, MD_SWAP_BLOCK);
		known[others][i][block] = true;
	}
	return hashes[others][i][block];
}

/* part and block are its numbers there, or others. first: it has the first block of each part alone. */
static int offer_file(uint32_t lender, uint32_t shift, bool others, bool first)
{
	int fd = memfd_create("offer", MFD_CLOEXEC);
	for (size_t i = 0; i < MOST; i++)
		for (size_t block = 0; block < BLOCKS; block++) {
			struct md_carry_offered one = {.part = (uint32_t)part_at(lender, i) + shift,
						       .block = (uint32_t)block,
						       .hash = hash_of(i, block, others || (block && first))};
			cr_assert_eq(write(fd, &one, sizeof(one)), (ssize_t)sizeof(one));
		}
	return fd;
}

static int file_of(uint32_t lender)
{
	return offer_file(lender, carrier.manner == BAD_NUMBERS ? 1u << 31 : 0, carrier.manner == OTHER_BLOCKS,
			  carrier.manner == CARRIER_DIES);
}

static void offer(uint32_t lender, int fd)
{
	struct md_carry_message message = {.kind = MD_CARRY_OFFER, .count = 1, .part = 4711, .gpus = {"GPU-fake"}};
	uint64_t bytes = MOST * BLOCKS * sizeof(struct md_carry_offered);
	CUuuid uuid;
	ok(md_cuda.cuDeviceGetUuid_v2(&uuid, 0));
	if (carrier.manner == SAME_GPU)
		md_checkpoint_uuid_text(&uuid, message.gpus[0]);
	message.bytes = carrier.manner == SHORT_FILE   ? bytes + sizeof(struct md_carry_offered)
			: carrier.manner == ODD_SIZE   ? bytes - 1
			: carrier.manner == HUGE_OFFER ? UINT64_MAX - 23
						       : bytes;
	send_packet(carrier.lenders[lender], &message, carrier.manner == NO_FILE ? -1 : fd);
	close(fd);
}

static void fill(const struct md_carry_message *take, bool rightly)
{
	for (uint32_t i = 0; i < take->count; i++)
		write_words(parts[take->part].bytes + take->takes[i].offset,
			    what_of(part_at(take->link, take->takes[i].part), take->takes[i].block) + !rightly);
}

static void say_not(int fd, uint32_t chunk)
{
	send_packet(fd, &(struct md_carry_message){.kind = MD_CARRY_NOT, .chunk = chunk}, -1);
}

static void say_done(int fd, const struct md_carry_message *take, uint32_t chunk, uint64_t less)
{
	struct md_carry_message done = {
	    .kind = MD_CARRY_DONE, .chunk = chunk, .bytes = take->count * MD_SWAP_BLOCK - less};
	send_packet(fd, &done, -1);
}

static void misbehave(int fd, const struct md_carry_message *take)
{
	fill(take, false);
	carrier.late[carrier.late_count++] = *take;
	carrier.over = true;
	if (carrier.manner == LIES_OF_CHUNK)
		say_done(fd, take, 99999, 0);
	if (carrier.manner == LIES_OF_NOT)
		say_not(fd, 99999);
	if (carrier.manner == LIES_OF_BYTES)
		say_done(fd, take, take->chunk, 1);
	if (carrier.manner == DIES) {
		close(fd);
		*(pushes ? &carrier.lenders[take->link] : &carrier.fd) = -1;
	}
}

static void take_chunk(int fd, const struct md_carry_message *take)
{
	cr_assert(take->count && take->part < CARRIED_MOST && parts[take->part].bytes, "a part that is there");
	for (uint32_t i = 0; i < take->count; i++)
		cr_assert_leq(take->takes[i].offset + MD_SWAP_BLOCK, parts[take->part].size, "within the part");
	cr_assert(calls_fail || (take->part >= memory_count) == staged, "only rooms, or only the engine's allocations");
	for (uint32_t i = 0; i < take->count && carrier.manner != BAD_NUMBERS && take->part < memory_count; i++)
		cr_assert(part_at(take->link, take->takes[i].part) == take->part, "its own number");
	if (carrier.manner == BAD_NUMBERS || (carrier.manner == REFUSES && carrier.done == 2) ||
	    (carrier.manner == TWO_LENDERS && take->link == 0)) {
		say_not(fd, take->chunk);
		return;
	}
	if ((carrier.manner >= LIES_OF_CHUNK && carrier.manner < MANNERS) ||
	    (carrier.manner == DIES && carrier.done == 2)) {
		misbehave(fd, take);
		return;
	}
	fill(take, !(carrier.manner == WRONG_BYTES && carrier.done % 3 == 0));
	carrier.done++;
	say_done(fd, take, take->chunk, 0);
}

static void take_stale(const struct md_carry_message *message)
{
	cr_assert(message->link == 0 && message->count, "of a lender");
	for (uint32_t i = 0; i < message->count; i++)
		cr_assert(message->takes[i].part < MOST && message->takes[i].block < BLOCKS, "what was offered");
	carrier.stale += message->count;
}

/* The engine's memory counts from 0 on, and rooms follow. */
static void hear_carried(const struct md_carry_message *message, int *passed)
{
	switch (message->kind) {
	case MD_CARRY_BEGIN:
		send_packet(carrier.fd,
			    &(struct md_carry_message){.kind = MD_CARRY_READY, .count = 1, .gpus = {"GPU-fake"}}, -1);
		return;
	case MD_CARRY_LENDER:
		cr_assert(*passed >= 0 && message->link < 2 && !strcmp(message->gpus[0], "GPU-fake"), "a lender");
		carrier.handed++;
		return;
	case MD_CARRY_PART:
		take_part(message, *passed);
		return;
	case MD_CARRY_TAKE:
		take_chunk(carrier.fd, message);
		return;
	case MD_CARRY_CHUNK:
		cr_assert_eq(carrier.manner, CARRIER_DIES, "nothing is asked of the pool");
		carrier.chunk = true;
		memset(parts[message->part].bytes, 0x77, parts[message->part].size);
		return;
	case MD_CARRY_STALE:
		take_stale(message);
		return;
	case MD_CARRY_END:
		if (!pushes)
			unmap_parts();
		send_packet(carrier.fd, &(struct md_carry_message){.kind = MD_CARRY_END}, -1);
		return;
	default:
		cr_assert_fail("kind %u: nothing is asked of the pool", message->kind);
	}
}

static void hear_lent(unsigned lender, struct md_carry_message *message, int passed)
{
	struct md_carry_message room = {.kind = MD_CARRY_ROOM, .part = message->part, .count = pushes};
	int fd = carrier.lenders[lender];
	message->part += (uint32_t)memory_count;
	switch (message->kind) {
	case MD_CARRY_ROOM:
		carrier.asked_for_rooms++;
		room.count = pushes && carrier.bad_room != room.part + 1;
		if (room.count && !parts[message->part].bytes)
			take_part(message, passed);
		if (!room.count)
			snprintf(room.text, sizeof(room.text), "it is out of reach");
		if (!carrier.silent)
			send_packet(fd, &room, -1);
		return;
	case MD_CARRY_TAKE:
		cr_assert(pushes && message->link == lender, "its own number");
		if (carrier.manner == CARRIER_DIES && carrier.fd >= 0)
			carrier.kept[carrier.kept_count++] = *message;
		else if (carrier.bad_room != room.part + 1)
			take_chunk(fd, message);
		return;
	case MD_CARRY_STALE:
		take_stale(message);
		return;
	case MD_CARRY_END:
		send_packet(fd, &(struct md_carry_message){.kind = MD_CARRY_END, .times = {[MD_PEER_COPIES] = 7}}, -1);
		return;
	default:
		cr_assert_fail("kind %u of an engine", message->kind);
	}
}

/* False: the connection has ended. */
static bool hear_from(int fd, int lender)
{
	struct md_carry_message message;
	struct md_error err = {0};
	bool there;
	int passed = -1;
	if (md_carry_wire_receive(fd, &message, &passed, &there, &err) != MD_OK)
		return false;
	if (there && lender < 0)
		hear_carried(&message, &passed);
	else if (there)
		hear_lent((unsigned)lender, &message, passed);
	if (passed >= 0)
		close(passed);
	return true;
}

static void let_carrier_die(void)
{
	if (carrier.manner != CARRIER_DIES || !carrier.chunk || !carrier.kept_count || carrier.fd < 0)
		return;
	atomic_store(&held, false);
	close(carrier.fd);
	carrier.fd = -1;
	usleep(100000); /* so that the engine knows it first */
	for (unsigned i = 0; i < carrier.kept_count; i++)
		take_chunk(carrier.lenders[0], &carrier.kept[i]);
}

/* Who copies, and does no more, does not even hear; all others do. The own link copies nothing until these have had their say. */
static void *carry(void *unused)
{
	(void)unused;
	bool open = true;
	for (unsigned i = 0; i < carrier.lender_count; i++)
		offer(i, file_of(i));
	while (open) {
		struct pollfd ready[3] = {{.fd = carrier.over && !pushes ? -1 : carrier.fd, .events = POLLIN}};
		for (unsigned i = 0; i < 2; i++)
			ready[1 + i] =
			    (struct pollfd){.fd = carrier.over && pushes ? -1 : carrier.lenders[i], .events = POLLIN};
		if (carrier.over)
			atomic_store(&held, false);
		open = ready[0].fd >= 0 || ready[1].fd >= 0 || ready[2].fd >= 0;
		if (open && !poll(ready, 3, calls_fail ? 30 : 300)) {
			atomic_store(&held, false);
			poll(ready, 3, -1);
		}
		for (int i = 0; i < 3; i++) {
			if (ready[i].fd < 0 || !ready[i].revents || hear_from(ready[i].fd, i - 1))
				continue;
			int *fd = i ? &carrier.lenders[i - 1] : &carrier.fd;
			if (*fd >= 0)
				close(*fd);
			*fd = -1;
		}
		let_carrier_die();
	}
	atomic_store(&held, false);
	return NULL;
}

/* What a copy that was under way does when the engine computes again. */
static void write_late(void)
{
	for (size_t i = 0; i < carrier.late_count; i++)
		if (parts[carrier.late[i].part].bytes)
			fill(&carrier.late[i], false);
	unmap_parts();
}

/* ---- the engine ---- */

static void close_all(void)
{
	int *const fds[] = {&carrier.fd, &carrier.lenders[0], &carrier.lenders[1]};
	for (size_t i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* As medusa-swap run does it. */
static int connect_lenders(struct md_error *err)
{
	int coming[2], ends[2];
	cr_assert_eq(md_carry_wire_pair(coming, err), MD_OK, "%s", err->message);
	for (unsigned i = 0; i < carrier.lender_count; i++) {
		cr_assert_eq(md_carry_wire_pair(ends, err), MD_OK, "%s", err->message);
		carrier.lenders[i] = ends[1];
		send_packet(coming[1], &(struct md_carry_message){.kind = MD_CARRY_LENDER}, ends[0]);
		close(ends[0]);
	}
	close(coming[1]);
	return coming[0];
}

static bool next_is_silent;
static uint32_t next_bad_room;

static enum md_status in_with(enum manner manner, struct md_swap_report *report, struct md_error *err)
{
	int ends[2];
	pthread_t thread;
	struct md_swap_settings settings = {0};
	cr_assert_eq(md_carry_wire_pair(ends, err), MD_OK, "%s", err->message);
	memset(&carrier, 0, sizeof(carrier));
	carrier.manner = manner;
	carrier.fd = ends[1];
	carrier.lenders[0] = carrier.lenders[1] = -1;
	carrier.lender_count = manner == TWO_LENDERS ? 2 : 1;
	carrier.silent = next_is_silent;
	carrier.bad_room = next_bad_room;
	struct md_swap_carrier given = {.fd = ends[0],
					.peers = true,
					.neighbours = manner == CARRIER_DIES,
					.lenders = connect_lenders(err),
					.end = kill_carrier,
					.user = &carrier.killed};
	settings.carrier = &given;
	atomic_store(&held, true);
	cr_assert_eq(pthread_create(&thread, NULL, carry, NULL), 0);
	enum md_status status = md_swap_in(exchange, &settings, report, err);
	cr_assert(given.fd < 0 && given.lenders < 0, "they were taken over");
	pthread_join(thread, NULL);
	close_all();
	return status;
}

static struct md_swap_report come(enum manner manner)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	out();
	cr_assert_eq(in_with(manner, &report, &err), MD_OK, "manner %d: %s", manner, err.message);
	write_late();
	assert_all();
	cr_assert_eq(report.copied, MOST * BLOCKS * MD_SWAP_BLOCK, "manner %d: %zu copied", manner,
		     (size_t)report.copied);
	cr_assert_eq(report.by_link[0], 0, "manner %d: neighbours were not asked for", manner);
	return report;
}

TestSuite(swap_offers, .init = set_up, .fini = tear_down, .timeout = 600);

/* Each of these with both ways. */
#define WAYS(way) for (pushes = false, (way) = 0; (way) < 2; pushes = ++(way))

Test(swap_offers, blocks_come_from_a_lender)
{
	int way;
	set_up_lending();
	WAYS(way)
	{
		for (int turn = 0; turn < 2; turn++) {
			struct md_swap_report report = come(HONEST);
			uint64_t pushed = report.peer_times[MD_PEER_PUSHED];
			cr_assert_geq(report.by_peers, 10 * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
			cr_assert_eq(report.by_peers, carrier.done * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
			cr_assert_eq(pushed, pushes ? report.by_peers : 0, "%zu", (size_t)pushed);
			cr_assert_eq(report.peer_times[MD_PEER_COPIES], pushes ? 7 : 0, "what the lender has counted");
			cr_assert_eq(carrier.handed, !pushes);
			cr_assert_str_eq(report.carried_because, pushes ? "" : "it is out of reach");
			cr_assert(!report.differed && !carrier.stale && !atomic_load(&carrier.killed), "all is well");
			cr_assert_str_eq(report.peers_because, "");
			unmap_parts();
		}
	}
}

Test(swap_offers, other_bytes_come_from_the_pool)
{
	int way;
	set_up_lending();
	WAYS(way)
	{
		struct md_swap_report report = come(WRONG_BYTES);
		cr_assert(report.by_peers && report.differed, "%zu, %zu", (size_t)report.by_peers,
			  (size_t)report.differed);
		cr_assert_eq(report.by_peers + report.differed, carrier.done * MD_SWAP_BLOCK);
		cr_assert_eq(carrier.stale * MD_SWAP_BLOCK, report.differed, "the lender knows");
		cr_assert_not(atomic_load(&carrier.killed), "the lender's engine may write");
	}
}

Test(swap_offers, what_is_not_given_comes_from_the_pool)
{
	int way;
	set_up_lending();
	WAYS(way)
	{
		struct md_swap_report report = come(REFUSES);
		cr_assert_eq(report.by_peers, 2 * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
		report = come(BAD_NUMBERS);
		cr_assert_eq(report.by_peers, 0);
		cr_assert(strstr(report.peers_because, "not handed its memory over"), "%s", report.peers_because);
		report = come(TWO_LENDERS);
		cr_assert_not(report.differed, "the numbers of one lender are not taken for those of the other");
	}
}

Test(swap_offers, a_bad_offer_is_left_alone)
{
	int way;
	set_up_lending();
	WAYS(way)
	for (enum manner manner = OTHER_BLOCKS; manner < TWO_LENDERS; manner++) {
		if (manner == BAD_NUMBERS)
			continue;
		struct md_swap_report report = come(manner);
		cr_assert(!report.by_peers && *report.peers_because, "manner %d", manner);
		cr_assert(!carrier.asked_for_rooms && !carrier.handed, "manner %d: nothing is wanted", manner);
		cr_assert_not(atomic_load(&carrier.killed), "manner %d", manner);
	}
}

Test(swap_offers, what_a_bad_one_writes_never_matters)
{
	int way;
	set_up_lending();
	static const enum manner bad[] = {DIES, LIES_OF_CHUNK, LIES_OF_NOT, LIES_OF_BYTES};
	WAYS(way)
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct md_swap_report report = come(bad[i]);
		cr_assert_eq(atomic_load(&carrier.killed), !pushes,
			     "manner %d: medusa-swap run is asked to kill the carrier, not for what a lender does",
			     bad[i]);
		cr_assert(report.by_peers <= 2 * MD_SWAP_BLOCK && !report.differed, "manner %d", bad[i]);
	}
}

Test(swap_offers, a_lender_that_says_nothing_of_its_room_is_left)
{
	set_up_lending();
	pushes = next_is_silent = true;
	struct md_swap_report report = come(HONEST);
	cr_assert_eq(report.by_peers, 0);
	cr_assert(strstr(report.peers_because, "not handed its memory over"), "%s", report.peers_because);
	cr_assert(carrier.asked_for_rooms == 1 && !carrier.handed, "it may have the room mapped");
	next_is_silent = false;
	unmap_parts();
	cr_assert_geq(come(HONEST).by_peers, 10 * MD_SWAP_BLOCK);
}

/* Of more than one. */
Test(swap_offers, a_lender_that_cannot_have_another_room_is_left)
{
	set_up_lending();
	pushes = true;
	next_bad_room = 2;
	struct md_swap_report report = come(HONEST);
	cr_assert(carrier.asked_for_rooms >= 2 && !carrier.handed, "%u rooms", carrier.asked_for_rooms);
	cr_assert_leq(report.by_peers, MD_STAGE_ROOM_SLOTS * 3 * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
}

/* What it may have spoiled gets new memory, to which the lender's chunks come. */
Test(swap_offers, a_carrier_that_dies_does_not_end_what_lenders_write)
{
	set_up_lending();
	pushes = true;
	struct md_swap_report report = come(CARRIER_DIES);
	cr_assert(carrier.chunk && atomic_load(&carrier.killed), "it was one that had something");
	cr_assert(carrier.kept_count && report.by_peers == carrier.done * MD_SWAP_BLOCK, "%zu",
		  (size_t)report.by_peers);
	cr_assert_not(report.differed);
}

Test(swap_offers, the_carrier_reads_where_that_is_wanted)
{
	set_up_lending();
	setenv("MEDUSA_SWAP_PEER_PUSH", "0", 1);
	struct md_swap_report report = come(HONEST);
	cr_assert(report.by_peers && !carrier.asked_for_rooms && carrier.handed == 1, "no room is sent");
	cr_assert_str_eq(report.carried_because, "MEDUSA_SWAP_PEER_PUSH is off");
}

/* As where memory for the rooms is missing. */
static void without_rooms(void)
{
	staged = false;
	setenv("MEDUSA_SWAP_PEER_STAGED", "0", 1);
}

Test(swap_offers, chunks_come_to_their_places_without_rooms)
{
	set_up_lending();
	without_rooms();
	pushes = true; /* they could */
	cr_assert_geq(come(HONEST).by_peers, 10 * MD_SWAP_BLOCK);
	cr_assert(!carrier.asked_for_rooms && carrier.handed == 1, "the carrier does it");
	pushes = false;
	struct md_swap_report report = come(WRONG_BYTES);
	cr_assert(report.by_peers && report.differed, "%zu, %zu", (size_t)report.by_peers, (size_t)report.differed);
	for (enum manner manner = REFUSES; manner < MANNERS; manner++)
		come(manner);
}

/* ---- every call of the driver fails once ---- */

static enum md_status come_failing(int n, struct md_swap_report *report, struct md_error *err)
{
	return in_with(n % 2 ? HONEST : WRONG_BYTES, report, err);
}

static const struct carrier_calls failing = {come_failing, write_late, assert_all};

Test(swap_offers, each_call_fails_once)
{
	set_up_lending_of(FEW);
	calls_fail = true;
	let_each_call_fail(&failing);
}

Test(swap_offers, each_call_fails_once_and_lenders_write)
{
	set_up_lending_of(FEW);
	calls_fail = pushes = true;
	let_each_call_fail(&failing);
}

Test(swap_offers, each_call_fails_once_without_rooms)
{
	set_up_lending_of(FEW);
	without_rooms();
	let_each_call_fail(&failing);
}
