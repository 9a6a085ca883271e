/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's configuration of models whose files travel between nodes. */
#include "tests/worker_config_fixture.h"

#define STORE "medusa: {cluster: {store: /s, key_file: k}}\n"
#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

Test(worker_config_content, where_engines_find_files)
{
	const struct md_worker_config *config = read_config(
	    STORE "models: {org/m: {cmd: \"serve ${PORT} --model ${content}/w\", medusa: {artifact: /a/x.medusa, "
		  "files: [/b/w/, /a/x.medusa], content: " HASH "}},\n"
		  "plain: {cmd: \"serve ${PORT}\", medusa: {artifact: /a/x.medusa}},\n"
		  "mine: {cmd: \"serve ${PORT} ${content}\", macros: {content: here}}}\n");
	const struct md_config_own *own = &model_of(config, "org/m")->own;
	assert_words(model_of(config, "org/m")->argv, "serve|5801|--model|/s/models/org%2Fm/w");
	cr_assert_str_eq(own->place, "/s/models/org%2Fm");
	cr_assert_str_eq(own->content, HASH);
	cr_assert_str_eq(own->artifact, "/s/models/org%2Fm/x.medusa", "its engine gets it from there");
	cr_assert_eq(own->sources.count, 2, "the artifact is named once");
	cr_assert_str_eq(own->sources.items[0], "/a/x.medusa");
	cr_assert_str_eq(own->sources.items[1], "/b/w/");
	own = &model_of(config, "plain")->own;
	cr_assert_null(own->place, "an artifact alone stays where it is");
	cr_assert_str_eq(own->artifact, "/a/x.medusa");
	assert_words(model_of(config, "mine")->argv, "serve|5800|here");
	md_worker_config_destroy(config);
}

Test(worker_config_content, wrong_ones_are_refused)
{
	static const struct refusal refusals[] = {
	    {"models: {a: {cmd: \"${PORT} ${content}\", medusa: {files: [/w]}}}",
	     "medusa.cluster.store, which is missing"},
	    {"models: {a: {cmd: \"${PORT}\", medusa: {files: [/w]}}}", "medusa.cluster.store is needed, too"},
	    {"models: {a: {cmd: \"${PORT}\", medusa: {content: " HASH "}}}", "medusa.cluster.store is needed, too"},
	    {STORE "models: {a: {cmd: \"${PORT} ${content}\"}}", "give medusa.files, or medusa.content"},
	    {STORE "models: {a: {cmd: \"${PORT}\", medusa: {content: abc}}}", "64 hexadecimal digits are wanted"},
	    {STORE "models: {a: {cmd: \"${PORT}\", medusa: {files: [/x/w, /y/w/]}}}",
	     "two of the model's files are called w"},
	    {STORE "models: {a: {cmd: \"${PORT}\", medusa: {artifact: /x/w, files: [/y/w]}}}",
	     "two of the model's files are called w"},
	    {STORE "models: {a: {cmd: \"${PORT}\", medusa: {files: [/]}}}", "\"/\" has no name"},
	    {STORE "models: {a: {cmd: \"${PORT}\", medusa: {files: [/x/..]}}}", "\"/x/..\" has no name"},
	    {"medusa: {cluster: {store_bytes: 1GB}}", "medusa.cluster.store is needed, too"},
	    {"medusa: {cluster: {signed_by: k}}", "medusa.cluster.store is needed, too"},
	    {"medusa: {cluster: {store: /s, fetch: any}}", "medusa.cluster.tls or key_file is needed, too"},
	    {"medusa: {cluster: {store: /s, fetch: all}}", "demanded"},
	    {"medusa: {cluster: {store: /s, fetch_streams: 0}}", "fetch_streams"},
	    {"macros: {x: \"${content}\"}\nmodels: {a: {cmd: \"${PORT} ${x}\"}}",
	     "medusa.cluster.store, which is missing"},
	};
	ASSERT_ALL_REFUSED(refusals);
}
