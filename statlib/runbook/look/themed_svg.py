"""From matplotlib's SVG to one that a page colours.

Invariant: one drawing serves light, dark and print. Every colour in it is a token's variable, text stays text
in the font of the page, identifiers carry the figure's key, and nothing in it styles anything outside.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from matplotlib.figure import Figure

from statlib.runbook.look.tokens import TOKENS

SVG_BYTES_MAX = 25_000

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_PAINTS = ("fill", "stroke")
_VARIABLES: Mapping[str, str] = {token.light: token.variable for token in TOKENS}
_INHERITED = {
    "font-size": "12px",
    "text-anchor": "start",
    "stroke-linejoin": "round",
    "stroke-width": "1",
    "stroke-dashoffset": "0",
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_STRAIGHT = re.compile(r"[ML\sz\d.e-]*")


def themed_svg(fig: Figure, key: str, *, title: str = "", description: str = "") -> str:
    """The figure as inline SVG of one unit per pixel, named ``title`` and described for those who cannot see it.

    Refuses (``ValueError``) a colour outside the tokens, black by omission included, and a drawing larger than
    ``SVG_BYTES_MAX``: thin the data, or say less.
    """
    root = _as_drawn(fig)
    width, height = root.get("viewBox", "0 0 0 0").split()[2:]
    _drop_what_is_not_drawn(root)
    for element in root.iter():
        _restyle(element, key)
    _inline_marks(root)
    _prefix_identifiers(root, key)
    _unwrap(root)
    _merge_neighbours(root)
    for path in root.iter(_SVG + "path"):
        path.set("d", _relative(path.attrib["d"]))
    _require_tokens(root, key)
    named = f'aria-labelledby="{key}-t {key}-d"' if title else 'aria-hidden="true"'
    names = (
        f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}</desc>' if title else ""
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" role="img" {named} viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="stroke-linejoin:round;font-size:12px;'
        f'font-family:var(--sans,system-ui,sans-serif)">{names}{"".join(_markup(child) for child in root)}</svg>'
    )
    if len(svg.encode()) > SVG_BYTES_MAX:
        raise ValueError(f"figure {key}: {len(svg.encode()):,} bytes, more than {SVG_BYTES_MAX:,}")
    return svg


def _as_drawn(fig: Figure) -> Element:
    raw = io.StringIO()
    fig.savefig(raw, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return ElementTree.fromstring(raw.getvalue())  # noqa: S314 (matplotlib's own output)


def _look(element: Element) -> dict[str, str]:
    pairs = (pair.split(":", 1) for pair in element.get("style", "").split(";") if ":" in pair)
    return {name.strip(): value.strip() for name, value in pairs}


def _set_look(element: Element, look: Mapping[str, str]) -> None:
    element.attrib.pop("style", None)
    if look:
        element.set("style", ";".join(f"{name}:{value}" for name, value in look.items()))


def _drop_what_is_not_drawn(root: Element) -> None:
    """Metadata, matplotlib's stylesheet (inline it would reach the whole page), and paths without paint."""
    for parent in list(root.iter()):
        for child in list(parent):
            look = _look(child)
            unpainted = child.tag == _SVG + "path" and look.get("fill") == "none" and "stroke" not in look
            if child.tag in (_SVG + "metadata", _SVG + "style") or unpainted:
                parent.remove(child)


def _restyle(element: Element, key: str) -> None:
    """Colours to variables, the font to the page, numbers to hundredths of a pixel."""
    look = _look(element)
    if look.get("fill-opacity") == "0":  # how matplotlib writes a hollow mark
        look = {name: value for name, value in look.items() if name != "fill-opacity"} | {"fill": "none"}
    for paint in _PAINTS:
        colour = look.get(paint, "none")
        if colour != "none":
            look[paint] = _variable(colour, key)
    if look.pop("font-weight", "normal") in ("bold", "600", "700"):
        look["font-weight"] = "600"
    look.pop("font-family", None)
    for name, value in _INHERITED.items():
        if look.get(name) == value:
            del look[name]
    _set_look(element, {name: _short(value) if name not in _PAINTS else value for name, value in look.items()})
    if element.get("transform", "").startswith("rotate(-0"):
        del element.attrib["transform"]
    for name in ("x", "y", "width", "height", "transform"):
        if name in element.attrib:
            element.set(name, _short(element.attrib[name]))
    if "d" in element.attrib:
        element.set("d", _compact(_short(element.attrib["d"])))


def _variable(colour: str, key: str) -> str:
    if colour in _VARIABLES:
        return _VARIABLES[colour]
    raise ValueError(f"figure {key}: the colour {colour} is none of the tokens")


def _short(text: str) -> str:
    return re.sub(r"-?\d+\.\d+", lambda m: f"{round(float(m.group()), 2) + 0.0:g}", text)


def _compact(path: str) -> str:
    """Without spaces that separate nothing, and without repeating ``L``."""
    joined = re.sub(r"\s*([MLCQz])\s*|\s+", lambda m: m.group(1) or " ", path).strip()
    return re.sub(r"(L[^A-Za-z]*)(?:L[^A-Za-z]*)+", lambda m: "L" + " ".join(m.group()[1:].split("L")), joined)


def _relative(path: str) -> str:
    """A path of straight lines with each point as its distance from the one before, which is shorter.

    Distances are between rounded places, so that rounding never adds up.
    """
    if not _STRAIGHT.fullmatch(path):
        return path
    said, at = [], (0.0, 0.0)
    for command, numbers in re.findall(r"([MLz])([^MLz]*)", path):
        values = [float(number) for number in _NUMBER.findall(numbers)]
        points = list(zip(values[::2], values[1::2], strict=True))
        if command == "M":
            at = points[0]
            said.append(f"M{at[0]:g} {at[1]:g}")
        elif command == "L":
            steps = []
            for x, y in points:
                steps += [x - at[0], y - at[1]]
                at = (x, y)
            said.append("l" + " ".join(_bare(step) for step in steps).replace(" -", "-"))
        else:
            said.append("z")
    return "".join(said)


def _bare(step: float) -> str:
    """Two decimals, without the zero before the point."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{round(step, 2) + 0.0:g}")


def _inline_marks(root: Element) -> None:
    """Draw marks where they stand: all of one look become one path, whether they are ticks, squares or areas."""
    marks = {element.get("id", ""): element for element in root.iter(_SVG + "path") if "id" in element.attrib}
    for group in list(root.iter(_SVG + "g")):
        uses = list(group)
        if not uses or any(use.tag != _SVG + "use" for use in uses):
            continue
        drawn: list[Element] = []
        for (reference, _), same in groupby(uses, key=lambda use: (use.attrib[_HREF], use.get("style"))):
            drawn.extend(_drawn_together(marks[reference[1:]], list(same)))
        group[:] = drawn


def _drawn_together(mark: Element, uses: list[Element]) -> list[Element]:
    outline = mark.attrib["d"]
    look = _look(uses[0]) | _look(mark)
    places = [(float(use.get("x", 0)), float(use.get("y", 0))) for use in uses]
    if _STRAIGHT.fullmatch(outline):
        if "z" not in outline:
            look["fill"] = "none"
        path = Element(_SVG + "path", {"d": "".join(_moved(outline, x, y) for x, y in places)})
    elif "stroke" not in look:
        reach = max(abs(float(number)) for number in _NUMBER.findall(outline))
        dots = "".join(f"M{x:.1f} {y:.1f}h.01" for x, y in places)
        path = Element(_SVG + "path", {"d": dots})
        width = f"{2 * reach:g}"
        opacity = {"stroke-opacity": look["fill-opacity"]} if "fill-opacity" in look else {}
        look = {"fill": "none", "stroke": look["fill"], "stroke-width": width, "stroke-linecap": "round"} | opacity
    else:
        return uses
    _set_look(path, look)
    return [path]


def _moved(outline: str, x: float, y: float) -> str:
    """A path of straight lines, moved to (x, y)."""
    moved = []
    for command, numbers in re.findall(r"([MLz])([^MLz]*)", outline):
        values = [float(number) for number in _NUMBER.findall(numbers)]
        shifted = (f"{round(v + (y if at % 2 else x), 2) + 0.0:g}" for at, v in enumerate(values))
        moved.append(command + " ".join(shifted))
    return "".join(moved)


def _prefix_identifiers(root: Element, key: str) -> None:
    """Keep the identifiers that are referred to, under the figure's key: a page holds many figures."""
    used = [element.attrib[_HREF][1:] for element in root.iter() if _HREF in element.attrib]
    used += [element.attrib["clip-path"][5:-1] for element in root.iter() if "clip-path" in element.attrib]
    own = {old: f"{key}-{at}" for at, old in enumerate(sorted(set(used)))}
    for element in root.iter():
        identifier = element.attrib.pop("id", "")
        if identifier in own:
            element.set("id", own[identifier])
        if _HREF in element.attrib:
            element.set("href", "#" + own[element.attrib.pop(_HREF)[1:]])
        if "clip-path" in element.attrib:
            element.set("clip-path", f"url(#{own[element.attrib['clip-path'][5:-1]]})")


def _unwrap(parent: Element) -> None:
    """Remove groups that say nothing, and definitions that nothing refers to."""
    kept: list[Element] = []
    for child in list(parent):
        _unwrap(child)
        if child.tag == _SVG + "g" and not (child.attrib and len(child)):
            kept.extend(child)
        elif _is_idle(parent, child):
            continue
        else:
            kept.append(child)
    parent[:] = kept


def _is_idle(parent: Element, child: Element) -> bool:
    """Definitions without content, and a definition that has no name to be referred to by."""
    return (child.tag == _SVG + "defs" and not len(child)) or (parent.tag == _SVG + "defs" and "id" not in child.attrib)


def _merge_neighbours(parent: Element) -> None:
    """Paths of one look become one, also with texts between them: ticks and rules do not meet their labels."""
    merged: list[Element] = []
    for child in list(parent):
        _merge_neighbours(child)
        before = next((one for one in reversed(merged) if one.tag != _SVG + "text"), None)
        drawn = child.tag == _SVG + "path" and "id" not in child.attrib
        if drawn and before is not None and before.tag == child.tag and _rest(before) == _rest(child):
            before.set("d", before.attrib["d"] + child.attrib["d"])
        else:
            merged.append(child)
    parent[:] = merged


def _rest(element: Element) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name != "d"}


def _require_tokens(root: Element, key: str) -> None:
    """Every painted element names its fill: matplotlib leaves black out, which no theme could change."""
    for element, fill in _fills(root, ""):
        if element.tag in (_SVG + "path", _SVG + "text", _SVG + "use") and not fill:
            raise ValueError(f"figure {key}: black is none of the tokens")


def _fills(element: Element, inherited: str) -> Iterator[tuple[Element, str]]:
    if element.tag == _SVG + "defs":
        return
    fill = _look(element).get("fill", inherited)
    yield element, fill
    for child in element:
        yield from _fills(child, fill)


def _markup(element: Element) -> str:
    tag = element.tag.removeprefix(_SVG)
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in element.attrib.items())
    inner = escape((element.text or "").strip(), quote=False) + "".join(_markup(child) for child in element)
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"
