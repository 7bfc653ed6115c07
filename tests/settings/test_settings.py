"""Options from files, environment variables and assignments: precedence, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import minirt as rt
from minirt.protocol.restarts import FixedDelay, NoRestart
from minirt.settings import JobSettings, load_settings
from minirt.settings.catalogue import CATALOGUE
from minirt.settings.sources import variable_of

STORED = "checkpointing.storage=somewhere"


def settings(*assignments: str, file: Path | None = None, **environ: str) -> JobSettings:
    return load_settings(file, environ=environ, assignments=assignments)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "minirt.toml"
    path.write_text(
        """
        parallelism = 3
        [checkpointing]
        storage = "in-file"
        interval = "3s"
        mode = "aligned_with_timeout"
        mode_options = { timeout = "7s" }
        storage_options = { anon = true, client_kwargs = { endpoint_url = "http://x" } }
        [options]
        buffer_timeout = 0.5
        [limits]
        frame_bytes = "64KiB"
        slice_s = "5ms"
        [restart]
        strategy = "fixed_delay"
        delay = "2s"
        """
    )
    return path


def test_a_file_can_give_options_of_every_kind(file: Path) -> None:
    given = settings(file=file)
    assert given.parallelism == 3
    assert given.checkpointing == rt.Checkpointing(
        "in-file",
        interval="3s",
        mode=rt.AlignedWithTimeout("7s"),
        storage_options={"anon": True, "client_kwargs": {"endpoint_url": "http://x"}},
    )
    assert given.options == rt.Options(
        buffer_timeout=0.5, limits=rt.Limits(frame_bytes=65536, slice_s=0.005)
    )
    assert given.restart == FixedDelay(3, 2.0)


def test_assignments_go_before_the_environment_before_the_file_before_the_code(file: Path) -> None:
    code = JobSettings(
        checkpointing=rt.Checkpointing("in-code", interval="9s", retain=9, min_pause="9ms"),
        options=rt.Options(limits=rt.Limits(frame_records=9)),
    )
    given = load_settings(
        file,
        defaults=code,
        environ={"MINIRT_CHECKPOINTING_INTERVAL": "2s", "MINIRT_CHECKPOINTING_RETAIN": "2"},
        assignments=["checkpointing.retain=1"],
    )
    assert given.checkpointing is not None
    assert given.checkpointing.retain == 1
    assert given.checkpointing.interval == "2s"
    assert given.checkpointing.storage == "in-file"
    assert given.checkpointing.min_pause == "9ms"
    assert given.options.limits.frame_records == 9
    assert given.options.limits.frame_bytes == 65536


def test_nothing_given_leaves_the_code_as_it_is() -> None:
    code = JobSettings("a", 2, rt.Checkpointing("x"), rt.Restart.none(), rt.Options())
    assert load_settings(defaults=code, environ={"PATH": "x"}) == code


@pytest.mark.parametrize(
    "variable", ["MINIRT_CREDENTIALS", "MINIRT_PEERS", "MINIRT_TOKEN", "MINIRT_TOKEN_FILE"]
)
def test_variables_of_commands_are_no_options(variable: str) -> None:
    assert load_settings(environ={variable: "/somewhere"}) == settings()


def test_another_choice_takes_the_options_of_the_old_one_with_it(file: Path) -> None:
    given = settings("checkpointing.mode=unaligned", "restart.strategy=none", file=file)
    assert given.checkpointing is not None
    assert given.checkpointing.mode.name == "unaligned"
    assert given.restart == NoRestart()


def test_options_of_a_mode_change_the_one_in_the_code() -> None:
    code = JobSettings(checkpointing=rt.Checkpointing("x", mode=rt.AlignedWithTimeout("7s")))
    given = load_settings(
        defaults=code, environ={"MINIRT_CHECKPOINTING_MODE_OPTIONS_SWITCH_BELOW": "1MiB"}
    )
    assert given.checkpointing is not None
    assert given.checkpointing.mode == rt.AlignedWithTimeout("7s", "1MiB")


def test_text_says_none_numbers_and_flags() -> None:
    given = settings(
        "options.debloat=none",
        "options.allow_pickle=true",
        "limits.debloat_threshold=1",
        "checkpointing.storage=17",
        "restart.strategy=fixed_delay",
        "restart.attempts=none",
    )
    assert given.options.debloat is None
    assert given.options.allow_pickle is True
    assert given.checkpointing == rt.Checkpointing("17")
    assert given.restart == FixedDelay(None, 1.0)


@pytest.mark.parametrize("key", [key for key in CATALOGUE if not key.startswith("restart.")])
def test_every_default_can_be_given_back(key: str) -> None:
    default = CATALOGUE[key].default
    if not isinstance(default, str | int | float | None):
        return  # It has none.
    text = (
        str(default).lower() if isinstance(default, bool) else str(default).replace("None", "none")
    )
    extra = ("options.placement=slots",) if key == "options.workers" else ()
    given = settings(STORED, *extra, **{variable_of(key): text})
    if not extra:
        section, _, name = key.rpartition(".")
        parts = {
            "": given,
            "checkpointing": given.checkpointing,
            "options": given.options,
            "limits": given.options.limits,
        }
        value = getattr(parts[section], name)
        assert default in (value, getattr(value, "name", None))


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        (
            "checkpointing.intervall=1s",
            r"^checkpointing.intervall: .* mean checkpointing.interval\?",
        ),
        ("interval=1s", r"did you mean checkpointing.interval\?"),
        ("limits=5", "limits is a table"),
        ("interval", "write KEY=VALUE"),
        ("=5", "there is no such option"),
        ("options.workers=many", "options.workers must be a whole number.*'many'"),
        ("options.workers=-1", "options.workers must be a whole number"),
        ("options.allow_pickle=yes", "options.allow_pickle must be true or false"),
        ("options.placement=slot", "options.placement must be one of subtask, slots"),
        ("limits.frame_bytes=64 apples", "limits.frame_bytes: cannot read '64 apples'"),
        ("limits.slice_s=-1", "limits.slice_s must be finite and not negative"),
        ("limits.slice_s=nan", "limits.slice_s must be finite"),
        ("parallelism=0", "parallelism must be a whole number above 0"),
        ("checkpointing.mode=fast", "checkpointing.mode: there is no checkpoint mode 'fast'"),
        ("checkpointing.mode.group=2", r"group: .* set as checkpointing.mode_options.NAME"),
        ("checkpointing.mode_options.timeout=1s", "mode aligned has no option 'timeout'"),
        ("restart.strategy=often", "restart.strategy must be one of none, fixed_delay"),
        ("restart.delay=1s", "restart.delay has no effect without restart.strategy"),
        ("checkpointing.storage=again", "checkpointing.storage is given twice"),
        ("options.workers=2", "workers has no effect unless placement"),
    ],
)
def test_what_cannot_work_is_refused_by_its_name(assignment: str, complaint: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=complaint):
        settings(STORED, assignment)


def test_checkpointing_without_a_storage_has_no_effect() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"MINIRT_CHECKPOINTING_RETAIN has no effect"):
        settings(MINIRT_CHECKPOINTING_RETAIN="2")


def test_an_option_of_another_strategy_has_no_effect() -> None:
    with pytest.raises(
        rt.ConfigurationError, match=r"delay has no effect with .* takes no options"
    ):
        settings("restart.strategy=none", "restart.delay=1s")


def test_an_unknown_variable_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        rt.ConfigurationError, match=r"MINIRT_OPTION_DEBLOAT .*MINIRT_OPTIONS_DEBLOAT"
    ):
        settings(MINIRT_OPTION_DEBLOAT="1s")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[options]\nworkers = 'x'", r"minirt.toml: options.workers must be a whole number"),
        (b"[option]\nworkers = 2", r"minirt.toml: option.workers: .* mean options.workers\?"),
        (b"options = 3", "minirt.toml: options is a table"),
        (b"[options", "minirt.toml is not TOML"),
        (b"\xff\xfe", "minirt.toml is not TOML"),
        (b"a = " + b"[" * 100_000, "minirt.toml is not TOML"),
        (b"#" * (1 << 21), "minirt.toml is longer than"),
    ],
)
def test_a_bad_file_is_refused_by_its_name(content: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "minirt.toml"
    file.write_bytes(content)
    with pytest.raises(rt.ConfigurationError, match=complaint):
        settings(file=file)


def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.toml"):
        with pytest.raises(rt.ConfigurationError, match=f"cannot read the settings {path}"):
            settings(file=path)
