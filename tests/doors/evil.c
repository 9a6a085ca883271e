/* SPDX-License-Identifier: Apache-2.0 */
/* A library that nobody should load on a user's word in a program with other rights than the user's. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void run(void)
{
	printf("evil: ran with euid %d\n", (int)geteuid());
	fflush(stdout);
}
