/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads adapter_config.json. New versions of PEFT add keys: one that this reader doesn't know may be null, false or
 * empty, as all of PEFT's extensions are when they are not used. Any other value is refused.
 */
#include "models/llama/adapters/peft_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/llama/adapters/plan.h"

#define MOST_RANK 1000000

/* ---- keys --------------------------------------------------------------------------------------------------------- */

/* Keys that are read below, or that change nothing once an adapter was trained. */
static const char *const known_keys[] = {
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "bias",
    "init_lora_weights",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "task_type",
    "inference_mode",
    "peft_version",
    "lora_dropout",
    "megatron_core",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "runtime_config",
    "qalora_group_size",
};

static const struct {
	const char *key, *why;
} reasons[] = {
    {"use_dora", "DoRA scales the columns of the whole weight, which an adapter beside the weight can't do"},
    {"lora_bias", "this engine's projections have no bias"},
    {"fan_in_fan_out", "the weights of this engine's models are not transposed"},
    {"modules_to_save", "modules that were saved whole can't be applied beside the weights"},
    {"trainable_token_indices", "changes of embeddings can't be applied"},
    {"target_parameters", "changes of parameters other than projections can't be applied"},
    {"layer_replication", "the model's layers can't be repeated"},
    {"alora_invocation_tokens", "adapters that begin at a token can't be applied"},
    {"use_qalora", "QALoRA changes the inputs of a projection"},
};

static bool is_known(const char *key)
{
	for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); i++)
		if (!strcmp(key, known_keys[i]))
			return true;
	return false;
}

static bool is_empty(const json_t *value)
{
	return json_is_null(value) || json_is_false(value) || (json_is_string(value) && !json_string_length(value)) ||
	       (json_is_array(value) && !json_array_size(value)) || (json_is_object(value) && !json_object_size(value));
}

static enum md_status check_key(const char *key, const json_t *value, struct md_error *err)
{
	char shown[LORA_SHOWN_BYTES];
	if (is_known(key) || is_empty(value))
		return MD_OK;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (!strcmp(key, reasons[i].key))
			return md_error_set(err, MD_ERR_UNSUPPORTED, "%s is set: %s", key, reasons[i].why);
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "\"%s\" is set, a key that this engine doesn't know: it may change what is computed",
			    lora_show_name(shown, key, strlen(key)));
}

static enum md_status check_keys(const struct peft_config *config, struct md_error *err)
{
	const char *key;
	json_t *value;
	json_object_foreach(config->json, key, value) MD_FORWARD(check_key(key, value, err));
	return MD_OK;
}

static enum md_status refuse(const char *key, const char *wanted, struct md_error *err)
{
	return md_error_set(err, MD_ERR_INVALID, "%s: %s is wanted", key, wanted);
}

/* NULL: the key is not there, or it is null, or there is nothing in it. */
static const json_t *get(const struct peft_config *config, const char *key)
{
	const json_t *value = json_object_get(config->json, key);
	return is_empty(value) && !json_is_false(value) && !json_is_string(value) ? NULL : value;
}

/* ---- patterns ----------------------------------------------------------------------------------------------------- */

/*
 * A key of rank_pattern and alpha_pattern is a regular expression for the end of a module's name. This engine knows
 * names, with a dot as any character, and ^ for the beginning of the whole name.
 */
static bool is_plain_pattern(const char *key)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
	key += *key == '^';
	size_t size = strspn(key, letters);
	return size && !key[size + (key[size] == '$')];
}

static bool pattern_matches(const char *key, const char *module)
{
	bool whole = *key == '^';
	key += whole;
	size_t size = strcspn(key, "$"), length = strlen(module);
	if (size > length || (whole && size != length))
		return false;
	const char *end = module + length - size;
	if (end > module && end[-1] != '.')
		return false;
	for (size_t i = 0; i < size; i++)
		if (key[i] != end[i] && key[i] != '.')
			return false;
	return true;
}

/* PEFT takes the first key that matches. */
static const json_t *find_pattern(const json_t *patterns, const char *module)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)patterns, key, value)
	{
		if (pattern_matches(key, module))
			return value;
	}
	return NULL;
}

static bool is_rank(const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= MOST_RANK;
}

static bool is_alpha(const json_t *value)
{
	return json_is_number(value) && isnormal(json_number_value(value));
}

static enum md_status read_pattern(const struct peft_config *config, const char *name, bool (*is_right)(const json_t *),
				   const json_t **out, struct md_error *err)
{
	const char *key;
	json_t *value;
	char shown[LORA_SHOWN_BYTES];
	*out = get(config, name);
	if (*out && !json_is_object(*out))
		return refuse(name, "an object of names and numbers", err);
	json_object_foreach((json_t *)(uintptr_t)*out, key, value)
	{
		lora_show_name(shown, key, strlen(key));
		if (!is_plain_pattern(key))
			return md_error_set(err, MD_ERR_UNSUPPORTED,
					    "%s: \"%s\" is a regular expression; this engine knows names of modules",
					    name, shown);
		if (!is_right(value))
			return md_error_set(err, MD_ERR_INVALID, "%s: the value of \"%s\" is no usable number", name,
					    shown);
	}
	return MD_OK;
}

/* ---- single keys -------------------------------------------------------------------------------------------------- */

static bool is_text(const struct peft_config *config, const char *key, const char *wanted)
{
	const char *text = json_string_value(json_object_get(config->json, key));
	return text && !strcmp(text, wanted);
}

static enum md_status check_kind(const struct peft_config *config, struct md_error *err)
{
	if (!is_text(config, "peft_type", "LORA"))
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "peft_type is not \"LORA\": this engine serves LoRA alone");
	if (get(config, "bias") && !is_text(config, "bias", "none"))
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "bias is not \"none\": this engine's projections have no bias");
	return MD_OK;
}

/* Other ways to begin (PiSSA, OLoRA, LoftQ, CorDA ...) change the base model's weights, too. */
static enum md_status check_beginning(const struct peft_config *config, struct md_error *err)
{
	static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
	const json_t *value = get(config, "init_lora_weights");
	char shown[LORA_SHOWN_BYTES];
	if (!value || json_is_boolean(value))
		return MD_OK;
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (is_text(config, "init_lora_weights", harmless[i]))
			return MD_OK;
	const char *text = json_is_string(value) ? json_string_value(value) : "no text";
	return md_error_set(
	    err, MD_ERR_UNSUPPORTED,
	    "init_lora_weights is \"%s\", which may change the base model's weights, too: let PEFT convert the "
	    "adapter to a plain one (path_initial_model_for_weight_conversion)",
	    lora_show_name(shown, text, strlen(text)));
}

static bool is_list_of(const json_t *list, bool (*is_right)(const json_t *))
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!is_right(json_array_get(list, i)))
			return false;
	return json_is_array(list);
}

static bool is_name(const json_t *value)
{
	return json_is_string(value) && json_string_length(value);
}

static bool is_layer(const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) >= 0;
}

static bool is_layers_pattern(const json_t *value)
{
	const json_t *one = json_is_array(value) && json_array_size(value) == 1 ? json_array_get(value, 0) : value;
	return json_is_string(one) && (!json_string_length(one) || !strcmp(json_string_value(one), "layers"));
}

static enum md_status read_targets(struct peft_config *config, struct md_error *err)
{
	config->targets = get(config, "target_modules");
	config->exclude = get(config, "exclude_modules");
	config->layers = get(config, "layers_to_transform");
	if (!is_name(config->targets) && !is_list_of(config->targets, is_name))
		return refuse("target_modules", "a list of names, or a text", err);
	if (config->exclude && !json_is_string(config->exclude) && !is_list_of(config->exclude, is_name))
		return refuse("exclude_modules", "a list of names, or a text", err);
	if (config->layers && !is_layer(config->layers) && !is_list_of(config->layers, is_layer))
		return refuse("layers_to_transform", "a list of numbers from 0, or one", err);
	if (config->layers && json_is_string(config->targets))
		return refuse("layers_to_transform", "a list of target_modules beside it", err);
	const json_t *pattern = get(config, "layers_pattern");
	return !pattern || is_layers_pattern(pattern) ? MD_OK : refuse("layers_pattern", "\"layers\"", err);
}

static enum md_status read_numbers(struct peft_config *config, struct md_error *err)
{
	const json_t *rank = get(config, "r"), *alpha = get(config, "lora_alpha"), *root = get(config, "use_rslora");
	if (!is_rank(rank))
		return refuse("r", "an integer of at least 1", err);
	if (!is_alpha(alpha))
		return refuse("lora_alpha", "a number other than 0", err);
	if (root && !json_is_boolean(root))
		return refuse("use_rslora", "true or false", err);
	config->rank = (int)json_integer_value(rank);
	config->alpha = json_number_value(alpha);
	config->root_scale = json_is_true(root);
	return MD_OK;
}

static enum md_status read_config(struct peft_config *config, struct md_error *err)
{
	MD_FORWARD(check_kind(config, err));
	MD_FORWARD(check_keys(config, err));
	MD_FORWARD(check_beginning(config, err));
	MD_FORWARD(read_numbers(config, err));
	MD_FORWARD(read_targets(config, err));
	MD_FORWARD(read_pattern(config, "rank_pattern", is_rank, &config->rank_pattern, err));
	return read_pattern(config, "alpha_pattern", is_alpha, &config->alpha_pattern, err);
}

enum md_status peft_config_parse(struct peft_config *config, const char *text, size_t size, struct md_error *err)
{
	*config = (struct peft_config){0};
	MD_FORWARD(adapter_json_parse(text, size, &config->json, err));
	enum md_status status = read_config(config, err);
	if (status != MD_OK)
		peft_config_finish(config);
	return status;
}

void peft_config_finish(struct peft_config *config)
{
	json_decref(config->json);
	memset(config, 0, sizeof(*config));
}

/* ---- one module --------------------------------------------------------------------------------------------------- */

/* The whole name, or its end behind a dot. */
static bool names_module(const json_t *list, const char *module)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));
		size_t size = strlen(name), length = strlen(module);
		if (size <= length && !strcmp(module + length - size, name) &&
		    (size == length || module[length - size - 1] == '.'))
			return true;
	}
	return false;
}

static bool has_layer(const json_t *layers, int layer)
{
	if (json_is_integer(layers))
		return json_integer_value(layers) == layer;
	for (size_t i = 0; i < json_array_size(layers); i++)
		if (json_integer_value(json_array_get(layers, i)) == layer)
			return true;
	return !layers;
}

/* PEFT leaves such tensors of the file alone, so an answer with them would be another than PEFT's. */
static enum md_status check_target(const struct peft_config *config, const char *module, int layer,
				   struct md_error *err)
{
	const char *key = json_is_array(config->targets) && !names_module(config->targets, module) ? "target_modules"
			  : names_module(config->exclude, module)                                  ? "exclude_modules"
			  : !has_layer(config->layers, layer) ? "layers_to_transform"
							      : NULL;
	if (!key)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH, "%s leaves %s out, and the file has tensors of it", key, module);
}

enum md_status peft_config_find(const struct peft_config *config, const char *module, int layer,
				struct peft_module *out, struct md_error *err)
{
	const json_t *rank = find_pattern(config->rank_pattern, module);
	const json_t *alpha = find_pattern(config->alpha_pattern, module);
	MD_FORWARD(check_target(config, module, layer, err));
	*out = (struct peft_module){.rank = rank ? (int)json_integer_value(rank) : config->rank,
				    .alpha = alpha ? json_number_value(alpha) : config->alpha};
	return MD_OK;
}
