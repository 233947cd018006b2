# SPDX-License-Identifier: Apache-2.0
"""Small SVG charts with logarithmic axes: lines over sizes or numbers of workers, and bars."""
import dataclasses
import html
import math

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 230, 40, 60
COLOURS = ("#0b57d0", "#6ea8fe", "#c5221f", "#e8710a", "#188038", "#9334e6", "#b06fd8", "#795548", "#5f6368", "#00838f", "#ad1457", "#827717",
           "#f5b400", "#37474f", "#00bfa5", "#6d4c8f")


@dataclasses.dataclass
class Series:
    name: str
    points: list  # of (x, y)


@dataclasses.dataclass
class Axes:
    title: str
    x_label: str
    y_label: str
    x_is_bytes: bool = False
    y_is_logarithmic: bool = True
    x_base: float = 2.0


def byte_text(size):
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{int(size)}"


def size_text(size):
    """For prose: "8 MiB"."""
    text = byte_text(size)
    return f"{text} B" if text.isdigit() else f"{text[:-1]} {text[-1]}iB"


def number_text(value):
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


class _Scale:
    def __init__(self, low, high, begin, end, logarithmic):
        self._function = math.log if logarithmic else float
        self._low, high = self._function(low), self._function(high)
        self._factor = (end - begin) / ((high - self._low) or 1)
        self._begin = begin

    def __call__(self, value):
        return self._begin + (self._function(value) - self._low) * self._factor


def _text(x, y, text, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{html.escape(text)}</text>'


def _line(x1, y1, x2, y2, colour="#ddd", width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _document(parts, height=HEIGHT):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>')
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _y_ticks(low, high, is_logarithmic):
    if is_logarithmic:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return [10.0**k for k in range(first, last + 1)]
    step = 10.0 ** math.floor(math.log10(high / 2))
    step *= next(m for m in (1, 2, 5, 10) if high / (step * m) <= 8)
    return [step * k for k in range(math.ceil(high / step) + 1)]


def line_chart(axes, all_series):
    xs = sorted({x for series in all_series for x, _ in series.points})
    ys = [y for series in all_series for _, y in series.points]
    if not xs:
        return _document([_text(WIDTH / 2, HEIGHT / 2, "nothing was measured")])
    ticks = _y_ticks(min(ys), max(ys), axes.y_is_logarithmic)
    x_scale = _Scale(xs[0], xs[-1], LEFT, WIDTH - RIGHT, True)
    y_scale = _Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, axes.y_is_logarithmic)
    parts = [_text(LEFT, 22, axes.title, "start", 'font-size="15"')]
    for tick in ticks:
        parts += [_line(LEFT, y_scale(tick), WIDTH - RIGHT, y_scale(tick)), _text(LEFT - 6, y_scale(tick) + 4, number_text(tick), "end")]
    every = max(1, len(xs) // 12)
    for x in xs[::every]:
        parts += [_line(x_scale(x), TOP, x_scale(x), HEIGHT - BOTTOM, "#eee"),
                  _text(x_scale(x), HEIGHT - BOTTOM + 18, byte_text(x) if axes.x_is_bytes else number_text(x))]
    parts += [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, axes.x_label),
              _text(20, (TOP + HEIGHT - BOTTOM) / 2, axes.y_label, "middle", f'transform="rotate(-90 20 {(TOP + HEIGHT - BOTTOM) / 2})"')]
    for i, series in enumerate(all_series):
        colour = COLOURS[i % len(COLOURS)]
        width = 2.5 if i == 0 else 1.5
        places = [(x_scale(x), y_scale(y)) for x, y in sorted(series.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
        y = TOP + 14 + 18 * i
        parts += [_line(WIDTH - RIGHT + 12, y - 4, WIDTH - RIGHT + 34, y - 4, colour, width),
                  _text(WIDTH - RIGHT + 40, y, series.name, "start")]
    return _document(parts)


def bar_chart(title, unit, groups):
    """groups: {group: {name: value}}, one horizontal bar each, from 0."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    longest = max((value for bars in groups.values() for value in bars.values()), default=1.0)
    left, right = 290, 90
    parts = [_text(20, 22, title, "start", 'font-size="15"')]
    y = 44
    for group, bars in groups.items():
        parts.append(_text(20, y + 12, group, "start", 'font-weight="bold"'))
        y += 20
        for name, value in bars.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            length = max(1.0, value / longest * (WIDTH - left - right))
            parts += [_text(left - 8, y + 12, name, "end"),
                      f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" fill="{colour}"/>',
                      _text(left + length + 6, y + 12, f"{value:.4g} {unit}", "start")]
            y += 19
        y += 10
    return _document(parts, y + 10)
