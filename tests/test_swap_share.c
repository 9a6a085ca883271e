/* SPDX-License-Identifier: Apache-2.0 */
/* In with a carrier that helps, dies, falls silent or lies: whatever it writes later never reaches memory that is in use. */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "tests/swap_carrier_fixture.h"

/* What the carrier does with the chunk at which it stops being honest. */
enum manner {
	HONEST,
	NEVER_READY,
	CLOSES,
	SILENT,
	FAILS,
	NO_END, /* honest, but does not give up the memory */
	LIES,   /* from here on; before, it has written other bytes and has said that it is done */
	LIES_OF_CHUNK = LIES,
	LIES_OF_BYTES,
	LIES_TWICE,
	LIES_OF_LINK,
	SHORT_PACKET,
	WRONG_KIND,
	READY_TWICE,
	ENDED_EARLY,
	MANNERS
};

static struct carrier {
	enum manner manner;
	unsigned honest; /* chunks before that */
	int fd;
	struct md_carry_message late[MOST * BLOCKS]; /* chunks that it has not said to be done */
	size_t late_count;
	atomic_uint done;
	atomic_bool killed;
} carrier;

/* ---- the carrier, in this process ---- */

static void send_packet(struct md_carry_message *message)
{
	struct md_error none = {0};
	md_carry_wire_send(carrier.fd, message, -1, &none);
}

static void fill(const struct md_carry_message *chunk, bool rightly, uint64_t *bytes)
{
	*bytes = 0;
	for (uint32_t i = 0; i < chunk->count; i++) {
		const struct md_carry_run *run = &chunk->runs[i];
		uint64_t size = run->count * MD_SWAP_BLOCK;
		uint8_t *to = parts[chunk->part].bytes + run->offset;
		if (rightly)
			memcpy(to, md_swap_pool_bytes(pool, run->block), size);
		else
			memset(to, 0x77, size);
		*bytes += size;
	}
}

static void say_done(const struct md_carry_message *chunk, uint64_t bytes, uint32_t number, uint32_t link)
{
	(void)chunk;
	send_packet(&(struct md_carry_message){.kind = MD_CARRY_DONE, .chunk = number, .bytes = bytes, .link = link});
}

static void say_ready(void)
{
	send_packet(&(struct md_carry_message){.kind = MD_CARRY_READY, .count = 1, .gpus = {"GPU-fake"}});
}

/* What it was told and has not heard. */
static void hear_the_rest(void)
{
	struct md_carry_message message;
	struct md_error none = {0};
	bool there = true;
	int passed;
	while (carrier.fd >= 0 && md_carry_wire_receive(carrier.fd, &message, &passed, &there, &none) == MD_OK &&
	       there) {
		if (message.kind == MD_CARRY_PART)
			take_part(&message, passed);
		else if (message.kind == MD_CARRY_CHUNK)
			carrier.late[carrier.late_count++] = message;
		if (passed >= 0)
			close(passed);
	}
}

/* False: it does no more. */
static bool misbehave(const struct md_carry_message *chunk)
{
	uint64_t bytes;
	fill(chunk, false, &bytes);
	carrier.late[carrier.late_count++] = *chunk;
	switch (carrier.manner) {
	case LIES_OF_CHUNK:
		say_done(chunk, bytes, 99999, 0);
		return false;
	case LIES_OF_BYTES:
		say_done(chunk, bytes - 1, chunk->chunk, 0);
		return false;
	case LIES_TWICE:
		say_done(chunk, bytes, chunk->chunk, 0);
		say_done(chunk, bytes, chunk->chunk, 0);
		return false;
	case LIES_OF_LINK:
		say_done(chunk, bytes, chunk->chunk, 3);
		return false;
	case SHORT_PACKET:
		cr_assert_eq(send(carrier.fd, "hello", 5, 0), 5);
		return false;
	case WRONG_KIND:
		send_packet(&(struct md_carry_message){.kind = MD_CARRY_CHUNK});
		return false;
	case READY_TWICE:
		say_ready();
		return false;
	case ENDED_EARLY:
		send_packet(&(struct md_carry_message){.kind = MD_CARRY_END});
		return false;
	case FAILS:
		send_packet(&(struct md_carry_message){.kind = MD_CARRY_FAILED, .text = "a fault of the device"});
		return false;
	case CLOSES:
		hear_the_rest();
		close(carrier.fd);
		carrier.fd = -1;
		return false;
	default:
		return false;
	}
}

static bool take_chunk(const struct md_carry_message *chunk)
{
	bool rightly = carrier.manner < LIES;
	uint64_t bytes;
	if (atomic_load(&carrier.done) >= carrier.honest)
		atomic_store(&held, false);
	if (carrier.manner > NEVER_READY && carrier.manner != NO_END && atomic_load(&carrier.done) >= carrier.honest)
		return misbehave(chunk);
	fill(chunk, rightly, &bytes);
	atomic_fetch_add(&carrier.done, 1);
	say_done(chunk, bytes, chunk->chunk, 0);
	return true;
}

static bool take(const struct md_carry_message *message, int passed)
{
	switch (message->kind) {
	case MD_CARRY_BEGIN:
		if (carrier.manner == NEVER_READY)
			atomic_store(&held, false);
		else
			say_ready();
		return true;
	case MD_CARRY_PART:
		take_part(message, passed);
		return true;
	case MD_CARRY_CHUNK:
		return take_chunk(message);
	case MD_CARRY_END:
		if (carrier.manner == NO_END)
			return true;
		unmap_parts();
		send_packet(&(struct md_carry_message){.kind = MD_CARRY_END});
		return true;
	default:
		cr_assert_fail("kind %u", message->kind);
		return false;
	}
}

/* Goes on until the engine has closed the connection. */
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
		poll(&ready, 1, -1);
		if (!going && ready.revents)
			break;
		if (md_carry_wire_receive(carrier.fd, &message, &passed, &there, &err) != MD_OK)
			break;
		going = !there || take(&message, passed);
		if (passed >= 0)
			close(passed);
	}
	atomic_store(&held, false);
	return NULL;
}

/* What copies that were under way do at the worst moment: when the engine computes again. A liar may write anywhere. */
static void write_late(void)
{
	uint64_t bytes;
	for (size_t i = 0; i < carrier.late_count; i++)
		fill(&carrier.late[i], false, &bytes);
	for (size_t i = 0; i < MOST && carrier.manner >= LIES; i++)
		if (parts[i].bytes)
			memset(parts[i].bytes, 0xEE, parts[i].size);
	unmap_parts();
}

/* ---- the engine ---- */

static void set_up_shared_of(size_t count)
{
	set_up_lending_of(count);
	write_block(&memory[2], 1, 0);
}

static void set_up_shared(void)
{
	set_up_shared_of(MOST);
}

static void assert_shared(void)
{
	cr_assert_not(closed, "the gate is open");
	for (size_t i = 0; i < memory_count; i++)
		for (size_t block = 0; block < BLOCKS; block++)
			assert_block(&memory[i], block, i == 2 && block == 1 ? 0 : 1 + (i << 40) + (block << 30));
}

static enum md_status in_with(enum manner manner, unsigned honest, struct md_swap_report *report, struct md_error *err)
{
	int ends[2];
	pthread_t thread;
	struct md_swap_settings settings = {.verify = true};
	cr_assert_eq(md_carry_wire_pair(ends, err), MD_OK, "%s", err->message);
	carrier = (struct carrier){.manner = manner, .honest = honest, .fd = ends[1]};
	struct md_swap_carrier given = {
	    .fd = ends[0], .neighbours = true, .end = kill_carrier, .user = &carrier.killed};
	settings.carrier = &given;
	atomic_store(&held, true);
	cr_assert_eq(pthread_create(&thread, NULL, carry, NULL), 0);
	enum md_status status = md_swap_in(exchange, &settings, report, err);
	if (given.fd >= 0)
		close(given.fd);
	pthread_join(thread, NULL);
	if (manner != HONEST && manner != NEVER_READY && manner != NO_END)
		hear_the_rest();
	if (carrier.fd >= 0)
		close(carrier.fd);
	return status;
}

TestSuite(swap_share, .init = set_up, .fini = tear_down, .timeout = 600);

Test(swap_share, a_carrier_copies_a_part)
{
	set_up_shared();
	for (int turn = 0; turn < 3; turn++) {
		struct md_swap_report report = {0};
		struct md_error err = {0};
		out();
		cr_assert_eq(in_with(HONEST, 10, &report, &err), MD_OK, "%s", err.message);
		cr_assert_eq(report.copied, (MOST * BLOCKS - 1) * MD_SWAP_BLOCK, "%zu copied", (size_t)report.copied);
		cr_assert_eq(report.zero, MD_SWAP_BLOCK, "%zu zero", (size_t)report.zero);
		cr_assert_eq(report.links, 1);
		cr_assert_eq(report.by_link[0], atomic_load(&carrier.done) * MD_SWAP_BLOCK, "%zu",
			     (size_t)report.by_link[0]);
		cr_assert_geq(report.by_link[0], 10 * MD_SWAP_BLOCK, "%zu", (size_t)report.by_link[0]);
		cr_assert_str_eq(report.gpus[0], "GPU-fake");
		cr_assert_str_eq(report.because, "");
		cr_assert_not(atomic_load(&carrier.killed), "it did all that it should");
		assert_shared();
	}
}

Test(swap_share, what_a_bad_carrier_writes_never_matters)
{
	set_up_shared();
	for (enum manner manner = CLOSES; manner < MANNERS; manner++) {
		for (unsigned honest = 0; honest < 8; honest += 3) {
			struct md_swap_report report = {0};
			struct md_error err = {0};
			if (manner == NO_END || (manner == SILENT && honest)) /* each takes three seconds */
				continue;
			out();
			cr_assert_eq(in_with(manner, honest, &report, &err), MD_OK, "manner %d: %s", manner,
				     err.message);
			cr_assert(atomic_load(&carrier.killed), "manner %d: medusa-swap run is asked to kill it",
				  manner);
			cr_assert_neq(*report.because, '\0', "manner %d", manner);
			if (manner >= LIES)
				cr_assert_eq(report.by_link[0], 0, "manner %d: nothing that it said counts", manner);
			write_late();
			assert_shared();
		}
	}
}

Test(swap_share, one_that_is_not_ready_holds_nothing_up)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	set_up_shared();
	out();
	cr_assert_eq(in_with(NEVER_READY, 0, &report, &err), MD_OK, "%s", err.message);
	cr_assert(report.by_link[0] == 0 && !atomic_load(&carrier.killed), "it may be ready the next time");
	cr_assert(strstr(report.because, "was not ready"), "%s", report.because);
	assert_shared();
}

Test(swap_share, one_that_keeps_the_memory_is_killed)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	set_up_shared();
	out();
	cr_assert_eq(in_with(NO_END, 5, &report, &err), MD_OK, "%s", err.message);
	cr_assert(report.by_link[0] && atomic_load(&carrier.killed), "%s", report.because);
	cr_assert(strstr(report.because, "does not give up the memory"), "%s", report.because);
	assert_shared();
	unmap_parts();
}

Test(swap_share, memory_that_a_dying_carrier_holds_is_waited_for)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	set_up_shared();
	out();
	map_left = MOST; /* all are mapped, and the first one that is made anew finds no room */
	cr_assert_eq(in_with(CLOSES, 3, &report, &err), MD_OK, "%s", err.message);
	cr_assert_eq(map_left, -1, "a call has failed");
	write_late();
	assert_shared();
}

Test(swap_share, should_fail_memory_that_cannot_be_made_anew)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	set_up_shared();
	out();
	unmap_left = 0;
	cr_assert_eq(in_with(CLOSES, 3, &report, &err), MD_ERR_DRIVER, "%s", err.message);
	cr_assert(closed && md_swap_exchange_is_out(exchange), "it is out");
	write_late();
	in();
	assert_shared();
}

Test(swap_share, should_fail_overlap)
{
	struct md_swap_settings settings = {.overlap = true};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	int ends[2];
	set_up_shared();
	out();
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK);
	struct md_swap_carrier given = {.fd = ends[0], .neighbours = true};
	settings.carrier = &given;
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_ERR_INVALID, "%s", err.message);
	close(ends[1]);
	in();
	assert_shared();
}

Test(swap_share, memory_that_cannot_be_lent_comes_over_the_own_link)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	set_up_shared();
	lending.lend = NULL;
	out();
	cr_assert_eq(in_with(NEVER_READY, 0, &report, &err), MD_OK, "%s", err.message);
	cr_assert_eq(report.by_link[0], 0);
	assert_shared();
}

/* ---- every call of the driver fails once ---- */

static enum md_status come_failing(int n, struct md_swap_report *report, struct md_error *err)
{
	(void)n;
	return in_with(HONEST, 2, report, err);
}

Test(swap_share, each_call_fails_once)
{
	static const struct carrier_calls calls = {come_failing, write_late, assert_shared};
	set_up_shared_of(FEW);
	let_each_call_fail(&calls);
}
