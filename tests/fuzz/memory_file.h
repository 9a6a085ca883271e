/* SPDX-License-Identifier: Apache-2.0 */
/* For readers that open a file: one in memory, which is emptied and filled for each input. */
#ifndef TESTS_FUZZ_MEMORY_FILE_H
#define TESTS_FUZZ_MEMORY_FILE_H

#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

/* The file's path, the same one each time. */
static inline const char *fuzz_as_file(const uint8_t *data, size_t size)
{
	static char path[32];
	static int fd = -1;
	if (fd < 0) {
		fd = memfd_create("artifact", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	FUZZ_REQUIRE(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size,
		     "no file in memory for the input");
	return path;
}

#endif
