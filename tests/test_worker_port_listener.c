/* SPDX-License-Identifier: Apache-2.0 */
/* Who listens at an address: as the kernel routes connections, at no cost by others' connections, and where it can't be asked. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/engine/port_listener.h"
#include "worker/engine/port_owner.h"

#define HOLDERS 5u
#define EACH 4000u /* connections of a holder, which take as many entries again for their other ends */
#define LOOKS 20u

static struct md_http_address address_of(const char *text, in_port_t port)
{
	struct md_http_address made = {.size = sizeof(made.v4)};
	made.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
	if (inet_pton(AF_INET, text, &made.v4.sin_addr) == 1)
		return made;
	made.size = sizeof(made.v6);
	made.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
	cr_assert_eq(inet_pton(AF_INET6, text, &made.v6.sin6_addr), 1, "%s", text);
	return made;
}

/* At a port of the system's choice. -1: this machine has no such address. */
static int listen_at(const char *text, int only_v6, in_port_t *port, uint64_t *inode)
{
	struct md_http_address at = address_of(text, 0);
	socklen_t size = at.size;
	struct stat facts;
	int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (at.any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6));
	if (fd < 0 || bind(fd, &at.any, size))
		return -1;
	cr_assert_eq(listen(fd, 4096), 0);
	cr_assert_eq(getsockname(fd, &at.any, &size), 0);
	cr_assert_eq(fstat(fd, &facts), 0);
	*port = at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port;
	*inode = facts.st_ino;
	return fd;
}

/* ---- which socket it is ---- */

static const struct {
	const char *listens;
	int only_v6;
	bool v4, v6, exactly; /* who finds it: 127.0.0.1, ::1; exactly: whoever reads tables cannot tell */
} places[] = {
    {"127.0.0.1", 0, true, false, false},
    {"0.0.0.0", 0, true, false, false},
    {"::1", 0, false, true, false},
    {"::", 0, true, true, false},
    {"::", 1, false, true, true},
    {"127.0.0.2", 0, false, false, false},
    {"::ffff:127.0.0.1", 0, true, false, false},
};

static void assert_places(bool exact)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		in_port_t port;
		uint64_t inode;
		int fd = listen_at(places[i].listens, places[i].only_v6, &port, &inode);
		if (fd < 0 || (places[i].exactly && !exact)) {
			close(fd);
			continue;
		}
		struct md_http_address v4 = address_of("127.0.0.1", port), v6 = address_of("::1", port);
		/* at its other addresses the port may be anybody's on this machine */
		cr_expect_eq(md_port_listener(&v4) == inode, places[i].v4, "%s by 127.0.0.1", places[i].listens);
		cr_expect_eq(md_port_listener(&v6) == inode, places[i].v6, "%s by ::1", places[i].listens);
		close(fd);
		cr_expect(md_port_listener(&v4) != inode && md_port_listener(&v6) != inode, "%s, closed",
			  places[i].listens);
	}
}

Test(worker_port_listener, it_is_the_socket_that_a_connection_would_reach)
{
	in_port_t port;
	uint64_t all, one;
	assert_places(true);
	cr_log_info("beside one for all addresses, the one of the address is it");
	int everywhere = listen_at("0.0.0.0", 0, &port, &all), yes = 1;
	int here = socket(AF_INET, SOCK_STREAM, 0);
	struct md_http_address at = address_of("127.0.0.7", port), other = address_of("127.0.0.1", port);
	struct stat facts;
	setsockopt(everywhere, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
	setsockopt(here, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
	cr_assert_eq(bind(here, &at.any, at.size), 0);
	cr_assert_eq(listen(here, 1), 0);
	cr_assert_eq(fstat(here, &facts), 0);
	one = facts.st_ino;
	cr_assert_eq(md_port_listener(&at), one);
	cr_assert_eq(md_port_listener(&other), all);
	cr_assert_eq(md_port_use(&other), MD_PORT_LISTENED);
}

/* ---- where the kernel can't be asked ---- */

/* Of the whole process: sockets of a family fail from now on, as where a kernel or a sandbox does not have them. */
static void refuse_family(int family)
{
	struct sock_filter program[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)family, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(program) / sizeof(*program), .filter = program};
	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0, "%s", strerror(errno));
}

Test(worker_port_listener, tables_are_read_where_the_kernel_cannot_be_asked)
{
	refuse_family(AF_NETLINK);
	cr_assert_eq(socket(AF_NETLINK, SOCK_RAW, 0), -1);
	assert_places(false);
}

Test(worker_port_listener, lack_of_descriptors_is_no_reason_to_read_tables_for_ever)
{
	struct md_http_address at = address_of("127.0.0.1", htons(9));
	struct rlimit before, none;
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	cr_assert_eq(md_port_listener(&at), 0);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_places(true);
}

/* ---- what it costs ---- */

/* So that others on this machine do not run out of ports meanwhile; where that is not allowed, they have enough all the same. */
static void have_own_network(void)
{
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		cr_log_info("in the network of the machine: %s", strerror(errno));
		return;
	}
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &loopback), 0, "%s", strerror(errno));
	close(fd);
}

static pid_t hold_connections(void)
{
	int told[2];
	char byte = 0;
	cr_assert_eq(pipe(told), 0);
	pid_t pid = fork();
	if (!pid) {
		in_port_t port;
		uint64_t inode;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int fd = listen_at("127.0.0.1", 0, &port, &inode);
		struct md_http_address at = address_of("127.0.0.1", port);
		for (unsigned i = 0; fd >= 0 && i < EACH; i++) {
			int client = socket(AF_INET, SOCK_STREAM, 0);
			if (client < 0 || connect(client, &at.any, at.size))
				_exit(1);
		}
		for (; write(told[1], &byte, 1) == 1;)
			pause();
		_exit(1);
	}
	close(told[1]);
	bool holds = pid > 0 && read(told[0], &byte, 1) == 1;
	close(told[0]);
	return holds ? pid : -1;
}

static uint64_t used_us(void)
{
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Processor time, not time: others may have much to do. Reading tables of 40,000 entries, none of which is it, takes some 30 ms. */
Test(worker_port_listener, connections_of_others_cost_nothing)
{
	pid_t holders[HOLDERS];
	in_port_t port;
	uint64_t inode;
	struct rlimit files;
	have_own_network();
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	close(listen_at("127.0.0.1", 0, &port, &inode));
	struct md_http_address at = address_of("127.0.0.1", port);
	for (unsigned i = 0; i < HOLDERS; i++)
		holders[i] = hold_connections();
	uint64_t before = used_us();
	for (unsigned i = 0; i < LOOKS; i++)
		cr_assert_eq(md_port_use(&at), MD_PORT_FREE);
	uint64_t each = (used_us() - before) / LOOKS;
	for (unsigned i = 0; i < HOLDERS; i++) {
		cr_expect_gt(holders[i], 0, "its connections could not be made");
		if (holders[i] > 0 && !kill(holders[i], SIGKILL))
			waitpid(holders[i], NULL, 0);
	}
	cr_assert_lt(each, 4000, "a look took %llu us of the processor", (unsigned long long)each);
}
