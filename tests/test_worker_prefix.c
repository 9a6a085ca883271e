/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes of prompts: their hashes, who is remembered to have computed them, which node is chosen, and what is learned of engines. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/splitmix.h"
#include "scheduler/cluster/prefix_choice.h"
#include "scheduler/cluster/prefix_table.h"
#include "worker/cluster/prefix_text.h"
#include "worker/core/prefill.h"

#define S UINT64_C(1000000000)
#define CHAT "/v1/chat/completions"

static const unsigned char key[MD_PREFIX_KEY_BYTES] = "a key of its own";
static const unsigned char other_key[MD_PREFIX_KEY_BYTES] = "another daemon's";

/* ---- hashes ---- */

static bool read_as(const struct md_prefix_seed *seed, const char *path, const char *body,
		    struct md_prefix_chain *chain)
{
	struct md_body_object object;
	struct md_body_failure failure;
	*chain = (struct md_prefix_chain){.count = 0};
	if (!md_body_scan(body, strlen(body), &object, &failure))
		return false;
	bool read = md_prefix_text_read(path, body, &object, seed, chain);
	md_body_object_finish(&object);
	return read;
}

static bool read_chain(const char *path, const char *body, struct md_prefix_chain *chain)
{
	return read_as(&(struct md_prefix_seed){.key = key, .model = "m", .client = ""}, path, body, chain);
}

/* So many characters, which differ by the seed. For free(). */
static char *make_text(size_t size, uint64_t seed)
{
	char *text = malloc(size + 1);
	cr_assert(text);
	for (size_t i = 0; i < size; i++)
		text[i] = (char)('a' + md_random_next(&seed) % 26);
	text[size] = '\0';
	return text;
}

static char *print(const char *format, const char *a, const char *b, const char *c)
{
	char *made;
	cr_assert(asprintf(&made, format, a, b, c) >= 0);
	return made;
}

static uint32_t common(const struct md_prefix_chain *a, const struct md_prefix_chain *b)
{
	uint32_t i = 0;
	while (i < a->count && i < b->count && a->blocks[i] == b->blocks[i])
		i++;
	return i;
}

static void assert_common(const char *what, const char *one, const char *other, uint32_t least, uint32_t most)
{
	struct md_prefix_chain a, b;
	cr_assert(read_chain(CHAT, one, &a) && read_chain(CHAT, other, &b), "%s", what);
	cr_assert(common(&a, &b) >= least && common(&a, &b) <= most, "%s: %u blocks in common of %u and %u", what,
		  common(&a, &b), a.count, b.count);
}

Test(worker_prefix, a_conversation_goes_on)
{
	char *system = make_text(5000, 1), *question = make_text(3000, 2), *more = make_text(4000, 3);
	static const char first[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},"
				    "{\"role\":\"user\",\"content\":\"%s\"}]%.0s}";
	static const char second[] =
	    "{ \"stream\" : true, \"messages\": [ {\"role\": \"system\", \"content\": \"%s\" },\n"
	    "\t{\"role\":\"user\",\"content\":\"%s\"},\r {\"role\":\"assistant\",\"content\":\"yes\"},"
	    "{\"role\":\"user\",\"content\":\"%s\"}],\"model\":\"m\"}";
	char *a = print(first, system, question, ""), *b = print(second, system, question, more),
	     *c = print(first, system, more, ""), *d = print(first, question, system, "");
	struct md_prefix_chain chain;
	cr_assert(read_chain(CHAT, a, &chain));
	cr_assert_eq(chain.count, 7, "%u", chain.count);
	cr_assert(chain.bytes > 8000 && chain.bytes < 8200, "%llu", (unsigned long long)chain.bytes);
	assert_common("what stands between the same messages does not matter", a, b, 7, 7);
	assert_common("another question behind the same system prompt", a, c, 4, 4);
	assert_common("roles and order matter", a, d, 0, 0);
	char *tools =
		 print("{\"messages\":[{\"role\":\"system\",\"content\":\"%s\"}],\"tools\":[{\"name\":\"%s\"}]%.0s}",
		       system, question, ""),
	     *tools_first =
		 print("{\"tools\":[{\"name\":\"%s\"}],\"messages\":[{\"role\":\"system\",\"content\":\"%s\"}]%.0s}",
		       question, system, "");
	assert_common("tools stand in front, wherever the body has them", tools, tools_first, 7, 7);
	assert_common("other tools", tools, a, 0, 0);
	free(system), free(question), free(more), free(a), free(b), free(c), free(d), free(tools), free(tools_first);
}

/* begun, told: bytes of the messages. */
static void assert_turns(const char *path, const char *body, uint64_t begun, uint64_t told)
{
	char *text = make_text(2000, 9), *padded = print("{\"tools\":[\"%s\"],%s%.0s", text, body, "");
	struct md_prefix_chain chain;
	cr_assert(read_chain(path, padded, &chain), "%s", body);
	uint64_t before =
	    2 + 4 + 2000 + 2; /* the tools, with marks, brackets and quotation marks, and the marks of what follows */
	cr_assert(chain.begun == (begun ? before + begun : 0) && chain.told == (told ? before + told : 0),
		  "%s: %llu, %llu", body, (unsigned long long)(chain.begun - before),
		  (unsigned long long)(chain.told - before));
	free(padded), free(text);
}

Test(worker_prefix, turns_of_a_conversation)
{
	/* {"role":"user"} has 15 bytes, and a bracket or comma stands before it */
	assert_turns(CHAT, "\"messages\":[{\"role\":\"user\"}]}", 16, 0);
	assert_turns(CHAT, "\"messages\":[{\"role\":\"syst\"},{\"role\":\"user\"}]}", 32, 0);
	assert_turns(CHAT, "\"messages\":[{\"role\":\"syst\"},{\"role\":\"user\"},{\"role\":\"assi\"}]}", 32, 33);
	assert_turns(CHAT, "\"messages\": [ {\"role\" :\"us\\u0065r\"},\n{\"role\":\"assi\"}, {\"role\":\"user\"} ] }",
		     16, 33);
	assert_turns(CHAT, "\"messages\":[{\"role\":\"assi\"},{\"role\":\"syst\"}]}", 0, 0);
	assert_turns(CHAT,
		     "\"messages\":[{\"user\":\"role\"},{\"r\":{\"role\":\"user\"}},[\"role\",\"user\"],{\"x\":"
		     "\"role\",\"y\":\"user\"}]}",
		     0, 0);
	assert_turns(CHAT, "\"messages\":\"\\\"role\\\":\\\"user\\\"\"}", 0, 0);
	assert_turns(CHAT, "\"messages\":[{\"role\":[\"user\"]},\"role\",{\"x\":\"\\\\\",\"role\":\"user\"}]}", 49, 0);
	assert_turns("/v1/responses", "\"input\":[{\"role\":\"user\"},{\"type\":\"x\"}]}", 16, 17);
	char *text = make_text(3000, 8);
	static const char talk[] =
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"%s\"}%s]}";
	char *one = print(talk, text, "a", ""), *two = print(talk, text, "b", ""),
	     *later = print(talk, text, "a",
			    ",{\"role\":\"assistant\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"}");
	struct md_prefix_chain chains[3];
	cr_assert(read_chain(CHAT, one, &chains[0]) && read_chain(CHAT, two, &chains[1]) &&
		  read_chain(CHAT, later, &chains[2]));
	cr_assert(chains[0].first != chains[1].first, "two conversations with one system prompt");
	cr_assert_eq(chains[0].first, chains[2].first, "one that has become longer");
	free(text), free(one), free(two), free(later);
}

Test(worker_prefix, escapes_spell_the_same_text)
{
	char *tail = make_text(2200, 4);
	char *plain =
		 print("{\"messages\":[{\"role\":\"user\",\"content\":\"A\xc3\xa4/\xf0\x9f\x98\x80\\n%s\"}]%.0s%.0s}",
		       tail, "", ""),
	     *spelled = print("{\"messages\":[{\"r\\u006fle\":\"us\\u0065r\",\"c\\u006Fntent\":"
			      "\"\\u0041\\u00e4\\/\\ud83d\\ude00\\u000a%s\"}]%.0s%.0s}",
			      tail, "", ""),
	     *key_too = print(
		 "{\"m\\u0065ssages\":[{\"role\":\"user\",\"content\":\"A\xc3\xa4/\xf0\x9f\x98\x80\\n%s\"}]%.0s%.0s}",
		 tail, "", ""),
	     *other =
		 print("{\"messages\":[{\"role\":\"user\",\"content\":\"A\xc3\xa4/\xf0\x9f\x98\x80\\\\n%s\"}]%.0s%.0s}",
		       tail, "", "");
	assert_common("escapes", plain, spelled, 2, 2);
	assert_common("in a name", plain, key_too, 2, 2);
	assert_common("an escaped backslash is another text", plain, other, 0, 0);
	char *quotes = print("{\"messages\":[{\"role\":\"user\",\"content\":\"\\\"},{\\\"role\\\":\\\"user\\\","
			     "\\\"content\\\":\\\"%s\"}]%.0s%.0s}",
			     tail, "", ""),
	     *two = print(
		 "{\"messages\":[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"%s\"}]%.0s%.0s}",
		 tail, "", "");
	assert_common("a text that spells JSON is no JSON", quotes, two, 0, 0);
	char *nothing = print("{\"messages\":[{\"content\":\"\\u0000\\ud800x\\udc00%s\"}]%.0s%.0s}", tail, "", "");
	assert_common("what is no character", nothing, nothing, 2, 2);
	free(tail), free(plain), free(spelled), free(key_too), free(other), free(quotes), free(two), free(nothing);
}

Test(worker_prefix, caches_that_have_nothing_in_common)
{
	char *text = make_text(3000, 5);
	char *body = print("{\"messages\":[{\"content\":\"%s\"}]%.0s%.0s}", text, "", ""),
	     *salted = print("{\"cache_salt\":\"x\",\"messages\":[{\"content\":\"%s\"}]%.0s%.0s}", text, "", "");
	struct md_prefix_chain a, b;
	static const struct md_prefix_seed seeds[] = {
	    {key, "m", ""}, {key, "n", ""}, {key, "m", "t"}, {key, "mt", ""}, {key, "", "mt"}};
	for (size_t i = 0; i < sizeof(seeds) / sizeof(*seeds); i++)
		for (size_t k = 0; k < i; k++) {
			cr_assert(read_as(&seeds[i], CHAT, body, &a) && read_as(&seeds[k], CHAT, body, &b));
			cr_assert(!common(&a, &b) && a.first != b.first, "seeds %zu and %zu", i, k);
		}
	assert_common("a salt", body, salted, 0, 0);
	cr_assert(read_as(&seeds[0], "/v1/messages", body, &a) && read_chain(CHAT, body, &b));
	cr_assert(!common(&a, &b), "another API has another template");
	cr_assert(read_as(&(struct md_prefix_seed){other_key, "m", ""}, CHAT, body, &a));
	cr_assert(!common(&a, &b) && a.first == b.first, "daemons have the rank in common, and nothing else");
	free(text), free(body), free(salted);
}

Test(worker_prefix, each_api_has_its_prompt)
{
	char *text = make_text(3000, 6);
	static const struct {
		const char *path, *format;
		bool read;
	} cases[] = {
	    {"/v1/completions", "{\"prompt\":\"%s\"}", true},
	    {"/completion", "{\"prompt\":\"%s\"}", true},
	    {"/completion", "{\"prompt\":\"%s\",\"cache_prompt\":false}", false},
	    {"/v1/completions", "{\"messages\":\"%s\"}", false},
	    {"/v1/responses", "{\"input\":\"%s\"}", true},
	    {"/v1/responses", "{\"instructions\":\"%s\"}", true},
	    {"/v1/responses", "{\"input\":\"%s\",\"previous_response_id\":null}", true},
	    {"/v1/responses", "{\"input\":\"%s\",\"previous_response_id\":\"r\"}", false},
	    {"/v1/responses", "{\"input\":\"%s\",\"conversation\":{\"id\":1}}", false},
	    {"/v1/messages", "{\"system\":\"%s\",\"messages\":[]}", true},
	    {CHAT, "{\"messages\":\"%s\"}", true}, /* the engine refuses it, and then nothing is noted */
	    {CHAT, "{\"messages\":null,\"other\":\"%s\"}", false},
	    {"/v1/embeddings", "{\"input\":\"%s\"}", false},
	    {"/v1/chat/completions/", "{\"messages\":\"%s\"}", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *body = print(cases[i].format, text, "", "");
		struct md_prefix_chain chain;
		cr_assert_eq(read_chain(cases[i].path, body, &chain), cases[i].read, "%s: %.60s", cases[i].path, body);
		cr_assert(!cases[i].read || chain.count == 2, "%s: %u blocks", cases[i].path, chain.count);
		free(body);
	}
	free(text);
}

Test(worker_prefix, tokens_are_a_prompt)
{
	struct md_buf one = {0}, two = {0};
	md_buf_put(&one, "{\"prompt\":[", 11);
	md_buf_put(&two, "{\"prompt\": [ ", 13);
	for (unsigned i = 0; i < 1000; i++) {
		char number[16];
		md_buf_put(&one, number, (size_t)snprintf(number, sizeof(number), "%s%u", i ? "," : "", i * 17));
		md_buf_put(&two, number, (size_t)snprintf(number, sizeof(number), "%s%u", i ? ", " : "", i * 17));
	}
	md_buf_put(&one, "]}", 3);
	md_buf_put(&two, ",9\n]}", 6);
	struct md_prefix_chain a, b;
	cr_assert(read_chain("/v1/completions", (char *)one.data, &a) &&
		  read_chain("/v1/completions", (char *)two.data, &b));
	cr_assert(a.count >= 4 && common(&a, &b) == a.count, "%u of %u", common(&a, &b), a.count);
	md_buf_finish(&one);
	md_buf_finish(&two);
}

Test(worker_prefix, hostile_bodies_are_bounded)
{
	struct md_prefix_chain chain;
	size_t size = 8u << 20;
	char *text = make_text(size, 7), *body = print("{\"messages\":[{\"content\":\"%s\"}]%.0s%.0s}", text, "", "");
	cr_assert(read_chain(CHAT, body, &chain));
	cr_assert(chain.count == MD_PREFIX_BLOCKS && chain.bytes >= size && chain.bytes < size + 100,
		  "%u blocks, %llu bytes", chain.count, (unsigned long long)chain.bytes);
	cr_assert_eq(md_prefix_text_bytes(MD_PREFIX_BLOCKS), MD_PREFIX_BYTES);
	free(body);
	memset(text, ' ', size);
	body = print("{\"messages\":[%s{\"content\":\"x\"}]%.0s%.0s}", text, "", "");
	cr_assert_not(read_chain(CHAT, body, &chain), "white space is no prompt");
	free(body);
	memset(text, '[', 9000);
	memset(text + 9000, ']', 9000);
	text[18000] = '\0';
	body = print("{\"messages\":%s%.0s%.0s}", text, "", "");
	cr_assert(read_chain(CHAT, body, &chain) && chain.count == 16, "brackets are of the prompt: %u", chain.count);
	free(body);
	for (size_t i = 0; i + 6 <= size; i += 6)
		memcpy(text + i, "\\ud83d", 6);
	text[size / 6 * 6] = '\0';
	body = print("{\"messages\":[\"%s\"]%.0s%.0s}", text, "", "");
	cr_assert(read_chain(CHAT, body, &chain) && chain.count < MD_PREFIX_BLOCKS,
		  "escapes are looked at up to a bound");
	free(body);
	free(text);
	struct md_buf many = {0};
	md_buf_put(&many, "{", 1);
	for (unsigned i = 0; i < 4000; i++) {
		char member[64];
		md_buf_put(&many, member, (size_t)snprintf(member, sizeof(member), "\"\\u006dessages%u\":\"x\",", i));
	}
	md_buf_put(&many, "\"messages\":[]}", 15);
	cr_assert_not(read_chain(CHAT, (char *)many.data, &chain), "no block");
	md_buf_finish(&many);
	static const char *const broken[] = {
	    "", "{", "{\"messages\":[", "{\"messages\":[\"\\u00", "[]", "{\"messages\":\"\\ud83d", "{}"};
	for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++)
		cr_assert_not(read_chain(CHAT, broken[i], &chain), "%s", broken[i]);
}

/* Every text that is cut off anywhere is refused by the scan, and nothing is read behind any that is not. */
Test(worker_prefix, drawn_bodies)
{
	static const char *const pieces[] = {
	    "\"a\"",       "\\", "\"",   "[",           "]", "{", "}", ":", ",", "1", "\"\\ud83d\\ude00\"",
	    "\"\\u00e4\"", " ",  "null", "\"messages\""};
	uint64_t random = 11;
	for (unsigned round = 0; round < 20000; round++) {
		char body[400] = "{\"messages\":", *copy;
		unsigned count = (unsigned)(md_random_next(&random) % 12);
		for (unsigned i = 0; i < count; i++)
			strncat(body, pieces[md_random_next(&random) % (sizeof(pieces) / sizeof(*pieces))], 20);
		if (md_random_next(&random) % 2)
			strncat(body, "}", 2);
		cr_assert(copy = strdup(body)); /* so that a sanitizer knows its end */
		struct md_prefix_chain chain;
		read_chain(CHAT, copy, &chain);
		free(copy);
	}
}

/* ---- who has what ---- */

static uint32_t blocks_of(const struct md_prefix_table *table, const uint64_t *chain, uint32_t count, uint32_t holder,
			  uint64_t now)
{
	struct md_prefix_hit hits[MD_PREFIX_HITS];
	uint32_t hit_count = md_prefix_table_look(table, chain, count, now, hits);
	for (uint32_t i = 0; i < hit_count; i++)
		if (hits[i].holder == holder)
			return hits[i].blocks;
	return 0;
}

Test(worker_prefix, the_longest_prefix_of_each_holder)
{
	struct md_prefix_table *table = md_prefix_table_create(1000, 60 * S);
	static const uint64_t a[] = {1, 2, 3, 4}, b[] = {1, 2, 30, 40, 50};
	cr_assert(table);
	cr_assert_eq(blocks_of(table, a, 4, 7, 5 * S), 0);
	md_prefix_table_note(table, a, 4, 7, 5 * S);
	md_prefix_table_note(table, b, 5, 8, 6 * S);
	md_prefix_table_note(table, b, 3, 9, 7 * S);
	cr_assert_eq(blocks_of(table, a, 4, 7, 8 * S), 4);
	cr_assert_eq(blocks_of(table, a, 4, 8, 8 * S), 2);
	cr_assert_eq(blocks_of(table, b, 5, 7, 8 * S), 2);
	cr_assert_eq(blocks_of(table, b, 5, 9, 8 * S), 3);
	cr_assert_eq(blocks_of(table, b + 1, 4, 9, 8 * S), 2,
		     "whoever asks for blocks that follow each other gets them");
	cr_assert_eq(blocks_of(table, a, 4, 7, 66 * S), 0, "it counts no more");
	cr_assert_eq(blocks_of(table, b, 5, 8, 66 * S), 5);
	md_prefix_table_note(table, a, 2, 7, 66 * S);
	cr_assert_eq(blocks_of(table, a, 4, 7, 67 * S), 2, "a part was computed anew");
	for (uint32_t holder = 10; holder < 30; holder++)
		md_prefix_table_note(table, a, 4, holder, (68 + holder) * S);
	cr_assert_eq(blocks_of(table, a, 4, 29, 100 * S), 4);
	cr_assert_eq(blocks_of(table, a, 4, 10, 100 * S), 0, "of many holders, the last ones are remembered");
	cr_assert_eq(md_prefix_table_used(table), 7);
	md_prefix_table_destroy(table);
}

Test(worker_prefix, the_table_is_bounded)
{
	struct md_prefix_table *table = md_prefix_table_create(100, 60 * S);
	uint64_t often[10], chain[10];
	for (unsigned i = 0; i < 10; i++)
		often[i] = 1000000 + i;
	for (uint64_t round = 0; round < 2000; round++) {
		for (unsigned i = 0; i < 10; i++)
			chain[i] = round * 10 + i;
		md_prefix_table_note(table, chain, 10, 1, round);
		md_prefix_table_note(table, often, 10, 2, round);
		cr_assert(md_prefix_table_used(table) <= 100);
		cr_assert_eq(blocks_of(table, chain, 10, 1, round), 10);
	}
	cr_assert_eq(blocks_of(table, often, 10, 2, 2000), 10, "what is used stays");
	for (unsigned i = 0; i < 10; i++)
		chain[i] = i;
	cr_assert_eq(blocks_of(table, chain, 10, 1, 2000), 0, "what was used longest ago went");
	md_prefix_table_destroy(table);
	table = md_prefix_table_create(4, 60 * S);
	md_prefix_table_note(table, often, 10, 2, 5);
	cr_assert_eq(blocks_of(table, often, 10, 2, 6), 4, "of a chain, the beginning stays");
	md_prefix_table_destroy(table);
	md_prefix_table_destroy(NULL);
}

/* ---- which node ---- */

#define BYTE_S 1e-5 /* 10 ms for a KB */

static struct md_prefix_candidate node_of(double seconds, double cached, uint32_t load, uint64_t rank)
{
	return (struct md_prefix_candidate){
	    .seconds = seconds, .cached = cached, .load = load, .rank = rank, .prefill_s = BYTE_S};
}

static void assert_chosen(const char *what, uint32_t wanted, struct md_prefix_candidate *list, uint32_t count,
			  const struct md_prefix_prompt *prompt)
{
	uint32_t chosen = md_prefix_choose(list, count, prompt);
	cr_assert_eq(chosen, wanted, "%s: %d", what, (int)chosen);
}
#define TURN(what, wanted, prompt, ...)                                                                                \
	do {                                                                                                           \
		struct md_prefix_candidate list_[] = {__VA_ARGS__};                                                    \
		assert_chosen(what, wanted, list_, sizeof(list_) / sizeof(*list_), prompt);                            \
	} while (0)
#define CHOSEN(what, wanted, bytes, ...) TURN(what, wanted, (&(struct md_prefix_prompt){bytes, 0, 0}), __VA_ARGS__)

Test(worker_prefix, it_goes_where_it_pays)
{
	CHOSEN("where all of it is cached", 1, 20000, node_of(0.1, 0, 0, 9), node_of(0.1, 20000, 0, 1),
	       node_of(0.1, 10000, 0, 5));
	CHOSEN("nobody has it: the rank decides", 2, 20000, node_of(0.1, 0, 0, 1), node_of(0.1, 0, 0, 2),
	       node_of(0.1, 0, 0, 3));
	CHOSEN("told times differ by one step", 1, 20000, node_of(0.1, 0, 0, 1), node_of(0.125, 0, 0, 3));
	CHOSEN("a queue costs less than the prefix", 1, 20000, node_of(0.1, 0, 0, 9), node_of(0.15, 20000, 8, 1));
	CHOSEN("a queue costs more", 0, 20000, node_of(0.1, 0, 0, 1), node_of(0.9, 20000, 8, 9));
	CHOSEN("a node that has to load the model", 1, 20000, node_of(5, 20000, 0, 9), node_of(0.1, 0, 0, 1));
	CHOSEN("one that has far more requests than another", 1, 1000, node_of(0.1, 0, 4, 9), node_of(0.1, 0, 0, 1));
	CHOSEN("one that has a few more", 0, 1000, node_of(0.1, 0, 3, 9), node_of(0.1, 0, 0, 1));
	CHOSEN("twice as many, of many", 0, 1000, node_of(0.1, 0, 23, 9), node_of(0.1, 0, 10, 1));
	CHOSEN("a node that is not asked unless nobody else is there", 1, 20000, node_of(1e6, 20000, 0, 9),
	       node_of(3, 0, 0, 1));
	CHOSEN("and nobody else is there", 0, 20000, node_of(1e6, 0, 0, 9));
	CHOSEN("nothing is worth it", MD_PREFIX_NOBODY, 400, node_of(0.1, 400, 0, 9), node_of(0.1, 0, 0, 1));
	CHOSEN("more is cached than there is", 0, 20000, node_of(0.1, 1e9, 0, 1), node_of(0.1, 20000, 0, 0));
	CHOSEN("no seconds are below nothing", 1, 20000, node_of(0.02, 1e9, 0, 1), node_of(0.001, 20000, 0, 2));
	cr_assert_eq(md_prefix_choose(NULL, 0, &(struct md_prefix_prompt){.bytes = 1e6}), MD_PREFIX_NOBODY);
}

Test(worker_prefix, a_conversation_that_goes_on_where_nobody_knows_of_it)
{
	const struct md_prefix_prompt first = {20000, 20000, 0}, second = {20000, 6000, 18000};
	struct md_prefix_candidate off = node_of(0.1, 0, 0, 9);
	off.uncached = true;
	TURN("a system prompt, where others have asked for it", 0, &first, node_of(0.1, 5000, 0, 1),
	     node_of(0.1, 0, 0, 9));
	TURN("later, where it has probably begun", 1, &second, node_of(0.1, 5000, 0, 1), node_of(0.1, 0, 0, 9));
	TURN("unless it is known to be elsewhere", 0, &second, node_of(0.1, 12000, 0, 1), node_of(0.1, 0, 0, 9));
	TURN("or that node is busy", 0, &second, node_of(0.1, 5000, 0, 1), node_of(0.5, 0, 4, 9));
	struct md_prefix_candidate away = node_of(5, 0, 0, 9);
	away.away = true;
	TURN("nor has one without the model", 1, &second, away, node_of(4, 0, 0, 8), node_of(4, 5000, 0, 1));
	CHOSEN("a load is as without prompts", MD_PREFIX_NOBODY, 20000, away, away);
	TURN("one that keeps nothing has nothing", 1, &second, off, node_of(0.1, 0, 0, 8), node_of(0.1, 5000, 0, 1));
}

Test(worker_prefix, engines_that_cache_nothing_or_are_unknown)
{
	struct md_prefix_candidate unknown = node_of(0.1, 0, 0, 9), off = node_of(0.1, 20000, 0, 9);
	unknown.prefill_s = 0;
	off.uncached = true;
	CHOSEN("one that nobody has measured is as fast as the others", 0, 20000, unknown, node_of(0.1, 0, 0, 1));
	CHOSEN("nobody is measured", MD_PREFIX_NOBODY, 20000, unknown, unknown);
	CHOSEN("one that caches nothing has nothing", 1, 20000, off, node_of(0.1, 5000, 0, 1));
	CHOSEN("nobody caches anything", MD_PREFIX_NOBODY, 20000, off, off);
	CHOSEN("of equal ones, one that caches", 1, 20000, off, node_of(0.1, 0, 0, 1));
	struct md_prefix_candidate far_off = node_of(0.1, 0, 0, 5), long_prompts = node_of(2, 0, 0, 9),
				   new_one = node_of(1, 0, 0, 8);
	far_off.prefill_s = 1;
	CHOSEN("one node's odd number counts for little", 1, 20000, node_of(0.1, 1000, 0, 1), node_of(0.1, 2000, 0, 1),
	       far_off);
	far_off.cached = 14000;
	CHOSEN("so it gets requests yet", 2, 20000, node_of(0.1, 1000, 0, 1), node_of(0.1, 2000, 0, 1), far_off);
	long_prompts.first_s = 2;
	long_prompts.rest_s = 0.1;
	CHOSEN("the prompts that a node had before are not this one's", 0, 20000, long_prompts, node_of(0.1, 0, 0, 1));
	new_one.first_s = 1;
	long_prompts.rank = 3;
	CHOSEN("also where it is not known how much of it they were", 1, 20000, long_prompts, new_one);
}

/* Whatever nodes there are: the chosen one is never later than the best one without a prefix, by more than what counts as equal. */
Test(worker_prefix, drawn_nodes)
{
	uint64_t random = 3;
	for (unsigned round = 0; round < 20000; round++) {
		struct md_prefix_candidate list[8];
		uint32_t count = 1 + (uint32_t)(md_random_next(&random) % 8);
		double bytes = (double)(md_random_next(&random) % 200000), best = 1e30;
		for (uint32_t i = 0; i < count; i++) {
			list[i] = node_of((double)(md_random_next(&random) % 100) / 50,
					  (double)(md_random_next(&random) % 300000),
					  (uint32_t)(md_random_next(&random) % 20), md_random_next(&random));
			double cached = list[i].cached < bytes ? list[i].cached : bytes;
			double seconds = list[i].seconds + BYTE_S * (bytes - cached);
			best = seconds < best ? seconds : best;
		}
		uint32_t at = md_prefix_choose(list, count, &(struct md_prefix_prompt){.bytes = bytes});
		if (at == MD_PREFIX_NOBODY) {
			cr_assert(bytes * BYTE_S < 0.005);
			continue;
		}
		double cached = list[at].cached < bytes ? list[at].cached : bytes;
		cr_assert(list[at].seconds + BYTE_S * (bytes - cached) <= best * 1.5 + 0.0050001);
	}
}

/* ---- what is learned ---- */

static void ask(struct md_prefill *prefill, double bytes, double seconds)
{
	md_prefill_note(prefill, &(struct md_prefill_request){.bytes = bytes, .seconds = seconds});
}

Test(worker_prefix, seconds_for_a_byte)
{
	struct md_prefill prefill = {.byte_s = 0};
	uint64_t random = 5;
	for (unsigned i = 0; i < 7; i++)
		ask(&prefill, 1000.0 * (i + 1), 0.05 + 1e-6 * 1000 * (i + 1));
	cr_assert_eq(prefill.byte_s, 0, "too few");
	for (unsigned i = 0; i < 60; i++) {
		double bytes = (double)(md_random_next(&random) % 60000);
		bool late = md_random_next(&random) % 8 == 0; /* the engine had something else to do */
		ask(&prefill, bytes, 0.05 + 1e-6 * bytes + (late ? 3 : 0));
	}
	cr_assert_float_eq(prefill.byte_s, 1e-6, 3e-7, "%g", prefill.byte_s);
	cr_assert_float_eq(prefill.rest_s, 0.05, 0.02, "%g", prefill.rest_s);
	struct md_prefill same = {.byte_s = 0}, falling = {.byte_s = 0};
	for (unsigned i = 0; i < 60; i++) {
		ask(&same, 5000 + i, 0.05 + 0.001 * (i % 7));
		ask(&falling, 5000 * (double)(i % 9), 1 - 0.1 * (i % 9));
	}
	cr_assert_eq(same.byte_s, 0, "prompts of one length say nothing");
	cr_assert_eq(falling.byte_s, 0, "no prompt saves time by its length");
}

/* All have one system prompt: nothing but what comes after it is ever computed, if the engine keeps it. */
Test(worker_prefix, seconds_for_a_byte_where_all_have_a_prefix)
{
	for (int kept = 0; kept < 2; kept++) {
		struct md_prefill prefill = {.byte_s = 0};
		for (unsigned i = 0; i < 40; i++) {
			double bytes = 20000 + 1000 * (double)(i % 10);
			md_prefill_note(&prefill, &(struct md_prefill_request){
						      .bytes = bytes,
						      .cached = 20000,
						      .seconds = 0.05 + 1e-6 * (bytes - (kept ? 20000 : 0))});
		}
		cr_assert_float_eq(prefill.byte_s, 1e-6, 1e-8, "%g", prefill.byte_s);
		cr_assert(!prefill.uncached && !prefill.is_sure);
		for (unsigned i = 0; i < 12; i++)
			ask(&prefill, 3000 * (double)(i + 1), 0.05 + 1e-5 * 3000 * (i + 1));
		cr_assert(prefill.is_sure && prefill.byte_s > 9e-6, "what is sure counts rather: %g", prefill.byte_s);
	}
}

static void expect(struct md_prefill *prefill, double cached, double seconds, double told_part, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		md_prefill_note(prefill, &(struct md_prefill_request){.bytes = 20000,
								      .cached = cached,
								      .seconds = seconds,
								      .told = told_part >= 0,
								      .told_part = told_part < 0 ? 0 : told_part});
}

Test(worker_prefix, an_engine_that_caches_nothing)
{
	struct md_prefill prefill = {.byte_s = 0};
	expect(&prefill, 10000, 0, 0, 7);
	expect(&prefill, 10000, 0, 0.4, 1);
	expect(&prefill, 10000, 0, 0, 7);
	cr_assert_not(prefill.uncached, "once it had something");
	expect(&prefill, 1000, 0, 0, 20);
	expect(&prefill, 0, 0, 0, 20);
	cr_assert_not(prefill.uncached, "nothing was expected");
	expect(&prefill, 10000, 0, 0, 1);
	cr_assert(prefill.uncached, "8 times in a row");
	expect(&prefill, 10000, 0, 0, 100);
	expect(&prefill, 0, 0, 0.1, 1);
	cr_assert_not(prefill.uncached, "it has something");
	expect(&prefill, 10000, 0, 0, 8);
	cr_assert(prefill.uncached);
	md_prefill_begin_life(&prefill);
	cr_assert_not(prefill.uncached, "another engine");
}

Test(worker_prefix, an_engine_that_tells_nothing_is_known_by_its_times)
{
	struct md_prefill prefill = {.byte_s = 0};
	for (unsigned i = 0; i < 40; i++)
		ask(&prefill, 1000.0 * (i % 20), 0.05 + 1e-5 * 1000 * (i % 20));
	cr_assert_float_eq(prefill.byte_s, 1e-5, 1e-7);
	expect(&prefill, 15000, 0.05 + 0.05, -1, 50);
	cr_assert_not(prefill.uncached, "it is as fast as with a cache");
	cr_assert_float_eq(prefill.byte_s, 1e-5, 1e-7, "which says nothing of a byte that is computed");
	expect(&prefill, 15000, 0, -1, 50);
	cr_assert_not(prefill.uncached, "nothing is known of the time");
	expect(&prefill, 15000, 0.05 + 0.2, -1, 8);
	cr_assert(prefill.uncached, "it is as slow as without");
	expect(&prefill, 15000, 0.05 + 0.05, -1, 1);
	cr_assert_not(prefill.uncached);
}
