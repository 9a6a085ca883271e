/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's connection to the carrier: one that is at something long, and reads later. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "swap/carry.h"

static int carrier; /* its end of the connection */

static void *read_until_take(void *unused)
{
	struct md_carry_message message = {0};
	(void)unused;
	while (message.kind != MD_CARRY_TAKE) {
		struct md_error err = {0};
		struct pollfd ready = {.fd = carrier, .events = POLLIN};
		bool there;
		int passed;
		poll(&ready, 1, -1);
		cr_assert_eq(md_carry_wire_receive(carrier, &message, &passed, &there, &err), MD_OK, "%s", err.message);
	}
	return NULL;
}

Test(swap_carry, a_carrier_that_reads_late_is_not_lost)
{
	struct md_error err = {0};
	struct md_carry_message stale = {.count = 1}, take = {.count = 1};
	struct md_swap_carry carry;
	pthread_t thread;
	int ends[2];
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	carrier = ends[1];
	md_swap_carry_init(&carry, &(struct md_swap_carrier){.fd = ends[0], .lenders = -1, .peers = true});
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
