/* SPDX-License-Identifier: Apache-2.0 */
/* The file of an image in memory, for programs under test: the caller frees it, and without it they end. */
#ifndef TESTS_IMAGE_FILE_H
#define TESTS_IMAGE_FILE_H

#include <stdio.h>
#include <stdlib.h>

static inline void *read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	void *data;
	long size;
	if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) <= 0 || !(data = malloc((size_t)size))) {
		perror(path);
		exit(9);
	}
	rewind(file);
	if (fread(data, 1, (size_t)size, file) != (size_t)size)
		exit(9);
	fclose(file);
	return data;
}

#endif
