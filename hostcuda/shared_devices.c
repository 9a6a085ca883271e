/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOSTCUDA_SHARED=FILE: processes with the same file share the memory of the devices. A process has a row in it as long
 * as it holds the lock of one byte of the file, which the kernel releases when the process ends, however that happens.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "hostcuda/shared_devices.h"

#define ROWS 128

struct ledger {
	uint64_t used[ROWS][HC_MAX_DEVICES];
	uint64_t most[HC_MAX_DEVICES]; /* that all had together at one time, for tests that read the file */
	struct hc_bus_state buses;
};

static struct ledger *ledger HC_STATE_GUARDED;
static int ledger_fd HC_STATE_GUARDED = -1;
static int own HC_STATE_GUARDED = -1; /* row */

static bool lock_byte(int command, short type, off_t byte) HC_STATE_HELD
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	return !fcntl(ledger_fd, command, &lock);
}

/* Byte 0 is for whoever reads and writes; row n has byte n + 1. */
static void begin(void) HC_STATE_HELD
{
	lock_byte(F_SETLKW, F_WRLCK, 0);
}

static void end(void) HC_STATE_HELD
{
	lock_byte(F_SETLK, F_UNLCK, 0);
}

static bool lives(int row) HC_STATE_HELD
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = row + 1, .l_len = 1};
	return row == own || (!fcntl(ledger_fd, F_GETLK, &lock) && lock.l_type != F_UNLCK);
}

static void take_row(void) HC_STATE_HELD
{
	for (int row = 0; row < ROWS && own < 0; row++)
		if (lock_byte(F_SETLK, F_WRLCK, row + 1)) {
			own = row;
			memset(ledger->used[row], 0, sizeof(ledger->used[row]));
		}
}

static bool open_ledger(void) HC_STATE_HELD
{
	static bool tried;
	const char *path = secure_getenv("HOSTCUDA_SHARED");
	if (tried || !path || !*path)
		return ledger != NULL;
	tried = true;
	ledger_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (ledger_fd < 0 || ftruncate(ledger_fd, sizeof(*ledger))) {
		perror("hostcuda: HOSTCUDA_SHARED");
		return false;
	}
	void *got = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, ledger_fd, 0);
	if (got == MAP_FAILED)
		return false;
	ledger = got;
	begin();
	take_row();
	end();
	return true;
}

struct hc_bus_state *hc_shared_buses(void)
{
	static struct hc_bus_state own_buses;
	HC_STATE_GUARD();
	return open_ledger() ? &ledger->buses : &own_buses;
}

static uint64_t used_by_others(int place) HC_STATE_HELD
{
	uint64_t sum = 0;
	for (int row = 0; row < ROWS; row++)
		if (row != own && ledger->used[row][place] && lives(row))
			sum += ledger->used[row][place];
	return sum;
}

size_t hc_shared_others(const struct hc_device *device)
{
	if (!open_ledger())
		return 0;
	begin();
	uint64_t sum = used_by_others(device->place);
	end();
	return sum < device->capacity - device->used ? sum : device->capacity - device->used;
}

static void note_use(int place, size_t used) HC_STATE_HELD
{
	uint64_t sum = used_by_others(place) + used;
	ledger->used[own][place] = used;
	if (sum > ledger->most[place])
		ledger->most[place] = sum;
}

static bool fits(const struct hc_device *device, int place, size_t used) HC_STATE_HELD
{
	uint64_t others = ledger ? used_by_others(place) : 0;
	return used <= device->capacity && others <= device->capacity - used;
}

CUresult hc_shared_use(struct hc_device *device, size_t used)
{
	bool shared = open_ledger();
	if (shared)
		begin();
	bool good = used <= device->used || fits(device, device->place, used);
	if (good && shared && own >= 0)
		note_use(device->place, used);
	if (shared)
		end();
	if (good)
		device->used = used;
	return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void hc_shared_leave(void)
{
	if (!open_ledger() || own < 0)
		return;
	begin();
	memset(ledger->used[own], 0, sizeof(ledger->used[own]));
	end();
}

CUresult hc_shared_return(const int places[HC_MAX_DEVICES])
{
	bool good = true;
	if (!open_ledger() || own < 0)
		return CUDA_SUCCESS;
	begin();
	for (int i = 0; i < hc_device_count; i++)
		good = good && fits(&hc_devices[i], places[i], hc_devices[i].used);
	for (int i = 0; i < hc_device_count && good; i++)
		note_use(places[i], hc_devices[i].used);
	end();
	return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
