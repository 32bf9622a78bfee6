//! SVG pictures, simple enough to need no library: bars with whiskers, and lines.
//!
//! Colours fit a light and a dark page: background, text and axes follow the reader's preference, and the
//! lines' colours stand out on both.

use std::fmt::Write as _;

use crate::part::{Bar, Drawing, Line, Plot};

const WIDTH: f64 = 760.0;
/// The height of a bar's row.
const ROW: f64 = 30.0;
const TOP: f64 = 44.0;
/// Where bars start.
const LABELS: f64 = 130.0;
/// The space to the right of the longest whisker, for the figure.
const FIGURES: f64 = 120.0;
/// The height of a picture with lines.
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const BOTTOM: f64 = 50.0;
/// A palette that colour-blind readers can distinguish (Okabe and Ito), with grey instead of black.
const HUES: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a700", "#999999"];
const STYLE: &str = "<style>.b{fill:#fff}text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-size:15px;font-weight:600}\
    .n{fill:#57606a;font-size:12px}.a{stroke:#8c959f;stroke-width:1;fill:none}.g{stroke:#8c959f;stroke-opacity:.25;fill:none}\
    .w{stroke:#24292f;stroke-width:1.5;fill:none}\
    @media(prefers-color-scheme:dark){.b{fill:#0d1117}text{fill:#e6edf3}.n{fill:#9198a1}.w{stroke:#e6edf3}}</style>";

/// Draws the picture.
pub fn draw(plot: &Plot) -> String {
    match &plot.kind {
        Drawing::Bars(bars) => draw_bars(plot, bars),
        Drawing::Lines { x_label, log_x, log_y, lines } => draw_lines(plot, x_label, *log_x, *log_y, lines),
    }
}

fn begin(plot: &Plot, height: f64) -> String {
    let title = escaped(&plot.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         {STYLE}\n<rect class=\"b\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n<text class=\"t\" x=\"8\" y=\"22\">{title}</text>\n"
    )
}

fn draw_bars(plot: &Plot, bars: &[Bar]) -> String {
    let height = TOP + ROW * bars.len() as f64 + 12.0;
    let mut svg = begin(plot, height);
    let most = bars.iter().map(|bar| bar.high.max(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LABELS + value / most * (WIDTH - LABELS - FIGURES);
    for (row, bar) in bars.iter().enumerate() {
        let middle = TOP + ROW * (row as f64 + 0.5);
        let (text_y, bar_y) = (middle + 4.5, middle - 9.0);
        let (low, high, end) = (x(bar.low), x(bar.high), x(bar.value));
        let hue = HUES[row % HUES.len()];
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{text_y:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{bar_y:.1}\" width=\"{:.1}\" height=\"18\" fill=\"{hue}\"/>",
            LABELS - 8.0,
            escaped(&bar.label),
            (end - LABELS).max(0.5),
        );
        if bar.high > bar.low {
            let _ = writeln!(
                svg,
                "<path class=\"w\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v10M{high:.1} {:.1}v10\"/>",
                middle - 5.0,
                middle - 5.0
            );
        }
        let figure = short(bar.value);
        let _ = writeln!(svg, "<text class=\"n\" x=\"{:.1}\" y=\"{text_y:.1}\">{figure}</text>", high.max(end) + 8.0);
    }
    let _ = writeln!(svg, "<path class=\"a\" d=\"M{LABELS} {TOP}V{:.1}\"/>", height - 12.0);
    svg + "</svg>\n"
}

/// Maps values to positions on an axis.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, log: bool, start: f64, end: f64) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
            (low, high) = (low.min(value), high.max(value));
        }
        if !low.is_finite() {
            (low, high) = (1.0, 10.0);
        }
        if log {
            // Whole decades, so that each gets a grid line.
            (low, high) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
            high = high.max(low * 10.0);
        } else {
            low = low.min(0.0);
            high = if high > low { high } else { low + 1.0 };
        }
        Axis { low, high, log, start, end }
    }

    fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.max(self.low).log10() } else { value };
        let (low, high) = (scale(self.low), scale(self.high));
        self.start + (scale(value) - low) / (high - low) * (self.end - self.start)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10f64.powi(decade)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * decade).find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

fn draw_lines(plot: &Plot, x_label: &str, log_x: bool, log_y: bool, lines: &[Line]) -> String {
    let mut svg = begin(plot, HEIGHT);
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::of(points().map(|point| point.0), log_x, LEFT, WIDTH - RIGHT);
    let y = Axis::of(points().map(|point| point.1), log_y, HEIGHT - BOTTOM, TOP + 16.0);
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"n\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            short(tick)
        );
    }
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = writeln!(
            svg,
            "<path class=\"a\" d=\"M{at:.1} {:.1}v5\"/><text class=\"n\" x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 19.0,
            short(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<path class=\"a\" d=\"M{LEFT} {:.1}V{:.1}H{:.1}\"/><text class=\"n\" x=\"{LEFT}\" y=\"{:.1}\" \
         text-anchor=\"middle\">{}</text><text class=\"n\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        TOP + 16.0,
        HEIGHT - BOTTOM,
        WIDTH - RIGHT,
        TOP + 4.0,
        escaped(&plot.unit),
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 10.0,
        escaped(x_label)
    );
    for (number, line) in lines.iter().enumerate() {
        draw_line(&mut svg, number, line, &x, &y);
    }
    svg + "</svg>\n"
}

fn draw_line(svg: &mut String, number: usize, line: &Line, x: &Axis, y: &Axis) {
    let hue = HUES[number % HUES.len()];
    let place = |point: &(f64, f64)| (x.at(point.0), y.at(point.1));
    let path: Vec<String> = line.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ =
        writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{hue}\" stroke-width=\"2\"/>", path.join(" "));
    // With many points, as over time, dots would hide the line.
    if line.points.len() <= 20 {
        for (x, y) in line.points.iter().map(place) {
            let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{hue}\"/>");
        }
    }
    let (legend_x, legend_y) = (WIDTH - RIGHT + 14.0, TOP + 20.0 + 20.0 * number as f64);
    let _ = writeln!(
        svg,
        "<path d=\"M{legend_x:.1} {:.1}h16\" stroke=\"{hue}\" stroke-width=\"3\"/><text class=\"n\" x=\"{:.1}\" \
         y=\"{legend_y:.1}\">{}</text>",
        legend_y - 4.0,
        legend_x + 22.0,
        escaped(&line.label)
    );
}

/// A number with three digits and a unit prefix.
fn short(value: f64) -> String {
    let (value, prefix) = match value.abs() {
        n if n >= 1e9 => (value / 1e9, " G"),
        n if n >= 1e6 => (value / 1e6, " M"),
        n if n >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = match value.abs() {
        n if n >= 100.0 || n == 0.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{prefix}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
