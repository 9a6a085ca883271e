/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a pool of argv[1] bytes for engines that share it, as descriptor 9, and becomes the command behind it. argv[1] may
 * go on with ",FOLDER,BYTES": a spill file there, as descriptor 8.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "swap/pool.h"
#include "swap/spill_file.h"

enum { POOL = 9, SPILL = 8 };

static void move_to(int fd, int number)
{
	if (fd == number)
		fcntl(fd, F_SETFD, 0);
	else
		dup2(fd, number);
}

static enum md_status make(char *what, struct md_error *err)
{
	struct md_swap_spill_file spill = MD_SWAP_NO_SPILL;
	char *folder = strchr(what, ','), *bytes = folder ? strchr(folder + 1, ',') : NULL;
	int fd = -1;
	if (bytes) {
		*folder++ = *bytes++ = '\0';
		MD_FORWARD(md_swap_spill_create(folder, strtoull(bytes, NULL, 10), &spill, err));
		move_to(spill.kept.fd, SPILL);
	}
	MD_FORWARD(md_swap_pool_create_spilling(strtoull(what, NULL, 10), bytes ? &spill : NULL, &fd, err));
	move_to(fd, POOL);
	return MD_OK;
}

int main(int argc, char *argv[])
{
	struct md_error err = {0};
	if (argc < 3 || make(argv[1], &err) != MD_OK) {
		fprintf(stderr, "pool_subject BYTES[,FOLDER,BYTES] CMD [ARG...]: %s\n", err.message);
		return 2;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 2;
}
