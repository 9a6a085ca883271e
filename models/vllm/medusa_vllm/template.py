# SPDX-License-Identifier: Apache-2.0
"""medusa-vllm-template: a process that has imported vLLM and becomes `vllm serve` on request, by a fork.

    medusa-vllm-template --socket PATH [--import MODULE]... [--leave-out MODULE]... [--vary NAME]...   one for each node
    medusa-vllm-template run --socket PATH [--require] -- vllm serve MODEL ...                         an engine from it
"""
from __future__ import annotations

import sys
from typing import List, Optional, Tuple

NAME = "medusa-vllm-template"
FAILED = 125  # exit code of this command itself; all others are the engine's


class Usage(Exception):
    pass


class Options:
    def __init__(self) -> None:
        self.run, self.require, self.socket = False, False, ""
        self.modules: List[str] = []
        self.leave_out: List[str] = []
        self.vary: List[str] = []
        self.command: List[str] = []


def parse(arguments: List[str]) -> Options:
    """Parses by hand, because argparse costs a client a fifth of its start."""
    options, rest = Options(), list(arguments)
    if rest[:1] == ["run"]:
        options.run = bool(rest.pop(0))
    if "--" in rest:
        at = rest.index("--")
        rest, options.command = rest[:at], rest[at + 1:]
    while rest:
        name, value = _option(rest, options.run)
        if name == "--require":
            options.require = True
        elif name == "--socket":
            options.socket = value
        else:
            {"--import": options.modules, "--leave-out": options.leave_out, "--vary": options.vary}[name].append(value)
    if not options.socket:
        raise Usage("--socket PATH is missing")
    if options.run != bool(options.command):
        raise Usage("run needs -- and a command behind it" if options.run else "a command needs the word run: run --socket PATH -- CMD")
    return options


def _option(rest: List[str], run: bool) -> Tuple[str, str]:
    word = rest.pop(0)
    name, equals, value = word.partition("=")
    if name == "--require" and run and not equals:
        return name, ""
    if name not in (("--socket",) if run else ("--socket", "--import", "--leave-out", "--vary")):
        raise Usage(f"{word} is not an option" + (" of run" if run else ""))
    if not equals:
        if not rest:
            raise Usage(f"{name} needs a value")
        value = rest.pop(0)
    return name, value


def main(arguments: Optional[List[str]] = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--help" in arguments[:2] or "-h" in arguments[:2]:
        print((__doc__ or "").strip())
        return 0
    try:
        options = parse(arguments)
    except Usage as error:
        print(f"{NAME}: {error}; see {NAME} --help", file=sys.stderr)
        return FAILED
    if options.run:
        from . import template_client

        return template_client.run(options)
    from . import template_server

    return template_server.run(options)


if __name__ == "__main__":
    sys.exit(main())
