"""Processes of a trial: what was started is ended, whatever becomes of the process that started it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from privfed.engines.flower.supervisor import Supervisor
from privfed.engines.flower.trial import Trial, TrialError

pytestmark = pytest.mark.flower

CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}], start_new_session=True)"
STARTING = f"""
import subprocess, sys, time
from privfed.engines.flower.supervisor import Supervisor
minder = Supervisor()
for _ in range(2):
    child = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}], stdout=subprocess.PIPE, start_new_session=True)
    minder.watch(child.pid)
    print(child.pid, int(child.stdout.readline()), flush=True)
time.sleep(600)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(0, flush=True); signal.pause()"


def gone(pid):
    for _ in range(200):
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            time.sleep(0.05)
            continue
        return True
    return False


@pytest.fixture
def trial(tmp_path):
    with Trial(tmp_path / "trial", ["alpha"]) as trial:
        yield trial


def said(trial, process):
    while not (words := trial.log(process).read_text().split()):
        time.sleep(0.05)
    return int(words[0])


def test_what_a_killed_process_had_started_ends():
    with subprocess.Popen([sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True) as parent:
        started = [int(word) for _ in range(2) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(started) == 4
    assert all(gone(pid) for pid in started)


def test_a_supervisor_lets_go_of_what_it_was_told_to():
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, start_new_session=True) as child:
        with Supervisor() as minder:
            minder.watch(child.pid)
            minder.forget(child.pid)
        assert minder.process.returncode == 0
        assert child.poll() is None
        child.kill()


@pytest.mark.parametrize("kill", [True, False])
def test_what_a_process_started_is_stopped_with_it(trial, kill, monkeypatch):
    monkeypatch.setattr("privfed.engines.flower.trial._STOPPING", 0.5)
    trial.start("parent", [sys.executable, "-c", GRANDCHILD])
    grandchild = said(trial, "parent")
    trial.stop("parent", kill=kill)
    assert gone(grandchild)
    assert not trial.processes


def test_a_process_that_does_not_listen_is_killed(trial, monkeypatch):
    monkeypatch.setattr("privfed.engines.flower.trial._STOPPING", 0.2)
    trial.start("stubborn", [sys.executable, "-c", STUBBORN])
    said(trial, "stubborn")
    pid = trial.processes["stubborn"].pid
    trial.close()
    assert gone(pid)


def test_an_end_of_its_own_is_told_with_its_code(trial):
    trial.start("dying", [sys.executable, "-c", "import os; os.abort()"])
    assert trial.wait("dying", 60) == -signal.SIGABRT
    trial.start("dying", [sys.executable, "-c", CHILD])
    assert not trial.ended("dying")
    with pytest.raises(TrialError, match="still runs after 0 s"):
        trial.wait("dying", 0)
    with pytest.raises(TrialError, match="runs already"):
        trial.start("dying", [sys.executable])


def test_a_program_that_is_missing_is_named(trial):
    with pytest.raises(TrialError, match=r"is not installed: pip install 'privfed\[flower\]'"):
        trial.start("missing", ["no-such-program-of-flower"])
