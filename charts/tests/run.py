"""Runs the tests and ends with a summary line like other runners."""

import sys
import unittest

loader = unittest.defaultTestLoader
suite = loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:] else loader.discover(sys.path[0])
result = unittest.TextTestRunner(verbosity=2).run(suite)
# A test with several failed sub-tests counts once.
failed = len({test.id().split(" ")[0] for test, _ in result.failures + result.errors})
print(f"chart: {result.testsRun - failed} passed, {failed} failed", flush=True)
sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
