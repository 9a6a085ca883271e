/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files made in memory: what is read back, what each quantization means, and what is refused. */
#include "models/llama/gguf.c"

#include <criterion/criterion.h>
#include <math.h>

struct file {
	struct md_buf buf;
	struct gguf gguf;
	struct md_error err;
};

static void put_text(struct md_buf *buf, const char *text)
{
	md_buf_put_u64(buf, strlen(text));
	md_buf_put(buf, text, strlen(text));
}

static void put_header(struct file *file, uint32_t version, uint64_t tensors, uint64_t values)
{
	memset(file, 0, sizeof(*file));
	md_buf_init(&file->buf);
	md_buf_put(&file->buf, "GGUF", 4);
	md_buf_put_u32(&file->buf, version);
	md_buf_put_u64(&file->buf, tensors);
	md_buf_put_u64(&file->buf, values);
}

static void put_u32_value(struct file *file, const char *key, uint32_t value)
{
	put_text(&file->buf, key);
	md_buf_put_u32(&file->buf, GGUF_U32);
	md_buf_put_u32(&file->buf, value);
}

static void put_tensor(struct file *file, const char *name, uint64_t columns, uint64_t rows, uint32_t type,
		       uint64_t offset)
{
	put_text(&file->buf, name);
	md_buf_put_u32(&file->buf, 2);
	md_buf_put_u64(&file->buf, columns);
	md_buf_put_u64(&file->buf, rows);
	md_buf_put_u32(&file->buf, type);
	md_buf_put_u64(&file->buf, offset);
}

static void align(struct file *file)
{
	while (file->buf.size % 32)
		md_buf_put_u8(&file->buf, 0);
}

static enum md_status open_file(struct file *file)
{
	return gguf_open_memory(&file->gguf, file->buf.data, file->buf.size, &file->err);
}

static void close_file(struct file *file)
{
	gguf_close(&file->gguf);
	md_buf_finish(&file->buf);
}

static void assert_refused(struct file *file, enum md_status status, const char *words)
{
	enum md_status found = open_file(file);
	cr_assert_eq(found, status, "status %d, wanted %d: %s", (int)found, (int)status, file->err.message);
	cr_assert(strstr(file->err.message, words), "\"%s\" does not say \"%s\"", file->err.message, words);
	cr_assert_null(file->gguf.values, "a refused file leaves nothing behind");
	close_file(file);
}

Test(gguf, reads_values_of_every_kind)
{
	struct file file;
	put_header(&file, 3, 0, 5);
	put_u32_value(&file, "n", 7);
	put_text(&file.buf, "negative");
	md_buf_put_u32(&file.buf, GGUF_I8);
	md_buf_put_u8(&file.buf, 0xfe);
	put_text(&file.buf, "name");
	md_buf_put_u32(&file.buf, GGUF_STRING);
	put_text(&file.buf, "llama");
	put_text(&file.buf, "words");
	md_buf_put_u32(&file.buf, GGUF_ARRAY);
	md_buf_put_u32(&file.buf, GGUF_STRING);
	md_buf_put_u64(&file.buf, 2);
	put_text(&file.buf, "a");
	put_text(&file.buf, "");
	put_text(&file.buf, "theta");
	md_buf_put_u32(&file.buf, GGUF_F32);
	md_buf_put_u32(&file.buf, 0x3fc00000); /* 1.5 */
	cr_assert_eq(open_file(&file), MD_OK, "%s", file.err.message);

	int64_t n = 0;
	double theta = 0;
	struct gguf_string text;
	cr_assert_eq(gguf_get_integer(&file.gguf, "n", &n, NULL), MD_OK);
	cr_assert_eq(n, 7);
	cr_assert_eq(gguf_get_integer(&file.gguf, "negative", &n, NULL), MD_OK);
	cr_assert_eq(n, -2, "an i8 keeps its sign");
	cr_assert_eq(gguf_get_float(&file.gguf, "theta", &theta, NULL), MD_OK);
	cr_assert_eq(theta, 1.5);
	cr_assert_eq(gguf_get_string(&file.gguf, "name", &text, NULL), MD_OK);
	cr_assert(text.size == 5 && !memcmp(text.data, "llama", 5));
	cr_assert_eq(gguf_get_integer(&file.gguf, "name", &n, NULL), MD_ERR_CORRUPT, "a string is no integer");
	cr_assert_eq(gguf_get_integer(&file.gguf, "absent", &n, NULL), MD_ERR_NOT_FOUND);
	size_t cursor = 0, words = 0;
	while (gguf_next_string(gguf_find(&file.gguf, "words"), &cursor, &text))
		words++;
	cr_assert_eq(words, 2, "an empty string counts too");
	close_file(&file);
}

/* One row of 32 elements of a type; element i must be want(i). */
static void assert_row(uint32_t type, const void *data, size_t size, float (*want)(int i))
{
	struct file file;
	uint16_t out[32];
	put_header(&file, 2, 1, 0);
	put_tensor(&file, "w", 32, 1, type, 0);
	align(&file);
	md_buf_put(&file.buf, data, size);
	cr_assert_eq(open_file(&file), MD_OK, "type %u: %s", type, file.err.message);
	const struct gguf_tensor *tensor = gguf_find_tensor(&file.gguf, "w");
	cr_assert_not_null(tensor);
	cr_assert_eq(tensor->size, size, "type %u takes %zu bytes", type, tensor->size);
	uint64_t offset;
	size_t bytes;
	gguf_locate(tensor, 0, 32, &offset, &bytes);
	cr_assert_eq(bytes, size);
	gguf_to_bf16(tensor->type, file.buf.data + offset, 32, out);
	for (int i = 0; i < 32; i++)
		cr_assert_eq(out[i], gguf_bf16_from_float(want(i)), "type %u: element %d is 0x%04x, wanted %g", type, i,
			     out[i], (double)want(i));
	close_file(&file);
}

static float want_q4_0(int i)
{
	return (float)(i % 16 - 8) * 0.5f;
}
static float want_q4_1(int i)
{
	return (float)(i % 16) * 0.5f - 2.0f;
}
static float want_q8_0(int i)
{
	return (float)(i - 16) * 0.5f;
}
static float want_index(int i)
{
	return (float)i;
}

Test(gguf, dequantizes_each_type)
{
	uint8_t q4_0[18] = {0x00, 0x38}, q4_1[20] = {0x00, 0x38, 0x00, 0xc0},
		q8_0[34] = {0x00, 0x38}; /* 0.5; 0.5, -2 */
	float f32[32];
	uint16_t bf16[32], f16[32] = {0, 0x3c00};
	for (int i = 0; i < 16; i++) {
		q4_0[2 + i] = (uint8_t)(i | i << 4);
		q4_1[4 + i] = (uint8_t)(i | i << 4);
	}
	for (int i = 0; i < 32; i++) {
		q8_0[2 + i] = (uint8_t)(i - 16);
		f32[i] = (float)i;
		bf16[i] = gguf_bf16_from_float((float)i);
		for (uint16_t bits = 0; bits < 0x7c00; bits++)
			if (gguf_float_from_half(bits) == (float)i)
				f16[i] = bits;
	}
	assert_row(GGUF_TENSOR_Q4_0, q4_0, sizeof(q4_0), want_q4_0);
	assert_row(GGUF_TENSOR_Q4_1, q4_1, sizeof(q4_1), want_q4_1);
	assert_row(GGUF_TENSOR_Q8_0, q8_0, sizeof(q8_0), want_q8_0);
	assert_row(GGUF_TENSOR_F32, f32, sizeof(f32), want_index);
	assert_row(GGUF_TENSOR_F16, f16, sizeof(f16), want_index);
	assert_row(GGUF_TENSOR_BF16, bf16, sizeof(bf16), want_index);
}

Test(gguf, converts_numbers_as_ieee_says)
{
	cr_assert_eq(gguf_float_from_half(0x0001), 0x1p-24f, "the smallest subnormal");
	cr_assert_eq(gguf_float_from_half(0xc000), -2.0f);
	cr_assert(gguf_float_from_half(0x7c00) > 3e38f, "infinity");
	cr_assert_eq(gguf_bf16_from_float(1.0f), 0x3f80);
	cr_assert_eq(gguf_bf16_from_float(1.00390625f), 0x3f80, "a tie goes to even");
	cr_assert_eq(gguf_bf16_from_float(1.01171875f), 0x3f82, "a tie goes to even");
	cr_assert_eq(gguf_bf16_from_float(__builtin_nanf("")) & 0x7fff, 0x7fc0, "a NaN stays one");
}

/* Rounded to nearest, and to even between two: compared as numbers, without the bits that the reader works on. */
static uint16_t nearest(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
	if (isnan(value))
		return low | 0x40;
	if (isinf(value))
		return low;
	uint32_t at_low = (uint32_t)low << 16, at_high = (uint32_t)high << 16;
	float below, above;
	memcpy(&below, &at_low, sizeof(below));
	memcpy(&above, &at_high, sizeof(above));
	double past = isinf(above) ? ldexp(1, 128) * (above > 0 ? 1 : -1) : (double)above;
	double down = fabs((double)value - (double)below), up = fabs(past - (double)value);
	return down < up || (down == up && !(low & 1)) ? low : high;
}

Test(gguf, rounds_every_half_and_floats_of_every_exponent)
{
	enum { FLOATS = 1 << 18 };
	uint16_t *halves = malloc(sizeof(*halves) << 16), *out = malloc(sizeof(*out) * FLOATS);
	float *floats = malloc(sizeof(*floats) * FLOATS);
	for (uint32_t i = 0; i < 1 << 16; i++)
		halves[i] = (uint16_t)i;
	gguf_to_bf16(GGUF_TENSOR_F16, (const uint8_t *)halves, 1 << 16, out);
	for (uint32_t i = 0; i < 1 << 16; i++)
		cr_assert_eq(out[i], nearest(gguf_float_from_half((uint16_t)i)), "half 0x%04x is 0x%04x", i, out[i]);
	for (uint32_t i = 0; i < FLOATS; i++) {
		static const uint32_t ends[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1234, 0xfedc};
		uint32_t bits = i / 8 << 17 | (i / 8 << 16 & 0x10000) | ends[i % 8];
		memcpy(&floats[i], &bits, sizeof(bits));
	}
	gguf_to_bf16(GGUF_TENSOR_F32, (const uint8_t *)floats, FLOATS - 3, out);
	for (uint32_t i = 0; i < FLOATS - 3; i++)
		cr_assert_eq(out[i], nearest(floats[i]), "%a is 0x%04x, wanted 0x%04x", (double)floats[i], out[i],
			     nearest(floats[i]));
	free(halves);
	free(out);
	free(floats);
}

Test(gguf, should_fail_heads)
{
	struct file file;
	put_header(&file, 3, 0, 0);
	file.buf.data[0] = 'X';
	assert_refused(&file, MD_ERR_CORRUPT, "offset 0: not a GGUF file");
	put_header(&file, 1, 0, 0);
	assert_refused(&file, MD_ERR_VERSION, "version 1");
	put_header(&file, 3, UINT64_MAX, 0);
	assert_refused(&file, MD_ERR_TOO_LARGE, "18446744073709551615 tensors");
	put_header(&file, 3, 0, 3);
	put_u32_value(&file, "one of three", 1);
	assert_refused(&file, MD_ERR_TRUNCATED, "ends inside a metadata key");
}

Test(gguf, should_fail_values)
{
	struct file file;
	put_header(&file, 3, 0, 1);
	md_buf_put_u64(&file.buf, UINT64_MAX);
	assert_refused(&file, MD_ERR_TRUNCATED, "a metadata key of 18446744073709551615 bytes");
	put_header(&file, 3, 0, 1);
	put_text(&file.buf, "k");
	md_buf_put_u32(&file.buf, 99);
	assert_refused(&file, MD_ERR_CORRUPT, "\"k\" has unknown type 99");
	put_header(&file, 3, 0, 1);
	put_text(&file.buf, "k");
	md_buf_put_u32(&file.buf, GGUF_ARRAY);
	md_buf_put_u32(&file.buf, GGUF_U64);
	md_buf_put_u64(&file.buf, 1ull << 61);
	assert_refused(&file, MD_ERR_TRUNCATED, "array of 2305843009213693952 items");
	put_header(&file, 3, 0, 1);
	put_text(&file.buf, "k");
	md_buf_put_u32(&file.buf, GGUF_ARRAY);
	md_buf_put_u32(&file.buf, GGUF_ARRAY);
	md_buf_put_u64(&file.buf, 1);
	assert_refused(&file, MD_ERR_CORRUPT, "array of unknown type 9");
}

static void assert_tensor_refused(uint64_t columns, uint64_t rows, uint32_t type, uint64_t offset,
				  enum md_status status, const char *words)
{
	struct file file;
	put_header(&file, 3, 1, 0);
	put_tensor(&file, "w", columns, rows, type, offset);
	align(&file);
	for (int i = 0; i < 4096; i++)
		md_buf_put_u8(&file.buf, 1);
	assert_refused(&file, status, words);
}

Test(gguf, should_fail_tensors)
{
	assert_tensor_refused(32, 1, 14, 0, MD_ERR_UNSUPPORTED, "type 14");
	assert_tensor_refused(1ull << 40, 1ull << 40, GGUF_TENSOR_F32, 0, MD_ERR_CORRUPT, "impossible shape");
	assert_tensor_refused(32, 0, GGUF_TENSOR_F32, 0, MD_ERR_CORRUPT, "impossible shape");
	assert_tensor_refused(33, 1, GGUF_TENSOR_Q4_0, 0, MD_ERR_CORRUPT, "not a multiple of 32");
	assert_tensor_refused(1ull << 62, 1, GGUF_TENSOR_F32, 0, MD_ERR_TOO_LARGE, "too large");
	assert_tensor_refused(1024, 2, GGUF_TENSOR_F32, 0, MD_ERR_TRUNCATED, "not in a file of");
	assert_tensor_refused(32, 1, GGUF_TENSOR_F32, UINT64_MAX - 31, MD_ERR_TRUNCATED, "not in a file of");
	assert_tensor_refused(32, 1, GGUF_TENSOR_F32, 5, MD_ERR_TRUNCATED, "not in a file of");
}

/* Every prefix of a good file is refused or read, and never read beyond its end (the sanitizer watches). */
Test(gguf, survives_truncation_anywhere)
{
	struct file file;
	put_header(&file, 3, 1, 2);
	put_u32_value(&file, "general.alignment", 32);
	put_text(&file.buf, "words");
	md_buf_put_u32(&file.buf, GGUF_ARRAY);
	md_buf_put_u32(&file.buf, GGUF_STRING);
	md_buf_put_u64(&file.buf, 1);
	put_text(&file.buf, "abc");
	put_tensor(&file, "w", 32, 1, GGUF_TENSOR_Q8_0, 0);
	align(&file);
	for (int i = 0; i < 34; i++)
		md_buf_put_u8(&file.buf, 1);
	for (size_t size = 0; size < file.buf.size; size++) {
		uint8_t *copy = malloc(size + !size);
		struct gguf gguf;
		memcpy(copy, file.buf.data, size);
		cr_assert_neq(gguf_open_memory(&gguf, copy, size, NULL), MD_OK, "a file cut at %zu was taken", size);
		free(copy);
	}
	cr_assert_eq(open_file(&file), MD_OK, "the whole file: %s", file.err.message);
	close_file(&file);
}

static enum md_status open_written(const struct file *file, size_t size, struct gguf *gguf, struct md_error *err)
{
	char path[] = "/tmp/gguf-XXXXXX";
	int fd = mkstemp(path);
	cr_assert_eq(md_file_write(fd, file->buf.data, size, path, NULL), MD_OK);
	enum md_status status = gguf_open(gguf, path, err);
	if (status != MD_OK)
		cr_assert(strstr(err->message, path), "\"%s\" does not name the file", err->message);
	close(fd);
	unlink(path);
	return status;
}

/* The head is read in larger and larger parts, until it ends in one. */
Test(gguf, reads_a_file_whose_head_is_large)
{
	struct file file;
	struct gguf gguf;
	struct gguf_string text;
	struct md_error err;
	put_header(&file, 3, 1, 1);
	put_text(&file.buf, "words");
	md_buf_put_u32(&file.buf, GGUF_ARRAY);
	md_buf_put_u32(&file.buf, GGUF_STRING);
	md_buf_put_u64(&file.buf, HEAD_BYTES);
	for (unsigned i = 0; i < HEAD_BYTES; i++)
		put_text(&file.buf, i % 2 ? "a" : "bc");
	put_tensor(&file, "w", 32, 1, GGUF_TENSOR_BF16, 0);
	align(&file);
	size_t head = file.buf.size;
	for (int i = 0; i < 64; i++)
		md_buf_put_u8(&file.buf, 1);
	cr_assert_eq(open_written(&file, file.buf.size, &gguf, &err), MD_OK, "%s", err.message);
	size_t cursor = 0, words = 0;
	while (gguf_next_string(gguf_find(&gguf, "words"), &cursor, &text))
		cr_assert_eq(text.size, words++ % 2 ? 1 : 2);
	cr_assert_eq(words, HEAD_BYTES);
	cr_assert_eq(gguf_find_tensor(&gguf, "w")->offset, head);
	gguf_close(&gguf);
	cr_assert_eq(open_written(&file, head + 63, &gguf, &err), MD_ERR_TRUNCATED);
	cr_assert(strstr(err.message, "not in a file of"), "%s", err.message);
	cr_assert_eq(open_written(&file, head / 2, &gguf, &err), MD_ERR_TRUNCATED);
	cr_assert(strstr(err.message, "the file has"), "%s", err.message);
	cr_assert_null(gguf.head, "a refused file leaves nothing behind");
	close_file(&file);
}

Test(gguf, names_a_file_that_is_not_there)
{
	struct gguf gguf;
	struct md_error err;
	cr_assert_eq(gguf_open(&gguf, "/nonexistent/model.gguf", &err), MD_ERR_NOT_FOUND);
	cr_assert(strstr(err.message, "/nonexistent/model.gguf"));
}
