/* SPDX-License-Identifier: Apache-2.0 */
/* Stored images of an artifact: a frame each, shared by equal ones, read in parts, and named when damaged. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "base/array.h"
#include "format/artifact/sections.h"
#include "base/file.h"
#include "tests/artifact_samples.h"

enum { IMAGE_DATA = 10 }; /* the place of its row in the section table */

static char folder[64];

static void setup(void)
{
	strcpy(folder, "/tmp/medusa-images-XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
}

static void teardown(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	cr_assert(system(command) == 0, "clean up");
}

TestSuite(image_frames, .init = setup, .fini = teardown);

static const char *sample_path(const char *name)
{
	static char paths[4][128];
	static unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static uint8_t *read_file(const char *path, size_t *size)
{
	struct md_file_bytes map;
	cr_assert(md_file_read(path, UINT64_MAX, &map, NULL) == MD_OK, "map %s", path);
	uint8_t *copy = malloc(map.size);
	memcpy(copy, map.data, map.size);
	*size = map.size;
	md_file_release(&map);
	return copy;
}

/* The sample with a third image that has the same content as the second, and a fourth of its own. */
static const char *write_images(struct md_artifact_sizes *sizes)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	artifact.images = md_array_resize(artifact.images, 4, sizeof(*artifact.images));
	artifact.image_count = 4;
	for (uint32_t i = 2; i < 4; i++) {
		artifact.images[i] = (struct md_image){.kind = MD_IMAGE_ELF, .size = 1000};
		artifact.images[i].data = malloc(1000);
		memcpy(artifact.images[i].data, artifact.images[1].data, 1000);
		artifact.images[i].data[500] ^= i == 3;
		artifact.images[i].hash = i == 2 ? artifact.images[1].hash : md_hash_bytes("y", 1);
	}
	const char *path = sample_path("images.medusa");
	cr_assert(md_artifact_write(&artifact, path, sizes, &err) == MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
	return path;
}

Test(image_frames, images_of_one_content_share_a_frame)
{
	struct md_artifact_sizes sizes;
	struct md_artifact artifact;
	struct md_artifact_file *file;
	struct md_error err = {0};
	const char *path = write_images(&sizes);
	cr_assert_eq(sizes.section_count, IMAGE_DATA + 1, "%u sections", sizes.section_count);
	cr_assert_str_eq(sizes.sections[IMAGE_DATA].name, "image_data", "the last one");
	cr_assert_eq(sizes.sections[IMAGE_DATA].raw, 2000, "two contents, three stored images");
	cr_assert(md_artifact_open(path, &file, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(artifact.images[1].frame.offset, artifact.images[2].frame.offset, "one frame for two images");
	cr_assert_neq(artifact.images[1].frame.offset, artifact.images[3].frame.offset, "another content has its own");
	md_artifact_finish(&artifact);
	md_artifact_close(file);
}

Test(image_frames, without_stored_images_no_feature_is_required)
{
	struct md_artifact artifact, back;
	struct md_artifact_sizes sizes;
	struct md_error err = {0};
	sample_artifact(&artifact);
	free(artifact.images[1].data);
	artifact.images[1].data = NULL;
	const char *path = sample_path("bare.medusa");
	cr_assert(md_artifact_write(&artifact, path, &sizes, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(sizes.section_count, IMAGE_DATA, "no bytes of images, no section of them");
	size_t size;
	uint8_t *data = read_file(path, &size);
	cr_assert_eq(data[16] & 1, 0, "required feature bit 0");
	free(data);
	cr_assert(md_artifact_read(path, &back, NULL, &err) == MD_OK, "%s", err.message);
	cr_assert(back.image_count == 2 && !md_image_is_stored(&back.images[1]), "as it was");
	md_artifact_finish(&artifact);
	md_artifact_finish(&back);
}

Test(image_frames, read_in_parts)
{
	struct md_artifact parts, whole;
	struct md_artifact_file *file;
	struct md_error err = {0};
	const char *path = write_images(NULL);
	cr_assert(md_artifact_open(path, &file, &parts, &err) == MD_OK, "%s", err.message);
	cr_assert(parts.kernel_count && !parts.graph_count && !parts.content_count, "the head alone");
	cr_assert(md_image_is_stored(&parts.images[1]) && !parts.images[1].data, "stored, and not read");
	cr_assert(!md_image_is_stored(&parts.images[0]), "in a file");
	cr_assert(md_artifact_write(&parts, sample_path("half.medusa"), NULL, &err) != MD_OK, "half an artifact");
	cr_assert(strstr(err.message, "image 1 were not read"), "%s", err.message);
	cr_assert(md_artifact_read_graphs(file, &parts, &err) == MD_OK, "%s", err.message);
	for (uint32_t i = 1; i < parts.image_count; i++) {
		parts.images[i].data = malloc(parts.images[i].size);
		cr_assert(md_artifact_read_image(file, &parts, i, parts.images[i].data, &err) == MD_OK, "%s",
			  err.message);
	}
	cr_assert(md_artifact_read_graphs(file, &parts, &err) == MD_ERR_INVALID, "graphs are read once");
	md_artifact_close(file);
	cr_assert(md_artifact_read(path, &whole, NULL, &err) == MD_OK, "%s", err.message);
	cr_assert(whole.graph_count == parts.graph_count && whole.content_count == parts.content_count, "all of it");
	for (uint32_t i = 1; i < whole.image_count; i++)
		cr_assert(!memcmp(whole.images[i].data, parts.images[i].data, whole.images[i].size), "image %u", i);
	md_artifact_finish(&parts);
	md_artifact_finish(&whole);
}

/* The rest of the file is right: only who reads this image learns of it, and learns which one it is. */
Test(image_frames, should_fail_damaged_frame_is_named)
{
	struct md_artifact artifact;
	struct md_artifact_file *file;
	struct md_error err = {0};
	uint8_t room[1000];
	size_t size;
	const char *path = write_images(NULL);
	uint8_t *data = read_file(path, &size);
	data[size - 1] ^= 1; /* the last frame's: image 3 */
	cr_assert(md_artifact_parse(data, size, &artifact, NULL, &err) == MD_ERR_CORRUPT, "%s", err.message);
	cr_assert(strstr(err.message, "section \"image_data\" at offset") && strstr(err.message, "image 3 ("), "%s",
		  err.message);
	FILE *out = fopen(path, "wb");
	cr_assert(out && fwrite(data, 1, size, out) == size && fclose(out) == 0, "write");
	cr_assert(md_artifact_open(path, &file, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_read_graphs(file, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_read_image(file, &artifact, 1, room, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_read_image(file, &artifact, 3, room, &err) == MD_ERR_CORRUPT, "damaged");
	cr_assert(strstr(err.message, "image 3 (") && strstr(err.message, "checksum differs"), "%s", err.message);
	cr_assert(truncate(path, (off_t)size - 20) == 0, "cut off while it is open");
	cr_assert(md_artifact_read_image(file, &artifact, 3, room, &err) == MD_ERR_TRUNCATED, "cut off");
	md_artifact_finish(&artifact);
	md_artifact_close(file);
	free(data);
}

Test(image_frames, should_fail_image_of_a_hostile_size)
{
	struct md_artifact artifact = {0};
	struct md_image image = {.kind = MD_IMAGE_ELF, .size = 3ull << 30, .frame = {0, 1000, 1}};
	struct md_error err = {0};
	artifact.images = &image;
	artifact.image_count = 1;
	cr_assert_eq(md_image_frames_check(&artifact, 1000, &err), MD_ERR_TOO_LARGE, "%s", err.message);
	cr_assert(strstr(err.message, "image 0 announces 3221225472 bytes out of 1000"), "%s", err.message);
	cr_assert_eq(md_image_frames_check(&artifact, 999, &err), MD_ERR_CORRUPT, "%s", err.message);
	image.size = 60u << 20;
	cr_assert_eq(md_image_frames_check(&artifact, 1000, &err), MD_OK, "%s", err.message);
}
