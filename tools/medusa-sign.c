/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-sign: makes keys, signs artifacts, and says by whom one is signed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/plain.h"
#include "format/artifact/artifact.h"
#include "base/file.h"
#include "tools/options.h"
#include "tools/stop.h"

static const char *key_path, *out_path, *trusted_path;

static const struct md_option options[] = {
    {.name = "key", .letter = 'k', .argument = "KEY", .help = "sign: the secret key.", .value = &key_path},
    {.name = "output",
     .letter = 'o',
     .argument = "OUT",
     .help = "keygen: file of the new secret key; sign: file of the signed artifact.",
     .value = &out_path},
    {.name = "trusted",
     .argument = "FILE",
     .help = "check: public keys, one a line; default: MEDUSA_TRUSTED_KEYS.",
     .value = &trusted_path},
};

static const struct md_command command = {
    .name = "medusa-sign",
    .usage = "keygen -o KEY | sign X.medusa --key KEY [-o OUT] | check X.medusa [--trusted FILE]",
    .summary = "Signs artifacts, so that a cold start can refuse those of unknown origin.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .words = "keygen sign check",
    .exit_notes =
	"check: exit code 1 means not signed, or not by a trusted key; 3 means that the signature is wrong.\n",
};

/* ---- keygen ---- */

static enum md_status write_public(const struct md_secret_key *key, const char *path, struct md_error *err)
{
	char text[MD_KEY_TEXT_BYTES + 1];
	struct md_public_key public = md_secret_key_public(key);
	MD_AUTO_FD int fd = -1;
	MD_FORWARD(md_file_create(path, 0644, &fd, err));
	md_public_key_format(&public, text);
	puts(text); /* whether the text was written is checked when the keys are complete */
	text[MD_KEY_TEXT_BYTES - 1] = '\n';
	return md_file_write(fd, text, MD_KEY_TEXT_BYTES, path, err);
}

/* Signals wait, because one key of a pair is of no use. */
static enum md_status write_pair(const char *public_path, struct md_error *err)
{
	struct md_secret_key key;
	MD_FORWARD(md_secret_key_create(out_path, &key, err));
	enum md_status status = write_public(&key, public_path, err);
	md_secret_key_wipe(&key);
	if (status != MD_OK)
		unlink(out_path);
	return status;
}

static int make_keys(void)
{
	MD_AUTO_FREE char *public_path = NULL;
	struct md_error err = {0};
	if (asprintf(&public_path, "%s.pub", out_path) < 0) {
		public_path = NULL;
		md_options_say(&command, "%s.pub: out of memory for its path", out_path);
		return MD_EXIT_COMMAND;
	}
	md_stop_hold();
	enum md_status status = write_pair(public_path, &err);
	md_stop_release();
	return status == MD_OK ? md_options_flush(&command) : md_options_report(&command, &err);
}

/* ---- sign ---- */

static int sign(const char *path)
{
	struct md_secret_key key;
	struct md_error err = {0};
	if (md_secret_key_read(key_path, &key, &err) != MD_OK)
		return md_options_report(&command, &err);
	md_stop_hold(); /* until the file has its name, or is gone */
	enum md_status status = md_artifact_sign(path, out_path ? out_path : path, &key, &err);
	md_stop_release();
	md_secret_key_wipe(&key);
	return status == MD_OK ? MD_EXIT_OK : md_options_report_file(&command, path, &err);
}

/* ---- check ---- */

static int judge(const char *path, const struct md_artifact_signature *signature, const struct md_trust *trust)
{
	char text[MD_KEY_TEXT_BYTES];
	if (!signature->present) {
		md_options_say(&command, "%s: not signed", path);
		return MD_EXIT_FAILED;
	}
	md_public_key_format(&signature->key, text);
	if (!trust || md_trust_holds(trust, &signature->key)) {
		md_plain_line(stdout, "%s: signed by %s%s%s", path, text, trust ? ", which is in " : "",
			      trust ? trust->path : "");
		return md_options_flush(&command);
	}
	md_options_say(&command, "%s: signed by %s, which is not in %s", path, text, trust->path);
	return MD_EXIT_FAILED;
}

/* Reads everything in the file, images too. */
static int check(const char *path)
{
	struct md_artifact artifact;
	struct md_trust trust = {0};
	struct md_error err = {0};
	if (trusted_path && md_trust_read(trusted_path, &trust, &err) != MD_OK)
		return md_options_report(&command, &err);
	enum md_status status = md_artifact_read(path, &artifact, NULL, &err);
	int result = status == MD_OK ? judge(path, &artifact.signature, trusted_path ? &trust : NULL)
				     : md_options_report_file(&command, path, &err);
	if (status == MD_OK)
		md_artifact_finish(&artifact);
	if (trusted_path)
		md_trust_finish(&trust);
	return result;
}

int main(int argc, char *argv[])
{
	struct md_arguments arguments;
	int result = md_options_parse(&command, argc, argv, &arguments);
	const char *from_environment = secure_getenv("MEDUSA_TRUSTED_KEYS");
	if (result >= 0)
		return result;
	const char *what = arguments.file_count ? arguments.files[0] : "";
	bool keygen = !strcmp(what, "keygen"), signs = !strcmp(what, "sign"), checks = !strcmp(what, "check");
	if (arguments.command)
		return md_options_usage_error(&command, "this command starts no engine: nothing may follow --");
	if (!keygen && !signs && !checks)
		return md_options_usage_error(&command, "say what to do: keygen, sign or check");
	if (arguments.file_count != (keygen ? 1 : 2))
		return md_options_usage_error(&command, keygen ? "keygen takes no artifact" : "name one artifact");
	if ((key_path && !signs) || (trusted_path && !checks) || (out_path && checks))
		return md_options_usage_error(&command, "an option does not belong to %s", what);
	if (keygen && !out_path)
		return md_options_usage_error(&command, "name the new secret key with -o");
	if (signs && !key_path)
		return md_options_usage_error(&command, "name the secret key with --key");
	if (!trusted_path && checks)
		trusted_path = from_environment;
	if (trusted_path && !*trusted_path)
		return md_options_usage_error(
		    &command,
		    "the list of trusted keys has an empty name: name a file with --trusted or MEDUSA_TRUSTED_KEYS");
	return keygen ? make_keys() : signs ? sign(arguments.files[1]) : check(arguments.files[1]);
}
