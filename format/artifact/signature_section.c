/* SPDX-License-Identifier: Apache-2.0 */
/* The section signature: digests of every section and every image's frame, signed together with header and table. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/artifact/layout.h"
#include "base/file.h"

/*
 * The section            0  u32 kind, 1        40  signature, 64 bytes
 *                        4  u32 digests        104  digests, 32 bytes each
 *                        8  public key, 32 bytes
 * What is signed         purpose | header | table | bytes 0 to 7 of the section | digests
 *
 * The row of the section in the table says where it lies and nothing of what it holds, so that it can be signed as
 * well.
 */
#define KIND 1u
#define KEY_AT 8u
#define SIGNATURE_AT 40u
#define DIGESTS_AT 104u

static const char purpose[] = "medusa artifact signature"; /* the NUL is signed too */

/* Two sections have no digest: each image frame has its own, and the signature protects itself. */
static bool is_digested(const struct md_artifact_row *row)
{
	return strcmp(row->name, MD_IMAGE_SECTION) != 0 && strcmp(row->name, MD_SIGNATURE_SECTION) != 0;
}

static void put_message(struct md_buf *out, const uint8_t *head, uint32_t sections, const uint8_t *start,
			const void *digests, size_t digests_size)
{
	md_buf_put(out, purpose, sizeof(purpose));
	md_buf_put(out, head, MD_HEADER_BYTES + (size_t)sections * MD_ROW_BYTES);
	md_buf_put(out, start, KEY_AT);
	md_buf_put(out, digests, digests_size);
}

static enum md_status no_memory(struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a signature");
}

/* ---- writing ---- */

static void put_digests(struct md_buf *out, const struct md_artifact_layout *layout,
			const struct md_image_frame *frames, uint32_t image_count)
{
	const uint8_t *images = NULL;
	for (uint32_t i = 0; i < layout->head.count; i++) {
		const struct md_artifact_row *row = &layout->rows[i];
		struct md_digest digest = {0};
		if (is_digested(row))
			digest = md_digest_bytes(layout->body.data + row->offset, row->stored);
		else if (!strcmp(row->name, MD_IMAGE_SECTION))
			images = layout->body.data + row->offset;
		md_buf_put(out, digest.bytes, sizeof(digest.bytes));
	}
	for (uint32_t i = 0; i < image_count; i++) {
		struct md_digest digest = {0};
		if (frames[i].stored)
			digest = md_digest_bytes(images + frames[i].offset, frames[i].stored);
		md_buf_put(out, digest.bytes, sizeof(digest.bytes));
	}
}

/* The section's place must be in the table before the table is signed. */
static enum md_status append_row(struct md_artifact_layout *layout, uint32_t image_count, struct md_error *err)
{
	if (layout->head.count == MD_ARTIFACT_SECTIONS_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "the file has %u sections already, and no room for a signature",
				    layout->head.count);
	uint64_t digests = (uint64_t)layout->head.count + 1 + image_count,
		 size = DIGESTS_AT + digests * MD_DIGEST_BYTES;
	layout->rows[layout->head.count++] = (struct md_artifact_row){.name = MD_SIGNATURE_SECTION,
								      .offset = layout->body.size,
								      .stored = size,
								      .raw = size,
								      .codec = MD_CODEC_PLAIN};
	return MD_OK;
}

static enum md_status sign(const struct md_buf *message, const struct md_secret_key *key,
			   const struct md_artifact_signature *given, struct md_artifact_signature *out,
			   struct md_error *err)
{
	char text[MD_KEY_TEXT_BYTES];
	if (key) {
		out->key = md_secret_key_public(key);
		md_signature_make(key, message->data, message->size, out->bytes);
		return MD_OK;
	}
	*out = *given;
	if (md_signature_verify(&given->key, message->data, message->size, given->bytes))
		return MD_OK;
	md_public_key_format(&given->key, text);
	return md_error_set(err, MD_ERR_INVALID,
			    "the signature of %s does not match what is written: leave it out, and sign again", text);
}

enum md_status md_artifact_layout_sign(struct md_artifact_layout *layout, const struct md_image_frame *frames,
				       uint32_t image_count, const struct md_secret_key *key,
				       const struct md_artifact_signature *given, struct md_error *err)
{
	struct md_buf section, digests, message;
	struct md_artifact_signature made = {.present = true};
	uint8_t head[MD_HEAD_MAX_BYTES];
	MD_FORWARD(append_row(layout, image_count, err));
	md_buf_init(&section);
	md_buf_init(&digests);
	md_buf_init(&message);
	md_buf_put_u32(&section, KIND);
	md_buf_put_u32(&section, layout->head.count + image_count);
	put_digests(&digests, layout, frames, image_count);
	/* the header holds the file's size, so the body must have its final size first */
	bool grown = md_buf_extend(&layout->body, DIGESTS_AT + digests.size) != NULL;
	md_artifact_layout_head(layout, head);
	if (!section.failed && !digests.failed)
		put_message(&message, head, layout->head.count, section.data, digests.data, digests.size);
	enum md_status status = MD_OK;
	if (!grown || section.failed || digests.failed || message.failed)
		status = no_memory(err);
	else
		status = sign(&message, key, given, &made, err);
	if (status == MD_OK) {
		uint8_t *at = layout->body.data + layout->rows[layout->head.count - 1].offset;
		memcpy(at, section.data, KEY_AT);
		memcpy(at + KEY_AT, made.key.bytes, sizeof(made.key.bytes));
		memcpy(at + SIGNATURE_AT, made.bytes, sizeof(made.bytes));
		memcpy(at + DIGESTS_AT, digests.data, digests.size);
	}
	md_buf_finish(&section);
	md_buf_finish(&digests);
	md_buf_finish(&message);
	return status;
}

/* ---- reading ---- */

enum md_status md_artifact_seal_read(const uint8_t *head, uint32_t sections, const uint8_t *stored, uint64_t size,
				     struct md_artifact_seal *out, struct md_error *err)
{
	struct md_artifact_seal seal = {.signature.present = true};
	struct md_reader in;
	struct md_buf message;
	char text[MD_KEY_TEXT_BYTES];
	md_reader_init(&in, stored, size);
	uint32_t kind = md_reader_u32(&in), count = md_reader_u32(&in);
	if (!in.failed && kind != KIND)
		return md_error_set(err, MD_ERR_VERSION, "signature of kind %u, this reader knows %u", kind, KIND);
	if (in.failed || count < sections || size != DIGESTS_AT + (uint64_t)count * MD_DIGEST_BYTES)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes for %u digests, of %u sections at least",
				    size, count, sections);
	memcpy(seal.signature.key.bytes, stored + KEY_AT, sizeof(seal.signature.key.bytes));
	memcpy(seal.signature.bytes, stored + SIGNATURE_AT, sizeof(seal.signature.bytes));
	seal.digest_count = count;
	seal.digests = malloc((size_t)count * sizeof(*seal.digests) + 1);
	if (!seal.digests)
		return no_memory(err);
	memcpy(seal.digests, stored + DIGESTS_AT, (size_t)count * sizeof(*seal.digests));
	md_buf_init(&message);
	put_message(&message, head, sections, stored, seal.digests, (size_t)count * sizeof(*seal.digests));
	bool failed = message.failed;
	bool fits =
	    !failed && md_signature_verify(&seal.signature.key, message.data, message.size, seal.signature.bytes);
	md_buf_finish(&message);
	if (fits) {
		*out = seal;
		return MD_OK;
	}
	md_artifact_seal_finish(&seal);
	md_public_key_format(&seal.signature.key, text);
	return failed ? no_memory(err)
		      : md_error_set(err, MD_ERR_CORRUPT,
				     "wrong: the file differs from what %s signed, or another key signed it", text);
}

enum md_status md_artifact_seal_check(const struct md_artifact_seal *seal, uint32_t index, const void *data,
				      uint64_t size, struct md_error *err)
{
	char text[MD_KEY_TEXT_BYTES];
	if (!seal->signature.present)
		return MD_OK;
	struct md_digest found = md_digest_bytes(data, size);
	if (index < seal->digest_count && !memcmp(found.bytes, seal->digests[index].bytes, sizeof(found.bytes)))
		return MD_OK;
	md_public_key_format(&seal->signature.key, text);
	return md_error_set(err, MD_ERR_CORRUPT, "not what %s signed", text);
}

void md_artifact_seal_finish(struct md_artifact_seal *seal)
{
	free(seal->digests);
	seal->digests = NULL;
	seal->digest_count = 0;
}

/* ---- signing a file ---- */

/* Copies the sections as they are, including unknown ones, but without an old signature. */
static enum md_status copy_sections(const struct md_artifact_reading *in, struct md_artifact_layout *out,
				    struct md_error *err)
{
	out->head = in->head;
	out->head.count = 0;
	for (uint32_t i = 0; i < in->head.count; i++) {
		const struct md_artifact_row *row = &in->rows[i];
		if (!strcmp(row->name, MD_SIGNATURE_SECTION))
			continue;
		out->rows[out->head.count] = *row;
		out->rows[out->head.count++].offset = out->body.size;
		md_buf_put(&out->body, in->source.data + row->offset, row->stored);
	}
	return out->body.failed ? no_memory(err) : MD_OK;
}

static enum md_status sign_reading(struct md_artifact_reading *in, const char *out_path,
				   const struct md_secret_key *key, struct md_error *err)
{
	struct md_artifact artifact = {0};
	struct md_artifact_layout layout = {0};
	const struct md_artifact_row *images;
	MD_AUTO_FREE struct md_image_frame *frames = NULL;
	md_buf_init(&layout.body);
	enum md_status status = md_artifact_reading_head(in, &artifact, &images, err);
	if (status == MD_OK)
		status = copy_sections(in, &layout, err);
	if (status == MD_OK && !(frames = calloc((size_t)artifact.image_count + 1, sizeof(*frames))))
		status = no_memory(err);
	for (uint32_t i = 0; status == MD_OK && i < artifact.image_count; i++)
		frames[i] = artifact.images[i].frame;
	if (status == MD_OK)
		status = md_artifact_layout_sign(&layout, frames, artifact.image_count, key, NULL, err);
	if (status == MD_OK)
		status = md_artifact_layout_publish(&layout, out_path, true, err);
	md_buf_finish(&layout.body);
	md_artifact_finish(&artifact);
	return status;
}

enum md_status md_artifact_sign(const char *path, const char *out_path, const struct md_secret_key *key,
				struct md_error *err)
{
	struct md_file_bytes file;
	struct md_artifact whole;
	struct md_artifact_reading in = {0};
	MD_AUTO_FREE char *target = realpath(out_path, NULL); /* a link stays a link: its target is replaced */
	/* read into memory, so that the checked bytes are signed */
	MD_FORWARD(md_file_read(path, UINT64_MAX, &file, err));
	/* refuse to sign a file that cannot be read: this checks all of it, with the images */
	enum md_status status = md_artifact_parse(file.data, file.size, &whole, NULL, err);
	if (status == MD_OK) {
		md_artifact_finish(&whole);
		status = md_artifact_reading_begin(&(struct md_file_source){file.data, -1, file.size}, &in, err);
	}
	if (status != MD_OK)
		md_error_prefix(err, "%s", path);
	else
		status = sign_reading(&in, target ? target : out_path, key, err);
	md_artifact_reading_finish(&in);
	md_file_release(&file);
	return status;
}
