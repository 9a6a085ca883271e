# SPDX-License-Identifier: Apache-2.0
"""`transformers serve --continuous-batching` on a tiny random model, asked over HTTP. Behind -- is what stands before the server's command."""
import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROMPTS = [["w5 w7 w9", 8], ["w20 w30 w40 w50 " * 20, 8], ["w3 " * 200, 6], ["w100 w200", 24]]
SERVER = ["-m", "transformers.cli.transformers", "serve"]
# Without flash attention transformers makes graphs only if it is told to.
FLAGS = ["--continuous-batching", "--attn-implementation", "sdpa", "--cb-use-cuda-graph", "--device", "cuda:0",
         "--cb-max-batch-tokens", "256", "--cb-max-memory-percent", "0.05"]


def make_model(folder):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{index}": index for index in range(3, 512)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=2048)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
                            pad_token="<unk>").save_pretrained(folder)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def get(port, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://localhost:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def wait_for(server, port):
    end = time.monotonic() + 180
    while time.monotonic() < end and server.poll() is None:
        try:
            get(port, "/health")
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("failure: the server does not answer")


def ask(port, failures, answered):
    """The answers by name; answered() is called after each of them."""
    answers = {}
    for index, (prompt, count) in enumerate(PROMPTS):
        try:
            answer = get(port, "/v1/completions", {"prompt": prompt, "max_tokens": count, "temperature": 0})
            answers[f"prompt {index}"] = answer["choices"][0]["text"]
            answered()
        except urllib.error.HTTPError as error:
            failures.append(f"prompt {index}: {error} {error.read()[:200]}")
    return answers


def steps_in(log):
    """How each graph was made, as the adapter's log says."""
    found = re.findall(r"graph (\S+): (restored|live)(?:, (.*))?$", log, re.MULTILINE)
    return [{"graph": graph, "restored": how == "restored", "reason": why} for graph, how, why in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="the folder that holds the model; made if it is not there")
    parser.add_argument("--out", help="where to write the answers, and how each graph was made")
    parser.add_argument("--make", action="store_true", help="make the model, and print the server's command")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, before = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1:]
    if not os.path.exists(options.model):
        make_model(options.model)
    command = [*before, sys.executable, *SERVER, options.model, *FLAGS]
    if options.make:
        print(*command, sep="\n")
        return 0
    port, failures, seconds = free_port(), [], []
    with open(f"{options.out}.log", "w+", encoding="utf-8") as log:
        began = time.monotonic()
        server = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)

        def mark():
            seconds.append(round(time.monotonic() - began, 2))

        try:
            wait_for(server, port)
            mark()
            answers = ask(port, failures, mark)
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
            log.seek(0)
            said = log.read()
            print(said)
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump({"steps": steps_in(said), "outputs": answers, "seconds": seconds}, out)
    if before and not any(step["restored"] for step in steps_in(said)):
        failures.append(f"{before[0]}: no graph was restored")
    for failure in failures:
        print(f"failure: {failure}")
    restored = sum(step["restored"] for step in steps_in(said))
    print(f"torch_serve: healthy after {seconds[0]} s, first answer after {(seconds[1:] or ['no'])[0]} s, all {len(answers)} after {seconds[-1]} s; "
          f"{restored} of {len(steps_in(said))} graphs restored")
    return 1 if failures or not answers else 0


if __name__ == "__main__":
    sys.exit(main())
