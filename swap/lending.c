/* SPDX-License-Identifier: Apache-2.0 */
/* Offers blocks to borrowers, hands their memory over when they ask for it, and notices when they have given it back. */
#define MD_LOG_DOMAIN "swap"

#include "swap/lending.h"

#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "driver/process_checkpoint.h"
#include "swap/pulse.h"

#define AWAIT_NS 3000000000ull
#define RECALL_LEAST_NS 5000000000ull /* a borrower that does not go on is killed after three seconds */
#define STEP_MS 100
#define PATIENCE_NS 10000000000ull /* with borrowers that ask and ask */

/* 1 + the connection of each borrower, for md_swap_lending_await; 0: none. */
static atomic_int connections[MD_CARRY_LENDERS];

void md_swap_lending_init(struct md_swap_lending *lending, const struct md_swap_below *below, struct md_swap_book *book)
{
	*lending = (struct md_swap_lending){.below = below, .book = book};
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		lending->borrowers[i] = MD_DESCRIPTOR_NONE;
		atomic_store(&connections[i], 0);
	}
}

static void drop(struct md_swap_lending *lending, size_t i)
{
	atomic_store(&connections[i], 0);
	md_descriptor_drop(&lending->borrowers[i]);
}

/* An engine that closes descriptors which it has not opened ends the loan of what was not handed over. */
static bool is_there(const struct md_swap_lending *lending, size_t i)
{
	return lending->borrowers[i].fd >= 0 && md_descriptor_is_ours(&lending->borrowers[i]);
}

void md_swap_lending_finish(struct md_swap_lending *lending)
{
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		drop(lending, i);
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
	struct md_carry_message message = {.kind = MD_CARRY_OFFER, .count = 1};
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
	while (i < MD_CARRY_LENDERS && lending->borrowers[i].fd >= 0)
		i++;
	fd = md_descriptor_raise(fd);
	if (i == MD_CARRY_LENDERS || !lending->book || !lending->book->count || offer(lending, fd, &why) != MD_OK ||
	    !md_descriptor_keep(&lending->borrowers[i], fd)) {
		md_debug("nothing is offered to another engine: %s",
			 *why.message ? why.message : "none of this memory has come in, or too many have asked");
		close(fd);
		return;
	}
	atomic_store(&connections[i], fd + 1);
}

/* ---- what borrowers ask for ---- */

static enum md_status hand_over(const struct md_swap_lending *lending, int fd, uint32_t part, struct md_error *err)
{
	struct md_carry_message answer = {.kind = MD_CARRY_NOT, .part = part};
	MD_AUTO_FD int memory = -1;
	struct md_error why = {0};
	if (lending->book && !lending->ends && part < lending->book->count &&
	    lending->below->lend_known(lending->book->parts[part].serial, &memory, &why) == MD_OK) {
		answer.kind = MD_CARRY_PART;
		answer.bytes = lending->book->parts[part].bytes;
	}
	return md_carry_wire_send(fd, &answer, memory, err);
}

static enum md_status obey(struct md_swap_lending *lending, int fd, const struct md_carry_message *message,
			   struct md_error *err)
{
	if (message->kind == MD_CARRY_PART)
		return hand_over(lending, fd, message->part, err);
	if (message->kind != MD_CARRY_STALE)
		return md_error_set(err, MD_ERR_CORRUPT, "a message of kind %u from a borrower", message->kind);
	for (uint32_t i = 0; lending->book && i < message->count; i++)
		md_swap_book_forget(lending->book, message->takes[i].part, message->takes[i].block);
	return MD_OK;
}

static enum md_status hear(struct md_swap_lending *lending, int fd, struct md_error *err)
{
	bool there = true;
	while (there) {
		struct md_carry_message message;
		int passed = -1;
		MD_FORWARD(md_carry_wire_receive(fd, &message, &passed, &there, err));
		if (passed >= 0)
			close(passed);
		if (there)
			MD_FORWARD(obey(lending, fd, &message, err));
	}
	return MD_OK;
}

static void serve(struct md_swap_lending *lending)
{
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		struct md_error why = {0};
		if (lending->borrowers[i].fd >= 0 &&
		    (!is_there(lending, i) || hear(lending, lending->borrowers[i].fd, &why) != MD_OK))
			drop(lending, i);
	}
}

/* False: there is no borrower. */
static bool wait_with_borrowers(struct md_swap_lending *lending, const struct md_swap_wire *wire, int milliseconds,
				bool *came, bool *asked)
{
	struct pollfd ready[1 + MD_CARRY_LENDERS] = {{.fd = wire->fd, .events = POLLIN}};
	nfds_t count = 1;
	*asked = false;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		if (is_there(lending, i))
			ready[count++] = (struct pollfd){.fd = lending->borrowers[i].fd, .events = POLLIN};
	if (count == 1 || poll(ready, count, milliseconds) < 0)
		return false;
	serve(lending);
	*came = ready[0].revents != 0;
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

enum md_status md_swap_lending_recall(struct md_swap_lending *lending, uint64_t deadline_ns, struct md_error *err)
{
	struct md_carry_message message = {.kind = MD_CARRY_FAILED, .text = "the lender's memory goes out"};
	uint64_t began = md_clock_ns(), most = deadline_ns > RECALL_LEAST_NS ? deadline_ns : RECALL_LEAST_NS;
	struct md_error none;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++)
		if (is_there(lending, i))
			md_carry_wire_send(lending->borrowers[i].fd, &message, -1, &none);
	enum md_status status = MD_OK;
	lending->ends = true;
	for (;;) {
		serve(lending);
		size_t i = first_there(lending);
		if (i == MD_CARRY_LENDERS)
			break;
		if (md_clock_ns() - began >= most) {
			status = say_kept(lending->borrowers[i].fd, err);
			break;
		}
		struct pollfd ready = {.fd = lending->borrowers[i].fd, .events = POLLIN};
		poll(&ready, 1, STEP_MS);
		md_swap_pulse_step();
	}
	lending->ends = false;
	return status;
}

bool md_swap_lending_await(void)
{
	uint64_t began = md_clock_ns();
	bool any = false;
	for (size_t i = 0; i < MD_CARRY_LENDERS; i++) {
		struct pollfd gone = {.fd = atomic_load(&connections[i]) - 1};
		any = any || gone.fd >= 0;
		while (gone.fd >= 0 && !gone.revents && atomic_load(&connections[i]) == gone.fd + 1 &&
		       md_clock_ns() - began < AWAIT_NS)
			poll(&gone, 1, 20);
	}
	return any;
}
