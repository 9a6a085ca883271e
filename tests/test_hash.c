/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: the published values of XXH3, and a text form that parses back and nothing else. */
#include "base/hash.h"

#include <criterion/criterion.h>
#include <string.h>

/* XXH3-128 and XXH3-64 of no bytes, from the algorithm's specification. */
Test(hash, of_nothing)
{
	struct md_hash hash = md_hash_bytes("", 0);
	char text[MD_HASH_TEXT_BYTES];
	md_hash_format(&hash, text);
	cr_assert_str_eq(text, "99aa06d3014798d86001c324468d497f");
	cr_assert_eq(md_hash_checksum("", 0), 0x2d06800538d394c2u);
}

Test(hash, tells_bytes_apart)
{
	char bytes[1000] = {0};
	struct md_hash before = md_hash_bytes(bytes, sizeof(bytes)), after;
	uint64_t checksum = md_hash_checksum(bytes, sizeof(bytes));
	bytes[999] = 1;
	after = md_hash_bytes(bytes, sizeof(bytes));
	cr_assert_not(md_hash_equal(&before, &after));
	cr_assert_neq(md_hash_checksum(bytes, sizeof(bytes)), checksum);
	cr_assert(md_hash_equal(&before, &before));
}

Test(hash, text_comes_back)
{
	struct md_hash hash = md_hash_bytes("medusa", 6), parsed;
	char text[MD_HASH_TEXT_BYTES];
	md_hash_format(&hash, text);
	cr_assert(md_hash_parse(text, &parsed));
	cr_assert(md_hash_equal(&hash, &parsed));
	cr_assert(md_hash_parse("99AA06D3014798D86001C324468D497F", &parsed), "capitals too");
}

Test(hash, refuses_other_text)
{
	static const char *const texts[] = {
	    "",
	    "9",
	    "99aa06d3014798d86001c324468d497",
	    "99aa06d3014798d86001c324468d497f0",
	    "99aa06d3014798d86001c324468d497g",
	    "99aa06d3014798d8 001c324468d497f",
	};
	struct md_hash parsed = {{5}};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		cr_assert_not(md_hash_parse(texts[i], &parsed), "\"%s\"", texts[i]);
	cr_assert_eq(parsed.bytes[0], 5, "outputs are set on success alone");
}

Test(hash, of_pieces_is_that_of_the_whole)
{
	uint8_t bytes[5000];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	struct md_hash whole = md_hash_bytes(bytes, sizeof(bytes)), pieces;
	for (size_t piece = 1; piece <= sizeof(bytes); piece += 333) {
		struct md_hash_stream *state = md_hash_stream_begin();
		cr_assert(state, "a state");
		for (size_t at = 0; at < sizeof(bytes); at += piece)
			md_hash_stream_add(state, bytes + at, sizeof(bytes) - at < piece ? sizeof(bytes) - at : piece);
		md_hash_stream_finish(state, &pieces);
		cr_assert(md_hash_equal(&whole, &pieces), "in pieces of %zu bytes", piece);
	}
	md_hash_stream_finish(md_hash_stream_begin(), &pieces);
	whole = md_hash_bytes("", 0);
	cr_assert(md_hash_equal(&whole, &pieces), "no bytes");
	md_hash_stream_finish(NULL, &pieces);
}
