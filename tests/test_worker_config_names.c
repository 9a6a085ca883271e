/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a worker's clients may ask for beside its models: of peers' models, selectors, and pins of profiles. */
#include <stdlib.h>

#include "tests/worker_config_fixture.h"

#define MODELS "models:\n  a: {cmd: 's ${PORT}', aliases: [x]}\n  b: {cmd: 's ${PORT}'}\n"
#define PEERS                                                                                                          \
	"peers:\n  p: {proxy: 'http://p', models: [m, both, a]}\n  q: {proxy: 'https://q:1/v', models: [n, both]}\n"

static void assert_means(const struct md_worker_config *config, const char *name, enum md_config_target_kind kind,
			 uint32_t index, const char *there)
{
	struct md_config_target target = md_config_find(config, name);
	cr_assert_eq(target.kind, kind, "%s is of kind %d", name, target.kind);
	if (kind == MD_CONFIG_NOTHING)
		return;
	cr_assert_eq(target.index, index, "%s", name);
	cr_assert_str_eq(target.name ? target.name : "", there, "%s", name);
}

/* ---- peers ---- */

Test(worker_config_names, peers_are_read)
{
	const struct md_worker_config *config = read_config(
	    "macros: {key: secret}\npeers:\n  p:\n    proxy: http://p\n    models: [m]\n    apiKey: ${key}\n"
	    "    filters: {stripParams: t, setParams: {x: 1}}\n    timeouts: {connect: 1}\n"
	    "  q: {proxy: 'http://q', models: [n]}\n");
	const struct md_config_peer *peer = &config->peers[0];
	cr_assert(config->peer_count == 2 && !strcmp(peer->api_key, "secret") && !*config->peers[1].api_key);
	cr_assert(peer->filters.strip.count == 1 && peer->filters.set.count == 1);
	cr_assert(peer->timeouts.connect_ns == 1000000000 && peer->timeouts.response_header_ns == 60000000000);
	md_worker_config_destroy(config);
}

Test(worker_config_names, models_of_peers_have_names)
{
	const struct md_worker_config *config = read_config(MODELS PEERS);
	assert_means(config, "p/m", MD_CONFIG_PEER, 0, "m");
	assert_means(config, "m", MD_CONFIG_PEER, 0, "m");
	assert_means(config, "n", MD_CONFIG_PEER, 1, "n");
	assert_means(config, "q/both", MD_CONFIG_PEER, 1, "both");
	assert_means(config, "both", MD_CONFIG_NOTHING, 0, "");
	assert_means(config, "a", MD_CONFIG_MODEL, 0, "");
	assert_means(config, "x", MD_CONFIG_MODEL, 0, "");
	assert_means(config, "p/a", MD_CONFIG_PEER, 0, "a");
	assert_means(config, "p/n", MD_CONFIG_NOTHING, 0, "");
	assert_means(config, "", MD_CONFIG_NOTHING, 0, "");
	md_worker_config_destroy(config);
}

Test(worker_config_names, wrong_peers_are_refused)
{
	static const struct refusal refusals[] = {
	    {"peers: {p: {models: [a]}}", "peers.p: proxy is missing"},
	    {"peers: {p: {proxy: 'ftp://x', models: [a]}}", "peers.p.proxy is \"ftp://x\": a URL is wanted"},
	    {"peers: {p: {proxy: 'http://x'}}", "peers.p: models is missing"},
	    {"peers: {p: {proxy: 'http://x', models: []}}", "models is missing"},
	    {"peers: {p: {proxy: 'http://x', models: ['']}}", "a model has no name"},
	    {"peers: {p: {proxy: 'http://x', models: [a], apiKey: '${nope}'}}",
	     "peers.p.apiKey: unknown macro '${nope}'"},
	    {"peers:\n  p:\n    proxy: http://x\n    models: [a]\n    apiKey: |\n      k\n",
	     "c.yaml:5: peers.p.apiKey: the key has a line end or another control character in it"},
	    {"peers: {p: {proxy: 'http://x', models: [a], apiKey: \"k\\x7f\"}}",
	     "peers.p.apiKey: the key has a line end or another control character in it"},
	    {"peers: {p: 1}", "a mapping is wanted"},
	    {"models: {p/a: {cmd: '${PORT}'}}\npeers: {p: {proxy: 'http://x', models: [a]}}",
	     "peers.p: \"p/a\" is the name of a model here, too"},
	    {"models: {m: {cmd: '${PORT}', aliases: [p/a]}}\npeers: {p: {proxy: 'http://x', models: [a]}}",
	     "is the name of a model here, too"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

/* ---- selectors ---- */

Test(worker_config_names, selectors_are_read)
{
	const struct md_worker_config *config = read_config(
	    MODELS PEERS "groups: {g: {swap: false, members: [a, b]}}\nselectors:\n"
			 "  w: {strategy: warm, targets: [x, b], name: N, metadata: {k: 1}, unlisted: true}\n"
			 "  one: {strategy: pin, targets: [p/m]}\n"
			 "  s: {strategy: spillover, targets: [a, b, q/n], settings: {spillover: 4}}\n"
			 "  m: {strategy: pin, targets: [a]}\n");
	cr_assert_eq(config->selector_count, 4);
	assert_means(config, "w", MD_CONFIG_SELECTOR, 0, "");
	assert_means(config, "m", MD_CONFIG_SELECTOR, 3, "");
	assert_means(config, "p/m", MD_CONFIG_PEER, 0, "m");
	const struct md_config_selector *warm = &config->selectors[0], *spillover = &config->selectors[2];
	cr_assert(warm->strategy == MD_CONFIG_WARM && warm->target_count == 2 && warm->targets[0].index == 0);
	cr_assert(warm->unlisted && json_object_get(warm->metadata, "k") && !strcmp(warm->name, "N"));
	cr_assert(warm->spillover == 1 && spillover->spillover == 4 && spillover->targets[2].kind == MD_CONFIG_PEER);
	md_worker_config_destroy(config);
}

Test(worker_config_names, spillover_needs_models_that_run_at_once)
{
	static const char matrix[] =
	    MODELS "matrix: {sets: {s: a & b}}\nselectors: {s: {strategy: spillover, targets: [a, "
		   "b]}}\n";
	md_worker_config_destroy(read_config(matrix));
	assert_config_refused(MODELS "selectors: {s: {strategy: spillover, targets: [a, b]}}\n",
			      "selectors.s.targets: the models cannot run at once");
	assert_config_refused(MODELS
			      "matrix: {sets: {s: a | b}}\nselectors: {s: {strategy: spillover, targets: [a, b]}}",
			      "the models cannot run at once");
	md_worker_config_destroy(read_config(MODELS "selectors: {s: {strategy: spillover, targets: [a]}}\n"));
}

Test(worker_config_names, wrong_selectors_are_refused)
{
	static const struct refusal refusals[] = {
	    {MODELS "selectors: {a: {strategy: pin, targets: [b]}}", "selectors.a: a model has this name, too"},
	    {MODELS "selectors: {x: {strategy: pin, targets: [b]}}", "selectors.x: a model has this name, too"},
	    {MODELS PEERS "selectors: {p/m: {strategy: pin, targets: [b]}}",
	     "selectors.p/m: a model has this name, too"},
	    {MODELS "selectors: {s: {targets: [b]}}", "selectors.s: strategy is missing: warm, pin or spillover"},
	    {MODELS "selectors: {s: {strategy: best, targets: [b]}}", "selectors.s.strategy is \"best\": warm, pin or"},
	    {MODELS "selectors: {s: {strategy: pin}}", "targets has at least one model"},
	    {MODELS "selectors: {s: {strategy: pin, targets: []}}", "targets has at least one model"},
	    {MODELS "selectors: {s: {strategy: pin, targets: [nope]}}",
	     "selectors.s.targets[0] is \"nope\": there is no"},
	    {MODELS "selectors: {s: {strategy: pin, targets: [t]}, t: {strategy: pin, targets: [a]}}",
	     "this is a selector; models are wanted"},
	    {MODELS PEERS "selectors: {s: {strategy: warm, targets: [p/m]}}", "warm takes models of this node only"},
	    {MODELS "selectors: {s: {strategy: spillover, targets: [a, x]}}", "a is there twice"},
	    {MODELS "selectors: {s: {strategy: pin, targets: [a], settings: {spillover: 0}}}", "at least 1 is wanted"},
	};
	ASSERT_ALL_REFUSED(refusals);
}

/* ---- profiles ---- */

Test(worker_config_names, profiles_are_read)
{
	const struct md_worker_config *config =
	    read_config(MODELS "profiles:\n  day: {description: D, pins: {z: b, a: '', new: x, gone: ~}}\n");
	const struct md_config_profile *profile = md_config_find_profile(config, "day");
	cr_assert(profile && profile->pin_count == 4 && !strcmp(profile->description, "D"));
	cr_assert_null(md_config_find_profile(config, "night"));
	cr_assert_str_eq(md_config_find_pin(profile, "z")->target, "b");
	cr_assert_str_eq(md_config_find_pin(profile, "new")->target, "x");
	cr_assert_null(md_config_find_pin(profile, "a")->target);
	cr_assert_null(md_config_find_pin(profile, "gone")->target);
	cr_assert_null(md_config_find_pin(profile, "b"));
	md_worker_config_destroy(config);
}

Test(worker_config_names, wrong_profiles_are_refused)
{
	static const struct refusal refusals[] = {
	    {MODELS "profiles: {d: [a, b]}", "that was the form of older versions"},
	    {MODELS "profiles: {d: {}}", "profiles.d: pins has at least one name"},
	    {MODELS "profiles: {d: {pins: {}}}", "pins has at least one name"},
	    {MODELS "profiles: {d: {pins: {k: nope}}}", "profiles.d.pins.k is \"nope\": there is no model"},
	    {MODELS "profiles: {d: {pins: {k: a, a: b}}}", "profiles.d.pins.k is \"a\": this name is pinned, too"},
	    {MODELS "profiles: {d: {pins: {a: a}}}", "this name is pinned, too"},
	    {MODELS PEERS "profiles: {d: {pins: {p/m: a}}}", "this is the full name of a peer's model"},
	};
	ASSERT_ALL_REFUSED(refusals);
}
