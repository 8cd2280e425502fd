"""Methods that no package registers: by record, by file."""

import re
from pathlib import Path

import pytest

import privfed
from privfed.methods.own import MethodFileError
from privfed.methods.registry import method

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "add_a_method.md"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    native, module = re.findall(r'```python\n(""".*?)```', PAGE.read_text(), flags=re.DOTALL)[:2]
    (folder / "item_bias.py").write_text(native.replace('"item-bias"', '"own-item-bias"'))
    (folder / "bilinear.py").write_text(module.replace('"bilinear"', '"own-bilinear"'))
    return folder


@pytest.mark.parametrize("name", ["item_bias", "bilinear"])
def test_a_file_is_run_saved_and_loaded(files: Path, tmp_path: Path, name: str) -> None:
    run = privfed.run(f"{files / name}.py:METHOD", "synthetic-small", rounds=2)
    assert run.method == f"{name}.py:METHOD"
    assert privfed.load_run(run.save(tmp_path / "run")).recommend(1).equals(run.recommend(1))
    assert len(run.attack())


def test_a_record_is_run_like_any_other(files: Path, tmp_path: Path) -> None:
    own = method(f"{files / 'item_bias.py'}:METHOD")
    run = privfed.run(own, "synthetic-small", epsilon=8, privacy="central-gaussian:clip_norm=1", rounds=2, lr=0.5)
    assert run.method == "own-item-bias"
    assert run.guarantee.epsilon <= 8
    folder = run.save(tmp_path / "run")
    assert privfed.load_run(folder, method=own).recommend(1).equals(run.recommend(1))
    report = privfed.audit(
        own, "synthetic-small", privacy="none", rounds=2, options={"taps": {"users": 20}, "canaries": 0}
    )
    assert report.to_frame()["method"].tolist() == ["own-item-bias"]


def test_files_without_the_method(files: Path, tmp_path: Path) -> None:
    with pytest.raises(MethodFileError, match="there is no file"):
        privfed.run(f"{tmp_path}/none.py:METHOD", "synthetic-small")
    with pytest.raises(MethodFileError, match="has no method 'OTHER': it has METHOD"):
        privfed.run(f"{files}/item_bias.py:OTHER", "synthetic-small")
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(MethodFileError, match=r"cannot be run \(ZeroDivisionError: division by zero\)"):
        privfed.run(f"{tmp_path}/broken.py:METHOD", "synthetic-small")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(MethodFileError, match="it has no method at all"):
        privfed.run(f"{tmp_path}/empty.py:METHOD", "synthetic-small")
