/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: any bytes as the body of a request. What jansson takes is taken, a refusal says why; a change of the text
 * means what the same change of jansson's tree means, and one that meets nothing leaves every byte as it was.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "worker/cluster/prefix_text.h"
#include "worker/core/body_edit.h"
#include "worker/core/rewrite.h"

bool fuzz_accepted;

static void check_members(const char *text, size_t size, const struct md_body_object *object)
{
	size_t last = object->open;
	for (uint32_t i = 0; i < object->count; i++) {
		const struct md_body_member *member = &object->members[i];
		FUZZ_REQUIRE(member->key > last && text[member->key - 1] == '"' &&
				 text[member->key + member->key_size] == '"',
			     "a name is not in its marks");
		FUZZ_REQUIRE(member->value > member->key + member->key_size && member->value_size, "a value");
		last = member->value + member->value_size;
	}
	FUZZ_REQUIRE(object->close >= last && object->close < size && text[object->close] == '}', "no end");
}

/* The changed text, or NULL: the object holds one with too many members. */
static char *change(struct md_body_edit *edit, const char *text, size_t size, const struct md_body_object *object,
		    size_t *changed_size)
{
	struct md_body_failure failure;
	struct md_buf out;
	md_buf_init(&out);
	bool done = md_body_edit_apply(edit, text, size, object, &out, &failure);
	FUZZ_REQUIRE(done || strstr(failure.why, "4,096"), "a change failed: %s", failure.why);
	*changed_size = out.size;
	md_buf_put_u8(&out, 0);
	if (done)
		return (char *)out.data;
	md_buf_finish(&out);
	return NULL;
}

static void check_untouched(const char *text, size_t size, const struct md_body_object *object)
{
	struct md_body_edit edit = {0};
	size_t changed_size;
	FUZZ_REQUIRE(md_body_edit_remove(&edit, "no such name"), "memory");
	char *changed = change(&edit, text, size, object, &changed_size);
	FUZZ_REQUIRE(changed && changed_size == size && !memcmp(changed, text, size), "bytes have changed");
	free(changed);
	md_body_edit_finish(&edit);
}

static void check_changed(const char *text, size_t size, const struct md_body_object *object)
{
	struct md_body_edit edit = {0};
	size_t changed_size;
	json_t *set = json_pack("{s:[i], s:s}", "kept", 1, "model", "m");
	/* the same of a tree, which cannot have a name twice */
	json_t *tree = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	FUZZ_REQUIRE(md_body_edit_remove(&edit, "a") && md_body_edit_remove(&edit, "e.a") &&
			 md_body_edit_set(&edit, "e.b", json_object_get(set, "kept")) &&
			 md_body_edit_set(&edit, "model", json_object_get(set, "model")),
		     "memory");
	char *changed = change(&edit, text, size, object, &changed_size);
	if (changed && tree) {
		if (!json_is_object(json_object_get(tree, "e")))
			json_object_set_new(tree, "e", json_object());
		json_object_del(tree, "a");
		json_object_del(json_object_get(tree, "e"), "a");
		json_object_set(json_object_get(tree, "e"), "b", json_object_get(set, "kept"));
		json_object_set(tree, "model", json_object_get(set, "model"));
		json_t *again = json_loadb(changed, changed_size, JSON_REJECT_DUPLICATES, NULL);
		FUZZ_REQUIRE(again && json_equal(again, tree), "the change means something else: %s", changed);
		json_decref(again);
	}
	free(changed);
	json_decref(tree);
	json_decref(set);
	md_body_edit_finish(&edit);
}

/* Whatever prompt it may be. */
static void check_prompt(const char *text, size_t size, const struct md_body_object *object)
{
	static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"};
	static const unsigned char key[MD_PREFIX_KEY_BYTES] = "key";
	const struct md_prefix_seed seed = {.key = key, .model = "m", .client = ""};
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct md_prefix_chain chain;
		bool read = md_prefix_text_read(paths[i], text, object, &seed, &chain);
		FUZZ_REQUIRE(read == (chain.count != 0) && chain.count <= MD_PREFIX_BLOCKS, "%u blocks", chain.count);
		FUZZ_REQUIRE(md_prefix_text_bytes(chain.count) <= chain.bytes && chain.bytes <= 2 * size + 20,
			     "%u blocks of %llu bytes", chain.count, (unsigned long long)chain.bytes);
		FUZZ_REQUIRE(chain.begun <= chain.bytes && chain.told <= chain.bytes &&
				 (!chain.told || chain.begun < chain.told),
			     "turns");
	}
}

static void check(const char *text, size_t size)
{
	struct md_body_object object;
	struct md_body_failure failure;
	struct md_rewrite_body body;
	fuzz_accepted = md_body_scan(text, size, &object, &failure);
	json_t *tree = json_loadb(text, size, 0, NULL);
	FUZZ_REQUIRE(fuzz_accepted || (failure.at <= size && failure.why), "refused without a reason");
	FUZZ_REQUIRE(fuzz_accepted || !json_is_object(tree) || strstr(failure.why, "4,096"), "refused: %s",
		     failure.why);
	json_decref(tree);
	if (md_rewrite_read(text, size, &body)) {
		FUZZ_REQUIRE(fuzz_accepted, "read what is no object");
		md_rewrite_finish(&body);
	}
	if (!fuzz_accepted)
		return;
	check_members(text, size, &object);
	check_untouched(text, size, &object);
	check_changed(text, size, &object);
	check_prompt(text, size, &object);
	md_body_object_finish(&object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	FUZZ_REQUIRE(text, "memory");
	memcpy(text, data, size);
	text[size] = '\0';
	check(text, size);
	free(text);
	return 0;
}
