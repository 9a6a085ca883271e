/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of two processes that share memory by cuIpcGetMemHandle: the second one (argv: the handle in hexadecimal,
 * and the size) adds 1 to each byte of what the first one wrote, and the first one sees that.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/subjects/subject.h"

#define SMALL 1000
#define LARGE (3u << 20)

static int second(const char *hex, size_t bytes)
{
	CUipcMemHandle handle;
	CUdeviceptr address, again;
	unsigned char *buffer = malloc(bytes);
	for (size_t i = 0; i < sizeof(handle); i++)
		if (sscanf(hex + 2 * i, "%2hhx", (unsigned char *)&handle + i) != 1)
			return 2;
	TRY(cuIpcOpenMemHandle_v2, &address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	TRY(cuIpcOpenMemHandle_v2, &again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	printf("opened twice at %s\n", address == again ? "one address" : "two addresses");
	TRY(cuIpcCloseMemHandle, again);
	TRY(cuMemcpyDtoH_v2, buffer, address, bytes);
	for (size_t i = 0; i < bytes; i++)
		buffer[i]++;
	TRY(cuMemcpyHtoD_v2, address, buffer, bytes);
	TRY(cuIpcCloseMemHandle, address);
	free(buffer);
	return 0;
}

static void run_second(char *self, CUdeviceptr address, size_t bytes)
{
	CUipcMemHandle handle;
	char hex[2 * sizeof(handle) + 1], size[32];
	int status;
	TRY(cuIpcGetMemHandle, &handle, address);
	for (size_t i = 0; i < sizeof(handle); i++)
		snprintf(hex + 2 * i, 3, "%02x", ((unsigned char *)&handle)[i]);
	snprintf(size, sizeof(size), "%zu", bytes);
	fflush(stdout);
	pid_t child = fork();
	if (!child)
		_exit(execl(self, self, hex, size, (char *)NULL) ? 127 : 0);
	if (waitpid(child, &status, 0) != child || status) {
		fprintf(stderr, "the second process ended with status %d\n", status);
		exit(1);
	}
}

static void share(char *self, size_t bytes, unsigned char value)
{
	CUdeviceptr before, address;
	unsigned char *buffer = malloc(bytes);
	size_t wrong = 0;
	TRY(cuMemAlloc_v2, &before, 700); /* so that a small allocation does not begin its piece */
	TRY(cuMemAlloc_v2, &address, bytes);
	TRY(cuMemsetD8_v2, address, value, bytes);
	TRY(cuCtxSynchronize); /* the second process's work does not wait for this one's */
	run_second(self, address, bytes);
	TRY(cuMemcpyDtoH_v2, buffer, address, bytes);
	for (size_t i = 0; i < bytes; i++)
		wrong += buffer[i] != value + 1;
	printf("%zu bytes shared, %zu wrong\n", bytes, wrong);
	TRY(cuMemFree_v2, address);
	free(buffer);
}

int main(int argc, char *argv[])
{
	load_driver();
	open_context();
	if (argc > 2)
		return second(argv[1], strtoul(argv[2], NULL, 10));
	share(argv[0], SMALL, 7);
	share(argv[0], LARGE, 40);
	return 0;
}
