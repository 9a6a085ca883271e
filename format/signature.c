/* SPDX-License-Identifier: Apache-2.0 */
/* Ed25519 and BLAKE2b by libsodium, key files, and the list of trusted keys. */
#include "format/signature.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"

/*
 * Only md_secret_key_create calls sodium_init(): it draws random numbers, and ends the process where it cannot. The
 * other functions used here need neither random numbers nor an implementation that is chosen for the processor.
 */

#define PUBLIC_PREFIX "ed25519:"
#define SECRET_PREFIX "ed25519-secret:"
#define SECRET_TEXT_BYTES (sizeof(SECRET_PREFIX) + 2 * (size_t)MD_KEY_BYTES)
#define SECRET_FILE_MAX (2 * SECRET_TEXT_BYTES)
#define TRUST_MAX_BYTES (1u << 20)

_Static_assert(MD_SIGNATURE_BYTES == crypto_sign_BYTES, "signatures");
_Static_assert(MD_KEY_BYTES == crypto_sign_PUBLICKEYBYTES && MD_KEY_BYTES == crypto_sign_SEEDBYTES, "keys");

struct md_digest md_digest_bytes(const void *data, size_t size)
{
	struct md_digest digest;
	crypto_generichash_blake2b(digest.bytes, sizeof(digest.bytes), data, size, NULL, 0);
	return digest;
}

void md_signature_make(const struct md_secret_key *key, const void *message, size_t size,
		       uint8_t out[MD_SIGNATURE_BYTES])
{
	uint8_t public[crypto_sign_PUBLICKEYBYTES], secret[crypto_sign_SECRETKEYBYTES];
	crypto_sign_seed_keypair(public, secret, key->seed);
	crypto_sign_detached(out, NULL, message, size, secret);
	sodium_memzero(secret, sizeof(secret));
}

bool md_signature_verify(const struct md_public_key *key, const void *message, size_t size,
			 const uint8_t signature[MD_SIGNATURE_BYTES])
{
	return crypto_sign_verify_detached(signature, message, size, key->bytes) == 0;
}

/* ---- keys ---- */

struct md_public_key md_secret_key_public(const struct md_secret_key *key)
{
	struct md_public_key public;
	uint8_t secret[crypto_sign_SECRETKEYBYTES];
	crypto_sign_seed_keypair(public.bytes, secret, key->seed);
	sodium_memzero(secret, sizeof(secret));
	return public;
}

bool md_public_key_equal(const struct md_public_key *a, const struct md_public_key *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

void md_public_key_format(const struct md_public_key *key, char text[MD_KEY_TEXT_BYTES])
{
	memcpy(text, PUBLIC_PREFIX, sizeof(PUBLIC_PREFIX));
	sodium_bin2hex(text + strlen(PUBLIC_PREFIX), 2 * MD_KEY_BYTES + 1, key->bytes, MD_KEY_BYTES);
}

/* Exactly the prefix and the digits of MD_KEY_BYTES bytes. */
static bool parse_key(const char *text, size_t size, const char *prefix, uint8_t out[MD_KEY_BYTES])
{
	size_t skip = strlen(prefix), got = 0;
	return size == skip + 2 * (size_t)MD_KEY_BYTES && !memcmp(text, prefix, skip) &&
	       sodium_hex2bin(out, MD_KEY_BYTES, text + skip, size - skip, NULL, &got, NULL) == 0 &&
	       got == MD_KEY_BYTES;
}

/* Exactly the text of a public key, in either case of the digits; size is that of text. */
static bool parse_public_key(const char *text, size_t size, struct md_public_key *key)
{
	return parse_key(text, size, PUBLIC_PREFIX, key->bytes);
}

enum md_status md_secret_key_read(const char *path, struct md_secret_key *out, struct md_error *err)
{
	struct md_public_key public;
	struct md_file_bytes file;
	/* may be a pipe: keys need not lie on a disk */
	MD_FORWARD(md_file_read_stream(path, SECRET_FILE_MAX, &file, err));
	const char *text = (const char *)file.data;
	size_t size = file.size;
	while (size && (text[size - 1] == '\n' || text[size - 1] == '\r'))
		size--;
	bool ok = parse_key(text, size, SECRET_PREFIX, out->seed);
	bool is_public = parse_public_key(text, size, &public);
	sodium_memzero(file.data, SECRET_FILE_MAX + 1);
	md_file_release(&file);
	if (ok)
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "%s: %s", path,
			    is_public ? "this is the public key; the secret one is needed"
				      : "not a secret key of medusa-sign");
}

enum md_status md_secret_key_create(const char *path, struct md_secret_key *out, struct md_error *err)
{
	char text[SECRET_TEXT_BYTES + 1] = SECRET_PREFIX;
	if (sodium_init() < 0)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "libsodium cannot be used on this machine");
	MD_AUTO_FD int fd = -1;
	enum md_status created = md_file_create(path, 0600, &fd, err);
	if (created == MD_ERR_INVALID)
		return md_error_set(err, created, "%s: is there already, and keys are not replaced", path);
	MD_FORWARD(created);
	randombytes_buf(out->seed, sizeof(out->seed));
	size_t skip = strlen(SECRET_PREFIX);
	sodium_bin2hex(text + skip, sizeof(text) - skip, out->seed, sizeof(out->seed));
	text[skip + 2 * (size_t)MD_KEY_BYTES] = '\n';
	enum md_status status = md_file_write(fd, text, strlen(text), path, err);
	if (status == MD_OK && fsync(fd) != 0 && errno != EINVAL)
		status = md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	sodium_memzero(text, sizeof(text));
	if (status != MD_OK)
		unlink(path);
	return status;
}

void md_secret_key_wipe(struct md_secret_key *key)
{
	sodium_memzero(key, sizeof(*key));
}

/* ---- whom to trust ---- */

static bool add_key(struct md_trust *trust, const struct md_public_key *key)
{
	if (!MD_ARRAY_EXTEND(trust->keys, trust->count))
		return false;
	trust->keys[trust->count++] = *key;
	return true;
}

static enum md_status parse_trust(const char *text, size_t size, struct md_trust *trust, struct md_error *err)
{
	unsigned number = 0;
	for (const char *end = text + size, *next; text < end; text = next) {
		const char *newline = memchr(text, '\n', (size_t)(end - text)), *stop = newline ? newline : end;
		struct md_public_key key;
		size_t length = 0;
		next = newline ? newline + 1 : end;
		number++;
		while (text + length < stop && !strchr(" \t\r", text[length]))
			length++;
		if (!length || *text == '#')
			continue;
		if (!parse_public_key(text, length, &key))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "%s: line %u: not a public key (" PUBLIC_PREFIX
					    " and %d hexadecimal digits)",
					    trust->path, number, 2 * MD_KEY_BYTES);
		if (!add_key(trust, &key))
			return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its keys", trust->path);
	}
	return MD_OK;
}

enum md_status md_trust_read(const char *path, struct md_trust *out, struct md_error *err)
{
	struct md_trust trust = {.path = strdup(path)};
	struct md_file_bytes file = {0};
	if (!trust.path)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its path", path);
	enum md_status status = md_file_read(path, TRUST_MAX_BYTES, &file, err);
	if (status == MD_OK)
		status = parse_trust((const char *)file.data, file.size, &trust, err);
	md_file_release(&file);
	if (status == MD_OK)
		*out = trust;
	else
		md_trust_finish(&trust);
	return status;
}

bool md_trust_holds(const struct md_trust *trust, const struct md_public_key *key)
{
	for (uint32_t i = 0; i < trust->count; i++)
		if (md_public_key_equal(&trust->keys[i], key))
			return true;
	return false;
}

void md_trust_finish(struct md_trust *trust)
{
	free(trust->path);
	free(trust->keys);
	*trust = (struct md_trust){0};
}
