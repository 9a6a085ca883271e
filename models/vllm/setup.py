# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: medusa-vllm.pth lies beside the package, where Python reads it at each start."""
import os

from setuptools import setup
from setuptools.command.build_py import build_py

START = "medusa-vllm.pth"


class Build(build_py):
    def run(self):
        super().run()
        self.copy_file(START, os.path.join(self.build_lib, START), preserve_mode=False)

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), os.path.join(self.build_lib, START)]


setup(cmdclass={"build_py": Build})
