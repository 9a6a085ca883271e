# SPDX-License-Identifier: Apache-2.0
"""Compares the live and the restored run of the demo and prints the closing table; exit 1 unless they are bit-identical."""
import json
import sys

folder = sys.argv[1]


def load(name):
    with open(f"{folder}/{name}.json", encoding="utf-8") as file:
        return json.load(file)


live, restored, artifact = load("live"), load("restored"), load("artifact")
stats = restored["medusa"] or {}
ms = lambda report, stage: report["stages_ms"].get(stage, 0.0)


def row(name, left, right):
    print(f"  {name:<34}{left:>16}{right:>16}")


def time_row(name, left, right):
    row(name, f"{left:.1f} ms", f"{right:.1f} ms")


print(f"  {'':<34}{'live':>16}{'restored':>16}")
time_row("weights", ms(live, "weights"), ms(restored, "weights"))
time_row("KV capacity and its allocation", ms(live, "kv"), ms(restored, "kv"))
time_row("warm-up", ms(live, "warmup"), ms(restored, "warmup"))
time_row("stream capture", ms(live, "capture"), ms(restored, "capture"))
time_row("instantiate", ms(live, "instantiate"), stats.get("instantiate_ns", 0) / 1e6)
time_row("wait for restored graphs", 0.0, ms(restored, "restore_wait"))
time_row("all graphs, from bound buffers on",
         ms(live, "warmup") + ms(live, "capture") + ms(live, "instantiate"),
         ms(restored, "restore_wait") + ms(restored, "warmup") + ms(restored, "capture") + ms(restored, "instantiate"))
time_row("prefill", ms(live, "prefill"), ms(restored, "prefill"))
time_row("decode", ms(live, "decode"), ms(restored, "decode"))
row("KV blocks", live["kv"]["blocks"], restored["kv"]["blocks"])
row("KV answer from", "profiling" if not live["kv"]["from_profile"] else "artifact",
    "artifact" if restored["kv"]["from_profile"] else "profiling")
row("graphs restored", "-", f"{restored['graphs_restored']} of {len(restored['graphs'])}")
if "check" in restored:
    row("graphs bit-equal to eager", "-", f"{restored['check']['equal']} of {restored['check']['of']}")

graphs = artifact["graphs"]
total = lambda key: sum(graph.get(key, 0) for graph in graphs)
sections = {section["name"]: section for section in artifact["sections"]}
nodes = total("nodes")
graph_bytes = sum(sections[name]["stored"] for name in ("graphs", "pointers") if name in sections)
print()
print(f"  nodes {nodes}, pointers {total('pointers')} (proof: {', '.join(sorted({g['proof'] for g in graphs}))}), "
      f"constant words {total('constant_words')}, noise words {total('noise_words')}, refused graphs {len(artifact['refusals'])}")
print(f"  kernels {len(artifact['kernels'])}: from loaded images {stats.get('kernels_loaded_image', 0)}, from stored images "
      f"{stats.get('kernels_stored_image', 0)}, triggered {stats.get('kernels_triggered', 0)}")
print(f"  restore: images {stats.get('images_ns', 0) / 1e6:.2f} ms, functions {stats.get('functions_ns', 0) / 1e6:.2f}, "
      f"patch {stats.get('patch_ns', 0) / 1e6:.2f}, build {stats.get('build_ns', 0) / 1e6:.2f}, instantiate "
      f"{stats.get('instantiate_ns', 0) / 1e6:.2f}, upload {stats.get('upload_ns', 0) / 1e6:.2f}; first graph "
      f"{stats.get('first_ready_ns', 0) / 1e6:.2f} ms after its kernels and buffers were there")
print(f"  artifact {artifact['file_bytes']} bytes; graph and pointer sections {graph_bytes} bytes = "
      f"{graph_bytes / max(nodes, 1):.1f} bytes a node")

texts = lambda report: [sequence["text"] or sequence["tokens"] for sequence in report["sequences"]]
problems = []
if texts(live) != texts(restored):
    problems.append("the generated text differs")
if live["logits_xxh3"] != restored["logits_xxh3"]:
    problems.append("the logits differ")
if restored["graphs_live"]:
    problems.append(f"{restored['graphs_live']} graphs were captured live: " +
                    "; ".join(sorted({g["reason"] for g in restored["graphs"] if g["source"] == "live"})))
if not restored["graphs"] or not restored["tokens"]:
    problems.append("nothing was generated")
if problems:
    print("\n  FAILED: " + "; ".join(problems))
    sys.exit(1)
print(f"\n  text and logits of {restored['tokens']} tokens are bit-identical to the live engine's "
      f"(XXH3-128 of all logits {restored['logits_xxh3']})")
