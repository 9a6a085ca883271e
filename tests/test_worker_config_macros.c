/* SPDX-License-Identifier: Apache-2.0 */
/* Macros, ports and variables of the environment in the worker's configuration. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "tests/worker_config_fixture.h"

static const struct md_config_model *only(const struct md_worker_config *config)
{
	cr_assert_eq(config->model_count, 1);
	return &config->models[0];
}

static void assert_cmd(const char *text, const char *words)
{
	const struct md_worker_config *config = read_config(text);
	assert_words(only(config)->argv, words);
	md_worker_config_destroy(config);
}

Test(worker_config_macros, order_and_overriding)
{
	assert_cmd("macros: {a: 1, b: '${a}2'}\nmodels: {m: {cmd: 'x ${b} ${PORT}'}}\n", "x|12|5800");
	assert_cmd("macros: {a: 1, b: '${a}2'}\nmodels: {m: {macros: {a: 7}, cmd: 'x ${b} ${PORT}'}}\n", "x|72|5800");
	assert_cmd("macros: {a: 1}\nmodels: {m: {macros: {c: '${a}${MODEL_ID}'}, cmd: 'x ${c} ${PORT}'}}\n",
		   "x|1m|5800");
	assert_cmd("macros: {s: 'serve --port ${PORT} --id ${MODEL_ID}'}\nmodels: {m: {cmd: '${s} -v'}}\n",
		   "serve|--port|5800|--id|m|-v");
	assert_cmd("macros: {i: 0x10, f: 1.50, t: true, s: 'x y'}\nmodels: {m: {cmd: '${PORT} ${i} ${f} ${t} ${s}'}}\n",
		   "5800|16|1.50|true|x|y");
	assert_cmd("models: {m: {cmd: '${PORT} $x ${ y} ${a.b} $${', name: '${'}}\n", "5800|$x|${|y}|${a.b}|$${");
}

Test(worker_config_macros, values_keep_their_types)
{
	const struct md_worker_config *config = read_config(
	    "macros: {ctx: 4096, temp: 0.7, on: true, deep: '${ctx}', text: '5'}\nmodels:\n  m:\n    cmd: x ${PORT}\n"
	    "    ttl: ${ctx}\n    unlisted: ${on}\n    aliases: ['${MODEL_ID}-x']\n"
	    "    capabilities: {context: '${deep}'}\n"
	    "    metadata: {c: '${ctx}', t: '${temp}', o: '${on}', d: '${deep}', s: '${text}', p: '${PORT}', "
	    "mixed: 'a${ctx}'}\n");
	const struct md_config_model *model = only(config);
	char *dumped = json_dumps(model->metadata, JSON_COMPACT | JSON_REAL_PRECISION(5));
	cr_assert_str_eq(dumped,
			 "{\"c\":4096,\"t\":0.7,\"o\":true,\"d\":4096,\"s\":\"5\",\"p\":5800,\"mixed\":\"a4096\"}");
	free(dumped);
	cr_assert(model->ttl_ns == UINT64_C(4096000000000) && model->unlisted && model->capabilities.context == 4096);
	cr_assert_str_eq(model->aliases.items[0], "m-x");
	md_worker_config_destroy(config);
}

Test(worker_config_macros, ports_go_by_sorted_id)
{
	const struct md_worker_config *config =
	    read_config("startPort: 9000\nmodels:\n  c: {cmd: 'x ${PORT} ${PORT}'}\n  a: {cmd: 'x ${PORT}', proxy: "
			"'http://h:${PORT}/y', name: 'p${PORT}'}\n  b: {cmd: x, proxy: 'http://b'}\n");
	cr_assert(model_of(config, "a")->port == 9000 && model_of(config, "c")->port == 9001);
	cr_assert_eq(model_of(config, "b")->port, 0);
	cr_assert_str_eq(model_of(config, "a")->proxy, "http://h:9000/y");
	cr_assert_str_eq(model_of(config, "a")->name, "p9000");
	assert_words(model_of(config, "c")->argv, "x|9001|9001");
	md_worker_config_destroy(config);
}

Test(worker_config_macros, wrong_ones_are_refused)
{
	static const struct refusal refusals[] = {
	    {"macros: {PORT: 1}", "macros.PORT: PORT, PID and MODEL_ID are macros already"},
	    {"macros: {PID: 1}", "are macros already"},
	    {"models: {m: {macros: {MODEL_ID: 1}, cmd: '${PORT}'}}", "are macros already"},
	    {"macros: {a b: 1}", "a macro's name has 1 to 63"},
	    {"macros: {'': 1}", "a macro's name has 1 to 63"},
	    {"macros: {a234567890123456789012345678901234567890123456789012345678901234: 1}", "has 1 to 63"},
	    {"macros: {a: [1]}", "macros.a is a list: a macro's value is a text"},
	    {"macros: [a]", "macros is a list: a mapping is wanted"},
	    {"macros: {a: 'x ${a}'}", "macros.a is \"x ${a}\": the macro refers to itself"},
	    {"macros: {a: '${b}', b: 1}\nmodels: {m: {cmd: '${a} ${PORT}'}}",
	     "c.yaml:2: models.m.cmd: the macro ${b} is used by one that stands before it; move it up"},
	    {"macros: {a: '${b}', b: 1}\nmodels: {m: {cmd: '${PORT}', metadata: {x: '${a}'}}}",
	     "models.m.metadata.x: the macro ${b} is used by one that stands before it"},
	    {"macros: {a: '${b}', b: '${a}'}\nmodels: {m: {cmd: '${PORT}', name: '${a}'}}",
	     "models.m.name: the macro ${b} is used by one that stands before it"},
	    {"models: {m: {cmd: '${PORT} ${x}'}}", "c.yaml:1: models.m.cmd: unknown macro '${x}'"},
	    {"models: {m: {cmd: '${PORT}', metadata: {a: {b: ['${x}']}}}}",
	     "models.m.metadata.a.b[0]: unknown macro '${x}'"},
	    {"models: {m: {cmd: '${PORT}', filters: {setParams: {a: '${x}'}}}}", "unknown macro '${x}'"},
	    {"models: {m: {cmd: '${PORT}', filters: {setParamsByID: {'${x}': {a: 1}}}}}", "unknown macro '${x}'"},
	    {"models: {m: {cmd: '${PORT}', macros: {k: q}, filters: {setParamsByID: {'${k}': {a: 1}, q: {a: 2}}}}}",
	     "two keys become this one"},
	    {"models: {m: {cmd: '${PORT} ${PID}'}}", "models.m.cmd: ${PID} is known in cmdStop only"},
	    {"models: {m: {cmd: x, proxy: 'http://h:${PORT}'}}",
	     "models.m.proxy: ${PORT} is used, but the model's cmd"},
	    {"models: {m: {cmd: x, proxy: 'http://h', name: '${PORT}'}}", "models.m.name: ${PORT} is used, but"},
	    {"startPort: 65535\nmodels: {a: {cmd: '${PORT}'}, b: {cmd: '${PORT}'}}", "there are no ports left"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

Test(worker_config_macros, unknown_keys_may_hold_anything)
{
	const struct md_worker_config *config =
	    read_config("x-note: ${a}\nmodels: {m: {cmd: '${PORT}', later: '${x}'}}");
	assert_noted(config, "x-note", "not known");
	assert_noted(config, "models.m.later", "not known");
	md_worker_config_destroy(config);
}

/* ---- growth ---- */

Test(worker_config_macros, bombs_are_refused)
{
	static const char *const fills[] = {"x", ""}; /* one grows, the other only takes time */
	for (size_t i = 0; i < 2; i++) {
		char text[8192];
		size_t used = (size_t)snprintf(text, sizeof(text), "macros:\n  m0: '%s'\n", fills[i]);
		for (int level = 1; level < 20; level++) {
			used += (size_t)snprintf(text + used, sizeof(text) - used, "  m%d: '", level);
			for (int k = 0; k < 10; k++)
				used += (size_t)snprintf(text + used, sizeof(text) - used, "${m%d}", level - 1);
			used += (size_t)snprintf(text + used, sizeof(text) - used, "'\n");
		}
		snprintf(text + used, sizeof(text) - used, "models: {m: {cmd: '${m19} ${PORT}'}}\n");
		assert_config_refused(text, i == 0 ? "macros make it longer than 256 KiB" : "are replaced more than");
	}
}

Test(worker_config_macros, nesting_has_its_bound)
{
	char text[8192] = "macros:\n  m0: x\n";
	size_t used = strlen(text);
	for (int level = 1; level < 100; level++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "  m%d: 'a${m%d}'\n", level, level - 1);
	snprintf(text + used, sizeof(text) - used, "models: {m: {cmd: '${m99} ${PORT}'}}\n");
	assert_config_refused(text, "macros are nested more than 64 deep");
}

/* ---- the environment ---- */

static void set_environment(void)
{
	setenv("CONFIG_KEY", "sk: \"1\" #\\ {x}", 1);
	setenv("CONFIG_NUMBER", "42", 1);
	setenv("CONFIG_LINES", "a\nb", 1);
	setenv("CONFIG_BYTES", "\xff", 1);
	setenv("CONFIG_EMPTY", "", 1);
	unsetenv("CONFIG_NONE");
}

Test(worker_config_macros, environment_is_text_wherever_it_stands, .init = set_environment)
{
	const struct md_worker_config *config = read_config(
	    "# ${env.CONFIG_NONE} in a comment needs no variable\n"
	    "globalTTL: ${env.CONFIG_NUMBER}\nmacros: {k: '${env.CONFIG_KEY}'}\nmodels:\n  m${env.CONFIG_NUMBER}:\n"
	    "    cmd: x ${PORT} # ${env.CONFIG_NONE}\n    env: [\"A=${env.CONFIG_KEY}\", 'B=${env.CONFIG_KEY}', "
	    "C=${env.CONFIG_KEY}]\n    name: ${env.CONFIG_KEY}\n    description: '${k}${env.CONFIG_EMPTY}'\n"
	    "    metadata: {n: ${env.CONFIG_NUMBER}, t: '${env.CONFIG_NUMBER}'}\n");
	const struct md_config_model *model = model_of(config, "m42");
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_str_eq(model->env.items[i] + 2, "sk: \"1\" #\\ {x}");
	cr_assert_str_eq(model->name, "sk: \"1\" #\\ {x}");
	cr_assert_str_eq(model->description, "sk: \"1\" #\\ {x}");
	cr_assert_eq(model->ttl_ns, UINT64_C(42000000000));
	cr_assert(json_is_integer(json_object_get(model->metadata, "n")));
	cr_assert(json_is_string(json_object_get(model->metadata, "t")));
	md_worker_config_destroy(config);
}

Test(worker_config_macros, environment_is_checked, .init = set_environment)
{
	static const struct refusal refusals[] = {
	    {"\nlogLevel: ${env.CONFIG_NONE}", "c.yaml:2: ${env.CONFIG_NONE}: there is no such variable"},
	    {"apiKeys: ['${env.CONFIG_LINES}']", "${env.CONFIG_LINES}: the variable holds a line break"},
	    {"apiKeys: ['${env.CONFIG_BYTES}']", "or is not UTF-8"},
	    {"apiKeys: ['${env.CONFIG_EMPTY}']", "apiKeys[0]: the key is empty"},
	    {"models:\n  m:\n    cmd: |\n      # ${env.CONFIG_NONE}\n      x ${PORT}\n", "there is no such variable"},
	};
	ASSERT_ALL_REFUSED(refusals);
}
