import pathlib
import tempfile
import unittest

from muster import _settings
from muster.errors import ConfigurationError

STORED = """current = "http://one:7070"

[[contexts]]
server = "http://one:7070"
token = "first"

[[contexts]]
server = "http://two:7070"
token = 'sec"ond'
"""


class Stored(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        place = self.home / ".config/muster/config.toml"
        place.parent.mkdir(parents=True)
        place.write_text(STORED)
        self.environment = {"HOME": folder.name}

    def resolve(self, server=None, token=None, tenant=None, **variables):
        return tuple(_settings.resolve(server, token, tenant, {**self.environment, **variables}))

    def test_last_login_is_the_default(self):
        self.assertEqual(self.resolve(), ("http://one:7070", "first", None))

    def test_token_belongs_to_its_server(self):
        self.assertEqual(self.resolve("http://two:7070/"), ("http://two:7070", 'sec"ond', None))
        with self.assertRaisesRegex(ConfigurationError, "muster login --server http://three:7070"):
            self.resolve(MUSTER_SERVER="http://three:7070")

    def test_arguments_precede_variables_and_variables_the_file(self):
        variables = {"MUSTER_SERVER": "http://three", "MUSTER_TOKEN": "third", "MUSTER_TENANT": "team"}
        self.assertEqual(self.resolve(**variables), ("http://three", "third", "team"))
        self.assertEqual(self.resolve("http://four", "fourth", "own", **variables), ("http://four", "fourth", "own"))

    def test_empty_variable_is_unset(self):
        self.assertEqual(self.resolve(MUSTER_SERVER="", MUSTER_TOKEN="", MUSTER_TENANT=""), ("http://one:7070", "first", None))

    def test_place_follows_the_command_line(self):
        other = self.home / "muster/config.toml"
        other.parent.mkdir()
        other.write_text(STORED.replace("first", "xdg"))
        self.assertEqual(self.resolve(XDG_CONFIG_HOME=str(self.home))[1], "xdg")
        own = self.home / "own.toml"
        own.write_text(STORED.replace("first", "own"))
        self.assertEqual(self.resolve(XDG_CONFIG_HOME=str(self.home), MUSTER_CONFIG=str(own))[1], "own")

    def test_missing_file_has_no_token(self):
        with self.assertRaisesRegex(ConfigurationError, "set MUSTER_TOKEN"):
            self.resolve(MUSTER_CONFIG=str(self.home / "none"))
        with self.assertRaises(ConfigurationError):
            _settings.resolve(None, None, None, {})

    def test_error_does_not_quote_the_token(self):
        own = self.home / "own.toml"
        own.write_text("token = [secret]\n")
        with self.assertRaisesRegex(ConfigurationError, "line 1") as raised:
            self.resolve(MUSTER_CONFIG=str(own))
        self.assertNotIn("secret", str(raised.exception))


class Secrets(unittest.TestCase):
    def test_token_is_not_shown(self):
        self.assertNotIn("secret", repr(_settings.Settings("http://one", "secret", None)))


class Reader(unittest.TestCase):
    def test_reads_the_same_as_the_library(self):
        try:
            import tomllib
        except ImportError:
            self.skipTest("tomllib needs Python 3.11")
        texts = ["", "contexts = []\n", STORED, 'current = "a\\"b\\u00e9\\\\c" # x\n']
        for text in texts:
            self.assertEqual(_settings.parse(text), {"contexts": [], **tomllib.loads(text)})
