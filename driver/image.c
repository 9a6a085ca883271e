/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures CUDA images by their own headers; memory that a header announces but that is not mapped is an error, never a
 * fault.
 */
#include "driver/image.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define IMAGE_MAX MD_IMAGE_BYTES_MAX
#define PTX_MAX ((uint64_t)256 << 20)
#define SECTIONS_MAX 1000000u
#define PROBES_MAX 256 /* a hook runs on the stack of a thread of the engine */

struct fatbin_wrapper { /* __fatBinC_Wrapper_t */
	uint32_t magic, version;
	const void *data;
	void *prelinked;
};

struct fatbin_header {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t fat_size; /* bytes after the header */
};

/* The readable memory that holds the image, when that is known; nothing outside of it is read then. */
static _Thread_local struct {
	uintptr_t start, end; /* end 0: not known */
} bounds;

static bool within_bounds(const void *address, uint64_t size)
{
	uintptr_t at = (uintptr_t)address;
	return !bounds.end || (at >= bounds.start && at <= bounds.end && size <= bounds.end - at);
}

/*
 * Reads the caller's memory through the kernel, which answers EFAULT where a load would fault. Where that call is
 * forbidden (old container profiles), memory is read directly: the driver itself reads the image the same way.
 */
static bool peek(const void *address, void *out, size_t size)
{
	struct iovec local = {out, size}, remote = {(void *)(uintptr_t)address, size};
	if (!within_bounds(address, size))
		return false;
	ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

	if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
		memcpy(out, address, size);
		return true;
	}
	return got >= 0 && (size_t)got == size;
}

/* Reads one byte of each page, many pages in one call. */
static bool readable(const void *address, uint64_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)address, end = at + size;
	struct iovec remote[PROBES_MAX];
	uint8_t bytes[PROBES_MAX];
	if (end < at || !within_bounds(address, size))
		return false;
	while (at < end) {
		struct iovec local = {bytes, 0};
		ssize_t got;
		for (; local.iov_len < PROBES_MAX && at < end; at = (at / page + 1) * page)
			remote[local.iov_len++] = (struct iovec){(void *)at, 1};
		got = process_vm_readv(getpid(), &local, 1, remote, local.iov_len, 0);
		if (got < 0 && (errno == ENOSYS || errno == EPERM))
			return true;
		if (got < 0 || (size_t)got != local.iov_len)
			return false;
	}
	return true;
}

/* Keeps the greatest end so far; false when an end lies beyond the size limit of images. */
static bool reach(uint64_t *end, uint64_t offset, uint64_t size)
{
	if (offset > IMAGE_MAX || size > IMAGE_MAX || offset + size > IMAGE_MAX)
		return false;
	if (offset + size > *end)
		*end = offset + size;
	return true;
}

static enum md_status unreadable(struct md_error *err, const char *what, uint64_t at)
{
	return md_error_set(err, MD_ERR_TRUNCATED, "image: %s at byte %llu lies in memory that cannot be read", what,
			    (unsigned long long)at);
}

static enum md_status beyond(struct md_error *err, const char *what, uint64_t index)
{
	return md_error_set(err, MD_ERR_CORRUPT, "image: ELF %s %llu reaches beyond 4 GiB", what,
			    (unsigned long long)index);
}

static enum md_status measure_sections(const char *image, const Elf64_Ehdr *header, uint64_t *end, struct md_error *err)
{
	uint64_t count = header->e_shnum;
	Elf64_Shdr section;
	if (!header->e_shoff)
		return MD_OK;
	if (header->e_shentsize != sizeof(section) || !reach(end, header->e_shoff, sizeof(section)))
		return md_error_set(err, MD_ERR_CORRUPT, "image: ELF section table at %llu with entries of %u bytes",
				    (unsigned long long)header->e_shoff, header->e_shentsize);
	if (!count) { /* for 65,280 sections and more the number is in section 0 */
		if (!peek(image + header->e_shoff, &section, sizeof(section)))
			return unreadable(err, "ELF section 0", header->e_shoff);
		count = section.sh_size;
	}
	if (count > SECTIONS_MAX || !reach(end, header->e_shoff, count * sizeof(section)))
		return md_error_set(err, MD_ERR_CORRUPT, "image: ELF announces %llu sections",
				    (unsigned long long)count);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t at = header->e_shoff + i * sizeof(section);
		if (!peek(image + at, &section, sizeof(section)))
			return unreadable(err, "ELF section header", at);
		if (section.sh_type != SHT_NULL && section.sh_type != SHT_NOBITS &&
		    !reach(end, section.sh_offset, section.sh_size))
			return beyond(err, "section", i);
	}
	return MD_OK;
}

static enum md_status measure_segments(const char *image, const Elf64_Ehdr *header, uint64_t *end, struct md_error *err)
{
	Elf64_Phdr segment;
	if (!header->e_phoff || !header->e_phnum)
		return MD_OK;
	if (header->e_phentsize != sizeof(segment) ||
	    !reach(end, header->e_phoff, (uint64_t)header->e_phnum * sizeof(segment)))
		return md_error_set(err, MD_ERR_CORRUPT, "image: ELF program headers at %llu with entries of %u bytes",
				    (unsigned long long)header->e_phoff, header->e_phentsize);
	for (uint64_t i = 0; i < header->e_phnum; i++) {
		uint64_t at = header->e_phoff + i * sizeof(segment);
		if (!peek(image + at, &segment, sizeof(segment)))
			return unreadable(err, "ELF program header", at);
		if (!reach(end, segment.p_offset, segment.p_filesz))
			return beyond(err, "segment", i);
	}
	return MD_OK;
}

static enum md_status finish_span(struct md_image_span *span, enum md_image_kind kind, const void *image, uint64_t size,
				  struct md_error *err)
{
	if (!readable(image, size))
		return md_error_set(err, MD_ERR_TRUNCATED,
				    "image: its headers announce %llu bytes, but not all of them can be read",
				    (unsigned long long)size);
	*span = (struct md_image_span){kind, image, (size_t)size};
	return MD_OK;
}

static enum md_status measure_elf(const void *image, struct md_image_span *span, struct md_error *err)
{
	uint64_t end = sizeof(Elf64_Ehdr);
	Elf64_Ehdr header;
	if (!peek(image, &header, sizeof(header)))
		return unreadable(err, "ELF header", 0);
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "image: ELF of class %u and encoding %u, not 64-bit little-endian",
				    header.e_ident[EI_CLASS], header.e_ident[EI_DATA]);
	MD_FORWARD(measure_sections(image, &header, &end, err));
	MD_FORWARD(measure_segments(image, &header, &end, err));
	return finish_span(span, MD_IMAGE_ELF, image, end, err);
}

static enum md_status measure_fatbin(const void *image, struct md_image_span *span, struct md_error *err)
{
	struct fatbin_header header;
	if (!peek(image, &header, sizeof(header)))
		return unreadable(err, "fat binary header", 0);
	if (header.header_size < sizeof(header) || header.fat_size > IMAGE_MAX - header.header_size)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "image: fat binary with a header of %u and a body of %llu bytes",
				    header.header_size, (unsigned long long)header.fat_size);
	return finish_span(span, MD_IMAGE_FATBIN, image, header.header_size + header.fat_size, err);
}

static enum md_status measure_wrapper(const void *image, struct md_image_span *span, struct md_error *err)
{
	struct fatbin_wrapper wrapper;
	uint32_t magic;
	if (!peek(image, &wrapper, sizeof(wrapper)))
		return unreadable(err, "fat binary wrapper", 0);
	if (!peek(wrapper.data, &magic, sizeof(magic)))
		return md_error_set(err, MD_ERR_TRUNCATED,
				    "image: fat binary wrapper points to %p, which cannot be read", wrapper.data);
	if (magic != FATBIN_MAGIC)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "image: fat binary wrapper points to bytes %08x", magic);
	return measure_fatbin(wrapper.data, span, err);
}

/*
 * PTX text has no header: it ends with its NUL, which counts as part of it, so that stored bytes can be loaded as they
 * are.
 */
static enum md_status measure_text(const void *image, struct md_image_span *span, struct md_error *err)
{
	char chunk[4096];
	for (uint64_t at = 0; at < PTX_MAX;) {
		const char *from = (const char *)image + at, *nul;
		/* never into the next page, which may not be mapped */
		size_t size = sizeof(chunk) - (uintptr_t)from % sizeof(chunk);
		if (bounds.end && (uintptr_t)from < bounds.end && size > bounds.end - (uintptr_t)from)
			size = bounds.end - (uintptr_t)from;
		if (!peek(from, chunk, size))
			return unreadable(err, "PTX text without a NUL", at);
		nul = memchr(chunk, '\0', size);
		if (nul) {
			*span = (struct md_image_span){MD_IMAGE_PTX, image, (size_t)(at + (uint64_t)(nul - chunk) + 1)};
			return MD_OK;
		}
		at += size;
	}
	return md_error_set(err, MD_ERR_TOO_LARGE, "image: PTX text of more than 256 MiB");
}

/* PTX starts with white space and comments, then ".version". Read byte by byte, because the text may end anywhere. */
static bool is_ptx(const void *image)
{
	static const char directive[] = ".version";
	const char *at = image, *limit = at + (64u << 10);
	char two[2];
	while (at < limit && peek(at, two, 1)) {
		if (strchr(" \t\r\n", two[0]) && two[0]) {
			at++;
		} else if (two[0] == '/' && peek(at, two, 2) && two[1] == '/') {
			while (at < limit && peek(at, two, 1) && two[0] && two[0] != '\n')
				at++;
		} else if (two[0] == '/' && two[1] == '*') {
			for (at += 2; at < limit && peek(at, two, 2) && two[0] && memcmp(two, "*/", 2);)
				at++;
			at += 2;
		} else {
			char word[sizeof(directive) - 1];
			return peek(at, word, sizeof(word)) && !memcmp(word, directive, sizeof(word));
		}
	}
	return false;
}

enum md_status md_image_span(const void *image, struct md_image_span *span, struct md_error *err)
{
	uint8_t first[4];
	uint32_t magic;
	if (!image || !peek(image, first, sizeof(first)))
		return md_error_set(err, MD_ERR_INVALID, "image: no readable memory at %p", image);
	memcpy(&magic, first, sizeof(magic));
	if (!memcmp(first, ELFMAG, SELFMAG))
		return measure_elf(image, span, err);
	if (magic == FATBIN_MAGIC)
		return measure_fatbin(image, span, err);
	if (magic == WRAPPER_MAGIC)
		return measure_wrapper(image, span, err);
	if (is_ptx(image))
		return measure_text(image, span, err);
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "image: first bytes %02x %02x %02x %02x are neither ELF, fat binary nor PTX", first[0],
			    first[1], first[2], first[3]);
}

bool md_image_starts(enum md_image_kind kind, uint64_t size, const uint8_t *first, size_t there)
{
	struct fatbin_header header;
	if (size > IMAGE_MAX || !there)
		return false;
	if (kind == MD_IMAGE_ELF)
		return there >= SELFMAG && !memcmp(first, ELFMAG, SELFMAG);
	if (kind == MD_IMAGE_PTX)
		return size <= PTX_MAX && first[0];
	if (there < sizeof(header))
		return false;
	memcpy(&header, first, sizeof(header));
	return header.magic == FATBIN_MAGIC && header.fat_size < size && header.header_size == size - header.fat_size;
}

enum md_status md_image_span_within(const void *image, size_t there, struct md_image_span *span, struct md_error *err)
{
	bounds.start = (uintptr_t)image;
	bounds.end = bounds.start + there + 1;
	enum md_status status = md_image_span(image, span, err);
	bounds.end = 0;
	return status;
}
