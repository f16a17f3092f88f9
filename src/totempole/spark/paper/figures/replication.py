"""RRP figures 6 to 9: one network, and two with active and passive replication, over message size."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from totempole.sim.paper.machines import PENTIUM_II, PENTIUM_III
from totempole.sim.paper.redundant import KILOBYTES_PER_S
from totempole.spark.drawing import PALETTE, label_axes, legend, new_figure
from totempole.spark.paper.figures.frame import PaperFigure
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import REPLICATION_4, REPLICATION_6, STYLES

LABELS = {"none": "one network", "active": "two, active", "passive": "two, passive"}
MARKERS = ("o", "s", "^")
WITHOUT_PEAKS = (
    "Dashed: the paper's points. Theirs have peaks at 700 and 1400 bytes, where whole messages fill a frame, "
    "and lows at 1000 and 2000, where they do not. Ours have none: a packet spans many frames, and messages "
    "are packed into it without regard to where a frame ends."
)


def _draw(study: str, processors: int, in_messages: bool) -> Callable[[Results], Figure]:
    measure = "messages_per_s" if in_messages else "kb_per_s"
    about = "messages ordered per second" if in_messages else "payload (KB/s)"

    def draw(results: Results) -> Figure:
        figure, (axes,) = new_figure()
        theirs = KILOBYTES_PER_S[processors]
        for style, colour, marker in zip(STYLES, PALETTE, MARKERS, strict=False):
            sizes, values = results.line(study, style, measure)
            axes.plot(sizes, values, marker=marker, markersize=4, color=colour, label=LABELS[style])
            points = [
                getattr(point, style) * (1_000 / size if in_messages else 1) for size, point in theirs.items()
            ]
            axes.plot(
                list(theirs),
                points,
                linestyle=(0, (3, 2)),
                linewidth=1.0,
                marker=marker,
                markersize=3,
                markerfacecolor="white",
                color=colour,
                label=f"{LABELS[style]}: RRP",
            )
        axes.set_xscale("log")
        if in_messages:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 15_000)
        label_axes(axes, "message size (bytes)", about)
        legend(axes, "lower left" if in_messages else "lower right")
        return figure

    return draw


FIGURE_6 = PaperFigure(
    "rrp-6",
    "RRP",
    "Messages ordered per second, four Pentium II, two networks",
    f"Every processor sends as flow control permits. {WITHOUT_PEAKS}",
    PENTIUM_II,
    REPLICATION_4,
    _draw("replication-4", 4, in_messages=True),
)
FIGURE_7 = PaperFigure(
    "rrp-7",
    "RRP",
    "Messages ordered per second, six Pentium III, two networks",
    f"Every processor sends as flow control permits. {WITHOUT_PEAKS}",
    PENTIUM_III,
    REPLICATION_6,
    _draw("replication-6", 6, in_messages=True),
)
FIGURE_8 = PaperFigure(
    "rrp-8",
    "RRP",
    "Payload, four Pentium II, two networks",
    f"The runs of figure 6. {WITHOUT_PEAKS}",
    PENTIUM_II,
    REPLICATION_4,
    _draw("replication-4", 4, in_messages=False),
)
FIGURE_9 = PaperFigure(
    "rrp-9",
    "RRP",
    "Payload, six Pentium III, two networks",
    f"The runs of figure 7. {WITHOUT_PEAKS}",
    PENTIUM_III,
    REPLICATION_6,
    _draw("replication-6", 6, in_messages=False),
)
