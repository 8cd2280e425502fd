"""`privfed run --start-from`: public parameters of a run from what a finished run of `private-gram` published."""

from pathlib import Path

from safetensors import SafetensorError, safe_open

from privfed.cli.directory import DirectoryRecord
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen
from privfed.compute.devices import all_on_host
from privfed.engines.tensor_file import write_tensors
from privfed.experiment import Experiment
from privfed.federation import Message

START = "start.safetensors"
Origin = dict[str, str]


def begin(
    experiment: Experiment, source: Path | None, resumed: Path | None, record: DirectoryRecord, screen: Screen
) -> Origin | None:
    """Give the server of `experiment` the first parameters that the command names, or that the resumed run began with.

    Args:
        experiment: not yet run.
        source: folder of the finished run to start from; None starts as the method does.
        resumed: folder of the run that is resumed; None for a new one.
        record: of the run.
        screen: to show progress on.

    Returns:
        What the run's document says about the start; None where it is the method's own.

    Raises:
        CommandError: the source is a run of other data, of another split or of another method, the method has no such
            start, or a resumed run is given another one.
    """
    if resumed is not None:
        return _resumed(experiment, source, resumed)
    if source is None:
        return None
    from privfed.methods.shared.warm_start import NoStartError

    message = _published(experiment, source, record, screen)
    config, state = experiment.config, experiment.server.state()
    try:
        parameters = experiment.registered.training.warm_start(config.settings(), state, message)
    except NoStartError as error:
        raise CommandError(f"cannot start from {source}: {error}") from error
    if parameters is None:
        raise CommandError(
            f"{config.method_name} has no start from released weights: leave out --start-from, or choose a method that "
            f"has one, such as feddae"
        )
    experiment.server.load({**state, **parameters})
    return {"directory": str(source), "note": _note(source)}


def keep(experiment: Experiment, directory: Path, origin: Origin | None, screen: Screen) -> None:
    """Write first parameters that are not the method's own into the run's folder, so that a resumed run has them.

    Nothing resumes a folder without a record, so these are written before it.
    """
    if origin is None:
        return
    partial = directory / f"{START}.partial"
    write_tensors(partial, all_on_host(experiment.server.state()), origin)
    partial.replace(directory / START)
    screen.result(f"Note: {origin['note']}.")


def _resumed(experiment: Experiment, source: Path | None, directory: Path) -> Origin | None:
    if source is not None:
        raise CommandError(f"{directory} goes on from where it began: leave out --start-from with --resume")
    if not (directory / START).exists():
        return None
    try:
        with safe_open(directory / START, "pt") as file:
            first = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            origin: Origin = file.metadata()
    except (OSError, SafetensorError) as error:
        raise CommandError(
            f"{directory / START} is damaged ({error}): restore it, or start again with another --out"
        ) from error
    experiment.server.load(first)
    return origin


def _published(experiment: Experiment, source: Path, record: DirectoryRecord, screen: Screen) -> Message:
    """What the server of a finished run on the same data and split publishes."""
    from privfed.cli.recommender import trained

    if DirectoryRecord.read(source, "run").data_sha256 != record.data_sha256:
        raise CommandError(f"{source} was trained on other data: start from a run on {experiment.config.data}")
    other, *_ = trained(source, screen)
    if other.config.split != experiment.config.split:
        raise CommandError(
            f"{source} was trained on another split, so its training items may be held out here: start from a run with "
            f"the same split"
        )
    return other.server.public()


def _note(source: Path) -> str:
    return (
        f"public parameters start from what {source} published; the guarantee of that run holds for the same people, "
        f"and both together cost what their composition costs"
    )
