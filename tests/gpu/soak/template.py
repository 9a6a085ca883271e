# SPDX-License-Identifier: Apache-2.0
"""A process that has imported everything and touched no device; it forks an engine for each client that asks."""
import json
import os
import selectors
import signal
import socket
import sys
import time

import engine


def receive(link):
    head, descriptors, _, _ = socket.recv_fds(link, 4, 3)
    size, words = int.from_bytes(head, "little"), b""
    while len(words) < size:
        part = link.recv(size - len(words))
        if not part:
            raise ConnectionError("the client is gone")
        words += part
    return json.loads(words), descriptors


def become(job, descriptors):
    """In the child: what the client was started with, but for the library that is preloaded here already."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(job["cwd"])
    for name in [name for name in os.environ if name not in job["env"]]:
        del os.environ[name]
    os.environ.update(job["env"])
    return job["argv"]


class Template:
    def __init__(self, path):
        self.children, self.links = {}, selectors.DefaultSelector()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(path)
        self.listening.listen(64)
        self.links.register(self.listening, selectors.EVENT_READ)

    def reap(self):
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            link = self.children.pop(pid)
            try:
                link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
            except OSError:
                pass
            self.forget(link)

    def forget(self, link):
        if link in self.links.get_map():
            self.links.unregister(link)
        link.close()

    def gone(self, link):
        """A client that was killed takes its engine along."""
        for pid in [pid for pid, other in self.children.items() if other is link]:
            os.kill(pid, signal.SIGKILL)
        self.links.unregister(link)

    def serve(self):
        """In the child, returns the arguments of an engine; in the template, never."""
        while True:
            for key, _ in self.links.select(0.01):
                if key.fileobj is not self.listening:
                    self.gone(key.fileobj)
                    continue
                link, _ = self.listening.accept()
                try:
                    job, descriptors = receive(link)
                except (OSError, ValueError):
                    link.close()
                    continue
                pid = os.fork()
                if not pid:
                    self.listening.close()
                    self.links.close()
                    for other in [*self.children.values(), link]:
                        other.close()
                    return become(job, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                self.children[pid] = link
                self.links.register(link, selectors.EVENT_READ)
            self.reap()


def import_all():
    """Some modules ask for devices as they are imported; PyTorch then refuses CUDA in what is forked."""
    import torch

    import families

    asked = torch.cuda.is_available, torch.cuda.device_count
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1
    families.import_all()
    torch.cuda.is_available, torch.cuda.device_count = asked


def main():
    path = sys.argv[1]
    import_all()
    template = Template(path + ".new")
    os.rename(path + ".new", path)
    print(f"template {os.path.basename(path)} is ready after {time.process_time():.1f} s", flush=True)
    sys.exit(engine.main(template.serve()))


if __name__ == "__main__":
    main()
