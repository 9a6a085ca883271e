# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: medusa-vllm.pth lies beside the package, where Python reads it at each start."""
import base64
import glob
import hashlib
import os
import zipfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

START = "medusa-vllm.pth"


class Build(build_py):
    def run(self):
        super().run()
        if not getattr(self, "editable_mode", False):
            self.copy_file(START, os.path.join(self.build_lib, START), preserve_mode=False)

    def get_outputs(self, include_bytecode=1):
        start = [] if getattr(self, "editable_mode", False) else [os.path.join(self.build_lib, START)]
        return [*super().get_outputs(include_bytecode), *start]


class Editable(editable_wheel):
    """`pip install -e`: the package stays in the tree, but Python reads .pth files in site-packages alone."""

    def run(self):
        super().run()
        for wheel in glob.glob(os.path.join(glob.escape(self.dist_dir or "dist"), "*.whl")):
            add_start(wheel)


def add_start(wheel):
    """Adds the file to a wheel, and to the wheel's list of files."""
    with open(START, "rb") as file:
        data = file.read()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as whole:
        files = [(info, whole.read(info)) for info in whole.infolist()]
    with zipfile.ZipFile(wheel + ".new", "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr(START, data)
        for info, content in files:
            if info.filename.endswith(".dist-info/RECORD"):
                content = f"{START},sha256={digest},{len(data)}\n".encode() + content
            whole.writestr(info, content)
    os.replace(wheel + ".new", wheel)


setup(cmdclass={"build_py": Build, "editable_wheel": Editable})
