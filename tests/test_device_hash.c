/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of device memory: the kernel and the host give one value, which tells every change, and no fault is risked. */
#include "driver/device_hash.h"
#include "tests/hostcuda_fixture.h"

static CUstream stream;
static struct md_device_hasher hasher;

static void use_image(const char *name)
{
	char path[4096];
	const char *build = getenv("MEDUSA_BUILD");
	snprintf(path, sizeof(path), "%s/tests/images/%s_kernels.host.so", build ? build : "build", name);
	setenv("MEDUSA_PROBE_KERNEL", path, 1);
}

/* hostcuda has an image of the kernel, any other device is given the text. */
static void open_with_kernel(void)
{
	device_open();
	if (on_hostcuda())
		use_image("probe");
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	md_device_hasher_open(&hasher, stream);
}

static void open_on_host(void)
{
	device_open();
	setenv("MEDUSA_PROBE_KERNEL", "none", 1);
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	md_device_hasher_open(&hasher, stream);
}

TestSuite(device_hash, .init = open_with_kernel, .timeout = 120);
TestSuite(device_hash_host, .init = open_on_host, .timeout = 120);

static uint8_t *random_bytes(size_t size)
{
	uint8_t *bytes = malloc(size);
	uint64_t state = 7;
	cr_assert(bytes, "memory for the test");
	for (size_t i = 0; i < size; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		bytes[i] = (uint8_t)(state >> 56);
	}
	return bytes;
}

static CUdeviceptr upload(const void *bytes, size_t size)
{
	CUdeviceptr memory;
	ok(md_cuda.cuMemAlloc_v2(&memory, size));
	ok(md_cuda.cuMemcpyHtoD_v2(memory, bytes, size));
	ok(md_cuda.cuCtxSynchronize());
	return memory;
}

static void hash_ranges(struct md_hash_range *ranges, size_t count)
{
	struct md_error err = {0};
	size_t failed;
	cr_assert_eq(md_device_hash(&hasher, stream, ranges, count, &failed, &err), MD_OK, "%s", err.message);
	cr_assert_eq(failed, count, "no range failed");
}

static struct md_hash hash(CUdeviceptr address, uint64_t size)
{
	struct md_hash_range range = {.address = address, .size = size};
	hash_ranges(&range, 1);
	return range.hash;
}

/* ---- one value ---- */

static const struct {
	size_t at, size;
} places[] = {{0, 16},
	      {0, 1},
	      {0, 15},
	      {16, 17},
	      {1, 16},
	      {7, 100},
	      {32, 4096},
	      {0, MD_HASH_PIECE},
	      {0, MD_HASH_PIECE + 1},
	      {8, MD_HASH_PIECE + 24},
	      {256, 3 * MD_HASH_PIECE - 5},
	      {0, MD_HASH_STAGING + 33},
	      {0, 2 * MD_HASH_STAGING}};
#define PLACES (sizeof(places) / sizeof(places[0]))

static void assert_one_value(void)
{
	struct md_hash_range ranges[PLACES];
	size_t size = 2 * MD_HASH_STAGING + 64;
	uint8_t *bytes = random_bytes(size);
	CUdeviceptr memory = upload(bytes, size);
	for (size_t i = 0; i < PLACES; i++)
		ranges[i] = (struct md_hash_range){.address = memory + places[i].at, .size = places[i].size};
	hash_ranges(ranges, PLACES);
	for (size_t i = 0; i < PLACES; i++) {
		struct md_hash here = md_device_hash_bytes(bytes + places[i].at, places[i].size);
		cr_assert(md_hash_equal(&here, &ranges[i].hash), "%zu bytes at %zu", places[i].size, places[i].at);
	}
	free(bytes);
}

Test(device_hash, the_kernel_agrees_with_the_host)
{
	cr_assert_not_null(hasher.function, "the kernel passes its sample");
	assert_one_value();
	md_device_hasher_close(&hasher);
}

Test(device_hash_host, the_copy_agrees_with_the_host)
{
	cr_assert_null(hasher.function, "there is no kernel");
	assert_one_value();
}

Test(device_hash_host, a_wrong_kernel_is_not_used)
{
	only_on_hostcuda("its image of a wrong kernel is hostcuda's");
	use_image("wrong");
	md_device_hasher_open(&hasher, stream);
	cr_assert_null(hasher.function, "its sums are wrong");
	assert_one_value();
	md_device_hasher_close(&hasher);
}

/* Whoever changes these has to change the format: artifacts hold such values. */
Test(device_hash, the_value_is_what_the_format_says)
{
	static const struct {
		const char *bytes;
		size_t size;
		const char *hash;
	} known[] = {{"", 0, "00000000000000000000000000000000"},
		     {"a", 1, "00b517f2aab1d2747476def89a50cb35"},
		     {"sixteen bytes !!", 16, "219572e289f720f2556eb4384ca16468"},
		     {"sixteen bytes !!+", 17, "376bac563ae721ca01f3e8d73daac00f"}};
	char text[MD_HASH_TEXT_BYTES];
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct md_hash got = md_device_hash_bytes(known[i].bytes, known[i].size);
		md_hash_format(&got, text);
		cr_assert_str_eq(text, known[i].hash, "of \"%s\"", known[i].bytes);
	}
}

/* More ranges than a launch has sums for, more pieces than it has room for. */
Test(device_hash, many_ranges)
{
	enum { RANGES = MD_HASH_SUMS + 700 };
	static struct md_hash_range ranges[RANGES];
	size_t size = (size_t)RANGES * 48;
	uint8_t *bytes = random_bytes(size);
	CUdeviceptr memory = upload(bytes, size);
	for (size_t i = 0; i < RANGES; i++)
		ranges[i] = (struct md_hash_range){.address = memory + 48 * i, .size = 1 + i % 48};
	hash_ranges(ranges, RANGES);
	for (size_t i = 0; i < RANGES; i++) {
		struct md_hash here = md_device_hash_bytes(bytes + 48 * i, ranges[i].size);
		cr_assert(md_hash_equal(&here, &ranges[i].hash), "range %zu", i);
	}
	free(bytes);
}

Test(device_hash, no_ranges)
{
	hash_ranges(NULL, 0);
}

/* ---- which tells changes ---- */

static void assert_other(const struct md_hash *one, const uint8_t *bytes, size_t size, const char *what)
{
	struct md_hash other = md_device_hash_bytes(bytes, size);
	cr_assert(!md_hash_equal(one, &other), "%s shows", what);
}

Test(device_hash, every_bit_counts)
{
	enum { BYTES = 100 };
	uint8_t *bytes = random_bytes(BYTES);
	struct md_hash whole = md_device_hash_bytes(bytes, BYTES);
	for (size_t i = 0; i < 8 * BYTES; i++) {
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_other(&whole, bytes, BYTES, "a bit");
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	free(bytes);
}

Test(device_hash, places_count)
{
	uint8_t zeros[64] = {0}, one[64] = {1}, moved[64] = {0}, swapped[64];
	struct md_hash of_zeros = md_device_hash_bytes(zeros, 48), of_one = md_device_hash_bytes(one, 64);
	uint8_t *bytes = random_bytes(64);
	struct md_hash of_bytes = md_device_hash_bytes(bytes, 64);
	assert_other(&of_zeros, zeros, 49, "a zero more");
	assert_other(&of_zeros, zeros, 64, "a lane of zeros more");
	moved[16] = 1;
	assert_other(&of_one, moved, 64, "another lane");
	moved[16] = 0;
	moved[8] = 1;
	assert_other(&of_one, moved, 64, "the other word of the lane");
	memcpy(swapped, bytes + 32, 32);
	memcpy(swapped + 32, bytes, 32);
	assert_other(&of_bytes, swapped, 64, "halves that changed places");
	free(bytes);
}

/* Equal changes in several lanes must not cancel out. */
Test(device_hash, changes_do_not_cancel)
{
	enum { BYTES = 1024 };
	uint8_t *bytes = random_bytes(BYTES), *changed = random_bytes(BYTES);
	struct md_hash whole = md_device_hash_bytes(bytes, BYTES);
	for (size_t step = 16; step <= 512; step *= 2) {
		memcpy(changed, bytes, BYTES);
		for (size_t at = 0; at < BYTES; at += step)
			changed[at] ^= 0x80;
		assert_other(&whole, changed, BYTES, "a sign in every lane");
	}
	for (size_t one = 0; one < BYTES / 16; one++)
		for (size_t two = one + 1; two < BYTES / 16; two++) {
			memcpy(changed, bytes, BYTES);
			changed[16 * one]++;
			changed[16 * two]--;
			assert_other(&whole, changed, BYTES, "one up, one down");
		}
	free(bytes);
	free(changed);
}

/* ---- and breaks nothing ---- */

static void assert_unreadable_is_an_error(void)
{
	uint8_t *bytes = random_bytes(4096);
	struct md_hash_range ranges[2] = {{.size = 4096}, {.size = 4096}};
	struct md_error err = {0};
	size_t failed;
	ranges[0].address = upload(bytes, 4096);
	ranges[1].address = upload(bytes, 4096);
	ok(md_cuda.cuMemFree_v2(ranges[1].address));
	cr_assert_neq(md_device_hash(&hasher, stream, ranges, 2, &failed, &err), MD_OK,
		      "what was freed cannot be read");
	cr_assert_eq(failed, 1, "the second range: %zu", failed);
	ok(md_cuda.cuCtxSynchronize());
	hash(ranges[0].address, 4096);
	free(bytes);
}

Test(device_hash, should_fail_memory_that_is_not_there)
{
	assert_unreadable_is_an_error();
}

Test(device_hash_host, should_fail_memory_that_is_not_there)
{
	assert_unreadable_is_an_error();
}

Test(device_hash, page_locked_memory_is_copied)
{
	uint8_t *bytes = random_bytes(5000);
	struct md_hash here = md_device_hash_bytes(bytes, 5000), there;
	void *locked;
	CUdeviceptr address;
	ok(md_cuda.cuMemHostAlloc(&locked, 5000, CU_MEMHOSTALLOC_DEVICEMAP));
	memcpy(locked, bytes, 5000);
	ok(md_cuda.cuMemHostGetDevicePointer_v2(&address, locked, 0));
	there = hash(address, 5000);
	cr_assert(md_hash_equal(&here, &there), "the same value");
	free(bytes);
}

Test(device_hash, managed_memory)
{
	uint8_t *bytes = random_bytes(5000);
	struct md_hash here = md_device_hash_bytes(bytes, 5000), there;
	CUdeviceptr address;
	ok(md_cuda.cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL));
	ok(md_cuda.cuMemcpyHtoD_v2(address, bytes, 5000));
	there = hash(address, 5000);
	cr_assert(md_hash_equal(&here, &there), "the same value");
	free(bytes);
}
