"""Exceptions as people meet them: one sentence on standard error, and an exit code.

0 is success, 1 an audit that found a claim contradicted or a threshold broken, or a dossier that does not verify, 2 bad
input, 130 an interruption, 70 a fault of privfed itself, which keeps its traceback.
"""

import re
import sys
import traceback

import click

CONTRADICTED = 1
BAD_INPUT = 2
INTERRUPTED = 130
FAULT = 70

_AMOUNT = re.compile(r"allocate ([\d.]+) (bytes|[KMGTP]iB)")
_UNCOUNTABLE = re.compile("Maximum allowed (?:size|dimension) exceeded")
"""How numpy refuses arrays that no machine could hold."""
_OURS = ("privfed", "attacks", "secure_agg")


class CommandError(ValueError):
    """What the command line says cannot be done; the message is one sentence."""


class InterruptedRunError(Exception):
    """Somebody pressed Ctrl-C; the message says how to go on."""


def answer(error: Exception) -> int:
    """Print what there is to say about `error` and give the exit code."""
    if isinstance(error, InterruptedRunError):
        _say(str(error))
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        # Where a command without arguments prints its help, click leaves no message.
        if message := error.format_message().strip():
            _say(message if "Did you mean" in message else f"{message.removesuffix('.')}{_way_out(error)}")
        return BAD_INPUT
    if isinstance(error, OSError):
        _say(_of_the_system(error))
        return BAD_INPUT
    if (said := _beyond_the_machine(error)) is not None:
        _say(said)
        return BAD_INPUT
    if isinstance(error, ValueError) and _is_meant_for_people(error):
        _say(_sentence(error))
        return BAD_INPUT
    traceback.print_exception(error)
    _say("this is a fault of privfed itself, not of what was given; please report it with the lines above")
    return FAULT


def _way_out(error: click.ClickException) -> str:
    """What to do where a command was called in a way it cannot be."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return ""
    if isinstance(context.command, click.Group) and not isinstance(error, click.NoSuchOption):
        return f": choose one of {', '.join(context.command.list_commands(context))}"
    return f"; see '{context.command_path} --help'"


def _say(sentence: str) -> None:
    sys.stderr.write(f"privfed: {' '.join(sentence.split())}\n")


def _beyond_the_machine(error: Exception) -> str | None:
    """What to say where numbers or memory do not reach; None where something else went wrong."""
    if isinstance(error, OverflowError):
        return f"a number that was given is too large to compute with ({error}): give a smaller one"
    if (asked := _memory_asked_for(error)) is None:
        return None
    return (
        f"there is not enough memory{asked}: train fewer people at a time (--set chunk=N), choose smaller settings of "
        f"the method, or a machine with more; a run with --out goes on with --resume"
    )


def _memory_asked_for(error: Exception) -> str | None:
    """Where how much memory could not be had, in words that follow "memory"; None where something else went wrong."""
    # torch is not imported for the sake of an error: it names the class on a GPU, and on a processor nothing but words.
    on_gpu = type(error).__name__ == "OutOfMemoryError"
    said = str(error)
    if not (on_gpu or isinstance(error, MemoryError) or "can't allocate memory" in said or _UNCOUNTABLE.match(said)):
        return None
    where, found = " on the GPU" if on_gpu else "", _AMOUNT.search(str(error))
    if found is None:
        return where
    size, unit = found.groups()
    asked = f"{int(size) / 2**30:,.1f} GiB" if unit == "bytes" else f"{size.rstrip('.')} {unit}"
    return f"{where} ({asked} more were asked for)"


def _of_the_system(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"the operating system refused ({reason}); check paths, permissions and free space"
    return f"cannot use {error.filename} ({reason}); check the path, its permissions and the free space"


def _sentence(error: ValueError) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        from privfed.privacy import explain

        return explain(error)
    return str(getattr(error, "command_line", error))


def _is_meant_for_people(error: ValueError) -> bool:
    """Whether this project raised it: by its class, by where it was raised, or in a worker of an audit."""
    frames = list(traceback.walk_tb(error.__traceback__))
    raised_in = frames[-1][0].f_globals.get("__name__", "") if frames else ""
    modules = (type(error).__module__, str(raised_in))
    return any(_root(module) in _OURS for module in modules) or _root(str(raised_in)) in {
        "concurrent",
        "pydantic",
    }


def _root(module: str) -> str:
    return module.partition(".")[0]
