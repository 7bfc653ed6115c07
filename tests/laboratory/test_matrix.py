"""Which settings are compared, in which order, and what they are called."""

from __future__ import annotations

import pytest

from minirt.errors import ConfigurationError
from minirt.laboratory.matrix import (
    SETTINGS_MAX,
    Choice,
    Factor,
    Setting,
    Turn,
    cross,
    labels,
    split_factor,
    split_numbers,
    turns,
)


def test_everything_is_crossed_and_modes_stand_side_by_side():
    settings = cross(["aligned", "unaligned"], [2, 4], [Factor("options.debloat", ("off", "1s"))])
    assert len(settings) == 8
    assert settings[0] == Setting("aligned", 2, (Choice("options.debloat", "off"),))
    assert settings[1] == Setting("unaligned", 2, (Choice("options.debloat", "off"),))
    assert len(set(settings)) == 8


def test_without_anything_else_the_modes_are_the_settings():
    assert cross(["aligned"], [], []) == (Setting("aligned"),)


def test_every_other_round_goes_backwards():
    assert turns(2, 3) == (
        *(Turn(0, 0), Turn(1, 0)),
        *(Turn(1, 1), Turn(0, 1)),
        *(Turn(0, 2), Turn(1, 2)),
    )


def test_labels_say_what_differs_and_no_more():
    settings = cross(
        ["aligned", "at_least_once"],
        [],
        [Factor("options.debloat", ("off", "1s")), Factor("checkpointing.interval", ("1s",))],
    )
    assert labels(settings)[:2] == ("aligned, debloat off", "at least once, debloat off")
    assert labels([Setting("aligned", 2), Setting("aligned", 4)])[1] == "aligned, parallelism 4"


def test_a_factor_has_a_key_and_values():
    assert split_factor("debloat = off, 1s") == ("debloat", ("off", "1s"))
    assert split_numbers("2, 4", "--parallelism") == (2, 4)


@pytest.mark.parametrize("text", ["debloat", "=1", "debloat=", "debloat=1s,,2s", "debloat=1s,1s"])
def test_what_is_no_factor_is_refused(text):
    with pytest.raises(ConfigurationError):
        split_factor(text)


@pytest.mark.parametrize("text", ["", "0", "2,x", "2,2", "-1", "1.5"])
def test_what_are_no_numbers_is_refused(text):
    with pytest.raises(ConfigurationError, match="--parallelism"):
        split_numbers(text, "--parallelism")


@pytest.mark.parametrize(
    ("modes", "factors"),
    [
        ([], []),
        (["aligned", "aligned"], []),
        (["aligned"], [Factor("a", ("1",)), Factor("a", ("2",))]),
        (["aligned"], [Factor("a", tuple(map(str, range(SETTINGS_MAX + 1))))]),
    ],
)
def test_a_matrix_that_makes_no_sense_is_refused(modes, factors):
    with pytest.raises(ConfigurationError):
        cross(modes, [], factors)


def test_more_runs_than_anybody_waits_for_are_refused():
    with pytest.raises(ConfigurationError, match="runs"):
        turns(48, 100)
