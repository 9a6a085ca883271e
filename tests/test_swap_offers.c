/* SPDX-License-Identifier: Apache-2.0 */
/* In with a carrier that has blocks of other engines: offers, right and wrong bytes, refusals, deaths, lies. */
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include "driver/device_hash.h"
#include "swap/carry.h"
#include "tests/swap_carrier_fixture.h"

enum manner {
	HONEST,
	WRONG_BYTES,  /* of each third chunk */
	REFUSES,      /* to hand over, after some chunks */
	DIES,         /* after some chunks, having written others wrongly */
	OTHER_BLOCKS, /* offers what nobody wants */
	BAD_NUMBERS,  /* offers parts that it does not have; it refuses them */
	SHORT_FILE,   /* says that the offer is longer than it is */
	ODD_SIZE,     /* of an offer */
	HUGE_OFFER,   /* more than can be */
	NO_FILE,      /* an offer that is none */
	TWO_LENDERS,  /* have the same; one of them refuses */
	LAST_OF_OFFERS,
	LIES_OF_CHUNK, /* DONE of a chunk that was not asked for */
	LIES_OF_NOT,   /* the same of NOT */
	LIES_OF_LINK,  /* an offer of a lender that cannot be */
	MANNERS
};

static struct carrier {
	enum manner manner;
	int fd;
	struct md_carry_message late[MOST * BLOCKS]; /* chunks that it has not said to be done */
	size_t late_count;
	unsigned done, stale;
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

static void send_packet(struct md_carry_message *message, int passed)
{
	struct md_error none = {0};
	md_carry_wire_send(carrier.fd, message, passed, &none);
}

/* Lender 3 has other numbers than the engine. */
static size_t part_at(uint32_t lender, size_t part)
{
	return lender == 3 ? MOST - 1 - part : part;
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

/* part and block are its numbers there, or others. */
static int offer_file(uint32_t lender, uint32_t shift, bool others)
{
	int fd = memfd_create("offer", MFD_CLOEXEC);
	for (size_t i = 0; i < MOST; i++)
		for (size_t block = 0; block < BLOCKS; block++) {
			struct md_carry_offered one = {.part = (uint32_t)part_at(lender, i) + shift,
						       .block = (uint32_t)block,
						       .hash = hash_of(i, block, others)};
			cr_assert_eq(write(fd, &one, sizeof(one)), (ssize_t)sizeof(one));
		}
	return fd;
}

static int file_of(uint32_t lender)
{
	return offer_file(lender, carrier.manner == BAD_NUMBERS ? 1u << 31 : 0, carrier.manner == OTHER_BLOCKS);
}

static void offer(uint32_t lender, int fd)
{
	struct md_carry_message message = {.kind = MD_CARRY_OFFER, .count = 1, .link = lender};
	uint64_t bytes = MOST * BLOCKS * sizeof(struct md_carry_offered);
	message.bytes = carrier.manner == SHORT_FILE   ? bytes + sizeof(struct md_carry_offered)
			: carrier.manner == ODD_SIZE   ? bytes - 1
			: carrier.manner == HUGE_OFFER ? UINT64_MAX - 23
						       : bytes;
	send_packet(&message, carrier.manner == NO_FILE ? -1 : fd);
	close(fd);
}

static void fill(const struct md_carry_message *take, bool rightly)
{
	for (uint32_t i = 0; i < take->count; i++)
		write_words(parts[take->part].bytes + take->takes[i].offset,
			    what_of(part_at(take->link, take->takes[i].part), take->takes[i].block) + !rightly);
}

static void say_not(const struct md_carry_message *take)
{
	send_packet(&(struct md_carry_message){.kind = MD_CARRY_NOT, .chunk = take->chunk}, -1);
}

static void say_done(const struct md_carry_message *take, uint32_t chunk)
{
	send_packet(
	    &(struct md_carry_message){.kind = MD_CARRY_DONE, .chunk = chunk, .bytes = take->count * MD_SWAP_BLOCK},
	    -1);
}

/* False: it does no more. */
static bool take_chunk(const struct md_carry_message *take)
{
	cr_assert(take->count && take->part < CARRIED_MOST && parts[take->part].bytes, "a part that is there");
	for (uint32_t i = 0; i < take->count; i++)
		cr_assert_leq(take->takes[i].offset + MD_SWAP_BLOCK, parts[take->part].size, "within the part");
	cr_assert(calls_fail || (take->part >= memory_count) == staged, "only rooms, or only the engine's allocations");
	for (uint32_t i = 0; i < take->count && carrier.manner != BAD_NUMBERS && take->part < memory_count; i++)
		cr_assert(part_at(take->link, take->takes[i].part) == take->part, "its own number");
	if (carrier.manner == BAD_NUMBERS || (carrier.manner == REFUSES && carrier.done == 2) ||
	    (carrier.manner == TWO_LENDERS && take->link == 2)) {
		say_not(take);
		return true;
	}
	if (carrier.manner >= LIES_OF_CHUNK || (carrier.manner == DIES && carrier.done == 2)) {
		fill(take, false);
		carrier.late[carrier.late_count++] = *take;
		if (carrier.manner == LIES_OF_CHUNK)
			say_done(take, 99999);
		if (carrier.manner == LIES_OF_NOT)
			send_packet(&(struct md_carry_message){.kind = MD_CARRY_NOT, .chunk = 99999}, -1);
		if (carrier.manner == DIES) {
			close(carrier.fd);
			carrier.fd = -1;
		}
		return false;
	}
	fill(take, !(carrier.manner == WRONG_BYTES && carrier.done % 3 == 0));
	carrier.done++;
	say_done(take, take->chunk);
	return true;
}

static void begin(void)
{
	uint32_t lender = carrier.manner == LIES_OF_LINK ? 77 : 2;
	int first = file_of(lender), second = carrier.manner == TWO_LENDERS ? file_of(3) : -1;
	send_packet(&(struct md_carry_message){.kind = MD_CARRY_READY, .count = 1, .gpus = {"GPU-fake"}}, -1);
	offer(lender, first);
	if (second >= 0)
		offer(3, second);
}

static bool take(const struct md_carry_message *message, int passed)
{
	switch (message->kind) {
	case MD_CARRY_BEGIN:
		begin();
		return true;
	case MD_CARRY_PART:
		take_part(message, passed);
		return true;
	case MD_CARRY_TAKE:
		return take_chunk(message);
	case MD_CARRY_STALE:
		cr_assert(message->link == 2 && message->count, "of a lender");
		for (uint32_t i = 0; i < message->count; i++)
			cr_assert(message->takes[i].part < MOST && message->takes[i].block < BLOCKS,
				  "what was offered");
		carrier.stale += message->count;
		return true;
	case MD_CARRY_END:
		unmap_parts();
		send_packet(&(struct md_carry_message){.kind = MD_CARRY_END}, -1);
		return true;
	default:
		cr_assert_fail("kind %u: nothing is asked of the pool", message->kind);
		return false;
	}
}

/* The own link copies nothing until the carrier has had its say. */
static void *carry(void *unused)
{
	(void)unused;
	bool going = true;
	while (carrier.fd >= 0) {
		struct md_carry_message message;
		struct md_error err = {0};
		struct pollfd ready = {.fd = carrier.fd, .events = going ? POLLIN : 0};
		bool there;
		int passed;
		if (!poll(&ready, 1, !going ? -1 : calls_fail ? 30 : 300)) {
			atomic_store(&held, false);
			poll(&ready, 1, -1);
		}
		if (!going && ready.revents)
			break;
		if (md_carry_wire_receive(carrier.fd, &message, &passed, &there, &err) != MD_OK)
			break;
		going = !there || take(&message, passed);
		if (!going)
			atomic_store(&held, false);
		if (passed >= 0)
			close(passed);
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

static enum md_status in_with(enum manner manner, struct md_swap_report *report, struct md_error *err)
{
	int ends[2];
	pthread_t thread;
	struct md_swap_settings settings = {0};
	cr_assert_eq(md_carry_wire_pair(ends, err), MD_OK, "%s", err->message);
	carrier = (struct carrier){.manner = manner, .fd = ends[1]};
	struct md_swap_carrier given = {.fd = ends[0], .peers = true, .end = kill_carrier, .user = &carrier.killed};
	settings.carrier = &given;
	atomic_store(&held, true);
	cr_assert_eq(pthread_create(&thread, NULL, carry, NULL), 0);
	enum md_status status = md_swap_in(exchange, &settings, report, err);
	if (given.fd >= 0)
		close(given.fd);
	pthread_join(thread, NULL);
	if (carrier.fd >= 0)
		close(carrier.fd);
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

Test(swap_offers, blocks_come_from_a_lender)
{
	set_up_lending();
	for (int turn = 0; turn < 3; turn++) {
		struct md_swap_report report = come(HONEST);
		cr_assert_geq(report.by_peers, 10 * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
		cr_assert_eq(report.by_peers, carrier.done * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
		cr_assert(!report.differed && !carrier.stale && !atomic_load(&carrier.killed), "all is well");
		cr_assert_str_eq(report.peers_because, "");
	}
}

Test(swap_offers, other_bytes_come_from_the_pool)
{
	set_up_lending();
	struct md_swap_report report = come(WRONG_BYTES);
	cr_assert(report.by_peers && report.differed, "%zu, %zu", (size_t)report.by_peers, (size_t)report.differed);
	cr_assert_eq(report.by_peers + report.differed, carrier.done * MD_SWAP_BLOCK);
	cr_assert_eq(carrier.stale * MD_SWAP_BLOCK, report.differed, "the lender knows");
	cr_assert_not(atomic_load(&carrier.killed), "the lender's engine may write");
}

Test(swap_offers, what_is_not_handed_over_comes_from_the_pool)
{
	set_up_lending();
	struct md_swap_report report = come(REFUSES);
	cr_assert_eq(report.by_peers, 2 * MD_SWAP_BLOCK, "%zu", (size_t)report.by_peers);
	report = come(BAD_NUMBERS);
	cr_assert_eq(report.by_peers, 0);
	cr_assert(strstr(report.peers_because, "not handed its memory over"), "%s", report.peers_because);
	report = come(TWO_LENDERS);
	cr_assert_not(report.differed, "the numbers of one lender are not taken for those of the other");
}

Test(swap_offers, a_bad_offer_is_left_alone)
{
	set_up_lending();
	for (enum manner manner = OTHER_BLOCKS; manner < TWO_LENDERS; manner++) {
		if (manner == BAD_NUMBERS)
			continue;
		struct md_swap_report report = come(manner);
		cr_assert(!report.by_peers && *report.peers_because, "manner %d", manner);
		cr_assert_not(atomic_load(&carrier.killed), "manner %d", manner);
	}
}

Test(swap_offers, what_a_bad_carrier_writes_never_matters)
{
	set_up_lending();
	static const enum manner bad[] = {DIES, LIES_OF_CHUNK, LIES_OF_NOT, LIES_OF_LINK};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct md_swap_report report = come(bad[i]);
		cr_assert(atomic_load(&carrier.killed), "manner %d: medusa-swap run is asked to kill it", bad[i]);
		cr_assert(report.by_peers <= 2 * MD_SWAP_BLOCK, "manner %d", bad[i]);
	}
}

/* ---- a carrier that is at something long ---- */

static void *read_until_take(void *unused)
{
	struct md_carry_message message = {0};
	(void)unused;
	while (message.kind != MD_CARRY_TAKE) {
		struct md_error err = {0};
		struct pollfd ready = {.fd = carrier.fd, .events = POLLIN};
		bool there;
		int passed;
		poll(&ready, 1, -1);
		cr_assert_eq(md_carry_wire_receive(carrier.fd, &message, &passed, &there, &err), MD_OK, "%s",
			     err.message);
	}
	return NULL;
}

Test(swap_offers, a_carrier_that_reads_late_is_not_lost)
{
	struct md_error err = {0};
	struct md_carry_message stale = {.count = 1}, take = {.count = 1};
	struct md_swap_carry carry;
	pthread_t thread;
	int ends[2];
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	carrier.fd = ends[1];
	md_swap_carry_init(&carry, &(struct md_swap_carrier){.fd = ends[0], .peers = true});
	while (md_carry_wire_send(ends[0], &(struct md_carry_message){.kind = MD_CARRY_STALE}, -1, &err) == MD_OK)
		;
	cr_assert_eq(err.status, MD_ERR_BUSY, "%s", err.message);
	md_swap_carry_stale(&carry, &stale);
	cr_assert(md_swap_carry_is_open(&carry) && !*carry.why, "nothing is said of what can be left out");
	cr_assert_eq(pthread_create(&thread, NULL, read_until_take, NULL), 0);
	struct md_error lost = {0};
	cr_assert_eq(md_swap_carry_take(&carry, &take, &lost), MD_OK, "%s", lost.message);
	pthread_join(thread, NULL);
	close(ends[0]);
	close(ends[1]);
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
	cr_assert_geq(come(HONEST).by_peers, 10 * MD_SWAP_BLOCK);
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

Test(swap_offers, each_call_fails_once)
{
	static const struct carrier_calls calls = {come_failing, write_late, assert_all};
	set_up_lending_of(FEW);
	calls_fail = true;
	let_each_call_fail(&calls);
}

Test(swap_offers, each_call_fails_once_without_rooms)
{
	static const struct carrier_calls calls = {come_failing, write_late, assert_all};
	set_up_lending_of(FEW);
	without_rooms();
	let_each_call_fail(&calls);
}
