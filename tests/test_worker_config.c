/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's configuration: defaults, models, commands, notes, and what is refused in which words. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/worker_config_fixture.h"
#include "worker/config/command.h"

#define SECOND UINT64_C(1000000000)
#define TEN "1234567890"
#define LONG TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define CMD "{cmd: 'server --port ${PORT}'}"

/* ---- the whole ---- */

Test(worker_config, empty_file_has_defaults)
{
	const struct md_worker_config *config = read_config("");
	cr_assert(config->model_count == 0 && config->note_count == 0);
	cr_assert(config->log_level == MD_CONFIG_LOG_INFO && config->log_to == MD_CONFIG_LOG_PROXY);
	cr_assert(config->metrics_in_memory == 1000 && config->capture_bytes == 5000000);
	cr_assert(config->performance && config->performance_ns == 5 * SECOND);
	cr_assert(config->api_keys.count == 0 && config->ignored_paths.count == 1);
	cr_assert_str_eq(config->session_headers.items[0], "X-Session-ID");
	cr_assert(config->node.adopt_ns == 30000000000u);
	cr_assert(config->node.retries == 1 && config->node.body_limit == 100000000 && !config->node.gpu_count);
	cr_assert(config->node.bodies_limit == 1000000000 && config->node.connection_limit == 4096);
	cr_assert(config->node.write_ns == 120 * SECOND && config->node.write_waiting_ns == 10 * SECOND);
	cr_assert_str_eq(config->node.policies.eviction, "medusa");
	cr_assert_str_eq(config->node.cgroup, "auto");
	md_worker_config_destroy(config);
	md_worker_config_destroy(NULL);
	md_worker_config_destroy(read_config("# nothing but a comment ${env.NOT_THERE}\n"));
}

Test(worker_config, model_has_defaults)
{
	const struct md_worker_config *config = read_config("models:\n  qwen:\n    cmd: server --port ${PORT}\n");
	const struct md_config_model *model = model_of(config, "qwen");
	assert_words(model->argv, "server|--port|5800");
	cr_assert_str_eq(model->proxy, "http://localhost:5800");
	cr_assert_str_eq(model->check, "/health");
	cr_assert(model->port == 5800 && !model->stop_argv && model->concurrency == 10);
	cr_assert(model->ttl_ns == 0 && model->unload_ns == 10 * SECOND && model->health_ns == 120 * SECOND);
	cr_assert(model->timeouts.connect_ns == 30 * SECOND && model->timeouts.response_header_ns == 0);
	cr_assert(model->timeouts.idle_ns == 90 * SECOND && model->timeouts.expect_continue_ns == SECOND);
	cr_assert(!model->unlisted && !model->send_loading_state && !model->ignore_websockets && !model->metadata);
	cr_assert(!*model->name && !*model->use_model_name && !model->capabilities.given);
	cr_assert(model->own.tenant == MD_CONFIG_NONE && !model->own.artifact && !model->own.memory_bytes);
	md_worker_config_destroy(config);
}

Test(worker_config, model_is_read)
{
	const struct md_worker_config *config = read_config(
	    "globalTTL: 60\nunloadTimeout: 7\nsendLoadingState: true\nhealthCheckTimeout: 30\nlogLevel: debug\n"
	    "models:\n  a/b:c:\n    cmd: serve\n    cmdStop: kill -TERM ${PID}\n    proxy: http://127.0.0.1:99/x\n"
	    "    aliases: [small, 7]\n    env: [A=1, B=]\n    checkEndpoint: none\n    ttl: 0\n    unloadTimeout: 3\n"
	    "    unlisted: yes\n    useModelName: real\n    name: N\n    description: D\n    concurrencyLimit: 3\n"
	    "    metadata: {deep: {x: [1, 2.5, true, ~, t]}}\n    sendLoadingState: false\n    timeouts: {connect: 5}\n"
	    "    compat: {ignoreWebsockets: true}\n    capabilities: {in: [text, image], out: [text], tools: true, "
	    "context: 4096}\n  z: {cmd: x, proxy: 'HTTP://z'}\n");
	const struct md_config_model *model = model_of(config, "small");
	cr_assert_eq(model, model_of(config, "7"));
	cr_assert_str_eq(model->id, "a/b:c");
	assert_words(model->stop_argv, "kill|-TERM|${PID}");
	cr_assert_str_eq(model->proxy, "http://127.0.0.1:99/x");
	cr_assert(model->env.count == 2 && !strcmp(model->env.items[1], "B="));
	cr_assert(!model->check && model->ttl_ns == 0 && model->unload_ns == 3 * SECOND && model->port == 0);
	cr_assert(model->unlisted && model->concurrency == 3 && !model->send_loading_state && model->ignore_websockets);
	cr_assert_str_eq(model->use_model_name, "real");
	cr_assert(model->capabilities.given && model->capabilities.in == (MD_CONFIG_TEXT | MD_CONFIG_IMAGE));
	cr_assert(model->capabilities.out == MD_CONFIG_TEXT && model->capabilities.context == 4096);
	cr_assert(model->timeouts.connect_ns == 5 * SECOND && model->timeouts.keepalive_ns == 30 * SECOND);
	char *dumped = json_dumps(model->metadata, JSON_COMPACT | JSON_SORT_KEYS);
	cr_assert_str_eq(dumped, "{\"deep\":{\"x\":[1,2.5,true,null,\"t\"]}}");
	free(dumped);
	model = model_of(config, "z");
	cr_assert(model->ttl_ns == 60 * SECOND && model->unload_ns == 7 * SECOND && model->send_loading_state);
	cr_assert(model->health_ns == 30 * SECOND && config->log_level == MD_CONFIG_LOG_DEBUG);
	md_worker_config_destroy(config);
}

Test(worker_config, ttl_of_minus_one_is_the_global_one)
{
	const struct md_worker_config *config =
	    read_config("globalTTL: 9\nmodels:\n  a: {cmd: 's ${PORT}', ttl: -1}\n  b: {cmd: 's ${PORT}', ttl: 4}\n");
	cr_assert_eq(model_of(config, "a")->ttl_ns, 9 * SECOND);
	cr_assert_eq(model_of(config, "b")->ttl_ns, 4 * SECOND);
	md_worker_config_destroy(config);
}

Test(worker_config, values_out_of_bounds_are_refused)
{
	static const struct refusal refusals[] = {
	    {"globalTTL: -1", "c.yaml:1: globalTTL is -1: at least 0 is wanted (seconds; 0: never)"},
	    {"\nstartPort: 0", "c.yaml:2: startPort is 0: a port from 1 to 65535 is wanted"},
	    {"unloadTimeout: -2", "unloadTimeout is -2: at least 0"},
	    {"logToStdout: all", "logToStdout is \"all\": proxy, upstream, both or none is wanted"},
	    {"apiKeys: ['']", "apiKeys[0]: the key is empty"},
	    {"apiKeys: [a, 'b c']", "apiKeys[1]: the key has a space in it"},
	    {"apiKeys: x", "c.yaml:1: apiKeys: a list of texts is wanted"},
	    {"performance: {every: 1s}", "performance.every is \"1s\": at least 5s are wanted"},
	    {"performance: {every: fast}", "performance.every is \"fast\": a time is wanted"},
	    {"upstream: {ignorePaths: ['[']}", "upstream.ignorePaths[0] is \"[\": no regular expression"},
	    {"models: {qwen: {cmd: '${PORT}',\n ttl: -5}}",
	     "c.yaml:2: models.qwen.ttl is -5: at least -1 is wanted (seconds; -1: globalTTL, 0: never)"},
	    {"models: {a: {cmd: '${PORT}', ttl: 99999999999999}}",
	     "models.a.ttl is 99999999999999: at most 1000000000 is wanted"},
	    {"globalTTL: 99999999999999999999999", "at most 1000000000 is wanted"},
	    {"startPort: 65536", "startPort is 65536: a port from 1 to 65535 is wanted"},
	    {"models:\n  a: " CMD "\n  " LONG LONG "123456789012345678901234567890123456: " CMD "\n",
	     ": the ID of a model has at most 255 bytes, and this one has 256"},
	    {"models:\n  a: {cmd: '${PORT}', aliases: [" LONG LONG "123456789012345678901234567890123456"
	     "]}\n",
	     "c.yaml:2: models.a: an alias has at most 255 bytes, and \"1234567890"},
	    {"models: {a: {cmd: '${PORT}', ttl: soon}}", "models.a.ttl is \"soon\": at least -1 is wanted"},
	    {"models: {a: {cmd: '${PORT}', unloadTimeout: -1}}", "models.a.unloadTimeout is -1"},
	    {"models: {a: {cmd: '${PORT}', capabilities: {in: [smell]}}}",
	     "models.a.capabilities.in[0] is \"smell\": text, audio or image is wanted"},
	    {"models: {a: {cmd: '${PORT}', capabilities: {context: -1}}}", "models.a.capabilities.context is -1"},
	    {"models: {a: {cmd: [x]}}", "models.a.cmd is a list: a text is wanted"},
	    {"models: {a: {cmd: x}}", "models.a: the engine's address is not known"},
	    {"models: {a: {cmd: x, proxy: 'localhost:80'}}", "models.a.proxy is \"localhost:80\": a URL is wanted"},
	    {"models: {a: {cmd: x,\n proxy: 'https://h:443/x'}}",
	     "c.yaml:2: models.a.proxy is \"https://h:443/x\": engines are asked without TLS: http://HOST:PORT"},
	    {"models: {a: {cmd: x, proxy: 'http://h:65536'}}", "with a port from 1 to 65535"},
	    {"models: {a: {cmd: x, proxy: 'http://h:http'}}", "with a port from 1 to 65535"},
	    {"models: {a: {cmd: x, proxy: 'http://h:/'}}", "with a port from 1 to 65535"},
	    {"models: {a: {cmd: x, proxy: 'http://[::1]x'}}",
	     "models.a.proxy is \"http://[::1]x\": an IPv6 address stands in brackets: http://[::1]:8080"},
	    {"models: {a: {cmd: x, proxy: 'http://[::1'}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: 'http://[::1/x]'}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: 'http://fe80::1:80'}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: 'http://::1]:80'}}", "a URL is wanted"},
	    {"models: {a: {cmd: x, proxy: 'http://h]:80'}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: 'http://[h]:80'}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: 'http://[]:80'}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: 'http://[::1]:'}}", "with a port from 1 to 65535"},
	    {"peers: {p: {proxy: 'http://fe80::1:80', models: [m]}}", "an IPv6 address stands in brackets"},
	    {"models: {a: {cmd: x, proxy: \"http://h\\x0bx\"}}", "a URL is wanted"},
	    {"models: {a: {cmd: x, checkEndpoint: '/a b'}}",
	     "models.a.checkEndpoint is \"/a b\": a path is wanted, without blanks"},
	    {"models: {a: {cmd: x, checkEndpoint: ' none'}}", "a path is wanted, without blanks"},
	    {"models: {a: {cmd: x, checkEndpoint: \"/x HTTP/1.1\\r\\nA: b\"}}", "a path is wanted, without blanks"},
	    {"models: {a: {cmd: x, proxy: 'http://user@h:80'}}", "with a port from 1 to 65535"},
	    {"models: {a: {cmd: x, proxy: 'http://u:p@h:80'}}", "with a port from 1 to 65535"},
	    {"models: {a: {cmd: x, proxy: 'http://h?a=b'}}", "with a port from 1 to 65535"},
	    {"models: {a: {cmd: '${PORT}', medusa: {share: on,\n swap: checkpoint}}}",
	     "c.yaml:2: models.a.medusa.swap is \"checkpoint\": share: on wants swap: off, because"},
	    {"models: {a: {cmd: '${PORT}', medusa: {share: maybe}}}",
	     "models.a.medusa.share is \"maybe\": off, on or auto is wanted"},
	    {"models: {a: {cmd: '${PORT}', medusa: {share: auto,\n swap: off}}}",
	     "c.yaml:2: models.a.medusa.swap is \"off\": share: auto wants swap: on, because"},
	    {"models: {a: {cmd: '${PORT}', medusa: {share: auto,\n gpu_neighbours: auto}}}",
	     "c.yaml:2: models.a.medusa.gpu_neighbours is \"auto\": share: auto wants gpu_neighbours: off, because"},
	    {"medusa:\n  listen: 127.0.0.1:99999\n",
	     "c.yaml:2: medusa.listen is \"127.0.0.1:99999\": ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH"},
	    {"medusa: {listen: here}", "medusa.listen is \"here\": ADDRESS:PORT"},
	    {"medusa: {cgroup: here/there}",
	     "medusa.cgroup is \"here/there\": auto, off or the absolute path of a folder of cgroups is wanted"},
	    {"medusa: {pool_bytes: 1GB, spill: here}", "medusa.spill is \"here\": the absolute path of a folder"},
	    {"medusa: {spill: /there}", "medusa.spill is \"/there\": medusa.pool_bytes is needed, too"},
	    {"medusa: {spill_bytes: 1GB}", "medusa.spill_bytes is \"1GB\": medusa.spill is needed, too"},
	    {"medusa: {cluster: {endpoints: [etcd]}}", "a URL is wanted, such as http://localhost:8080"},
	    {"medusa: {cluster: {node: a/b}}", "medusa.cluster.node is \"a/b\": up to 63 letters"},
	    {"medusa: {cluster: {advertise: here}}", "medusa.cluster.advertise is \"here\": a URL is wanted"},
	    {"medusa: {cluster: {prefix: medusa}}", "medusa.cluster.prefix is \"medusa\": "},
	    {"medusa: {cluster: {prefix: /medusa/}}", "medusa.cluster.prefix is \"/medusa/\": "},
	    {"medusa: {cluster: {certificate_key: k.pem}}", "medusa.cluster.certificate is needed, too"},
	    {"medusa: {cluster: {endpoint: x}}", "medusa.cluster.endpoint"},
	    {"medusa: {cluster: {tls: {ca: a}}}", "medusa.cluster.tls: ca and certificate are needed, both"},
	    {"medusa: {cluster: {tls: {certificate: a}}}", "medusa.cluster.tls: ca and certificate are needed, both"},
	    {"medusa: {cluster: {tls: {ca: a, certificate: b}}}", "medusa.cluster.listen is needed, too"},
	    {"medusa: {cluster: {listen: ':1'}}", "medusa.cluster.listen is \":1\": medusa.cluster.tls is needed, too"},
	    {"medusa: {cluster: {listen: 'unix:/x', tls: {ca: a, certificate: b}}}",
	     "medusa.cluster.listen is \"unix:/x\": ADDRESS:PORT"},
	    {"medusa: {cluster: {listen: ':1', key_file: k, tls: {ca: a, certificate: b}}}",
	     "medusa.cluster.key_file is \"k\": certificates (medusa.cluster.tls) say who is a node"},
	    {"medusa: {cluster: {listen: ':1', advertise: 'http://a:1', tls: {ca: a, certificate: b}}}",
	     "medusa.cluster.advertise is \"http://a:1\": https:// is wanted"},
	    {"medusa: {cluster: {tls: {pem: a}}}", "medusa.cluster.tls.pem"},
	    {"medusa: {cluster: {etcd_tls: {key: a}}}", "medusa.cluster.etcd_tls: certificate is needed, too"},
	    {"medusa: {cluster: {endpoints: ['https://a', 'http://b'], etcd_tls: {ca: a}}}",
	     "medusa.cluster.endpoints is a list: https:// is wanted of all of them"},
	    {"medusa: {cluster: {etcd_user: u}}", "medusa.cluster.etcd_user is \"u\": its password is needed, too"},
	    {"medusa: {cluster: {etcd_user: u, etcd_password_file: f, etcd_password_env: e}}",
	     "either etcd_password_file or etcd_password_env"},
	    {"medusa: {cluster: {etcd_password_env: e}}", "medusa.cluster.etcd_user is needed, too"},
	    {"medusa: {cgroup: ''}", "medusa.cgroup is \"\": auto, off or"},
	    {"medusa: {control: /" LONG "}", "medusa.control: the path of a socket has at most 107 bytes"},
	    {"medusa: {gpus: [{memory: 4GB}, {memory: 2GB}]}\nmodels:\n  a:\n    cmd: x ${PORT}\n    medusa:\n"
	     "      swap: off\n      memory: 5GB\n",
	     "c.yaml:7: models.a.medusa.memory is \"5GB\": no GPU of medusa.gpus has so much memory"},
	    {"medusa: {gpus: [{memory: 4GB}]}\nmodels: {a: {cmd: '${PORT}', medusa: {memory: 3GB, kv_per_request: "
	     "2GB}}}",
	     "models.a.medusa.kv_per_request is \"2GB\": no GPU of medusa.gpus has so much memory beside"},
	    {"models: {a: 5}", "models.a is 5: a mapping is wanted"},
	    {"models: [a]", "models is a list: a mapping is wanted"},
	    {"models: {'': {cmd: x}}", "the model has no ID"},
	    {"models: {a: " CMD ", a: " CMD "}", "c.yaml:1: the key \"a\" is there already, in line 1"},
	    {"logRequests: 7", "logRequests is 7: true or false is wanted"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

Test(worker_config, addresses_of_engines_are_read)
{
	static const char *const good[] = {"http://h", "http://h/", "http://h:1/a?b=c", "http://[::1]",
					   "http://[::1]:65535/x"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char text[128];
		snprintf(text, sizeof(text), "models:\n  a:\n    cmd: x\n    proxy: '%s'\n", good[i]);
		const struct md_worker_config *config = read_config(text);
		const struct md_config_model *model = model_of(config, "a");
		cr_assert_str_eq(model->proxy, good[i]);
		cr_assert(model->place.line == 2 && model->proxy_place.line == 4 && model->memory_place.line == 2);
		md_worker_config_destroy(config);
	}
}

Test(worker_config, aliases_are_given_once)
{
	static const struct refusal refusals[] = {
	    {"models:\n  a: {cmd: 's ${PORT}', aliases: [x]}\n  b: {cmd: 's ${PORT}', aliases: [x]}\n",
	     "c.yaml:3: models.b.aliases[0] is \"x\": \"x\" is an alias of a already"},
	    {"models:\n  a: {cmd: 's ${PORT}', aliases: [x, x]}\n", "an alias of a already"},
	    {"models:\n  a: {cmd: 's ${PORT}', aliases: ['']}\n", "an alias is empty"},
	    {"models:\n  a: {cmd: 's ${PORT}', filters: {setParamsByID: {b: {x: 1}}}}\n  b: " CMD "\n",
	     "models.a: filters.setParamsByID has \"b\", which is another model's ID"},
	    {"models:\n  a: {cmd: 's ${PORT}', filters: {setParamsByID: {x: {y: 1}}}}\n"
	     "  b: {cmd: 's ${PORT}', aliases: [x]}\n",
	     "is an alias of a already"},
	};
	ASSERT_ALL_REFUSED(refusals);
	const struct md_worker_config *config =
	    read_config("models:\n  a: " CMD "\n  b: {cmd: 's ${PORT}', aliases: [a]}\n");
	cr_assert_str_eq(md_config_find_model(config, "a")->id, "a", "the ID wins");
	assert_noted(config, "models.b.aliases[0]", "means that model");
	cr_assert_null(md_config_find_model(config, "c"));
	md_worker_config_destroy(config);
}

/* ---- filters ---- */

Test(worker_config, filters_are_read)
{
	const struct md_worker_config *config = read_config(
	    "models:\n  a:\n    cmd: s ${PORT}\n    filters:\n      stripParams: ' temperature,top_p , model,'\n"
	    "      setParams: {model: x, a.b: 1, c: {d: [e]}}\n"
	    "      setParamsByID:\n        a: {x: 1}\n        a:high: {x: 2, y: '${MODEL_ID}-${PORT}'}\n"
	    "  b: {cmd: 's ${PORT}', filters: {strip_params: top_k}}\n");
	const struct md_config_filters *filters = &model_of(config, "a:high")->filters;
	cr_assert(filters->strip.count == 2 && !strcmp(filters->strip.items[0], "temperature") &&
		  !strcmp(filters->strip.items[1], "top_p"));
	assert_noted(config, "models.a.filters", "\"model\" is not stripped");
	assert_noted(config, "models.a.filters.setParams.model", "use useModelName");
	cr_assert(filters->set.count == 2 && !strcmp(filters->set.items[0].path, "a.b"));
	cr_assert_eq(json_integer_value(filters->set.items[0].value), 1);
	cr_assert(json_is_object(filters->set.items[1].value));
	cr_assert(filters->by_id_count == 2 && !strcmp(filters->by_id[1].name, "a:high"));
	cr_assert_str_eq(json_string_value(filters->by_id[1].items[1].value), "a-5800");
	cr_assert(model_of(config, "a")->aliases.count == 1, "its own ID is no alias");
	cr_assert_str_eq(model_of(config, "b")->filters.strip.items[0], "top_k");
	md_worker_config_destroy(config);
}

/* ---- commands ---- */

Test(worker_config, commands_are_split)
{
	static const struct {
		const char *text, *words;
		bool open;
	} cases[] = {
	    {"", "", false},
	    {"a b\tc\nd", "a|b|c|d", false},
	    {"a \\\n  b", "a|b", false},
	    {"a\\\nb", "a|b", false},
	    {"a \\\r\n b", "a|b", false},
	    {"# comment\na\n  # another\nb # c", "a|b|#|c", false},
	    {"'a b' \"c d\"", "a b|c d", false},
	    {"a'b'\"c\"d", "abcd", false},
	    {"'' \"\"", "|", false},
	    {"'a\\n\"'", "a\\n\"", false},
	    {"\"a\\\"b\\$c\\`d\\\\e\\nf\"", "a\"b$c`d\\e\\nf", false},
	    {"a\\ b \\'c\\' \\\\", "a b|'c'|\\", false},
	    {"$HOME *.c ~ `x` a;b | c", "$HOME|*.c|~|`x`|a;b|||c", false},
	    {"a 'b c", "a|b c", true},
	    {"a \"b c", "a|b c", true},
	    {"a \\", "a|\\", false},
	    {"--json '{\"a\": [1, 2]}'", "--json|{\"a\": [1, 2]}", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_arena arena = {0};
		bool open;
		const char *const *words = md_command_split(&arena, md_command_uncomment(&arena, cases[i].text), &open);
		assert_words(words, cases[i].words);
		cr_assert_eq(open, cases[i].open, "%s", cases[i].text);
		md_arena_finish(&arena);
	}
}

Test(worker_config, commands_span_lines)
{
	const struct md_worker_config *config =
	    read_config("models:\n  a:\n    cmd: |\n      # ${unknown} in a comment, ${PORT} as well\n      server \\\n"
			"        --port 80\n      --name 'x y\n    proxy: http://h:80\n");
	assert_words(model_of(config, "a")->argv, "server|--port|80|--name|x y\n");
	cr_assert_eq(model_of(config, "a")->port, 0, "a comment uses no port");
	assert_noted(config, "models.a.cmd", "a quote is not closed");
	md_worker_config_destroy(config);
}

/* ---- what is said about a file that is read ---- */

Test(worker_config, notes_name_what_has_no_effect)
{
	const struct md_worker_config *config = read_config(
	    "healthCheckTimeout: 3\nlogLevel: loud\nmadeUp: 1\nlogRequests: true\n"
	    "models:\n  a:\n    cmd: s ${PORT}\n    temper: 1\n  b: {proxy: 'http://x'}\n  comfyui_auto: " CMD "\n");
	assert_noted(config, "healthCheckTimeout", "it is 15 s");
	assert_noted(config, "logLevel", "so it is info");
	assert_noted(config, "madeUp", "llama-swap ignores it as well");
	assert_noted(config, "logRequests", "no effect in llama-swap");
	assert_noted(config, "models.a.temper", "not known");
	assert_noted(config, "models.b", "cannot be started");
	cr_assert_eq(config->notes[2].line, 3);
	cr_assert_str_eq(config->notes[2].file, "c.yaml");
	cr_assert_eq(model_of(config, "a")->health_ns, 15 * SECOND);
	cr_assert(model_of(config, "comfyui_auto")->concurrency == 50 &&
		  model_of(config, "comfyui_auto")->ignore_websockets);
	md_worker_config_destroy(config);
}

Test(worker_config, what_llama_swap_takes_is_taken)
{
	const struct md_worker_config *config = read_config(
	    "models:\n  a: {cmd: '${PORT}', env: [A, =1, B=2], concurrencyLimit: -1, checkEndpoint: ready, "
	    "ttl: '7'}\n  b: {cmd: '${PORT}', checkEndpoint: ''}\n  c: {cmd: '${PORT}', ttl: 7.0, aliases: ~}\n"
	    "groups: {}\nmatrix: {sets: {s: a & b}}\n");
	const struct md_config_model *model = model_of(config, "a");
	cr_assert(model->env.count == 1 && !strcmp(model->env.items[0], "B=2") && model->concurrency == 10);
	assert_noted(config, "models.a.env[0]", "NAME=VALUE is wanted");
	assert_noted(config, "models.a.env[1]", "NAME=VALUE is wanted");
	assert_noted(config, "models.a.concurrencyLimit", "so it is 10");
	cr_assert_str_eq(model->check, "/ready");
	cr_assert_str_eq(model_of(config, "b")->check, "/");
	cr_assert(model->ttl_ns == 7 * SECOND && model_of(config, "c")->ttl_ns == 7 * SECOND && config->matrix);
	md_worker_config_destroy(config);
}

Test(worker_config, paths_are_ignored_by_pattern)
{
	const struct md_worker_config *config = read_config("");
	cr_assert(md_config_ignores_path(config, "/a/b.css") && !md_config_ignores_path(config, "/v1/models"));
	md_worker_config_destroy(config);
	config = read_config("upstream: {ignorePaths: ['^/x/\\d+', '(?i)FAVICON']}");
	cr_assert(md_config_ignores_path(config, "/x/12") && md_config_ignores_path(config, "/favicon.ico"));
	cr_assert(!md_config_ignores_path(config, "/a/b.css") && !md_config_ignores_path(config, "/y/x/1"));
	md_worker_config_destroy(config);
}

/* ---- our own keys ---- */

Test(worker_config, each_way_of_swapping_has_its_word)
{
	static const struct {
		const char *word;
		enum md_config_swap swap;
	} ways[] = {{"auto", MD_CONFIG_SWAP_AUTO},
		    {"off", MD_CONFIG_SWAP_OFF},
		    {"on", MD_CONFIG_SWAP_ON},
		    {"checkpoint", MD_CONFIG_SWAP_CHECKPOINT}};
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		char text[128];
		snprintf(text, sizeof(text), "models: {a: {cmd: 's ${PORT}', medusa: {swap: %s}}}\n", ways[i].word);
		const struct md_worker_config *config = read_config(text);
		cr_assert_eq(model_of(config, "a")->own.swap, ways[i].swap, "%s", ways[i].word);
		md_worker_config_destroy(config);
	}
}

Test(worker_config, own_keys_are_read)
{
	const struct md_worker_config *config = read_config(
	    "macros: {dir: /var/lib/x}\nmedusa:\n  gpus: [{memory: 60GB, slots: 2}, {uuid: GPU-1}]\n  host_memory: "
	    "200GiB\n"
	    "  policies: {eviction: lru}\n  tenants:\n  - {name: t, keys: [k1, k2], weight: 2.5, max_running: 4}\n"
	    "  cgroup: off\n"
	    "  templates: {torch: {cmd: 'python -c \"import torch\"', env: [A=1]}}\n  retries: 2\n"
	    "  listen: 0.0.0.0:80\n  state: ${dir}/state.db\n  control: ${dir}/s\n  pool_bytes: 8GB\n  spill: "
	    "${dir}/s\n  spill_bytes: 9GB\n  body_limit: "
	    "1MB\n"
	    "models:\n  a:\n    cmd: s ${PORT}\n    medusa: {artifact: a.medusa, memory: 12GB, host_memory: 1000, "
	    "slo: 800ms, goal: first_token, priority: -3, pin: true, min_replicas: 1, max_batch: 8, "
	    "kv_per_request: 1MiB, swap: off, share: on, gpu_neighbours: auto, start_time: 9s, swap_time: 200ms, "
	    "tenant: t, template: torch, "
	    "max_queue: 5, max_wait: 1min, deadline: 2min}\n");
	const struct md_config_own *own = &model_of(config, "a")->own;
	const struct md_config_node *node = &config->node;
	cr_assert(node->gpu_count == 2 && node->gpus[0].memory_bytes == 60000000000 && node->gpus[0].slots == 2);
	cr_assert(!node->gpus[0].uuid && !strcmp(node->gpus[1].uuid, "GPU-1"));
	cr_assert(node->host_memory_bytes == UINT64_C(200) << 30 && node->pool_bytes == 8000000000);
	cr_assert(!strcmp(node->spill, "/var/lib/x/s") && node->spill_bytes == 9000000000);
	cr_assert(!strcmp(node->policies.eviction, "lru") && !strcmp(node->policies.queueing, "medusa"));
	cr_assert(node->tenant_count == 1 && node->tenants[0].keys.count == 2 && node->tenants[0].weight == 2.5);
	cr_assert(node->template_count == 1 && node->retries == 2 && node->body_limit == 1000000);
	assert_words(node->templates[0].argv, "python|-c|import torch");
	cr_assert_str_eq(node->state, "/var/lib/x/state.db");
	cr_assert_str_eq(node->cgroup, "off");
	cr_assert_str_eq(own->artifact, "a.medusa");
	cr_assert(own->memory_bytes == 12000000000 && own->host_memory_bytes == 1000 && own->slo_ns == 800000000);
	cr_assert(own->goal == MEDUSA_SCHED_GOAL_FIRST_TOKEN && own->priority == -3 && own->pin);
	cr_assert(own->swap == MD_CONFIG_SWAP_OFF && own->share == MD_CONFIG_SHARE_ON && own->tenant == 0);
	cr_assert_eq(own->gpu_neighbours, MD_CONFIG_NEIGHBOURS_AUTO);
	cr_assert(own->template == 0 && own->max_queue == 5 && own->deadline_ns == 120 * SECOND);
	cr_assert(own->kv_request_bytes == 1 << 20 && own->min_replicas == 1 && own->max_batch == 8);
	cr_assert(own->start_ns == 9 * SECOND && own->swap_ns == 200000000 && own->max_wait_ns == 60 * SECOND);
	for (uint32_t n = 0; n < config->note_count; n++)
		cr_assert(strstr(config->notes[n].text, "does not obey it yet"), "%s: %s", config->notes[n].path,
			  config->notes[n].text);
	md_worker_config_destroy(config);
}

#define BACKBONE                                                                                                       \
	"medusa: {gpus: [{memory: 10GB}], backbones: {x: {memory: 4GB}}}\n"                                            \
	"models: {a: {cmd: '${PORT}', medusa: {backbone: x, "

Test(worker_config, models_that_stay_loaded_are_noted)
{
	const struct md_worker_config *config =
	    read_config("medusa: {gpus: [{memory: 10GB}, {memory: 1GB}]}\n"
			"models:\n  a: {cmd: 'x ${PORT}', ttl: 5, medusa: {memory: 8GB, min_replicas: 2}}\n"
			"  b: {cmd: 'x ${PORT}', ttl: 5, medusa: {memory: 2GB, pin: true}}\n"
			"  c: {cmd: 'x ${PORT}', ttl: 5, medusa: {memory: 9GB}}\n");
	assert_noted(config, "models.a.medusa.min_replicas", "one is kept loaded");
	assert_noted(config, "models.a.ttl", "no effect");
	assert_noted(config, "models.b.ttl", "no effect");
	assert_noted(config, "models.c", "does not fit beside");
	cr_assert_eq(config->note_count, 4);
	md_worker_config_destroy(config);
	config = read_config("medusa: {gpus: [{memory: 10GB}]}\n"
			     "models:\n  a: {cmd: 'x ${PORT}', medusa: {memory: 8GB, min_replicas: 1}}\n"
			     "  b: {cmd: 'x ${PORT}', medusa: {memory: 3GB, min_replicas: 1}}\n"
			     "  c: {cmd: 'x ${PORT}', medusa: {memory: 2GB}}\n");
	assert_noted(config, "models.a", "not all of them stay loaded");
	assert_noted(config, "models.b", "not all of them stay loaded");
	cr_assert_eq(config->note_count, 2);
	md_worker_config_destroy(config);
	config = read_config(BACKBONE
			     "memory: 2GB, share: on, min_replicas: 1}},\n"
			     "  b: {cmd: '${PORT}', medusa: {backbone: x, memory: 2GB, share: on, min_replicas: 1}},\n"
			     "  c: {cmd: '${PORT}', medusa: {backbone: x, memory: 2GB, share: on}},\n"
			     "  d: {cmd: '${PORT}', medusa: {memory: 3GB}}}\n");
	assert_noted(config, "models.d", "does not fit beside");
	cr_assert_eq(config->note_count, 1, "the backbone counts once");
	const struct md_config_own *own = &model_of(config, "b")->own;
	cr_assert(own->backbone == 0 && config->node.backbones[0].bytes == 4000000000);
	cr_assert_eq(model_of(config, "d")->own.backbone, MD_CONFIG_NONE);
	md_worker_config_destroy(config);
}

Test(worker_config, own_keys_are_strict)
{
	static const struct refusal refusals[] = {
	    {"medusa: {gpu: 1}", "medusa.gpu: there is no such key; there are gpus, host_memory"},
	    {"medusa: {gpus: all}", "medusa.gpus is \"all\": auto is wanted, or a list"},
	    {"medusa: {gpus: []}", "a list of at least one GPU"},
	    {"medusa: {gpus: [{uuid: a}, {uuid: a}]}", "medusa.gpus[1].uuid is \"a\": this GPU is there already"},
	    {"medusa: {policies: {eviction: best}}", "medusa.policies.eviction is \"best\": one of "},
	    {"medusa: {tenants: [{name: a}, {name: a}]}", "a tenant of this name already"},
	    {"medusa: {tenants: [{keys: [a]}]}", "the tenant has no name"},
	    {"medusa: {tenants: [{name: a, keys: [k]}, {name: b, keys: [k]}]}", "tenant a has one of the keys, too"},
	    {"medusa: {tenants: [{name: a, keys: k}]}", "medusa.tenants[0].keys: a list of texts is wanted"},
	    {"medusa: {tenants: [{name: a, weight: -1}]}", "medusa.tenants[0].weight is -1: a number from 0.000001"},
	    {"medusa: {tenants: [{name: a, weight: 0}]}", "medusa.tenants[0].weight is 0: a number from 0.000001"},
	    {"medusa: {backbones: {x: {}}}", "medusa.backbones.x: memory is missing"},
	    {"medusa: {backbones: {x: {bytes: 1GB}}}", "medusa.backbones.x.bytes: there is no such key"},
	    {"medusa: {templates: {x: {}}}", "medusa.templates.x: cmd is missing"},
	    {"medusa: {retries: 11}", "a whole number from 0 to 10 is wanted"},
	    {"medusa: {body_limit: 10}", "at least 1024 bytes are wanted"},
	    {"medusa: {connection_limit: 0}", "a whole number from 1 to 1000000 is wanted"},
	    {"medusa: {write_timeout_waiting: 10ms}", "at least 1s is wanted"},
	    {"medusa: {state: '${nope}'}", "medusa.state: unknown macro '${nope}'"},
	    {"models: {a: {cmd: '${PORT}', medusa: {memory: 12}}, b: {cmd: '${PORT}', medusa: {memory: 12XB}}}",
	     "models.b.medusa.memory is \"12XB\": bytes with a unit are expected"},
	    {"models: {a: {cmd: '${PORT}', medusa: {slo: 5}}}", "a time with a unit is expected"},
	    {"models: {a: {cmd: '${PORT}', medusa: {goal: fun}}}", "completion or first_token is wanted"},
	    {"models: {a: {cmd: '${PORT}', medusa: {tenant: x}}}", "medusa.tenants has none of this name"},
	    {"models: {a: {cmd: '${PORT}', medusa: {template: x}}}", "medusa.templates has none of this name"},
	    {"models: {a: {cmd: '${PORT}', medusa: {backbone: x}}}", "medusa.backbones has none of this name"},
	    {BACKBONE "share: auto, memory: 1GB}}}", "a.medusa.backbone is \"x\": a backbone wants share: on"},
	    {BACKBONE "share: on}}}", "a.medusa.backbone is \"x\": memory is missing"},
	    {BACKBONE "share: on, memory: 1GB, adapter_slots: 2}}}", "an engine that takes adapters has no backbone"},
	    {BACKBONE "share: on, memory: 7GB}}}", "no GPU of medusa.gpus has so much memory beside the model's"},
	    {BACKBONE "share: on, memory: 2GB, kv_per_request: 5GB}}}", "a.medusa.kv_per_request is \"5GB\": no GPU"},
	    {"models: {a: {cmd: '${PORT}', medusa: {memry: 1}}}", "models.a.medusa.memry: there is no such key"},
	};
	ASSERT_ALL_REFUSED(refusals);
}
