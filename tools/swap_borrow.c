/* SPDX-License-Identifier: Apache-2.0 */
/* Finds other engines by their sockets, and sends each of them one end of a connection whose other end this engine gets. */
#include "tools/swap_borrow.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "swap/carry_wire.h"
#include "swap/swap_place.h"

/* ---- asking ---- */

static enum md_status say_hello(int fd, int ours, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_swap", MD_SWAP_PROTOCOL);
	md_json_text(&letter.json, "role", "borrower");
	return md_swap_letter_send(&letter, fd, ours, err);
}

/* An engine that was killed has left its socket, on which nobody listens. */
static bool ask_one(const char *name, int *lender)
{
	char path[PATH_MAX];
	MD_AUTO_FD int fd = -1, ours = -1, theirs = -1;
	struct md_error none = {0};
	int ends[2];
	if (md_swap_place_socket(name, path, &none) != MD_OK || md_swap_wire_connect_now(path, &fd, &none) != MD_OK ||
	    md_carry_wire_pair(ends, &none) != MD_OK)
		return false;
	ours = ends[0];
	theirs = ends[1];
	if (say_hello(fd, theirs, &none) != MD_OK)
		return false;
	*lender = md_steal_fd(&ours);
	return true;
}

/* All fit into the connection, so that nobody needs to read it meanwhile. */
static void hand_on(int to, int lender)
{
	struct md_carry_message message = {.kind = MD_CARRY_LENDER};
	struct md_error none = {0};
	md_carry_wire_send(to, &message, lender, &none);
}

int md_swap_borrow_ask(const struct md_swap_server *s)
{
	struct md_argument_list names = {0};
	struct md_error none = {0};
	unsigned asked = 0;
	int ends[2];
	if (md_carry_wire_pair(ends, &none) != MD_OK)
		return -1;
	MD_AUTO_FD int to = ends[1];
	if (md_swap_place_names(&names, &none) != MD_OK)
		return ends[0];
	for (uint32_t i = 0; i < names.count && asked < MD_CARRY_LENDERS; i++) {
		MD_AUTO_FD int lender = -1;
		if (!strcmp(names.items[i].text, s->name) || !ask_one(names.items[i].text, &lender))
			continue;
		hand_on(to, lender);
		asked++;
	}
	md_arguments_finish(&names);
	return ends[0];
}

/* ---- being asked ---- */

/* Of several processes the one with the most memory lends. */
static struct md_swap_client *lender_of(const struct md_swap_server *s)
{
	struct md_swap_client *most = NULL;
	for (size_t i = 0; i < s->client_count; i++) {
		struct md_swap_client *client = s->clients[i];
		if (client->role == MD_SWAP_ENGINE && !client->gone && !client->out && !client->owed &&
		    (!most || client->swappable > most->swappable))
			most = client;
	}
	return most;
}

void md_swap_borrow_lend(struct md_swap_server *s, struct md_swap_client *client)
{
	struct md_swap_client *lender = s->lends && !s->released && !s->full ? lender_of(s) : NULL;
	struct md_error none = {0};
	client->gone = true;
	if (lender && client->wire.passed >= 0 && md_swap_say_lend(lender, client->wire.passed, &none) != MD_OK)
		lender->gone = true;
}
