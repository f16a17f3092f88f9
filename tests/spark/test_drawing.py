"""The look that all pictures share."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from totempole.spark.drawing import (
    inline_svg,
    label_axes,
    legend,
    new_figure,
    panel_title,
    save_svg,
    svg_text,
)


def picture() -> Figure:
    figure, (left, right) = new_figure(1, 2, title="Two")
    left.plot([1, 2], [3, 4], label="a line")
    legend(left)
    legend(right)
    panel_title(right, "right")
    label_axes(left, "x (ms)", "y")
    return figure


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    path = save_svg(picture(), tmp_path / "picture.svg")
    assert path.read_text(encoding="utf-8") == svg_text(picture())
    assert [file.name for file in tmp_path.iterdir()] == ["picture.svg"]


def test_no_date_and_letters_as_letters() -> None:
    text = svg_text(picture())
    assert "dc:date" not in text
    assert "x (ms)" in text
    assert text.startswith("<?xml")
    assert inline_svg(picture()).startswith("<svg")


def test_a_legend_only_where_something_is_named() -> None:
    left, right = picture().axes
    assert left.get_legend() is not None
    assert right.get_legend() is None
