/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: what is read, what is assumed, what is refused and how the message says so. */
#include "models/llama/gguf.c"
#include "models/llama/recipe.c"

#include <criterion/criterion.h>
#include <glob.h>

#define BASE                                                                                                           \
	"hidden_size: 64\nintermediate_size: 160\nlayers: 2\nheads: 4\nkv_heads: 2\nhead_dim: 16\nvocabulary: 256\n"

Test(recipe, reads_keys_and_defaults)
{
	static const char text[] =
	    "# a comment\n" BASE "\nrope_theta: 5e5   # with a comment\ntie_embeddings: true\r\n";
	struct llama_shape shape;
	struct md_error err = {0};
	cr_assert_eq(recipe_parse(text, sizeof(text) - 1, "r", &shape, &err), MD_OK, "%s", err.message);
	cr_assert_eq(shape.hidden_size, 64);
	cr_assert_eq(shape.vocabulary, 256);
	cr_assert_eq(shape.rope_theta, 5e5);
	cr_assert_eq(shape.tie_embeddings, 1);
	cr_assert_eq(shape.block_size, 16, "the default");
	cr_assert_eq(shape.rope_interleaved, 0, "the default");
}

Test(recipe, needs_no_newline_at_the_end)
{
	static const char text[] = BASE "max_context: 77";
	struct llama_shape shape;
	cr_assert_eq(recipe_parse(text, sizeof(text) - 1, "r", &shape, NULL), MD_OK);
	cr_assert_eq(shape.max_context, 77);
}

/* What transformers' models need beyond this decoder's shape is no business of this engine. */
Test(recipe, passes_over_keys_for_transformers)
{
	static const char text[] = BASE "transformers_model_type: falcon\ntransformers_layers: 9\n";
	struct llama_shape shape;
	struct md_error err = {0};
	cr_assert_eq(recipe_parse(text, sizeof(text) - 1, "r", &shape, &err), MD_OK, "%s", err.message);
	cr_assert_eq(shape.layers, 2);
}

static const struct {
	const char *text, *words;
} refused[] = {
    {"hidden_size: 64\n", "r: intermediate_size is missing"},
    {BASE "colour: 3\n", "r:8: unknown key \"colour\""},
    {BASE "transformers: 3\n", "r:8: unknown key \"transformers\""},
    {BASE "layers: 3\n", "r:8: layers is given twice"},
    {BASE "max_context: many\n", "r:8: \"many\" is not a number"},
    {BASE "max_context:\n", "r:8: a value of 0 characters"},
    {BASE "max_context: 1e9\n", "r:8: max_context is 1e+09, it must be an integer"},
    {BASE "max_context: 100.5\n", "r:8: max_context is 100.5, it must be an integer"},
    {BASE "max_context: nan\n", "r:8: max_context is"},
    {BASE "rope_theta: -1\n", "r:8: rope_theta is -1"},
    {BASE "just words\n", "r:8: not a \"key: value\" line"},
    {BASE " block_size: 8\n", "r:8: not a \"key: value\" line"},
    {"hidden_size: 64\nintermediate_size: 160\nlayers: 2\nheads: 4\nkv_heads: 3\nhead_dim: 16\nvocabulary: 256\n",
     "r: heads is 4, not a multiple of kv_heads 3"},
    {"hidden_size: 64\nintermediate_size: 160\nlayers: 2\nheads: 4\nkv_heads: 2\nhead_dim: 15\nvocabulary: 256\n",
     "r: head_dim is 15, it must be even"},
    {"hidden_size: 65536\nintermediate_size: 160\nlayers: 2\nheads: 4\nkv_heads: 2\nhead_dim: 16\nvocabulary: 65536\n",
     "more than 2^31 elements"},
};

Test(recipe, should_fail)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct llama_shape shape = {.layers = -5};
		struct md_error err = {0};
		cr_assert_neq(recipe_parse(refused[i].text, strlen(refused[i].text), "r", &shape, &err), MD_OK,
			      "case %zu was taken", i);
		cr_assert(strstr(err.message, refused[i].words), "case %zu: \"%s\" does not say \"%s\"", i, err.message,
			  refused[i].words);
		cr_assert_eq(shape.layers, -5, "case %zu: outputs are set on success alone", i);
	}
}

/* The recipes lie in the source tree; tests are run from its root. */
Test(recipe, all_recipes_of_the_tree_are_good)
{
	glob_t found;
	cr_assert_eq(glob("models/recipes/*.yaml", 0, NULL, &found), 0,
		     "no recipes: run the test from the root of the tree");
	cr_assert_geq(found.gl_pathc, 13);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct llama_shape shape;
		struct md_error err = {0};
		cr_assert_eq(recipe_load(found.gl_pathv[i], &shape, &err), MD_OK, "%s", err.message);
	}
	globfree(&found);
}
