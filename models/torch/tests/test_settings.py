# SPDX-License-Identifier: Apache-2.0
"""Switches, words and numbers of the environment: what is permitted, and that anything else is named and never means on."""
import os
import unittest
from unittest import mock

from medusa import _settings

NAME = "MEDUSA_TEST_SETTING"


class Settings(unittest.TestCase):
    def setUp(self):
        _settings._named.clear()

    def ask(self, text, function, *arguments, **options):
        """The answer, and what was said of it."""
        environment = {} if text is None else {NAME: text}
        with mock.patch.dict(os.environ, environment), mock.patch("logging.Logger.error") as error:
            answer = function(NAME, *arguments, **options)
            self.assertEqual(answer, function(NAME, *arguments, **options), "the same again, and said once")
        self.assertLessEqual(error.call_count, 1)
        said = error.call_args
        return answer, said[0][0] % said[0][1:] if said else ""

    def test_a_switch(self):
        for default in (True, False):
            for text in (None, ""):
                self.assertEqual(self.ask(text, _settings.is_on, default, "so"), (default, ""))
            for text in ("1", "on", "true", "yes", "ON", "True", "yEs"):
                self.assertEqual(self.ask(text, _settings.is_on, default, "so"), (True, ""))
            for text in ("0", "off", "false", "no", "OFF", "False", "nO"):
                self.assertEqual(self.ask(text, _settings.is_on, default, "so"), (False, ""))

    def test_what_is_no_switch(self):
        for text in ("2", "of", "onn", " 1", "1 ", "-1", "enabled", "\u0131", "0\n", "\N{FULLWIDTH DIGIT ONE}"):
            for unreadable in (True, False):
                _settings._named.clear()
                answer, said = self.ask(text, _settings.is_on, True, "it is left out", unreadable=unreadable)
                self.assertEqual(answer, unreadable)
                self.assertEqual(said, f"medusa: {NAME}={text!r}: one of 1, on, true, yes, 0, off, false, no is wanted; it is left out")

    def test_a_word(self):
        words = ("load", "compile"), "load", "0", "nothing takes over"
        also = {True: "load", False: "0"}
        for text, wanted in ((None, "load"), ("", "load"), ("compile", "compile"), ("Compile", "compile"), ("0", "0"), ("Off", "0"), ("1", "load")):
            self.assertEqual(self.ask(text, _settings.word, *words, switches=also), (wanted, ""))
        answer, said = self.ask("later", _settings.word, *words, switches=also)
        self.assertEqual(answer, "0")
        self.assertEqual(said, f"medusa: {NAME}='later': one of load, compile, 1, on, true, yes, 0, off, false, no is wanted; nothing takes over")
        self.assertEqual(self.ask("1", _settings.word, ("eager", "compiled"), "eager", "compiled", "so")[0], "compiled", "no switch stands for a word")

    def test_a_number(self):
        for text, wanted in ((None, 1.5), ("", 1.5), ("0", 0.0), ("2.5", 2.5), ("1e2", 100.0)):
            self.assertEqual(self.ask(text, _settings.number, 1.5, least=0, most=1000), (wanted, ""))
        for text in ("soon", "-1", "nan", "inf", "1001", "1_0", "5 s", "\u0665"):
            answer, said = self.ask(text, _settings.number, 1.5, least=0, most=1000)
            self.assertEqual((answer, said), (1.5, f"medusa: {NAME}={text!r}: a number from 0 to 1000 is wanted; 1.5 is used"))

    def test_a_whole_number(self):
        for text, wanted in ((None, 7), ("", 7), ("0", 0), ("12", 12)):
            self.assertEqual(self.ask(text, _settings.whole, 7, most=20), (wanted, ""))
        for text in ("1.5", "-1", "x", "21", "\u00b2", "\u0661", "9" * 50):
            answer, said = self.ask(text, _settings.whole, 7, most=20)
            self.assertEqual(answer, 7)
            self.assertTrue(said.endswith("a whole number from 0 to 20 is wanted; 7 is used"), said)


if __name__ == "__main__":
    unittest.main()
