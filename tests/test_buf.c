/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer and reader: everything comes back, and nothing is read beyond the end. */
#include "base/buf.h"

#include <criterion/criterion.h>
#include <string.h>

static const uint64_t numbers[] = {0, 1, 127, 128, 16383, 16384, 0xffffffff, UINT64_MAX - 1, UINT64_MAX};
static const int64_t signed_numbers[] = {0, -1, 1, -64, 63, 64, -65, INT64_MIN, INT64_MAX};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

Test(buf, round_trip)
{
	struct md_buf buf;
	struct md_reader reader;
	md_buf_init(&buf);
	md_buf_put_u8(&buf, 0xab);
	md_buf_put_u16(&buf, 0x1234);
	md_buf_put_u32(&buf, 0xdeadbeef);
	md_buf_put_u64(&buf, 0x0123456789abcdef);
	for (size_t i = 0; i < COUNT(numbers); i++)
		md_buf_put_varint(&buf, numbers[i]);
	for (size_t i = 0; i < COUNT(signed_numbers); i++)
		md_buf_put_zigzag(&buf, signed_numbers[i]);
	md_buf_put(&buf, "tail", 4);
	cr_assert_not(buf.failed);
	cr_assert_eq(buf.data[1], 0x34, "u16 is little-endian");

	md_reader_init(&reader, buf.data, buf.size);
	cr_assert_eq(md_reader_u8(&reader), 0xab);
	cr_assert_eq(md_reader_u16(&reader), 0x1234);
	cr_assert_eq(md_reader_u32(&reader), 0xdeadbeef);
	cr_assert_eq(md_reader_u64(&reader), 0x0123456789abcdef);
	for (size_t i = 0; i < COUNT(numbers); i++)
		cr_assert_eq(md_reader_varint(&reader), numbers[i], "varint %zu", i);
	for (size_t i = 0; i < COUNT(signed_numbers); i++)
		cr_assert_eq(md_reader_zigzag(&reader), signed_numbers[i], "zigzag %zu", i);
	cr_assert_eq(md_reader_left(&reader), 4);
	cr_assert_eq(memcmp(md_reader_take(&reader, 4), "tail", 4), 0);
	cr_assert_not(reader.failed);
	md_buf_finish(&buf);
}

Test(buf, grows_and_clears)
{
	struct md_buf buf;
	md_buf_init(&buf);
	for (uint32_t i = 0; i < 100000; i++)
		md_buf_put_u32(&buf, i);
	cr_assert_eq(buf.size, 400000);
	cr_assert_eq(buf.data[4 * 99999], 99999 & 0xff);
	md_buf_clear(&buf);
	cr_assert_eq(buf.size, 0);
	cr_assert(buf.capacity >= 400000, "clearing keeps the memory");
	md_buf_finish(&buf);
	cr_assert_null(buf.data);
}

Test(buf, failed_growth_sticks)
{
	struct md_buf buf;
	md_buf_init(&buf);
	md_buf_put_u8(&buf, 1);
	cr_assert_null(md_buf_extend(&buf, SIZE_MAX), "more than there is address space");
	cr_assert(buf.failed);
	md_buf_put_u8(&buf, 2);
	cr_assert_eq(buf.size, 1, "nothing is written after a failure");
	md_buf_finish(&buf);
}

Test(reader, short_reads_stick)
{
	static const uint8_t bytes[] = {1, 2, 3, 4, 5};
	struct md_reader reader;
	md_reader_init(&reader, bytes, sizeof(bytes));
	cr_assert_eq(md_reader_u32(&reader), 0x04030201);
	cr_assert_eq(md_reader_u32(&reader), 0, "one byte is left");
	cr_assert(reader.failed);
	cr_assert_eq(reader.failed_at, 4);
	cr_assert_eq(md_reader_u8(&reader), 0, "the byte that is left is not handed out any more");
	cr_assert_eq(reader.failed_at, 4, "the first failure stays");
	cr_assert_eq(md_reader_left(&reader), 0);
	md_reader_init(&reader, bytes, sizeof(bytes));
	cr_assert_null(md_reader_take(&reader, SIZE_MAX));
}

static void assert_varint_refused(const void *bytes, size_t size, const char *what)
{
	struct md_reader reader;
	md_reader_init(&reader, bytes, size);
	cr_assert_eq(md_reader_varint(&reader), 0, "%s", what);
	cr_assert(reader.failed, "%s", what);
}

Test(reader, hostile_varints)
{
	assert_varint_refused("", 0, "empty");
	assert_varint_refused("\x80", 1, "cut");
	assert_varint_refused("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, "65 bits");
	assert_varint_refused("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x80\x00", 11, "eleven bytes");
}

Test(reader, nothing_is_readable_of_nothing)
{
	struct md_reader reader;
	md_reader_init(&reader, NULL, 0);
	cr_assert_not_null(md_reader_take(&reader, 0), "zero bytes are always there");
	cr_assert_eq(md_reader_u8(&reader), 0);
	cr_assert(reader.failed);
}
