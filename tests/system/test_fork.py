"""Forks while modules are being loaded: the child can load them, and nobody waits for himself."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HEAD = """
    import importlib.abc, importlib.util, os, signal, sys, threading, time
    from lmdbio.system import fork

    class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name == module:
                begun.set()
                return importlib.util.spec_from_loader(name, self)
        def create_module(self, spec):
            time.sleep(0.3)
        def exec_module(self, module):
            work(module)

    def child():
        signal.alarm(5)
        __import__(module)
        os._exit(sys.modules[module].value)

    begun = threading.Event()
    sys.meta_path.insert(0, Slow())
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["lmdbio.probe", "lmdbio.records.probe"])
def test_a_child_can_load_what_a_thread_of_its_parent_was_loading(module):
    code = f"""
        module = {module!r}
        def work(loaded):
            time.sleep(0.3)
            loaded.value = 7
        thread = threading.Thread(target=__import__, args=(module,))
        thread.start()
        begun.wait()
        for _ in range(2):
            if (pid := os.fork()) == 0:
                child()
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
        thread.join()
    """
    assert run(code) == "7 7 "


def test_a_module_may_fork_while_it_is_loaded():
    code = """
        module = "lmdbio.probe"
        def work(loaded):
            loaded.value = 7
            begun = time.monotonic()
            if (pid := os.fork()) == 0:
                os._exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.monotonic() - begun < 5)
        __import__(module)
    """
    assert run(code) == "3 True\n"


def test_a_fork_does_not_wait_for_the_program_that_is_loaded():
    code = """
        module = "program"
        def work(loaded):
            time.sleep(2)
        threading.Thread(target=__import__, args=(module,), daemon=True).start()
        begun.wait()
        before = time.monotonic()
        if (pid := os.fork()) == 0:
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.monotonic() - before < 1.5)
    """
    assert run(code) == "3 True\n"
