/* SPDX-License-Identifier: Apache-2.0 */
/* An artifact's file that stays open and is read in parts, as a cold start does: its head, its graphs, image by image. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/hash.h"
#include "format/artifact/layout.h"

struct md_artifact_file {
	struct md_descriptor file; /* kept open for images, which may be wanted much later */
	char *path;
	bool graphs_read;
	struct md_artifact_reading in;
	uint64_t images_offset;
};

/*
 * Finds the file; the caller closes *opened. The engine may have closed our descriptor, and may have a file of its own
 * under that number. If the path leads to another file by now, that is another artifact.
 */
static enum md_status find_file(const struct md_artifact_file *file, int *opened, int *fd, struct md_error *err)
{
	struct md_descriptor again = MD_DESCRIPTOR_NONE;
	uint64_t size;
	*fd = file->file.fd;
	if (md_descriptor_is_ours(&file->file))
		return MD_OK;
	MD_FORWARD(md_file_open(file->path, UINT64_MAX, opened, &size, err));
	if (!md_descriptor_keep(&again, *opened) || again.device != file->file.device ||
	    again.inode != file->file.inode)
		return md_error_set(err, MD_ERR_IO, "the program closed it, and it is another file now");
	*fd = *opened;
	return MD_OK;
}

enum md_status md_artifact_check_trust(const struct md_artifact_signature *signature, const struct md_trust *trust,
				       struct md_error *err)
{
	char text[MD_KEY_TEXT_BYTES];
	if (!trust)
		return MD_OK;
	if (!signature->present)
		return md_error_set(err, MD_ERR_MISMATCH, "not signed, and only keys in %s are trusted", trust->path);
	if (md_trust_holds(trust, &signature->key))
		return MD_OK;
	md_public_key_format(&signature->key, text);
	return md_error_set(err, MD_ERR_MISMATCH, "signed by %s, which is not in %s", text, trust->path);
}

/* The signer is checked before anything is decompressed. */
static enum md_status read_trusted(struct md_artifact_file *file, uint64_t size, const struct md_trust *trust,
				   struct md_artifact *artifact, struct md_error *err)
{
	const struct md_artifact_row *images = NULL;
	MD_FORWARD(md_artifact_reading_begin(&(struct md_file_source){NULL, file->file.fd, size}, &file->in, err));
	MD_FORWARD(md_artifact_check_trust(&file->in.seal.signature, trust, err));
	MD_FORWARD(md_artifact_reading_head(&file->in, artifact, &images, err));
	file->images_offset = images ? images->offset : 0;
	return MD_OK;
}

enum md_status md_artifact_open_trusted(const char *path, const struct md_trust *trust, struct md_artifact_file **out,
					struct md_artifact *artifact, struct md_error *err)
{
	struct md_artifact_file *file = calloc(1, sizeof(*file));
	struct md_artifact head = {0};
	if (!file || !(file->path = strdup(path))) {
		free(file);
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its path", path);
	}
	uint64_t size = 0;
	int fd = -1;
	file->file = MD_DESCRIPTOR_NONE;
	enum md_status status = md_file_open(path, UINT64_MAX, &fd, &size, err);
	if (status == MD_OK && !md_descriptor_keep(&file->file, fd))
		status = md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	if (status == MD_OK) {
		status = read_trusted(file, size, trust, &head, err);
		if (status != MD_OK)
			md_error_prefix(err, "%s", path);
	}
	if (status != MD_OK) {
		md_artifact_finish(&head);
		md_artifact_close(file);
		return status;
	}
	*out = file;
	*artifact = head;
	return MD_OK;
}

enum md_status md_artifact_open(const char *path, struct md_artifact_file **out, struct md_artifact *artifact,
				struct md_error *err)
{
	return md_artifact_open_trusted(path, NULL, out, artifact, err);
}

enum md_status md_artifact_read_graphs(struct md_artifact_file *file, struct md_artifact *artifact,
				       struct md_error *err)
{
	MD_AUTO_FD int opened = -1;
	enum md_status status = file->graphs_read ? md_error_set(err, MD_ERR_INVALID, "the graphs were read before")
						  : find_file(file, &opened, &file->in.source.fd, err);
	if (status == MD_OK)
		status = md_artifact_reading_graphs(&file->in, artifact, err);
	file->in.source.fd = file->file.fd;
	file->graphs_read = true;
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", file->path);
}

enum md_status md_artifact_read_image(const struct md_artifact_file *file, const struct md_artifact *artifact,
				      uint32_t image, void *out, struct md_error *err)
{
	const struct md_image_frame *frame = &artifact->images[image].frame;
	MD_AUTO_FREE uint8_t *stored = malloc(frame->stored ? frame->stored : 1);
	MD_AUTO_FD int opened = -1;
	int fd = -1;
	enum md_status status = stored ? find_file(file, &opened, &fd, err)
				       : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an image");
	if (status == MD_OK)
		status = md_file_read_at(fd, file->images_offset + frame->offset, stored, frame->stored, err);
	if (status == MD_OK)
		status = md_artifact_check_frame(&file->in, image, stored, frame->stored, err);
	if (status == MD_OK)
		status = md_image_frame_expand(artifact, image, stored, out, err);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", file->path);
}

static enum md_status identify(const struct md_artifact_reading *in, struct md_hash *out, struct md_error *err)
{
	struct md_hash_stream *rows = md_hash_stream_begin();
	if (!rows)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the identity of an artifact");
	for (uint32_t i = 0; i < in->head.count; i++) {
		const struct md_artifact_row *row = &in->rows[i];
		const uint64_t said[] = {htole64(row->stored), htole64(row->raw), htole64(row->checksum)};
		if (!strcmp(row->name, MD_SIGNATURE_SECTION))
			continue;
		md_hash_stream_add(rows, row->name, strlen(row->name) + 1);
		md_hash_stream_add(rows, said, sizeof(said));
	}
	md_hash_stream_finish(rows, out);
	return MD_OK;
}

enum md_status md_artifact_file_identity(const struct md_artifact_file *file, struct md_hash *out, struct md_error *err)
{
	return identify(&file->in, out, err);
}

enum md_status md_artifact_identity(const char *path, struct md_hash *out, struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	struct md_artifact_reading in = {0};
	struct md_file_source source = {NULL, -1, 0};
	MD_FORWARD(md_file_open(path, UINT64_MAX, &fd, &source.size, err));
	source.fd = fd;
	enum md_status status = md_artifact_reading_begin(&source, &in, err);
	if (status != MD_OK)
		md_error_prefix(err, "%s", path);
	else
		status = identify(&in, out, err);
	md_artifact_reading_finish(&in);
	return status;
}

void md_artifact_close(struct md_artifact_file *file)
{
	if (!file)
		return;
	md_artifact_reading_finish(&file->in);
	md_descriptor_drop(&file->file);
	free(file->path);
	free(file);
}
