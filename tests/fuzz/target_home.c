/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the program headers and notes of a loaded object, and a line of /proc/self/maps. */
#include "driver/image_home.c"

#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

#define SEGMENTS_MAX 8

/* As the loader leaves it: what is to be loaded lies in the object's memory, or the object would not be there. */
static bool loads_within(const ElfW(Phdr) * segment, size_t memory)
{
	return segment->p_type != PT_LOAD ||
	       (segment->p_vaddr <= memory && segment->p_memsz <= memory - segment->p_vaddr &&
		segment->p_filesz <= segment->p_memsz);
}

static void visit(const uint8_t *data, size_t size)
{
	ElfW(Phdr) segments[SEGMENTS_MAX];
	size_t count = data[0] % (SEGMENTS_MAX + 1), used = 1 + count * sizeof(*segments), kept = 0;
	if (used >= size)
		return;
	size_t memory = size - used;
	uint8_t *object = malloc(memory); /* exactly: a sanitizer sees what is read beside it */
	FUZZ_REQUIRE(object, "no memory");
	memcpy(object, data + used, memory);
	for (size_t i = 0; i < count; i++) {
		memcpy(&segments[kept], data + 1 + i * sizeof(*segments), sizeof(*segments));
		kept += loads_within(&segments[kept], memory);
	}
	struct dl_phdr_info info = {.dlpi_addr = (uintptr_t)object,
				    .dlpi_name = "fuzzed",
				    .dlpi_phdr = segments,
				    .dlpi_phnum = (ElfW(Half))kept};
	struct md_image_home *home = calloc(1, sizeof(*home));
	FUZZ_REQUIRE(home, "no memory");
	struct search search = {.address = (uintptr_t)object + memory / 2, .home = home};
	fuzz_accepted = visit_object(&info, sizeof(info), &search) && home->build_id_size;
	FUZZ_REQUIRE(home->build_id_size <= MD_BUILD_ID_BYTES, "a build-id of %zu bytes", home->build_id_size);
	free(home);
	free(object);
}

static void parse(const uint8_t *data, size_t size)
{
	struct md_image_home *home = calloc(1, sizeof(*home));
	char *line = malloc(size + 1);
	FUZZ_REQUIRE(home && line, "no memory");
	memcpy(line, data, size);
	line[size] = '\0';
	parse_mapping(line, 0x7f0000001000, home);
	FUZZ_REQUIRE(strlen(home->path) < sizeof(home->path), "a path without an end");
	free(line);
	free(home);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_accepted = false;
	if (!size)
		return 0;
	visit(data, size);
	parse(data, size);
	return 0;
}
