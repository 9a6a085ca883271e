/* SPDX-License-Identifier: Apache-2.0 */
/* Images: measured by their headers, followed through wrappers, refused without a fault; homes are right
 * to the byte. */
#include "driver/image.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

/* Memory that ends where a page without access begins; size bytes, filled with a copy of data. */
static uint8_t *at_the_edge(const void *data, size_t size)
{
	size_t pages = (size + PAGE - 1) / PAGE * PAGE;
	uint8_t *memory = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(memory, MAP_FAILED);
	cr_assert_eq(mprotect(memory + pages, PAGE, PROT_NONE), 0);
	memcpy(memory + pages - size, data, size);
	return memory + pages - size;
}

static void assert_refused(const void *image, enum md_status status, const char *message)
{
	struct md_image_span span = {.size = 77};
	struct md_error err = {0};
	cr_assert_eq(md_image_span(image, &span, &err), status, "%s: got \"%s\"", message, err.message);
	cr_assert_not_null(strstr(err.message, message), "\"%s\" is not in \"%s\"", message, err.message);
	cr_assert_eq(span.size, 77, "outputs are set on success alone");
}

static void assert_span(const void *image, enum md_image_kind kind, const void *data, size_t size)
{
	struct md_image_span span;
	struct md_error err = {0};
	cr_assert_eq(md_image_span(image, &span, &err), MD_OK, "%s", err.message);
	cr_assert_eq(span.kind, kind);
	cr_assert_eq(span.data, data);
	cr_assert_eq(span.size, size, "%zu bytes, not %zu", span.size, size);
}

/* ---- ELF ---- */

struct small_elf {
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	uint8_t body[100];
	Elf64_Shdr sections[3];
};

static struct small_elf small_elf(void)
{
	struct small_elf elf;
	memset(&elf, 0, sizeof(elf));
	memcpy(elf.header.e_ident, ELFMAG, SELFMAG);
	elf.header.e_ident[EI_CLASS] = ELFCLASS64;
	elf.header.e_ident[EI_DATA] = ELFDATA2LSB;
	elf.header.e_machine = 190; /* EM_CUDA */
	elf.header.e_phoff = offsetof(struct small_elf, segment);
	elf.header.e_phentsize = sizeof(Elf64_Phdr);
	elf.header.e_phnum = 1;
	elf.header.e_shoff = offsetof(struct small_elf, sections);
	elf.header.e_shentsize = sizeof(Elf64_Shdr);
	elf.header.e_shnum = 3;
	elf.segment.p_offset = offsetof(struct small_elf, body);
	elf.segment.p_filesz = 50;
	elf.sections[1] =
	    (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_offset = offsetof(struct small_elf, body), .sh_size = 90};
	elf.sections[2] = (Elf64_Shdr){.sh_type = SHT_NOBITS, .sh_offset = 64, .sh_size = 1 << 30};
	return elf;
}

Test(span, elf_up_to_its_last_byte)
{
	struct small_elf elf = small_elf();
	const uint8_t *image = at_the_edge(&elf, sizeof(elf));
	assert_span(image, MD_IMAGE_ELF, image, sizeof(elf));
}

Test(span, elf_with_the_section_count_in_section_0)
{
	struct small_elf elf = small_elf();
	const uint8_t *image;
	elf.header.e_shnum = 0;
	elf.sections[0].sh_size = 3;
	image = at_the_edge(&elf, sizeof(elf));
	assert_span(image, MD_IMAGE_ELF, image, sizeof(elf));
}

Test(span, the_test_itself)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	off_t size = lseek(fd, 0, SEEK_END);
	uint8_t *image = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert_neq(image, MAP_FAILED);
	assert_span(image, MD_IMAGE_ELF, image, (size_t)size);
	close(fd);
}

Test(span, elf_cut_anywhere_is_refused)
{
	struct small_elf elf = small_elf();
	struct md_image_span span;
	struct md_error err;
	for (size_t size = 4; size < sizeof(elf); size++)
		cr_assert_neq(md_image_span(at_the_edge(&elf, size), &span, &err), MD_OK, "%zu bytes", size);
}

Test(span, hostile_elf)
{
	struct small_elf elf = small_elf();
	elf.header.e_ident[EI_CLASS] = ELFCLASS32;
	assert_refused(&elf, MD_ERR_UNSUPPORTED, "class 1");
	elf = small_elf();
	elf.header.e_shoff = UINT64_MAX - 10;
	assert_refused(&elf, MD_ERR_CORRUPT, "section table");
	elf = small_elf();
	elf.header.e_shentsize = 3;
	assert_refused(&elf, MD_ERR_CORRUPT, "entries of 3 bytes");
	elf = small_elf();
	elf.header.e_shnum = 0;
	elf.sections[0].sh_size = UINT64_MAX;
	assert_refused(&elf, MD_ERR_CORRUPT, "announces");
	elf = small_elf();
	elf.sections[1].sh_size = UINT64_MAX;
	assert_refused(&elf, MD_ERR_CORRUPT, "section 1");
	elf = small_elf();
	elf.segment.p_offset = UINT64_MAX;
	elf.segment.p_filesz = UINT64_MAX;
	assert_refused(&elf, MD_ERR_CORRUPT, "segment 0");
	elf = small_elf();
	elf.sections[1].sh_size = 1 << 20;
	assert_refused(at_the_edge(&elf, sizeof(elf)), MD_ERR_TRUNCATED, "not all of them can be read");
}

/* ---- fat binaries ---- */

struct fatbin {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t fat_size;
	uint8_t body[48];
};

struct wrapper {
	uint32_t magic, version;
	const void *data;
	void *prelinked;
};

Test(span, fatbin_and_wrapper)
{
	struct fatbin fatbin = {0xba55ed50, 1, 16, 48, {0}};
	uint8_t *image = at_the_edge(&fatbin, sizeof(fatbin));
	struct wrapper wrapper = {0x466243b1, 1, image, NULL};
	assert_span(image, MD_IMAGE_FATBIN, image, 64);
	assert_span(at_the_edge(&wrapper, sizeof(wrapper)), MD_IMAGE_FATBIN, image, 64);
}

Test(span, hostile_fatbin)
{
	struct fatbin fatbin = {0xba55ed50, 1, 16, 49, {0}};
	struct wrapper wrapper = {0x466243b1, 1, NULL, NULL};
	assert_refused(at_the_edge(&fatbin, sizeof(fatbin)), MD_ERR_TRUNCATED, "announce 65 bytes");
	assert_refused(at_the_edge(&fatbin, 12), MD_ERR_TRUNCATED, "header");
	fatbin.fat_size = UINT64_MAX;
	assert_refused(&fatbin, MD_ERR_CORRUPT, "body of");
	fatbin.fat_size = 8;
	fatbin.header_size = 2;
	assert_refused(&fatbin, MD_ERR_CORRUPT, "header of 2");
	assert_refused(&wrapper, MD_ERR_TRUNCATED, "points to");
	assert_refused(at_the_edge(&wrapper, 8), MD_ERR_TRUNCATED, "wrapper");
	wrapper.data = "neither";
	assert_refused(&wrapper, MD_ERR_UNSUPPORTED, "points to bytes");
	wrapper.data = &wrapper;
	assert_refused(&wrapper, MD_ERR_UNSUPPORTED, "points to bytes 466243b1");
}

/* ---- what was read of a file: other memory lies behind, and can be read ---- */

/* Of `whole` bytes, `there` are the file's; the next one is zero. */
static enum md_status within(const void *image, size_t whole, size_t there, struct md_image_span *span)
{
	uint8_t *memory = malloc(whole + 1);
	struct md_error err = {0};
	cr_assert_not_null(memory, "memory for the test");
	memset(memory, 'x', whole + 1);
	memcpy(memory, image, whole);
	memory[there] = 0;
	enum md_status status = md_image_span_within(memory, there, span, &err);
	cr_assert(status == MD_OK || *err.message, "a refusal says why");
	free(memory);
	return status;
}

Test(span, an_image_in_a_file_ends_with_the_file)
{
	struct small_elf elf = small_elf();
	struct fatbin fatbin = {0xba55ed50, 1, 16, 48, {0}};
	struct wrapper wrapper = {0x466243b1, 1, &fatbin, NULL};
	static const char text[] = ".version 8.0\n.target sm_90\n";
	struct md_image_span span = {0};
	cr_assert_eq(within(&elf, sizeof(elf), sizeof(elf), &span), MD_OK, "a whole ELF");
	cr_assert_eq(span.size, sizeof(elf), "all of it");
	for (size_t there = 0; there < sizeof(elf) - 1; there++)
		cr_assert_neq(within(&elf, sizeof(elf), there, &span), MD_OK, "an ELF cut off at %zu", there);
	cr_assert_eq(within(&fatbin, sizeof(fatbin), 64, &span), MD_OK, "a whole fat binary");
	cr_assert_neq(within(&fatbin, sizeof(fatbin), 62, &span), MD_OK, "a fat binary cut off");
	cr_assert_neq(within(&wrapper, sizeof(wrapper), sizeof(wrapper), &span), MD_OK, "an address in a file");
	cr_assert_eq(within(text, strlen(text), strlen(text), &span), MD_OK, "a text");
	cr_assert_eq(span.size, strlen(text) + 1, "with the NUL behind it");
}

/* ---- PTX ---- */

Test(span, ptx_texts)
{
	static const char *const texts[] = {
	    ".version 8.0\n.target sm_90\n",
	    "\n\t // a comment\n//\n.version 8.0",
	    "/* one */ /* .target */\n.version 9.0\n",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const uint8_t *image = at_the_edge(texts[i], strlen(texts[i]) + 1);
		assert_span(image, MD_IMAGE_PTX, image, strlen(texts[i]) + 1);
	}
}

Test(span, long_ptx)
{
	char *text = malloc(3 * PAGE);
	memset(text, ' ', 3 * PAGE);
	memcpy(text, ".version", 8);
	text[3 * PAGE - 1] = '\0';
	const uint8_t *image = at_the_edge(text, 3 * PAGE);
	assert_span(image, MD_IMAGE_PTX, image, 3 * PAGE);
	free(text);
}

Test(span, what_is_no_image)
{
	assert_refused(NULL, MD_ERR_INVALID, "no readable memory");
	assert_refused((const void *)8, MD_ERR_INVALID, "no readable memory at 0x8");
	assert_refused("hello, world", MD_ERR_UNSUPPORTED, "first bytes 68 65 6c 6c");
	assert_refused("// only a comment\n", MD_ERR_UNSUPPORTED, "2f 2f");
	assert_refused("/* never closed", MD_ERR_UNSUPPORTED, "2f 2a");
	assert_refused(at_the_edge(".version 8.0", 12), MD_ERR_TRUNCATED, "without a NUL");
	assert_refused(at_the_edge(".vers", 5), MD_ERR_UNSUPPORTED, "2e 76 65 72");
	assert_refused(at_the_edge("/*xx", 4), MD_ERR_UNSUPPORTED, "2f 2a");
	assert_refused(at_the_edge(" \n/*", 4), MD_ERR_UNSUPPORTED, "20 0a");
}

/* ---- homes ---- */

static const char landmark[] = "these bytes lie in the test's own file";
static char zeroes[100000];

static struct md_image_home home_of(const void *address)
{
	struct md_image_home home;
	struct md_error err = {0};
	cr_assert_eq(md_image_home(address, &home, &err), MD_OK, "%s", err.message);
	return home;
}

static void assert_bytes_at_home(const struct md_image_home *home, const void *address, size_t size)
{
	char bytes[64];
	int fd = open(home->path, O_RDONLY);
	cr_assert(fd >= 0, "%s", home->path);
	cr_assert_eq(pread(fd, bytes, size, (off_t)home->offset), (ssize_t)size);
	cr_assert_eq(memcmp(bytes, address, size), 0, "%s at %llu", home->path, (unsigned long long)home->offset);
	close(fd);
}

Test(home, of_the_program)
{
	struct md_image_home home = home_of(landmark);
	char path[4096] = {0};
	cr_assert(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	cr_assert_str_eq(home.path, path);
	assert_bytes_at_home(&home, landmark, sizeof(landmark));
}

Test(home, of_a_library)
{
	struct md_image_home home = home_of((const void *)getppid);
	cr_assert_not_null(strstr(home.path, "libc"), "%s", home.path);
	cr_assert(home.build_id_size >= 16, "the C library has a build-id");
	assert_bytes_at_home(&home, (const void *)getppid, 16);
}

Test(home, of_a_file_that_was_mapped)
{
	char name[] = "/tmp/medusa-home-XXXXXX";
	int fd = mkstemp(name);
	struct md_image_home home;
	cr_assert_eq(ftruncate(fd, 3 * PAGE), 0);
	cr_assert_eq(pwrite(fd, "image", 5, PAGE + 100), 5);
	char *memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
	cr_assert_neq(memory, MAP_FAILED);
	home = home_of(memory + 100);
	cr_assert_str_eq(home.path, name);
	cr_assert_eq(home.offset, PAGE + 100);
	cr_assert_eq(home.build_id_size, 0);
	unlink(name);
	home = home_of(memory + 100);
	cr_assert_str_eq(home.path, "", "a deleted file is no home");
	close(fd);
}

Test(home, of_memory_without_a_file)
{
	char *memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct md_image_home home = home_of(memory);
	cr_assert_str_eq(home.path, "");
	home = home_of(zeroes + sizeof(zeroes) / 2);
	cr_assert_str_eq(home.path, "", "zero-initialised data is in no file: %s", home.path);
}

Test(home, of_nothing)
{
	struct md_image_home home;
	struct md_error err = {0};
	cr_assert_eq(md_image_home((const void *)8, &home, &err), MD_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.message, "0x8"), "%s", err.message);
}
