/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/prefix_text.h"

#include <sodium.h>
#include <string.h>

#include "base/hash.h"
#include "worker/core/body_text.h"
#include "worker/core/json_plain.h"

#define GROW_AFTER 16u
#define BLOCK_MAX ((size_t)MD_PREFIX_BLOCK << (MD_PREFIX_BLOCKS / GROW_AFTER - 1))
#define MEMBERS_MAX 8u
#define WALK_MAX (4u * MD_PREFIX_BYTES) /* bytes of a body, with white space and escapes, of which no block is full */

/* Bytes that no UTF-8 has, so that no prompt can spell them. */
#define MARK_NOTHING 0xfdu /* an escape that means no character */
#define MARK_MEMBER 0xfeu
#define MARK_TEXT 0xffu

static const unsigned char shared_key[MD_PREFIX_KEY_BYTES] = "medusa-prefixes";

struct walk {
	const struct md_prefix_seed *seed;
	struct md_prefix_chain *chain;
	unsigned char block[sizeof(uint64_t) + BLOCK_MAX]; /* the hash of what came before it, and then the block */
	size_t used, room;                                 /* without that hash */
	uint64_t shared;                                   /* as the hash before the first block is on all nodes */
	size_t left;                                       /* bytes of the body that may still be looked at */
	uint64_t first;                                    /* of the beginning of the conversation; 0: it is none */
};

/* ---- paths, and what of their bodies is the prompt ---- */

/* In the order in which engines put it into the prompt. */
static const struct {
	const char *path;
	const char *members[MEMBERS_MAX];
} prompts[] = {
    {"/v1/chat/completions", {"tools", "functions", "documents", "chat_template_kwargs", "messages"}},
    {"/v1/completions", {"prompt"}},
    {"/completion", {"prompt"}},
    {"/v1/responses", {"instructions", "tools", "input"}},
    {"/v1/messages", {"tools", "system", "messages"}},
};

static const char *const *members_of(const char *path)
{
	for (size_t i = 0; i < sizeof(prompts) / sizeof(*prompts); i++)
		if (!strcmp(prompts[i].path, path))
			return prompts[i].members;
	return NULL;
}

bool md_prefix_text_has_prompt(const char *path)
{
	return members_of(path) != NULL;
}

static const struct md_body_member *find(const char *text, const struct md_body_object *object, const char *name)
{
	for (uint32_t i = 0; i < object->count; i++)
		if (md_body_text_is(text + object->members[i].key, object->members[i].key_size, name))
			return &object->members[i];
	return NULL;
}

static bool is_word(const char *text, const struct md_body_member *member, const char *word)
{
	return member && member->value_size == strlen(word) && !memcmp(text + member->value, word, member->value_size);
}

/* What the engine keeps of an earlier answer comes before what the body says; and a prompt that is not to be kept is not looked for. */
static bool is_left_alone(const char *text, const struct md_body_object *object)
{
	static const char *const earlier[] = {"previous_response_id", "conversation"};
	for (size_t i = 0; i < sizeof(earlier) / sizeof(*earlier); i++) {
		const struct md_body_member *member = find(text, object, earlier[i]);
		if (member && !is_word(text, member, "null"))
			return true;
	}
	return is_word(text, find(text, object, "cache_prompt"), "false");
}

/* ---- hashes ---- */

static uint64_t hash(const unsigned char *key, const void *bytes, size_t size)
{
	unsigned char out[crypto_shorthash_BYTES];
	uint64_t number;
	crypto_shorthash(out, bytes, size, key);
	memcpy(&number, out, sizeof(number));
	return number;
}

static uint64_t hash_text(const unsigned char *key, uint64_t before, const char *text)
{
	struct {
		uint64_t before, text;
	} both = {before, hash(key, text, strlen(text))};
	return hash(key, &both, sizeof(both));
}

static uint64_t begin(const unsigned char *key, const struct md_prefix_seed *seed, const char *path)
{
	return hash_text(key, hash_text(key, hash_text(key, 0, seed->model), seed->client), path);
}

static size_t room_of(uint32_t block)
{
	return (size_t)MD_PREFIX_BLOCK << (block / GROW_AFTER);
}

uint64_t md_prefix_text_bytes(uint32_t blocks)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < blocks; i++)
		bytes += room_of(i);
	return bytes;
}

static void end_block(struct walk *walk)
{
	struct md_prefix_chain *chain = walk->chain;
	uint64_t made = hash(walk->seed->key, walk->block, sizeof(uint64_t) + walk->used);
	if (!chain->count) {
		memcpy(walk->block, &walk->shared, sizeof(uint64_t));
		chain->first = hash(shared_key, walk->block, sizeof(uint64_t) + walk->used);
	}
	chain->blocks[chain->count++] = made;
	memcpy(walk->block, &made, sizeof(made));
	walk->used = 0;
	walk->room = chain->count < MD_PREFIX_BLOCKS ? room_of(chain->count) : 0;
}

static void put(struct walk *walk, const void *bytes, size_t size)
{
	const unsigned char *at = bytes;
	walk->chain->bytes += size;
	while (size && walk->room) {
		size_t part = size < walk->room - walk->used ? size : walk->room - walk->used;
		memcpy(walk->block + sizeof(uint64_t) + walk->used, at, part);
		walk->used += part;
		at += part;
		size -= part;
		if (walk->used == walk->room)
			end_block(walk);
	}
}

static void put_byte(struct walk *walk, unsigned char byte)
{
	put(walk, &byte, 1);
}

/* ---- values, which are valid JSON: strings as they are meant, without white space between ---- */

/* Behind the character that an escape at `at` means. */
static const char *put_escape(struct walk *walk, const char *at, const char *end)
{
	char bytes[4];
	size_t size = md_body_text_take(&at, end, bytes);
	if (size)
		put(walk, bytes, size);
	else
		put_byte(walk, MARK_NOTHING);
	return at;
}

/* From a quotation mark to behind the other one; NULL: no block is left. */
static const char *put_text(struct walk *walk, const char *at, const char *end)
{
	put_byte(walk, MARK_TEXT);
	for (at++; walk->room && at < end;) {
		const char *from = at;
		for (at = md_json_plain_skip(at, end); at < end && *at != '"' && *at != '\\'; at++)
			;
		put(walk, from, (size_t)(at - from));
		if (at < end && *at == '\\') {
			at = put_escape(walk, at, end);
		} else if (at < end) {
			put_byte(walk, MARK_TEXT);
			return at + 1;
		}
	}
	return NULL;
}

static bool is_space(char byte)
{
	return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* What no block has counts as it stands there. */
static void put_value(struct walk *walk, const char *at, const char *end)
{
	struct md_prefix_chain *chain = walk->chain;
	uint64_t before = chain->bytes, size = (uint64_t)(end - at);
	while (at && at < end && walk->room) {
		const char *from = at;
		while (at < end && *at != '"' && !is_space(*at))
			at++;
		put(walk, from, (size_t)(at - from));
		if (at < end && *at == '"')
			at = put_text(walk, at, end);
		else
			at++;
	}
	if (!walk->room && chain->bytes - before < size)
		chain->bytes = before + size;
}

/* ---- conversations ---- */

/* In an array of messages. */
struct turns {
	const char *first_end;  /* behind the first one of a user; NULL: there is none */
	const char *last_begin; /* NULL: there is no message */
};

/* Behind the text whose quotation mark is at `at`. */
static const char *skip_text(const char *at, const char *end)
{
	for (at++; at < end;
	     at += 2) { /* behind an escape's first two bytes, which is where it ends, or digits follow */
		for (at = md_json_plain_skip(at, end); at < end && *at != '"' && *at != '\\'; at++)
			;
		if (at < end && *at == '"')
			return at + 1;
	}
	return end;
}

/* A text among a message's own members: "role", and then "user". */
static void note_role(const char *at, const char *behind, bool key, bool *role, bool *user)
{
	size_t size = (size_t)(behind - at) - 2;
	if (key)
		*role = size < 32 && md_body_text_is(at + 1, size, "role");
	else if (*role)
		*user = size < 32 && md_body_text_is(at + 1, size, "user");
}

static void find_turns(const char *at, const char *end, struct turns *turns)
{
	bool key = false, role = false, user = false; /* key: a name comes next */
	unsigned depth = 0;
	while (at < end) {
		if (*at == '"') {
			const char *behind = skip_text(at, end);
			if (depth == 2 && behind < end)
				note_role(at, behind, key, &role, &user);
			key = false;
			at = behind;
			continue;
		}
		if ((*at == '{' || *at == '[') && ++depth == 2) {
			turns->last_begin = at;
			role = user = false;
		}
		key = depth == 2 && (*at == '{' || *at == ',' || (key && *at != ':'));
		if ((*at == '}' || *at == ']') && --depth == 1 && user && !turns->first_end)
			turns->first_end = at + 1;
		at++;
	}
}

/* By what a conversation begins with, however long it has become, it is told from others with the same system prompt. */
static void put_turns(struct walk *walk, const char *from, const char *end)
{
	struct md_prefix_chain *chain = walk->chain;
	struct turns turns = {.first_end = NULL};
	if (*from == '[')
		find_turns(from, end, &turns);
	if (!turns.first_end) {
		put_value(walk, from, end);
		return;
	}
	struct {
		uint64_t before, text;
	} both = {walk->shared, md_hash_checksum(from, (size_t)(turns.first_end - from))};
	walk->first = hash(shared_key, &both, sizeof(both));
	put_value(walk, from, turns.first_end);
	chain->begun = chain->bytes;
	if (turns.last_begin < turns.first_end) {
		put_value(walk, turns.first_end, end);
		return;
	}
	put_value(walk, turns.first_end, turns.last_begin);
	chain->told = chain->bytes;
	put_value(walk, turns.last_begin, end);
}

static void put_member(struct walk *walk, const char *text, const struct md_body_member *member, size_t which)
{
	if (!member || is_word(text, member, "null"))
		return;
	const char *from = text + member->value;
	size_t size = member->value_size < walk->left ? member->value_size : walk->left;
	put_byte(walk, MARK_MEMBER);
	put_byte(walk, (unsigned char)which);
	put_turns(walk, from, from + size);
	walk->left -= size;
	walk->chain->bytes += member->value_size - size;
}

bool md_prefix_text_read(const char *path, const char *text, const struct md_body_object *object,
			 const struct md_prefix_seed *seed, struct md_prefix_chain *chain)
{
	const char *const *members = members_of(path);
	struct walk walk = {.seed = seed, .chain = chain, .room = room_of(0), .left = WALK_MAX};
	chain->count = 0;
	chain->bytes = chain->begun = chain->told = 0;
	if (!members || is_left_alone(text, object))
		return false;
	uint64_t before = begin(seed->key, seed, path);
	memcpy(walk.block, &before, sizeof(before));
	walk.shared = begin(shared_key, seed, path);
	put_member(&walk, text, find(text, object, "cache_salt"), MEMBERS_MAX);
	for (size_t i = 0; i < MEMBERS_MAX && members[i]; i++)
		put_member(&walk, text, find(text, object, members[i]), i);
	if (walk.first)
		chain->first = walk.first;
	return chain->count;
}
