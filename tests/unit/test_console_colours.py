"""The colours of the console, read from its style sheet: contrast, and states that stay apart.

Contrast is that of WCAG 2.2 (relative luminance). Colour blindness is simulated by Viénot, Brettel
and Mollon (1999) in linear light; differences are CIE 76 in CIELAB under D65.
"""

from __future__ import annotations

import math
import re
from itertools import combinations, product
from pathlib import Path
from typing import TypeAlias

import pytest

import api.console
from api.console.looks import DATES, FIRES, RUNS, TASKS

Colour: TypeAlias = tuple[float, float, float]

CSS = Path(api.console.__file__).parent / "static" / "console.css"
TOKEN = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{3,6}), (#[0-9a-f]{3,6})\)")
SCHEMES = ("light", "dark")
STATES = ("success", "running", "failure", "late", "paused", "waiting")
TEXTS = ("ink", "ink-2")
GROUNDS = ("bg", "surface", "sunk")

# Rows of matrices over linear RGB.
SEEN_BY = {
    "protanopia": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deuteranopia": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def tokens(scheme: str) -> dict[str, Colour]:
    found = TOKEN.findall(CSS.read_text(encoding="utf-8"))
    return {name: linear((light, dark)[SCHEMES.index(scheme)]) for name, light, dark in found}


def linear(written: str) -> Colour:
    digits = written[1:] if len(written) == 7 else "".join(2 * digit for digit in written[1:])
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in (int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))
    )
    return red, green, blue


def luminance(colour: Colour) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: Colour, other: Colour) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def seen(colour: Colour, matrix: tuple[Colour, ...]) -> Colour:
    red, green, blue = (
        min(1.0, max(0.0, sum(share * part for share, part in zip(row, colour, strict=True))))
        for row in matrix
    )
    return red, green, blue


def lab(colour: Colour) -> Colour:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (
        share ** (1 / 3) if share > 216 / 24389 else (24389 / 27 * share + 16) / 116
        for share in (x, y, z)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_and_states_can_be_read_on_every_ground(scheme: str) -> None:
    colours = tokens(scheme)
    pairs = [
        *product((*TEXTS, *STATES), GROUNDS),
        *((state, f"{state}-t") for state in STATES),
        *(("ink", f"{state}-t") for state in STATES),
    ]
    poor = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text, ground in pairs
        if contrast(colours[text], colours[ground]) < 4.5
    }
    assert poor == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_edges_of_controls_can_be_seen(scheme: str) -> None:
    colours = tokens(scheme)
    assert all(contrast(colours["edge"], colours[ground]) >= 3 for ground in GROUNDS)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("eyes", SEEN_BY)
def test_states_stay_apart_for_the_colour_blind(scheme: str, eyes: str) -> None:
    colours = {name: lab(seen(tokens(scheme)[name], SEEN_BY[eyes])) for name in STATES}
    close = {
        (one, other): round(math.dist(colours[one], colours[other]), 1)
        for one, other in combinations(STATES, 2)
        if math.dist(colours[one], colours[other]) < 21
    }
    assert close == {}


def test_every_state_has_a_colour_of_the_sheet_and_a_shape_besides() -> None:
    looks = {look for table in (RUNS, TASKS, DATES, FIRES) for look in table.values()}
    assert {look.colour for look in looks} <= {*STATES, "ink-2"}
    # Nothing is told by its colour alone: one shape has one colour.
    shapes = {(look.glyph, look.colour) for look in looks}
    assert len({glyph for glyph, _ in shapes}) == len(shapes)


def test_black_on_white_has_the_contrast_that_wcag_names() -> None:
    assert contrast(linear("#000"), linear("#ffffff")) == pytest.approx(21)
    assert contrast(linear("#777777"), linear("#fff")) == pytest.approx(4.48, abs=0.005)
