/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a CUDA image (ELF, fat binary, wrapper, PTX) that ends where its memory ends. */
#include <string.h>
#include <sys/mman.h>

#include "driver/image.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

#define ROOM (1u << 20)
#define WRAPPER_MAGIC 0x466243b1u
#define WRAPPER_DATA 8 /* offset of its pointer */

/* Memory whose end nothing can be read behind. */
static uint8_t *fenced(void)
{
	static uint8_t *end;
	if (end)
		return end;
	uint8_t *map = mmap(NULL, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FUZZ_REQUIRE(map != MAP_FAILED && mprotect(map + ROOM, 4096, PROT_NONE) == 0, "no memory with a fence");
	end = map + ROOM;
	return end;
}

/* A pointer that is an offset in the input is taken for one into it; others stay what they are. */
static void aim_wrapper(uint8_t *image, size_t size)
{
	uint32_t magic;
	uint64_t target;
	if (size < WRAPPER_DATA + sizeof(target))
		return;
	memcpy(&magic, image, sizeof(magic));
	memcpy(&target, image + WRAPPER_DATA, sizeof(target));
	if (magic != WRAPPER_MAGIC || target >= size)
		return;
	target += (uintptr_t)image;
	memcpy(image + WRAPPER_DATA, &target, sizeof(target));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_image_span span = {0};
	struct md_error err = {0};
	fuzz_accepted = false;
	if (size > ROOM)
		return 0;
	uint8_t *end = fenced(), *image = end - size;
	memcpy(image, data, size);
	aim_wrapper(image, size);
	fuzz_accepted = md_image_span(image, &span, &err) == MD_OK;
	if (!fuzz_accepted) {
		FUZZ_REQUIRE(err.status && *err.message, "refused without saying why");
		return 0;
	}
	const uint8_t *start = span.data;
	FUZZ_REQUIRE(span.size, "an image of no bytes");
	if (start >= image && start < end)
		FUZZ_REQUIRE(span.size <= (size_t)(end - start), "%zu bytes of %zu", span.size, (size_t)(end - start));
	return 0;
}
