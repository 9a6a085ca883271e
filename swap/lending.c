/* SPDX-License-Identifier: Apache-2.0 */
/* Offers blocks to borrowers, copies or hands over what they ask for, and sees to it that the memory comes back. */
#define MD_LOG_DOMAIN "swap"

#include "swap/lending.h"

#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "driver/process_checkpoint.h"
#include "swap/leave.h"
#include "swap/pulse.h"

#define AWAIT_NS 3000000000ull
#define RECALL_LEAST_NS 5000000000ull /* a borrower that does not go on is killed after three seconds */
#define MESSAGES_MOST 256u            /* of a borrower, before others have their turn */
#define STEP_MS 100
#define AWAIT_STEP_MS 2
#define PATIENCE_NS 10000000000ull /* with borrowers that ask and ask */
#define IDLE_NS 10000000000ull     /* a borrower that has rooms here and wants nothing */
#define SETTLE_NS 3000000000ull    /* for copies that are under way */
#define WORK_NS 50000              /* between two looks at copies */
#define ROOMS_NS 5000000           /* between two looks whether the engine wants its memory back */

/* 1 + the connection of each borrower, for md_swap_lending_await; 0: none. */
static atomic_int connections[MD_CARRY_LENDERS];
static atomic_bool wanted; /* an allocation needs what is mapped here */

void md_swap_lending_init(struct md_swap_lending *lending, const struct md_swap_below *below, struct md_swap_book *book)
{
	*lending = (struct md_swap_lending){.below = below, .book = book};
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		lending->borrowers[i].connection = MD_DESCRIPTOR_NONE;
		atomic_store(&connections[i], 0);
	}
}

static void close_connection(struct md_swap_lending *lending, size_t i)
{
	atomic_store(&connections[i], 0);
	md_descriptor_drop(&lending->borrowers[i].connection);
}

/* Memory under copies that do not end stays mapped: the device would fault. */
static void drop(struct md_swap_lending *lending, size_t i)
{
	struct md_swap_borrower *borrower = &lending->borrowers[i];
	struct md_error why = {0};
	if (borrower->push && md_swap_push_settle(borrower->push, -1, md_clock_ns() + SETTLE_NS, &why) == MD_OK)
		md_swap_push_destroy(borrower->push);
	else if (borrower->push)
		md_warn("memory that was lent to another engine stays mapped: %s", why.message);
	borrower->push = NULL;
	close_connection(lending, i);
}

/* An engine that closes descriptors which it has not opened ends the loan of what was not handed over. */
static bool is_there(const struct md_swap_lending *lending, size_t i)
{
	const struct md_descriptor *connection = &lending->borrowers[i].connection;
	return connection->fd >= 0 && md_descriptor_is_ours(connection);
}

void md_swap_lending_finish(struct md_swap_lending *lending)
{
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		drop(lending, i);
}

/* Memory is not given back there, as another thread may have been doing that; nor is it lost. */
void md_swap_lending_forget(struct md_swap_lending *lending)
{
	static _Atomic(struct md_swap_push *) forgotten[MD_CARRY_LENDERS];
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		if (lending->borrowers[i].push)
			atomic_store(&forgotten[i], lending->borrowers[i].push);
		lending->borrowers[i].push = NULL;
		close_connection(lending, i);
	}
}

/* ---- the offer ---- */

static uint64_t known_blocks(const struct md_swap_book *book, int device)
{
	uint64_t count = 0;
	for (size_t i = 0; i < book->count; i++)
		for (size_t b = 0; book->parts[i].device == device && b < book->parts[i].count; b++)
			count += md_swap_book_knows(&book->parts[i], b);
	return count < MD_CARRY_OFFERED_MOST ? count : MD_CARRY_OFFERED_MOST;
}

static void list_blocks(const struct md_swap_book *book, int device, struct md_carry_offered *list, uint64_t most)
{
	uint64_t count = 0;
	for (size_t i = 0; i < book->count; i++)
		for (size_t b = 0; book->parts[i].device == device && b < book->parts[i].count; b++)
			if (md_swap_book_knows(&book->parts[i], b) && count < most)
				list[count++] = (struct md_carry_offered){
				    .hash = book->parts[i].hashes[b], .part = (uint32_t)i, .block = (uint32_t)b};
}

static enum md_status make_file(const struct md_swap_book *book, int device, uint64_t *bytes, int *file,
				struct md_error *err)
{
	uint64_t count = known_blocks(book, device);
	MD_AUTO_FREE struct md_carry_offered *list = calloc(count + 1, sizeof(*list));
	MD_AUTO_FD int made = memfd_create("medusa-offer", MFD_CLOEXEC);
	if (!list || made < 0)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an offer of %" PRIu64 " blocks", count);
	made = md_descriptor_raise(made);
	list_blocks(book, device, list, count);
	*bytes = count * sizeof(*list);
	int failure = md_descriptor_write(made, list, *bytes);
	if (failure)
		return md_error_set(err, MD_ERR_IO, "writing an offer: %s", strerror(failure));
	*file = md_steal_fd(&made);
	return MD_OK;
}

static enum md_status offer(const struct md_swap_lending *lending, int fd, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_OFFER, .count = 1, .part = (uint32_t)getpid()};
	int device = md_swap_book_device(lending->book);
	MD_AUTO_FD int file = -1;
	CUuuid uuid;
	MD_FORWARD(md_cuda_call_in(lending->below->driver, err, cuDeviceGetUuid_v2, &uuid, device));
	md_checkpoint_uuid_text(&uuid, message.gpus[0]);
	MD_FORWARD(make_file(lending->book, device, &message.bytes, &file, err));
	return md_carry_wire_send(fd, &message, file, err);
}

void md_swap_lending_begin(struct md_swap_lending *lending, int fd)
{
	struct md_error why = {0};
	size_t i = 0;
	while (i < MD_CARRY_LENDERS && lending->borrowers[i].connection.fd >= 0)
		i++;
	fd = md_descriptor_raise(fd);
	if (i == MD_CARRY_LENDERS || !lending->book || !lending->book->count || offer(lending, fd, &why) != MD_OK ||
	    !md_descriptor_keep(&lending->borrowers[i].connection, fd)) {
		md_debug("nothing is offered to another engine: %s",
			 *why.message ? why.message : "none of this memory has come in, or too many have asked");
		close(fd);
		return;
	}
	lending->borrowers[i].heard_at = md_clock_ns();
	lending->borrowers[i].handed = false;
	atomic_store(&connections[i], fd + 1);
}

/* ---- what borrowers ask for ---- */

static enum md_status hand_over(const struct md_swap_lending *lending, struct md_swap_borrower *borrower, uint32_t part,
				struct md_error *err)
{
	struct md_carry_message answer = {.kind = MD_CARRY_NOT, .part = part};
	MD_AUTO_FD int memory = -1;
	struct md_error why = {0};
	if (lending->book && !lending->ends && part < lending->book->count &&
	    lending->below->lend_known(lending->book->parts[part].serial, &memory, &why) == MD_OK) {
		answer.kind = MD_CARRY_PART;
		answer.bytes = lending->book->parts[part].bytes;
		borrower->handed = true;
	}
	return md_carry_wire_send(borrower->connection.fd, &answer, memory, err);
}

/* The first one begins the copying; if it cannot be had, the borrower's carrier may still ask for the memory. */
static enum md_status map_room(const struct md_swap_lending *lending, struct md_swap_borrower *borrower,
			       const struct md_carry_message *room, int memory, struct md_error *err)
{
	struct md_swap_push *push = borrower->push;
	if (lending->ends || !lending->book)
		return md_error_set(err, MD_ERR_BUSY, "the lender's memory goes out");
	if (!push)
		MD_FORWARD(
		    md_swap_push_create(lending->below, lending->book, md_swap_book_device(lending->book), &push, err));
	enum md_status status = md_swap_push_room(push, room->part, room->bytes, memory, err);
	if (status != MD_OK && !borrower->push)
		md_swap_push_destroy(push);
	else
		borrower->push = push;
	return status;
}

static enum md_status take_room(const struct md_swap_lending *lending, struct md_swap_borrower *borrower,
				const struct md_carry_message *room, int memory, struct md_error *err)
{
	struct md_carry_message answer = {.kind = MD_CARRY_ROOM, .part = room->part};
	struct md_error why = {0};
	enum md_status status = map_room(lending, borrower, room, memory, &why);
	if (status == MD_ERR_CORRUPT)
		return md_error_set(err, status, "%s", why.message);
	answer.count = status == MD_OK;
	snprintf(answer.text, sizeof(answer.text), "%.255s", why.message);
	return md_carry_wire_send(borrower->connection.fd, &answer, -1, err);
}

/* The borrower has its rooms to itself first: its engine waits for that. Then the connection ends. */
static enum md_status end(struct md_swap_borrower *borrower, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_END};
	uint64_t began = md_clock_ns();
	if (borrower->push) {
		MD_FORWARD(md_swap_push_settle(borrower->push, -1, began + SETTLE_NS, err));
		md_swap_push_give_rooms_up(borrower->push);
		memcpy(message.times, md_swap_push_times(borrower->push), sizeof(message.times));
		message.times[MD_PEER_BACK] = md_clock_ns() - began;
	}
	MD_FORWARD(md_carry_wire_send(borrower->connection.fd, &message, -1, err));
	return md_error_set(err, MD_ERR_TRUNCATED, "the borrower has ended");
}

static enum md_status obey(struct md_swap_lending *lending, struct md_swap_borrower *borrower,
			   const struct md_carry_message *message, int passed, struct md_error *err)
{
	switch (message->kind) {
	case MD_CARRY_PART:
		return hand_over(lending, borrower, message->part, err);
	case MD_CARRY_ROOM:
		return take_room(lending, borrower, message, passed, err);
	case MD_CARRY_TAKE:
		if (borrower->push)
			return md_swap_push_take(borrower->push, message, err);
		return md_error_set(err, MD_ERR_CORRUPT, "a chunk, and no room for it");
	case MD_CARRY_STALE:
		for (uint32_t i = 0; lending->book && i < message->count; i++)
			md_swap_book_forget(lending->book, message->takes[i].part, message->takes[i].block);
		return MD_OK;
	case MD_CARRY_END:
		return end(borrower, err);
	default:
		return md_error_set(err, MD_ERR_CORRUPT, "a message of kind %u from a borrower", message->kind);
	}
}

static enum md_status hear(struct md_swap_lending *lending, struct md_swap_borrower *borrower, struct md_error *err)
{
	bool there = true;
	for (unsigned i = 0; there && i < MESSAGES_MOST; i++) {
		struct md_carry_message message;
		int passed = -1;
		MD_FORWARD(md_carry_wire_receive(borrower->connection.fd, &message, &passed, &there, err));
		enum md_status status = there ? obey(lending, borrower, &message, passed, err) : MD_OK;
		if (passed >= 0)
			close(passed);
		MD_FORWARD(status);
		if (there || (borrower->push && md_swap_push_works(borrower->push)))
			borrower->heard_at = md_clock_ns();
	}
	return MD_OK;
}

static enum md_status serve_one(struct md_swap_lending *lending, size_t i, struct md_error *err)
{
	struct md_swap_borrower *borrower = &lending->borrowers[i];
	if (!is_there(lending, i))
		return md_error_set(err, MD_ERR_TRUNCATED, "the engine has closed the connection");
	MD_FORWARD(hear(lending, borrower, err));
	if (!borrower->push)
		return MD_OK;
	if (md_clock_ns() - borrower->heard_at > IDLE_NS)
		return md_error_set(err, MD_ERR_TIMEOUT, "the borrower wants nothing");
	return md_swap_push_step(borrower->push, borrower->connection.fd, err);
}

/*
 * What is mapped here is unmapped when the borrower hears of it; a carrier ends the connection when it has given back what it
 * has got. MD_ERR_BUSY: copies do not end.
 */
static enum md_status take_back(struct md_swap_lending *lending, size_t i, uint64_t until, const char *why,
				struct md_error *err)
{
	struct md_swap_borrower *borrower = &lending->borrowers[i];
	struct md_carry_message message = {.kind = MD_CARRY_FAILED};
	struct md_error none = {0};
	if (borrower->connection.fd < 0)
		return MD_OK;
	if (borrower->push)
		MD_FORWARD(md_swap_push_settle(borrower->push, borrower->connection.fd, until, err));
	md_swap_push_destroy(borrower->push);
	borrower->push = NULL;
	snprintf(message.text, sizeof(message.text), "%s", why);
	if (is_there(lending, i))
		md_carry_wire_send(borrower->connection.fd, &message, -1, &none);
	if (!borrower->handed)
		close_connection(lending, i);
	return MD_OK;
}

/* Not while the process ends: swap/leave.h says why. */
static void serve(struct md_swap_lending *lending)
{
	bool back = atomic_exchange(&wanted, false);
	md_swap_leave_hold();
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		struct md_error why = {0};
		if (back && !lending->borrowers[i].handed)
			take_back(lending, i, md_clock_ns() + SETTLE_NS, "the lender's engine needs its room", &why);
		if (lending->borrowers[i].connection.fd < 0 || serve_one(lending, i, &why) == MD_OK)
			continue;
		md_debug("a borrower is left: %s", why.message);
		drop(lending, i);
	}
	md_swap_leave_release();
}

/* How long to wait; -1 ns: without end. */
static int64_t pause_of(const struct md_swap_lending *lending, int milliseconds)
{
	int64_t most = milliseconds < 0 ? -1 : (int64_t)milliseconds * 1000000;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		const struct md_swap_push *push = lending->borrowers[i].push;
		int64_t one = !push ? most : md_swap_push_works(push) ? WORK_NS : ROOMS_NS;
		most = one >= 0 && (most < 0 || one < most) ? one : most;
	}
	return most;
}

static bool pushes(const struct md_swap_lending *lending)
{
	bool any = false;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		any = any || lending->borrowers[i].push;
	return any;
}

/* False: there is no borrower. */
static bool wait_with_borrowers(struct md_swap_lending *lending, const struct md_swap_wire *wire, int milliseconds,
				bool *came, bool *asked)
{
	struct pollfd ready[1 + MD_CARRY_LENDERS] = {{.fd = wire->fd, .events = POLLIN}};
	nfds_t count = 1;
	int64_t pause = pause_of(lending, milliseconds);
	struct timespec most = {pause / 1000000000, pause % 1000000000};
	*asked = false;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		if (is_there(lending, i))
			ready[count++] = (struct pollfd){.fd = lending->borrowers[i].connection.fd, .events = POLLIN};
	if ((count == 1 && !pushes(lending)) || ppoll(ready, count, pause < 0 ? NULL : &most, NULL) < 0)
		return false;
	serve(lending);
	*came = ready[0].revents != 0;
	*asked = pushes(lending);
	for (nfds_t i = 1; i < count; i++)
		*asked = *asked || ready[i].revents;
	return true;
}

bool md_swap_lending_wait(struct md_swap_lending *lending, const struct md_swap_wire *wire, int milliseconds)
{
	uint64_t began = md_clock_ns();
	bool came = false, asked = true;
	while (asked && !came && md_clock_ns() - began < PATIENCE_NS)
		if (!wait_with_borrowers(lending, wire, milliseconds, &came, &asked))
			return md_swap_wire_wait(wire, milliseconds);
	return came;
}

/* ---- the end of loans ---- */

static size_t first_there(const struct md_swap_lending *lending)
{
	size_t i = 0;
	while (i < MD_CARRY_LENDERS && !is_there(lending, i))
		i++;
	return i;
}

static enum md_status say_kept(int fd, struct md_error *err)
{
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		peer.pid = 0;
	return md_error_set(
	    err, MD_ERR_BUSY,
	    "memory is lent to another engine (--gpu-peers), and the carrier of medusa-swap run, process "
	    "%d, does not give it back: continue both if they are stopped, or end them",
	    (int)peer.pid);
}

/* Carriers give back what they have mapped. */
static enum md_status await_carriers(struct md_swap_lending *lending, uint64_t until, struct md_error *err)
{
	for (;;) {
		serve(lending);
		size_t i = first_there(lending);
		if (i == MD_CARRY_LENDERS)
			return MD_OK;
		if (md_clock_ns() >= until)
			return say_kept(lending->borrowers[i].connection.fd, err);
		struct pollfd ready = {.fd = lending->borrowers[i].connection.fd, .events = POLLIN};
		poll(&ready, 1, STEP_MS);
		md_swap_pulse_step();
	}
}

enum md_status md_swap_lending_recall(struct md_swap_lending *lending, uint64_t deadline_ns, struct md_error *err)
{
	uint64_t until = md_clock_ns() + (deadline_ns > RECALL_LEAST_NS ? deadline_ns : RECALL_LEAST_NS);
	enum md_status status = MD_OK;
	md_swap_leave_hold();
	for (size_t i = 0; i < MD_CARRY_LENDERS && status == MD_OK; i++)
		status = take_back(lending, i, until, "the lender's memory goes out", err);
	md_swap_leave_release();
	if (status != MD_OK)
		return md_error_prefix(err, "memory is lent to another engine (--gpu-peers)");
	lending->ends = true;
	status = await_carriers(lending, until, err);
	lending->ends = false;
	return status;
}

/* A carrier closes its connection; what is mapped here is given back by the thread that serves borrowers. */
bool md_swap_lending_await(void)
{
	uint64_t began = md_clock_ns();
	bool any = false;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		struct pollfd gone = {.fd = atomic_load(&connections[i]) - 1};
		any = any || gone.fd >= 0;
		while (gone.fd >= 0 && !gone.revents && atomic_load(&connections[i]) == gone.fd + 1 &&
		       md_clock_ns() - began < AWAIT_NS) {
			atomic_store(&wanted, true);
			poll(&gone, 1, AWAIT_STEP_MS);
		}
	}
	atomic_store(&wanted, false);
	return any;
}
