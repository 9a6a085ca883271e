# SPDX-License-Identifier: Apache-2.0
"""Authorities and certificates for tests, made by openssl."""
import os
import subprocess


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


NEW = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """Files in a folder: pem is its own certificate."""

    def __init__(self, folder, name, days=400):
        self.folder, self.name, self.pem, self.key = folder, name, f"{folder}/{name}.pem", f"{folder}/{name}.key"
        openssl("req", "-x509", *NEW, "-days", str(days), "-keyout", self.key, "-out", self.pem, "-subj", f"/CN={name}")

    def issue(self, file, names, days=200, subject="/"):
        """(certificate, key) for names such as DNS:a; days below 0: it has expired. What is there is replaced at once."""
        at = f"{self.folder}/{file}"
        openssl("req", *NEW, "-keyout", f"{at}.key.new", "-out", f"{at}.csr", "-subj", subject)
        with open(f"{at}.names", "w", encoding="utf-8") as out:
            out.write(f"subjectAltName=critical,{','.join(names)}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("x509", "-req", "-in", f"{at}.csr", "-CA", self.pem, "-CAkey", self.key, "-set_serial", str(int.from_bytes(os.urandom(8), "big") >> 1), "-days", str(days),
                "-extfile", f"{at}.names", "-out", f"{at}.pem.new")
        os.rename(f"{at}.key.new", f"{at}.key")
        os.rename(f"{at}.pem.new", f"{at}.pem")
        return f"{at}.pem", f"{at}.key"
