/* SPDX-License-Identifier: Apache-2.0 */
/* Signed artifacts: what the key's owner wrote is read, and nothing else, whatever bit is changed and whoever signs. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "format/artifact/layout.h"
#include "base/file.h"
#include "tests/artifact_samples.h"

static char folder[64], plain[96], sealed[96], again[96], keys[96];
static const struct md_secret_key ours = {{1, 2, 3}}, theirs = {{9}};

static void setup(void)
{
	strcpy(folder, "/tmp/medusa-signed-XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(plain, sizeof(plain), "%s/plain.medusa", folder);
	snprintf(sealed, sizeof(sealed), "%s/sealed.medusa", folder);
	snprintf(again, sizeof(again), "%s/again.medusa", folder);
	snprintf(keys, sizeof(keys), "%s/keys", folder);
}

static void teardown(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	cr_assert(system(command) == 0, "clean up");
}

TestSuite(signature_section, .init = setup, .fini = teardown);

static void write_plain(void)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	cr_assert(md_artifact_write(&artifact, plain, NULL, &err) == MD_OK, "write: %s", err.message);
	md_artifact_finish(&artifact);
}

static void sign(const char *from, const char *to, const struct md_secret_key *key)
{
	struct md_error err = {0};
	cr_assert(md_artifact_sign(from, to, key, &err) == MD_OK, "sign: %s", err.message);
}

static uint8_t *slurp(const char *path, size_t *size)
{
	struct md_file_bytes map;
	cr_assert(md_file_read(path, UINT64_MAX, &map, NULL) == MD_OK, "map %s", path);
	uint8_t *copy = malloc(map.size);
	memcpy(copy, map.data, map.size);
	*size = map.size;
	md_file_release(&map);
	return copy;
}

static void spill(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	cr_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size, "write %s", path);
	close(fd);
}

static void assert_same_files(const char *a, const char *b)
{
	size_t size_a, size_b;
	uint8_t *data_a = slurp(a, &size_a), *data_b = slurp(b, &size_b);
	cr_assert(size_a == size_b && !memcmp(data_a, data_b, size_a), "%s and %s differ", a, b);
	free(data_a);
	free(data_b);
}

static void trust_key(const struct md_secret_key *key, struct md_trust *trust)
{
	char line[128] = "", text[MD_KEY_TEXT_BYTES];
	struct md_error err = {0};
	struct md_public_key public = md_secret_key_public(key);
	md_public_key_format(&public, text);
	snprintf(line, sizeof(line), "# whom we trust\n\n%s the build machine\r\n", text);
	spill(keys, line, strlen(line));
	cr_assert(md_trust_read(keys, trust, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(trust->count, 1, "%u keys", trust->count);
}

/* All of it, as restore reads it: head, graphs, images. */
static enum md_status read_parts(const char *path, const struct md_trust *trust, struct md_error *err)
{
	struct md_artifact_file *file;
	struct md_artifact artifact;
	MD_FORWARD(md_artifact_open_trusted(path, trust, &file, &artifact, err));
	enum md_status status = md_artifact_read_graphs(file, &artifact, err);
	for (uint32_t i = 0; status == MD_OK && i < artifact.image_count; i++) {
		uint8_t *out = malloc(artifact.images[i].size);
		if (md_image_is_stored(&artifact.images[i]))
			status = md_artifact_read_image(file, &artifact, i, out, err);
		free(out);
	}
	md_artifact_close(file);
	md_artifact_finish(&artifact);
	return status;
}

static void assert_refused(const char *path, const struct md_trust *trust, enum md_status expected, const char *part)
{
	struct md_error err = {0};
	cr_assert_eq(read_parts(path, trust, &err), expected, "not refused for \"%s\": \"%s\"", part, err.message);
	cr_assert(strstr(err.message, part), "\"%s\" lacks \"%s\"", err.message, part);
	cr_assert(strstr(err.message, path), "\"%s\" names no file", err.message);
}

Test(signature_section, a_signed_file_is_read_and_says_by_whom)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	struct md_trust trust;
	struct md_public_key public = md_secret_key_public(&ours);
	write_plain();
	sign(plain, sealed, &ours);
	cr_assert(md_artifact_read(sealed, &artifact, NULL, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.signature.present && md_public_key_equal(&artifact.signature.key, &public), "our key");
	cr_assert_eq(artifact.graph_count, 4, "the graphs are there");
	md_artifact_finish(&artifact);
	trust_key(&ours, &trust);
	cr_assert(read_parts(sealed, &trust, &err) == MD_OK, "%s", err.message);
	cr_assert(read_parts(sealed, NULL, &err) == MD_OK, "without a policy too: %s", err.message);
	md_trust_finish(&trust);
}

Test(signature_section, signing_changes_nothing_else)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	write_plain();
	sign(plain, sealed, &theirs);
	sign(sealed, again, &ours);
	sign(plain, sealed, &ours);
	assert_same_files(sealed, again);
	/* and reading and writing gives the same file */
	cr_assert(md_artifact_read(sealed, &artifact, NULL, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_write(&artifact, again, NULL, &err) == MD_OK, "%s", err.message);
	assert_same_files(sealed, again);
	artifact.signature.present = false;
	cr_assert(md_artifact_write(&artifact, again, NULL, &err) == MD_OK, "%s", err.message);
	assert_same_files(plain, again);
	md_artifact_finish(&artifact);
}

Test(signature_section, should_fail_what_the_policy_does_not_allow)
{
	struct md_trust trust, other, none = {.path = keys};
	struct md_public_key public = md_secret_key_public(&ours);
	char text[MD_KEY_TEXT_BYTES];
	write_plain();
	sign(plain, sealed, &ours);
	trust_key(&ours, &trust);
	assert_refused(plain, &trust, MD_ERR_MISMATCH, "not signed, and only keys in ");
	assert_refused(plain, &trust, MD_ERR_MISMATCH, keys);
	trust_key(&theirs, &other);
	md_public_key_format(&public, text);
	assert_refused(sealed, &other, MD_ERR_MISMATCH, text);
	assert_refused(sealed, &other, MD_ERR_MISMATCH, keys);
	assert_refused(sealed, &none, MD_ERR_MISMATCH, "which is not in");
	md_trust_finish(&trust);
	md_trust_finish(&other);
}

Test(signature_section, should_fail_every_flipped_bit)
{
	size_t size;
	struct md_trust trust;
	write_plain();
	sign(plain, sealed, &ours);
	trust_key(&ours, &trust);
	uint8_t *data = slurp(sealed, &size);
	for (size_t bit = 0; bit < size * 8; bit += 1 + bit % 5) {
		struct md_error err = {0};
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		spill(again, data, size);
		cr_assert(read_parts(again, &trust, &err) != MD_OK, "bit %zu of %zu flipped unnoticed", bit, size * 8);
		cr_assert(strstr(err.message, again), "bit %zu: which file? %s", bit, err.message);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free(data);
	md_trust_finish(&trust);
}

/* ---- forgery: checksums are mended, as an attacker would ---- */

static uint8_t *row_of(uint8_t *data, const char *name)
{
	uint32_t count;
	memcpy(&count, data + 32, 4);
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp((char *)data + MD_HEADER_BYTES + (size_t)i * MD_ROW_BYTES, name))
			return data + MD_HEADER_BYTES + (size_t)i * MD_ROW_BYTES;
	cr_assert(false, "no section %s", name);
	return NULL;
}

static uint64_t get_u64(const uint8_t *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof(value));
	return value;
}

static void mend_head(uint8_t *data)
{
	uint32_t count;
	memcpy(&count, data + 32, 4);
	uint64_t checksum = md_artifact_head_checksum(data, count);
	memcpy(data + 56, &checksum, 8);
}

/* Puts the bytes of another file's section in place; both must be of one size. */
static void swap_section(uint8_t *data, const uint8_t *other, const char *name, bool with_row)
{
	uint8_t *row = row_of(data, name), *from = row_of((uint8_t *)other, name);
	cr_assert_eq(get_u64(row + 24), get_u64(from + 24), "sizes of %s", name);
	memcpy(data + get_u64(row + 16), other + get_u64(from + 16), get_u64(row + 24));
	if (with_row)
		memcpy(row + 40, from + 40, 8);
	mend_head(data);
}

/* Another artifact of the same size, with other content. */
static void write_other(const char *path, uint8_t content, uint8_t image)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	artifact.contents[0].data[7] ^= content;
	artifact.images[1].data[500] ^= image;
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "write: %s", err.message);
	md_artifact_finish(&artifact);
}

Test(signature_section, should_fail_a_forged_section)
{
	size_t size, other_size;
	struct md_trust trust;
	write_other(plain, 1, 0);
	sign(plain, sealed, &ours);
	uint8_t *data = slurp(sealed, &size);
	write_other(plain, 2, 0);
	sign(plain, sealed, &ours);
	uint8_t *other = slurp(sealed, &other_size);
	trust_key(&ours, &trust);
	cr_assert_eq(size, other_size, "made to be of one size");
	swap_section(data, other, "contents", true);
	spill(again, data, size);
	assert_refused(again, &trust, MD_ERR_CORRUPT, "section \"signature\" at offset");
	assert_refused(again, NULL, MD_ERR_CORRUPT,
		       "wrong: the file differs from what ed25519:"); /* without a policy too */
	free(data);
	free(other);
	md_trust_finish(&trust);
}

/* Header and table are signed ones; XXH3 is no obstacle to who looks for other bytes of the same checksum. */
Test(signature_section, should_fail_bytes_with_the_right_checksum)
{
	size_t size;
	struct md_error err = {0};
	struct md_artifact_seal seal;
	write_plain();
	sign(plain, sealed, &ours);
	uint8_t *data = slurp(sealed, &size), *row = row_of(data, "signature");
	uint32_t count;
	memcpy(&count, data + 32, 4);
	cr_assert(md_artifact_seal_read(data, count, data + get_u64(row + 16), get_u64(row + 24), &seal, &err) == MD_OK,
		  "%s", err.message);
	const uint8_t *first = data + get_u64(data + 64 + 16);
	uint64_t first_size = get_u64(data + 64 + 24);
	cr_assert(md_artifact_seal_check(&seal, 0, first, first_size, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(md_artifact_seal_check(&seal, 0, first, first_size - 1, &err), MD_ERR_CORRUPT, "cut");
	cr_assert(strstr(err.message, "not what ed25519:"), "%s", err.message);
	cr_assert_eq(md_artifact_seal_check(&seal, 1, first, first_size, &err), MD_ERR_CORRUPT, "another section's");
	cr_assert_eq(md_artifact_seal_check(&seal, seal.digest_count, first, first_size, &err), MD_ERR_CORRUPT, "none");
	md_artifact_seal_finish(&seal);
	free(data);
}

/* A frame of a forged image fits its size, its own checksum and the table; the section images is the signed one's. */
Test(signature_section, should_fail_a_forged_image)
{
	size_t size;
	struct md_artifact artifact;
	struct md_artifact_file *file;
	struct md_error err = {0};
	uint8_t out[1000];
	write_plain();
	sign(plain, sealed, &ours);
	uint8_t *data = slurp(sealed, &size), *row = row_of(data, "image_data");
	data[get_u64(row + 16) + get_u64(row + 24) / 2] ^= 1;
	spill(again, data, size);
	cr_assert(md_artifact_open(again, &file, &artifact, &err) == MD_OK, "images are not read: %s", err.message);
	cr_assert(md_artifact_read_graphs(file, &artifact, &err) == MD_OK, "%s", err.message);
	/* whoever forges finds a frame of that checksum: let it be one */
	artifact.images[1].frame.checksum = md_hash_checksum(data + get_u64(row + 16) + artifact.images[1].frame.offset,
							     artifact.images[1].frame.stored);
	cr_assert_eq(md_artifact_read_image(file, &artifact, 1, out, &err), MD_ERR_CORRUPT, "the digest tells");
	cr_assert(strstr(err.message, "image 1: not what ed25519:"), "%s", err.message);
	md_artifact_close(file);
	md_artifact_finish(&artifact);
	free(data);
}

/* ---- the section itself ---- */

static void assert_spoiled(size_t at, uint32_t value, const char *message)
{
	size_t size;
	uint8_t *data = slurp(sealed, &size);
	memcpy(data + get_u64(row_of(data, "signature") + 16) + at, &value, sizeof(value));
	spill(again, data, size);
	struct md_error err = {0};
	cr_assert(read_parts(again, NULL, &err) != MD_OK, "%zu spoiled unnoticed", at);
	cr_assert(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
	free(data);
}

Test(signature_section, should_fail_a_bad_section)
{
	write_plain();
	sign(plain, sealed, &ours);
	assert_spoiled(0, 7, "signature of kind 7, this reader knows 1");
	assert_spoiled(4, 3, "for 3 digests");
	assert_spoiled(4, UINT32_MAX, "for 4294967295 digests");
	assert_spoiled(8, 7, "wrong: the file differs from what ed25519:07000000");
	assert_spoiled(40, 7, "wrong:");
	assert_spoiled(104, 7, "wrong:");
}

Test(signature_section, should_fail_to_write_another_artifact_with_it)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	write_plain();
	sign(plain, sealed, &ours);
	cr_assert(md_artifact_read(sealed, &artifact, NULL, &err) == MD_OK, "%s", err.message);
	artifact.graphs[0].nodes[0].grid[0]++;
	cr_assert_eq(md_artifact_write(&artifact, again, NULL, &err), MD_ERR_INVALID, "it says something else");
	cr_assert(strstr(err.message, "does not match what is written"), "%s", err.message);
	cr_assert(access(again, F_OK) != 0, "nothing is written");
	md_artifact_finish(&artifact);
}

Test(signature_section, should_fail_to_sign_what_cannot_be_read)
{
	size_t size;
	struct md_error err = {0};
	write_plain();
	uint8_t *data = slurp(plain, &size);
	data[get_u64(row_of(data, "image_data") + 16) + 1] ^= 1;
	spill(plain, data, size);
	cr_assert_eq(md_artifact_sign(plain, sealed, &ours, &err), MD_ERR_CORRUPT, "a damaged image");
	cr_assert(strstr(err.message, plain), "%s", err.message);
	cr_assert(access(sealed, F_OK) != 0, "nothing is written");
	free(data);
}

Test(signature_section, without_images_too)
{
	struct md_artifact artifact = {0};
	struct md_error err = {0};
	struct md_trust trust;
	cr_assert(md_artifact_write(&artifact, plain, NULL, &err) == MD_OK, "%s", err.message);
	sign(plain, sealed, &ours);
	trust_key(&ours, &trust);
	cr_assert(read_parts(sealed, &trust, &err) == MD_OK, "%s", err.message);
	md_trust_finish(&trust);
}

/* ---- keys ---- */

static void assert_bad_keys(const char *text, const char *message)
{
	struct md_trust trust;
	struct md_error err = {0};
	spill(keys, text, strlen(text));
	cr_assert(md_trust_read(keys, &trust, &err) != MD_OK, "accepted, but: %s", message);
	cr_assert(strstr(err.message, keys) && strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message,
		  message);
}

#define DIGITS "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"

Test(signature_section, should_fail_bad_lists_of_keys)
{
	struct md_trust trust;
	struct md_error err = {0};
	assert_bad_keys("ed25519:0102\n", "line 1: not a public key");
	assert_bad_keys("# a\ned25519:" DIGITS "\nrsa:" DIGITS "\n", "line 3: not a public key");
	assert_bad_keys("ed25519:" DIGITS "00\n", "line 1: not a public key");
	assert_bad_keys("ed25519-secret:" DIGITS "\n", "line 1: not a public key");
	assert_bad_keys("ed25519:g" DIGITS, "line 1: not a public key");
	unlink(keys);
	cr_assert_eq(md_trust_read(keys, &trust, &err), MD_ERR_NOT_FOUND, "%s", err.message);
	spill(keys, "", 0);
	cr_assert(md_trust_read(keys, &trust, &err) == MD_OK && trust.count == 0, "an empty list trusts nobody");
	md_trust_finish(&trust);
}

Test(signature_section, secret_keys_are_for_their_owner_alone)
{
	struct md_secret_key made, read;
	struct md_error err = {0};
	struct stat info;
	cr_assert(md_secret_key_create(again, &made, &err) == MD_OK, "%s", err.message);
	cr_assert(stat(again, &info) == 0 && (info.st_mode & 0777) == 0600, "mode %o", info.st_mode & 0777);
	cr_assert(md_secret_key_read(again, &read, &err) == MD_OK, "%s", err.message);
	cr_assert(!memcmp(&made, &read, sizeof(made)), "the same key");
	cr_assert_eq(md_secret_key_create(again, &made, &err), MD_ERR_INVALID, "never replaced: %s", err.message);
	spill(keys, "ed25519:" DIGITS "\n", strlen("ed25519:" DIGITS "\n"));
	cr_assert_eq(md_secret_key_read(keys, &read, &err), MD_ERR_INVALID, "%s", err.message);
	cr_assert(strstr(err.message, "this is the public key"), "%s", err.message);
}

/* RFC 8032, section 7.1, test 2: what others sign and check is the same. */
Test(signature_section, is_the_ed25519_of_the_standard)
{
	static const struct md_secret_key key = {{0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3,
						  0x46, 0xec, 0x11, 0x4e, 0x0f, 0x5b, 0x8a, 0x31, 0x9f, 0x35, 0xab,
						  0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed, 0x4f, 0xb8, 0xa6, 0xfb}};
	struct md_public_key public = md_secret_key_public(&key);
	char text[MD_KEY_TEXT_BYTES];
	uint8_t signature[MD_SIGNATURE_BYTES];
	md_public_key_format(&public, text);
	cr_assert_str_eq(text, "ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
	md_signature_make(&key, "\x72", 1, signature);
	cr_assert(signature[0] == 0x92 && signature[1] == 0xa0 && signature[63] == 0x00, "%02x%02x..%02x", signature[0],
		  signature[1], signature[63]);
	cr_assert(md_signature_verify(&public, "\x72", 1, signature), "it fits");
	cr_assert(!md_signature_verify(&public, "\x73", 1, signature), "another message");
}

/* ---- time ---- */

static double open_ms(const char *path, const struct md_trust *trust)
{
	double best = 1e9;
	for (int i = 0; i < 20; i++) {
		struct md_artifact_file *file;
		struct md_artifact artifact;
		struct md_error err = {0};
		uint64_t start = md_clock_ns();
		cr_assert(md_artifact_open_trusted(path, trust, &file, &artifact, &err) == MD_OK, "%s", err.message);
		cr_assert(md_artifact_read_graphs(file, &artifact, &err) == MD_OK, "%s", err.message);
		double ms = (double)(md_clock_ns() - start) / 1e6;
		best = ms < best ? ms : best;
		md_artifact_close(file);
		md_artifact_finish(&artifact);
	}
	return best;
}

/* With 32 MiB of images that nobody loads. */
Test(signature_section, costs_a_cold_start_little)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	struct md_trust trust;
	uint64_t state = 1;
	large_artifact(&artifact);
	artifact.image_count = 4;
	artifact.images = sample_array(4, sizeof(*artifact.images));
	for (uint32_t i = 0; i < 4; i++) {
		artifact.images[i] = (struct md_image){.kind = MD_IMAGE_ELF, .size = 8 << 20};
		artifact.images[i].data = malloc(8 << 20);
		artifact.images[i].hash.bytes[0] = (uint8_t)i;
		for (uint32_t k = 0; k < 8 << 20; k += 8) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			memcpy(artifact.images[i].data + k, &state, 8);
		}
	}
	cr_assert(md_artifact_write(&artifact, plain, NULL, &err) == MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
	sign(plain, sealed, &ours);
	trust_key(&ours, &trust);
	double without = open_ms(plain, NULL), with = open_ms(sealed, &trust);
	printf("open and graphs: %.3f ms, signed %.3f ms\n", without, with);
#ifndef MD_SANITIZED
	cr_assert(with - without < 5, "%.3f ms more", with - without);
#endif
	md_trust_finish(&trust);
}
