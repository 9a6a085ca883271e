/* SPDX-License-Identifier: Apache-2.0 */
/* Connections when no descriptor is left: a peer is told so, and a loop with poll never runs at full speed. */
#include "base/acceptor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/unix_socket.h"
#include "tests/fine.h"

#define PEERS 3

static struct md_acceptor acceptor;
static int listening, peers[PEERS];

/* As many peers wait as there are. */
static void begin(bool spares)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char folder[] = "/tmp/medusa-test-XXXXXX";
	cr_assert_not_null(mkdtemp(folder));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
	fine(md_unix_socket_listen(address.sun_path, 0177, &listening, &err));
	for (int i = 0; i < PEERS; i++) {
		peers[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		cr_assert_eq(connect(peers[i], (struct sockaddr *)&address, sizeof(address)), 0);
	}
	unlink(address.sun_path);
	rmdir(folder);
	md_acceptor_init(&acceptor, listening, spares);
}

/* Until `left` can be opened. */
static void use_up(int left)
{
	int fd, lowest = open("/dev/null", O_RDONLY);
	struct rlimit limit = {(rlim_t)lowest + (rlim_t)left, (rlim_t)lowest + (rlim_t)left};
	close(lowest);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (fd = lowest; left && fd < lowest + left; fd++)
		cr_assert_eq(fcntl(fd, F_GETFD), -1, "number %d is open", fd);
}

static short polled(void)
{
	struct pollfd one = {.fd = listening, .events = md_acceptor_events(&acceptor)};
	poll(&one, 1, 0);
	return one.revents;
}

Test(acceptor, takes_what_comes, .timeout = 60)
{
	bool last;
	begin(true);
	for (int i = 0; i < PEERS; i++) {
		cr_assert_eq(polled(), POLLIN);
		int fd = md_acceptor_next(&acceptor, &last);
		cr_assert_geq(fd, 0, "%s", strerror(errno));
		cr_assert_not(last);
		cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	}
	cr_assert_eq(md_acceptor_next(&acceptor, &last), -1, "nobody else is there");
	cr_assert_eq(errno, EAGAIN);
	cr_assert_eq(md_acceptor_events(&acceptor), POLLIN, "and that is no reason to rest");
	cr_assert_eq(md_acceptor_wait_ms(&acceptor, -1), -1);
	md_acceptor_finish(&acceptor);
}

Test(acceptor, who_comes_too_late_is_told, .timeout = 60)
{
	bool last;
	char said[8] = "";
	begin(true);
	use_up(1);
	cr_assert_geq(md_acceptor_next(&acceptor, &last), 0);
	cr_assert_not(last, "one was left");
	for (int i = 1; i < PEERS; i++) {
		int fd = md_acceptor_next(&acceptor, &last);
		cr_assert_geq(fd, 0, "%s", strerror(errno));
		cr_assert(last, "peer %d has the one that is held back", i);
		cr_assert_eq(send(fd, "no", 2, 0), 2);
		close(fd);
		cr_assert_eq(read(peers[i], said, sizeof(said)), 2);
		cr_assert_eq(md_acceptor_events(&acceptor), POLLIN, "no rest is needed");
	}
	md_acceptor_finish(&acceptor);
}

Test(acceptor, rests_when_nothing_is_held_back, .timeout = 60)
{
	bool last;
	begin(false);
	use_up(0);
	cr_assert_eq(md_acceptor_next(&acceptor, &last), -1);
	cr_assert_eq(errno, EMFILE);
	cr_assert_eq(md_acceptor_events(&acceptor), 0, "it rests");
	cr_assert_eq(polled(), 0, "so the loop does not go round at once");
	cr_assert_leq(md_acceptor_wait_ms(&acceptor, -1), MD_ACCEPTOR_REST_MS + 1);
	cr_assert_gt(md_acceptor_wait_ms(&acceptor, -1), 0);
	cr_assert_eq(md_acceptor_wait_ms(&acceptor, 5), 5, "what the loop waits for anyway");
	close(peers[0]);
	poll(NULL, 0, md_acceptor_wait_ms(&acceptor, -1));
	cr_assert_eq(polled(), POLLIN, "after a rest it is asked again");
	cr_assert_geq(md_acceptor_next(&acceptor, &last), 0, "%s", strerror(errno));
	cr_assert_not(last);
}
