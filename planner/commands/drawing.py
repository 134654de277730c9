"""Pictures in SVG: boxes, lines, arrows and words on a light ground, identical in every run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from itertools import cycle

INK, FAINT, GROUND = "#1d2b33", "#7a8b94", "#f7fafb"
# Okabe-Ito palette, readable with any colour vision; red only beside words.
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = (
    "#0072b2", "#e69f00", "#009e73", "#c1121f", "#56b4e9", "#9a5b8f",
)  # fmt: skip


def colours_by_name(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, again from the first one where there are more names."""
    return dict(zip(sorted(set(names)), cycle((BLUE, GREEN, ORANGE, PURPLE, SKY)), strict=False))


@dataclass(slots=True)
class Drawing:
    """A picture of `width` by `height`; a screen reader reads its `title`."""

    width: int
    height: int
    title: str
    _parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = "#ffffff",
        stroke: str = INK, dashed: bool = False, opacity: float = 1.0,
    ) -> None:  # fmt: skip
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'fill="{fill}" fill-opacity="{opacity:g}" stroke="{stroke}"{dash}/>'
        )

    def words(
        self, x: float, y: float, text: str, *, size: int = 13, at: str = "middle",
        colour: str = INK, bold: bool = False,
    ) -> None:  # fmt: skip
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{at}" '
            f'fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, colour: str = INK,
        width: float = 1.5, dashed: bool = False, arrow: bool = False,
    ) -> None:  # fmt: skip
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        head = ' marker-end="url(#head)"' if arrow else ""
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" '
            f'stroke-width="{width:g}"{dash}{head}/>'
        )

    def curve(self, points: list[tuple[float, float]], *, colour: str, width: float = 2) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'
        )

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            'font-family="system-ui, sans-serif">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="11" '
            'markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0L10 5L0 10z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="{GROUND}"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )
