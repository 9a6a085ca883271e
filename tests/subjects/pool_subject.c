/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a pool of argv[1] bytes for engines that share it, as descriptor 9, and becomes the command behind it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "swap/pool.h"

enum { DESCRIPTOR = 9 };

int main(int argc, char *argv[])
{
	struct md_error err = {0};
	int fd = -1;
	if (argc < 3 || md_swap_pool_create(strtoull(argv[1], NULL, 10), &fd, &err) != MD_OK) {
		fprintf(stderr, "pool_subject BYTES CMD [ARG...]: %s\n", err.message);
		return 2;
	}
	if (fd == DESCRIPTOR)
		fcntl(fd, F_SETFD, 0);
	else
		dup2(fd, DESCRIPTOR);
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 2;
}
