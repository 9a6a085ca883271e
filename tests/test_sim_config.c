/* SPDX-License-Identifier: Apache-2.0 */
/* node.yaml and functions.yaml: what is read, what is refused and in which words, and the files that come with us. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/config/fields.h"
#include "simulator/simulator.h"
#include "tests/artifact_samples.h"

#define NODE "name: n\nsource: s\nhost_speed: 12GB/s\n"
#define GPUS "gpus: [{memory: 32GB}]\n"
#define FUNCTIONS "source: s\nmodels:\n  - {name: a, weights: 1GB, execution: 5ms}\n"

static struct md_sim_node parse_node(const char *text)
{
	struct md_sim_node node;
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_parse("node.yaml", text, strlen(text), &node, &err), MD_OK, "%s", err.message);
	return node;
}

static struct md_sim_functions parse_functions(const char *text)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	cr_assert_eq(md_sim_functions_parse("functions.yaml", text, strlen(text), &functions, &err), MD_OK, "%s",
		     err.message);
	return functions;
}

static void assert_node_refused(const char *text, const char *message)
{
	struct md_sim_node node;
	struct md_error err = {0};
	cr_assert_neq(md_sim_node_parse("node.yaml", text, strlen(text), &node, &err), MD_OK, "was read:\n%s", text);
	cr_assert(strstr(err.message, message), "'%s' is not in '%s'", message, err.message);
}

static void assert_functions_refused(const char *text, const char *message)
{
	struct md_sim_functions functions;
	struct md_error err = {0};
	cr_assert_neq(md_sim_functions_parse("functions.yaml", text, strlen(text), &functions, &err), MD_OK,
		      "was read:\n%s", text);
	cr_assert(strstr(err.message, message), "'%s' is not in '%s'", message, err.message);
}

/* ---- units ---- */

Test(sim_config, values_have_units)
{
	uint64_t value;
	double speed;
	struct md_units_range rate;
	cr_assert_null(md_units_bytes("1.34GB", &value));
	cr_assert_eq(value, 1340000000);
	cr_assert_null(md_units_bytes("512 MiB", &value));
	cr_assert_eq(value, 512u << 20);
	cr_assert_null(md_units_bytes("0", &value));
	cr_assert_eq(value, 0);
	cr_assert_null(md_units_time("0.25ms", &value));
	cr_assert_eq(value, 250000);
	cr_assert_null(md_units_time("2min", &value));
	cr_assert_eq(value, 120000000000);
	cr_assert_null(md_units_speed("55.5GB/s", &speed));
	cr_assert_float_eq(speed, 55.5e9, 1);
	cr_assert_null(md_units_rate("5..30/min", &rate));
	cr_assert(rate.low == 5 && rate.high == 30);
	cr_assert_null(md_units_rate("0.5..2/s", &rate));
	cr_assert(rate.low == 30 && rate.high == 120);
}

Test(sim_config, values_without_units_are_refused)
{
	static const char *const bad[] = {"",     "12",      "GB",  "-1GB",  "+1GB", "1e9B",  "0x10B", "inf",
					  "nanB", "1.2.3GB", "1gb", "1GB/s", ".GB",  "1,5GB", "1 G B"};
	uint64_t value;
	double speed;
	struct md_units_range rate;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert(md_units_bytes(bad[i], &value), "'%s' passes for bytes", bad[i]);
		cr_assert(md_units_time(bad[i], &value), "'%s' passes for a time", bad[i]);
		cr_assert(md_units_rate(bad[i], &rate), "'%s' passes for a rate", bad[i]);
	}
	cr_assert(md_units_speed("12GB", &speed) && md_units_speed("/s", &speed));
	cr_assert(md_units_bytes("99999999999999TB", &value), "more than 63 bits");
	cr_assert(md_units_rate("30..5/min", &rate) && md_units_rate("..5/min", &rate) &&
		  md_units_rate("5../min", &rate));
}

/* ---- nodes ---- */

Test(sim_config, node_is_read)
{
	struct md_sim_node node = parse_node(NODE "host_memory: 384GB\nswitch_speed: 11GB/s\nprefill_share: 0.5\n"
						  "gpus:\n- {name: left, memory: 32GB, switch: 1, slots: 2}\n"
						  "- {memory: 16GiB, count: 2}\n"
						  "peer_speed: 10GB/s\npeers:\n- {from: 0, to: 1, speed: 50GB/s}\n"
						  "- {from: 2, to: 0, speed: 25GB/s, one_way: true}\n");
	cr_assert_eq(node.gpu_count, 3);
	cr_assert_str_eq(node.gpu_names[0], "left");
	cr_assert_str_eq(node.gpu_names[2], "gpu2");
	cr_assert_eq(node.gpus[0].memory_bytes, 32000000000);
	cr_assert(node.gpus[0].pcie_switch == 1 && node.gpus[0].slots == 2);
	cr_assert(node.gpus[2].memory_bytes == 16ull << 30 && node.gpus[2].size == sizeof(node.gpus[2]));
	cr_assert_eq(node.host_bytes, 384000000000);
	cr_assert_eq(node.switch_bytes_per_s, 11e9);
	cr_assert(node.prefill_share == 0.5 && node.decode_share == 1, "what is not there keeps its default");
	cr_assert(node.peer_bytes_per_s[0 * 3 + 1] == 50e9 && node.peer_bytes_per_s[1 * 3 + 0] == 50e9);
	cr_assert(node.peer_bytes_per_s[2 * 3 + 0] == 25e9 && node.peer_bytes_per_s[0 * 3 + 2] == 10e9, "one way");
	cr_assert(node.peer_bytes_per_s[0] == 0 && node.peer_bytes_per_s[1 * 3 + 2] == 10e9);
	md_sim_node_finish(&node);
	node = parse_node(NODE GPUS);
	cr_assert_null(node.peer_bytes_per_s, "no links unless they are named");
	md_sim_node_finish(&node);
}

Test(sim_config, bad_nodes_are_refused_by_line_and_field)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"", "node.yaml:1: there is nothing in it"},
	    {"- a\n", "node.yaml:1: fields are expected"},
	    {NODE, "node.yaml:1: gpus: it is missing"},
	    {NODE GPUS "colour: red\n", "node.yaml:5: colour: there is no such field; there are name, source"},
	    {NODE GPUS "name: m\n", "node.yaml:5: name: it is given twice"},
	    {NODE "gpus: []\n", "node.yaml:4: gpus: a list of at least one GPU"},
	    {NODE "gpus: 4\n", "node.yaml:4: gpus: a list"},
	    {NODE "gpus:\n- {memory: 32GB}\n- {memory: 32}\n", "node.yaml:6: gpus[1].memory: '32': bytes with a unit"},
	    {NODE "gpus:\n- {slots: 1}\n", "node.yaml:5: gpus[0].memory: it is missing"},
	    {NODE "gpus:\n- {memory: 32GB, count: 257}\n", "gpus[0].count: 257 is more than 256"},
	    {NODE "gpus:\n- {memory: 32GB, count: 200}\n- {memory: 32GB, count: 57}\n", "gpus[1].count: more than 256"},
	    {NODE "gpus:\n- {memory: 32GB, memory: 16GB}\n", "gpus[0].memory: it is given twice"},
	    {NODE "gpus:\n- {memory: [32GB]}\n", "gpus[0].memory: a single value"},
	    {NODE "gpus:\n- 32GB\n", "gpus[0]: fields are expected"},
	    {"name: n\nsource: s\nhost_speed: 0\n" GPUS, "node.yaml:3: host_speed: 0 is less than 1kB/s"},
	    {NODE GPUS "peers:\n- {from: 0, to: 1, speed: 1GB/s}\n", "node.yaml:6: peers[0].to: there are 1 GPUs"},
	    {NODE GPUS "peers:\n- {from: 0, to: 0, speed: 1GB/s}\n", "peers[0].to: a GPU cannot be a peer of itself"},
	    {NODE "gpus:\n- {memory: 1GB, count: 2}\npeers:\n- {from: 0, to: 1, speed: 1GB/s}\n"
		  "- {from: 1, to: 0, speed: 2GB/s, one_way: true}\n",
	     "node.yaml:8: peers[1]: the link from GPU 1 to 0 is given above already"},
	    {NODE GPUS "allocation_time: 2ms\n",
	     "allocation_time: allocation_time and allocation_block have no effect"},
	    {NODE GPUS "report_lag: 2s\n", "report_lag: without report_every there are no reports"},
	    {NODE "gpus: [{memory: 1kB}]\n", "gpus[0].memory: 1kB is less than 1MB"},
	    {NODE GPUS "report_every: 5h\n", "node.yaml:5: report_every: 5h is more than 1h"},
	    {NODE GPUS "peer_speed: 2000TB/s\n", "peer_speed: 2000TB/s is more than 1000TB/s"},
	    {NODE "gpus: [{memory: 1GB, count: 5000000000}]\n",
	     "gpus[0].count: '5000000000': a whole number up to 4294967295 is expected"},
	    {NODE GPUS "gpu_price: 1e3\n", "gpu_price: '1e3': a number without an exponent is expected"},
	    {NODE GPUS "peers: 50GB/s\n", "peers: a list is expected"},
	    {NODE GPUS "prefill_share: 11\n", "prefill_share: 11 is more than 10"},
	    {"name: ''\nsource: s\n", "node.yaml:1: name: '': a text is expected"},
	    {"name: &x n\nsource: *x\n", "node.yaml:1: anchors and tags"},
	    {"name: n\nsource: *x\n", "node.yaml:2: aliases are not taken"},
	    {"name: !!str n\n", "node.yaml:1: anchors and tags"},
	    {"name: n\n---\nname: m\n", "node.yaml:2: a second document"},
	    {"name: {a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: 1}}}}}}}}}}}}}\n", "nested more than 12 deep"},
	    {"? [a, b]\n: c\n", "node.yaml:1: a key that is not a plain word"},
	    {"name: \"a\\0b\"\n", "node.yaml:1: a text with a zero byte"},
	    {"name: [\n", "node.yaml:2: did not find expected"},
	    {"name: \xff\xfe\n", "node.yaml:1: byte 6 of the file: "},
	    {"name: x\nsource: \xff\n", "node.yaml:2: byte 16 of the file: "},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_node_refused(cases[i].text, cases[i].message);
}

Test(sim_config, a_byte_order_mark_is_taken)
{
	static const char node_text[] = "\xef\xbb\xbfname: n\nsource: s\nhost_speed: 10GB/s\ngpus: [{memory: 80GB}]\n";
	static const char short_text[] = "\xef\xbb\xbf";
	struct md_sim_node node;
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_parse("n", node_text, strlen(node_text), &node, &err), MD_OK, "%s", err.message);
	cr_assert_str_eq(node.name, "n");
	md_sim_node_finish(&node);
	cr_assert_neq(md_sim_node_parse("n", short_text, strlen(short_text), &node, &err), MD_OK);
	cr_assert_str_eq(err.message, "n:1: there is nothing in it");
}

Test(sim_config, large_files_are_refused)
{
	size_t bytes = MD_SIM_YAML_BYTES_MAX + 1;
	MD_AUTO_FREE char *text = malloc(bytes + 1);
	struct md_sim_node node;
	struct md_error err = {0};
	memset(text, ' ', bytes);
	cr_assert_eq(md_sim_node_parse("n", text, bytes, &node, &err), MD_ERR_TOO_LARGE);
	memset(text, 'x', 8192);
	memcpy(text, "name: ", 6);
	text[8192] = '\0';
	assert_node_refused(text, "a text of over 4096 bytes");
	size_t used = (size_t)sprintf(text, "gpus: [");
	for (uint32_t i = 0; i < MD_SIM_YAML_NODES_MAX; i++)
		used += (size_t)sprintf(text + used, "1,");
	sprintf(text + used, "]\n");
	assert_node_refused(text, "more than 100000 values");
}

Test(sim_config, files_that_cannot_be_read_are_named)
{
	struct md_sim_node node;
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_read("/nowhere/node.yaml", &node, &err), MD_ERR_NOT_FOUND);
	cr_assert(strstr(err.message, "/nowhere/node.yaml: No such file"), "%s", err.message);
	cr_assert_neq(md_sim_node_read("/dev/zero", &node, &err), MD_OK, "a device that never ends");
	cr_assert_neq(md_sim_node_read("/tmp", &node, &err), MD_OK, "a folder");
}

/* ---- functions ---- */

Test(sim_config, functions_are_models_in_turn)
{
	struct md_sim_functions all = parse_functions(
	    "source: s\nbackbones:\n- {name: base, weights: 13GB, cold_time: 2s, in_host: true}\n"
	    "defaults: {slo: 80ms, rate: 5..30/min, percentile: 98%, max_batch: 4}\n"
	    "models:\n- {name: a, weights: 1GB, execution: 5ms, swap_host: 25ms, swap_peer: 9ms, tail: 0.4}\n"
	    "- {name: b, backbone: base, adapter: 160MB, execution: 40ms, slo: 2s, goal: first_token, rate: 1/min}\n"
	    "functions: {count: 5, round_robin: true}\n");
	cr_assert_eq(all.count, 5);
	cr_assert_eq(all.model_count, 2);
	cr_assert_str_eq(all.functions[2].name, "a-1");
	cr_assert_str_eq(all.functions[3].name, "b-1");
	const struct medusa_sched_function *a = &all.functions[4].spec, *b = &all.functions[1].spec;
	cr_assert(a->backbone == MEDUSA_SCHED_NONE && a->weight_bytes == 1000000000 && a->size == sizeof(*a));
	cr_assert(a->t0_ns == 5000000 && a->swap_ns == 25000000 && a->swap_peer_ns == 9000000 && a->max_batch == 4);
	cr_assert(a->slo_ns == 80000000 && a->slo_percentile == 0.98 && a->slo_goal == MEDUSA_SCHED_GOAL_COMPLETION);
	cr_assert(b->backbone == 0 && b->weight_bytes == 160000000 && b->slo_ns == 2000000000);
	cr_assert_eq(b->slo_goal, MEDUSA_SCHED_GOAL_FIRST_TOKEN);
	cr_assert(all.backbones[0].spec.in_host && all.backbones[0].spec.cold_ns == 2000000000);
	cr_assert(all.functions[4].tail == 0.4 && all.functions[4].model == 0 && all.functions[1].model == 1);
	cr_assert_eq(all.functions[3].rate_per_min, 1, "a rate of its own");
	cr_assert(all.functions[0].rate_per_min >= 5 && all.functions[0].rate_per_min <= 30);
	cr_assert_neq(all.functions[0].rate_per_min, all.functions[2].rate_per_min, "drawn for each");
	md_sim_functions_finish(&all);
}

Test(sim_config, engines_may_batch_by_themselves)
{
	struct md_sim_functions all =
	    parse_functions("source: s\ndefaults: {continuous: true}\n"
			    "models:\n- {name: a, weights: 1GB, execution: 5ms, max_batch: 4, sequence_share: 0}\n"
			    "- {name: b, weights: 1GB, execution: 5ms}\n"
			    "- {name: c, weights: 1GB, execution: 5ms, continuous: false}\n"
			    "- {name: d, weights: 1GB, execution: 5ms, sequence_share: 3%}\n");
	cr_assert(all.functions[0].spec.continuous && all.functions[0].spec.max_batch == 4);
	cr_assert_eq(all.functions[0].sequence_share, 0);
	cr_assert(all.functions[1].spec.continuous && all.functions[1].spec.max_batch == 0);
	cr_assert_eq(all.functions[1].sequence_share, 0.01, "the default");
	cr_assert(!all.functions[2].spec.continuous && all.functions[3].sequence_share == 0.03);
	md_sim_functions_finish(&all);
}

Test(sim_config, functions_are_counted_or_listed)
{
	struct md_sim_functions all =
	    parse_functions(FUNCTIONS "  - {name: b, weights: 1GB, execution: 5ms, count: 2}\n");
	cr_assert_eq(all.count, 3);
	cr_assert_str_eq(all.functions[2].name, "b-1");
	md_sim_functions_finish(&all);
	all = parse_functions(FUNCTIONS "functions:\n- {name: chat, model: a, rate: 3/min, slo: 1s}\n"
					"- {name: code, model: a, percentile: 0.5}\n");
	cr_assert_eq(all.count, 2);
	cr_assert_str_eq(all.functions[0].name, "chat");
	cr_assert(all.functions[0].rate_per_min == 3 && all.functions[0].spec.slo_ns == 1000000000);
	cr_assert(all.functions[1].rate_per_min == 0 && all.functions[1].spec.slo_percentile == 0.5);
	md_sim_functions_finish(&all);
	all = parse_functions(FUNCTIONS "  - {name: b, weights: 1GB, execution: 5ms}\n"
					"functions: {count: 5, round_robin: false}\n");
	cr_assert_str_eq(all.functions[2].name, "a-2", "in blocks");
	cr_assert_str_eq(all.functions[3].name, "b-0");
	md_sim_functions_finish(&all);
}

Test(sim_config, resizing_keeps_the_law_of_rates)
{
	struct md_sim_functions all =
	    parse_functions("source: s\ndefaults: {execution: 5ms, weights: 1MB, rate: 5..30/min}\n"
			    "models: [{name: a}, {name: b}, {name: c}]\nfunctions: {count: 6}\n");
	struct md_error err = {0};
	double rates[6], least = 1e9, most = 0, sum = 0;
	cr_assert_eq(md_sim_functions_resize(&all, 6, 7, &err), MD_OK);
	for (int i = 0; i < 6; i++)
		rates[i] = all.functions[i].rate_per_min;
	cr_assert_eq(md_sim_functions_resize(&all, 1000, 7, &err), MD_OK);
	cr_assert_eq(all.count, 1000);
	cr_assert_str_eq(all.functions[999].name, "a-333");
	for (int i = 0; i < 6; i++)
		cr_assert_eq(all.functions[i].rate_per_min, rates[i], "more functions change nothing of the first");
	for (uint32_t i = 0; i < 1000; i++) {
		double rate = all.functions[i].rate_per_min;
		least = rate < least ? rate : least;
		most = rate > most ? rate : most;
		sum += rate;
	}
	cr_assert(least >= 5 && least < 6 && most > 29 && most <= 30, "%g to %g", least, most);
	cr_assert(sum / 1000 > 16.5 && sum / 1000 < 18.5, "%g in the mean", sum / 1000);
	cr_assert_eq(md_sim_functions_resize(&all, 1000, 8, &err), MD_OK);
	cr_assert_neq(all.functions[0].rate_per_min, rates[0], "another seed, another draw");
	cr_assert_eq(md_sim_functions_resize(&all, 0, 8, &err), MD_ERR_INVALID);
	cr_assert_eq(md_sim_functions_resize(&all, 100001, 8, &err), MD_ERR_INVALID);
	md_sim_functions_finish(&all);
}

Test(sim_config, bad_functions_are_refused_by_line_and_field)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"source: s\n", "functions.yaml:1: models: it is missing"},
	    {"source: s\nmodels: []\n", "functions.yaml:2: models: a list of at least one"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB}\n", "functions.yaml:3: models[0].execution: it is missing"},
	    {"source: s\nmodels:\n- {weights: 1GB, execution: 1ms}\n", "models[0].name: it is missing"},
	    {"source: s\nmodels:\n- {name: a, execution: 1ms}\n", "models[0].weights: it is missing"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 0}\n", "models[0].execution: 0 is less than 1"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, tail: 1.5}\n",
	     "models[0].tail: 1.5 is more"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, goal: soon}\n",
	     "models[0].goal: 'soon': completion or first_token is expected"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, in_host: yes}\n", "'yes': true or false"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, percentile: 100.5%}\n",
	     "models[0].percentile: 100.5% is more than 100%"},
	    {"source: s\nmodels:\n- {name: a, weights: 50GB, execution: 1ms, transfer: 900GB}\n",
	     "functions.yaml:3: models[0].transfer: it is more than twice the weights"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, kv_block_tokens: 16}\n",
	     "models[0].kv_block_tokens: it has no effect without an artifact"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, sequence_share: 0.1}\n",
	     "models[0].sequence_share: it has no effect unless the model is continuous"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, rate: 5/min, rate_law: log}\n",
	     "models[0].rate_law: it has no effect unless rate is a range"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 5h}\n",
	     "models[0].execution: 5h is more than 1h"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, rate: 1000001/min}\n",
	     "models[0].rate: 1000001/min is more than 1000000/min"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, count: 1000000000}\n",
	     "models[0].count: 1000000000 is more than 100000"},
	    {"source: s\nmodels:\n- {name: a, artifact: /, execution: 1ms}\n",
	     "models[0].artifact: /: not a regular file but a folder"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms, residue: 1MB}\n",
	     "models[0].residue: it is more than the context"},
	    {"source: s\nmodels:\n- {name: a, adapter: 1GB, execution: 1ms}\n",
	     "models[0].adapter: it needs a backbone"},
	    {"source: s\nmodels:\n- {name: a, adapter: 1GB, weights: 1GB, execution: 1ms}\n",
	     "weights are given as well"},
	    {"source: s\nmodels:\n- {name: a, backbone: x, execution: 1ms}\n", "there is no backbone 'x'"},
	    {"source: s\nmodels:\n- {name: a, artifact: no.medusa, execution: 1ms}\n",
	     "models[0].artifact: no.medusa: No such file"},
	    {"source: s\nmodels:\n- {name: a, weights: 1GB, execution: 1ms}\n- {name: a, weights: 1GB, execution: "
	     "1ms}\n",
	     "functions.yaml:4: models: 'a' is there already"},
	    {"source: s\nbackbones:\n- {name: x, weights: 1GB}\n- {name: x, weights: 1GB}\n" FUNCTIONS,
	     "functions.yaml:5: source: it is given twice"},
	    {"backbones:\n- {name: x, weights: 1GB}\n- {name: x, weights: 1GB}\n" FUNCTIONS,
	     "functions.yaml:3: backbones[1].name: 'x' is there already"},
	    {"backbones:\n- {name: x}\n" FUNCTIONS, "backbones[0].weights: it is missing"},
	    {FUNCTIONS "defaults: {name: a}\n", "defaults.name: models need names of their own"},
	    {FUNCTIONS "functions: {count: 100001}\n", "functions.yaml:4: functions.count: 100001 is more than 100000"},
	    {FUNCTIONS "functions: {round_robin: true}\n", "functions.count: it is missing"},
	    {FUNCTIONS "functions: 480\n", "functions: a list of at least one"},
	    {FUNCTIONS "functions:\n- {name: x, model: b}\n",
	     "functions.yaml:5: functions[0].model: there is no model 'b'"},
	    {FUNCTIONS "functions:\n- {name: x, model: a}\n- {name: y, model: a}\n- {name: x, model: a}\n",
	     "functions.yaml:7: functions: two are called 'x'"},
	    {FUNCTIONS "  - {name: b, weights: 1GB, execution: 5ms, count: 100000}\n", "more than 100000 functions"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_functions_refused(cases[i].text, cases[i].message);
}

/* ---- artifacts ---- */

/* A file of configuration beside an artifact, in a folder of their own. */
static void write_beside(const char *folder, const char *text)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	char path[256];
	sample_artifact(&artifact);
	artifact.bindings[0].role = MD_BIND_CONSTANT;
	artifact.bindings[0].size = artifact.allocs[0].size = 123456789;
	artifact.kv.present = true;
	artifact.kv.graph_bytes = artifact.arena_size + 4096;
	artifact.kv.block_bytes = 3200;
	artifact.kv.blocks = 2;
	artifact.kv.kv_bytes = 2 * artifact.kv.block_bytes;
	artifact.kv.baseline_free = 1 << 20;
	snprintf(path, sizeof(path), "%s/model.medusa", folder);
	cr_assert_eq(md_artifact_write(&artifact, path, NULL, &err), MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
	snprintf(path, sizeof(path), "%s/functions.yaml", folder);
	FILE *out = fopen(path, "w");
	cr_assert(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

static void remove_beside(const char *folder)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/model.medusa", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/functions.yaml", folder);
	unlink(path);
	rmdir(folder);
}

Test(sim_config, an_artifact_says_what_the_file_does_not)
{
	char folder[] = "/tmp/test_sim_config.XXXXXX", path[256];
	struct md_sim_functions all;
	struct md_error err = {0};
	uint64_t constants = 123456789;
	cr_assert_not_null(mkdtemp(folder));
	write_beside(folder,
		     "source: s\ndefaults: {artifact: model.medusa, kv_block_tokens: 16, execution: 1ms}\n"
		     "models:\n- {name: a}\n- {name: b, weights: 1GB, context: 5MB, kv: 1MB, capture_time: 9s}\n");
	snprintf(path, sizeof(path), "%s/functions.yaml", folder);
	cr_assert_eq(md_sim_functions_read(path, &all, &err), MD_OK, "%s", err.message);
	const struct md_sim_function *a = &all.functions[0], *b = &all.functions[1];
	cr_assert_geq(a->spec.weight_bytes, constants, "%llu", (unsigned long long)a->spec.weight_bytes);
	cr_assert_gt(a->spec.context_bytes, 4096);
	cr_assert_eq(a->kv_bytes_per_token, 200);
	cr_assert_eq(b->spec.weight_bytes, 1000000000, "the file wins");
	cr_assert(b->spec.context_bytes == 5000000 && b->kv_bytes_per_token == 0 && b->capture_ns == 9000000000);
	cr_assert_str_eq(all.file, path);
	cr_assert_eq(all.artifact_count, 2);
	snprintf(path, sizeof(path), "%s/model.medusa", folder);
	cr_assert_str_eq(all.artifacts[1], path, "what must not be written over");
	md_sim_functions_finish(&all);
	remove_beside(folder);
}

Test(sim_config, rates_can_be_drawn_with_an_even_logarithm)
{
	struct md_sim_functions all = parse_functions("source: s\nmodels: [{name: a, execution: 5ms, weights: 1MB, "
						      "rate: 5..30/min, rate_law: log, count: 2000}]\n");
	double sum = 0;
	for (uint32_t i = 0; i < all.count; i++) {
		cr_assert(all.functions[i].rate_per_min >= 5 && all.functions[i].rate_per_min <= 30);
		sum += all.functions[i].rate_per_min;
	}
	cr_assert_float_eq(sum / all.count, 13.95, 0.5, "%g in the mean", sum / all.count);
	md_sim_functions_finish(&all);
}

/* ---- what comes with us ---- */

static void each_file(const char *pattern, void (*check)(const char *path))
{
	glob_t found;
	cr_assert_eq(glob(pattern, 0, NULL, &found), 0, "%s: none", pattern);
	for (size_t i = 0; i < found.gl_pathc; i++)
		check(found.gl_pathv[i]);
	globfree(&found);
}

static void check_node(const char *path)
{
	struct md_sim_node node;
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_read(path, &node, &err), MD_OK, "%s", err.message);
	cr_assert_geq(strlen(node.source), 80, "%s does not say where its numbers come from", path);
	md_sim_node_finish(&node);
}

static void check_functions(const char *path)
{
	struct md_sim_functions all;
	struct md_error err = {0};
	cr_assert_eq(md_sim_functions_read(path, &all, &err), MD_OK, "%s", err.message);
	cr_assert_geq(strlen(all.source), 80, "%s does not say where its numbers come from", path);
	for (uint32_t i = 0; i < all.count; i++)
		cr_assert(all.functions[i].spec.slo_ns && all.functions[i].rate_per_min > 0, "%s: %s", path,
			  all.functions[i].name);
	md_sim_functions_finish(&all);
}

Test(sim_config, files_that_come_with_us_are_good)
{
	each_file("simulator/nodes/*.yaml", check_node);
	each_file("simulator/functions/*.yaml", check_functions);
}

/* Figure 10: of 160 functions, 72 instances of Native fit on four GPUs, each as the first GPU with room takes it. */
Test(sim_config, native_instances_of_torpors_node_are_72)
{
	struct md_sim_node node;
	struct md_sim_functions all;
	struct md_error err = {0};
	uint64_t used[4] = {0};
	uint32_t fit = 0;
	cr_assert_eq(md_sim_node_read("simulator/nodes/torpor-v100.yaml", &node, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_functions_read("simulator/functions/torpor-models.yaml", &all, &err), MD_OK, "%s",
		     err.message);
	cr_assert_eq(md_sim_functions_resize(&all, 160, 1, &err), MD_OK);
	for (uint32_t i = 0; i < all.count; i++)
		for (uint32_t gpu = 0; gpu < node.gpu_count; gpu++)
			if (used[gpu] + all.functions[i].native_bytes <= node.gpus[gpu].memory_bytes) {
				used[gpu] += all.functions[i].native_bytes;
				fit++;
				break;
			}
	cr_assert_eq(fit, 72, "%u", fit);
	md_sim_functions_finish(&all);
	md_sim_node_finish(&node);
}

/* ---- policies ---- */

Test(sim_config, policies_name_their_source)
{
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	cr_assert_eq(count, 17);
	for (size_t i = 0; i < count; i++) {
		const struct md_sim_policy *policy = &policies[i];
		cr_assert_eq(md_sim_policy_find(policy->name), policy, "%s", policy->name);
		cr_assert(policy->queueing && policy->placement && policy->eviction && policy->batching &&
			      policy->preloading,
			  "%s", policy->name);
		cr_assert(strstr(policy->summary, "(") && strlen(policy->summary) > 30, "%s", policy->name);
	}
	cr_assert_null(md_sim_policy_find("best"));
	cr_assert_str_eq(md_sim_policy_find("torpor-lru")->eviction, "lru");
	cr_assert_str_eq(md_sim_policy_find("torpor-lru")->placement, "torpor");
	cr_assert(md_sim_policy_find("native")->early_binding && md_sim_policy_find("xlora-nbs")->no_sharing);
	cr_assert_eq(md_sim_policy_find("xlora-nab3")->fixed_delay_ns, 1000000000);
}
