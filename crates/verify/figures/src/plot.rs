//! Figures as SVG: what is drawn is decided here, that it is drawn well by the crate `plotters`.

pub mod cells;
pub mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width and height of a figure, in pixels.
const SIZE: (u32, u32) = (760, 360);
/// Ours.
const OURS: RGBColor = RGBColor(31, 98, 158);
/// Theirs, or a line to hold against.
const THEIRS: RGBColor = RGBColor(196, 78, 36);
/// Text and axes.
const INK: RGBColor = RGBColor(60, 60, 60);

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {what}: {why}")]
pub struct PlotError {
    what: String,
    why: String,
}

fn bad(what: &str) -> impl Fn(DrawingAreaErrorKind<std::io::Error>) -> PlotError + '_ {
    move |error| PlotError {
        what: what.to_owned(),
        why: error.to_string(),
    }
}

/// A line to hold values against.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// Title.
    pub label: String,
}

/// One column of a figure with bars: a value with its interval, all single values, and what others had.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Under the column.
    pub label: String,
    /// Height.
    pub value: f64,
    /// From where to where the value may lie.
    pub interval: Option<[f64; 2]>,
    /// Every single value, as dots.
    pub values: Vec<f64>,
    /// Published values.
    pub published: Option<f64>,
}

fn caption<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, text: &str) -> Result<(), PlotError> {
    area.fill(&WHITE).map_err(bad("a background"))?;
    let style = ("sans-serif", 17).into_font().color(&INK);
    area.draw(&Text::new(text.to_owned(), (14, 10), style))
        .map_err(bad("a caption"))
}

/// How often values lie where, as an SVG.
///
/// # Errors
///
/// [`PlotError`] if a value is not finite.
pub fn histogram(
    title: &str,
    unit: &str,
    values: &[f64],
    marks: &[Mark],
) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        caption(&area, title)?;
        let bins = Bins::of(values, marks)?;
        let highest = bins.counts.iter().copied().max().unwrap_or(0).max(1);
        let mut chart = ChartBuilder::on(&area)
            .margin(14)
            .margin_top(38)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(bins.low..bins.high, 0.0..f64::from(highest) * 1.15)
            .map_err(bad("axes"))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(unit)
            .y_desc("samples")
            .y_label_formatter(&|y| format!("{y:.0}"))
            .x_label_formatter(&|x| short(*x))
            .draw()
            .map_err(bad("axes"))?;
        let bars = bins.counts.iter().enumerate().map(|(index, count)| {
            let from = bins.low + index as f64 * bins.width;
            let to = from + bins.width * 0.94;
            Rectangle::new(
                [(from, 0.0), (to, f64::from(*count))],
                OURS.mix(0.75).filled(),
            )
        });
        chart.draw_series(bars).map_err(bad("bars"))?;
        for mark in marks {
            let top = f64::from(highest) * 1.08;
            let line = PathElement::new([(mark.at, 0.0), (mark.at, top)], THEIRS.stroke_width(2));
            let style = ("sans-serif", 13).into_font().color(&THEIRS);
            let style = style.pos(Pos::new(HPos::Right, VPos::Center));
            chart.draw_series([line]).map_err(bad("a mark"))?;
            let text = Text::new(format!("{} ", mark.label), (mark.at, top), style);
            chart.draw_series([text]).map_err(bad("a mark"))?;
        }
        area.present().map_err(bad("a figure"))?;
    }
    Ok(svg)
}

struct Bins {
    low: f64,
    high: f64,
    width: f64,
    counts: Vec<u32>,
}

impl Bins {
    /// Twenty of them, from the lowest value or mark to the highest.
    fn of(values: &[f64], marks: &[Mark]) -> Result<Self, PlotError> {
        const COUNT: usize = 20;
        let all = || {
            values
                .iter()
                .copied()
                .chain(marks.iter().map(|mark| mark.at))
        };
        if !all().all(f64::is_finite) {
            return Err(PlotError {
                what: "a histogram".to_owned(),
                why: "a value is not a finite number".to_owned(),
            });
        }
        let (mut low, mut high) = all()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
                (low.min(x), high.max(x))
            });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let margin = ((high - low) * 0.05).max(high.abs() * 1e-4).max(1e-6);
        (low, high) = (low - margin, high + margin);
        let width = (high - low) / COUNT as f64;
        let mut counts = vec![0; COUNT];
        for value in values {
            let index = ((value - low) / width) as usize;
            counts[index.min(COUNT - 1)] += 1;
        }
        Ok(Self {
            low,
            high,
            width,
            counts,
        })
    }
}

/// Columns beside each other, with intervals, single values, and what others published, as an SVG.
///
/// # Errors
///
/// [`PlotError`] if a value is not finite.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let labels_long = bars
            .iter()
            .map(|bar| bar.label.chars().count())
            .max()
            .unwrap_or(0);
        // About so many letters fit beside each other.
        let is_upright = bars.len() * (labels_long + 1) > 100;
        let label_pixels = if is_upright {
            14 + 6 * labels_long.min(40) as u32
        } else {
            32
        };
        let width = SIZE.0.max(90 + 34 * bars.len() as u32);
        let size = (width, SIZE.1 - 40 + label_pixels);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        caption(&area, title)?;
        let all = |bar: &Bar| {
            let interval = bar.interval.iter().flatten().copied();
            let values = interval
                .chain(bar.values.iter().copied())
                .chain(bar.published);
            values.fold(bar.value, f64::max)
        };
        let highest = bars.iter().map(all).fold(0.0, f64::max);
        if !highest.is_finite() {
            return Err(PlotError {
                what: title.to_owned(),
                why: "a value is not a finite number".to_owned(),
            });
        }
        let highest = if highest > 0.0 { highest * 1.12 } else { 1.0 };
        let columns = bars.len().max(1) as f64;
        let mut chart = ChartBuilder::on(&area)
            .margin(14)
            .margin_top(38)
            .x_label_area_size(label_pixels)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..columns, 0.0..highest)
            .map_err(bad("axes"))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_labels(0)
            .y_desc(unit)
            .y_label_formatter(&|y| short(*y))
            .draw()
            .map_err(bad("axes"))?;
        for (index, bar) in bars.iter().enumerate() {
            let left = index as f64;
            let middle = left + 0.5;
            let column = Rectangle::new(
                [(left + 0.18, 0.0), (left + 0.82, bar.value)],
                OURS.mix(0.55).filled(),
            );
            chart.draw_series([column]).map_err(bad("a column"))?;
            if let Some([low, high]) = bar.interval {
                let whisker = ErrorBar::new_vertical(
                    middle,
                    low.max(0.0),
                    bar.value,
                    high,
                    INK.stroke_width(1),
                    8,
                );
                chart.draw_series([whisker]).map_err(bad("an interval"))?;
            }
            let dots = bar.values.iter().enumerate().map(|(at, value)| {
                // Spread a little, so that equal values can be distinguished.
                let shift = ((at * 7) % 11) as f64 / 11.0 * 0.4 - 0.2;
                Circle::new((middle + shift, *value), 2, OURS.filled())
            });
            chart.draw_series(dots).map_err(bad("dots"))?;
            if let Some(published) = bar.published {
                let ends = [(left + 0.08, published), (left + 0.92, published)];
                let line = PathElement::new(ends, THEIRS.stroke_width(3));
                chart
                    .draw_series([line])
                    .map_err(bad("a published value"))?;
            }
        }
        draw_labels(&area, &mut chart, bars, is_upright)?;
        area.present().map_err(bad("a figure"))?;
    }
    Ok(svg)
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn draw_labels(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    chart: &mut Chart<'_, '_>,
    bars: &[Bar],
    is_upright: bool,
) -> Result<(), PlotError> {
    for (index, bar) in bars.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(index as f64 + 0.5, 0.0));
        let font = ("sans-serif", 12).into_font();
        let (font, position) = if is_upright {
            (
                font.transform(FontTransform::Rotate90),
                Pos::new(HPos::Left, VPos::Center),
            )
        } else {
            (font, Pos::new(HPos::Center, VPos::Top))
        };
        let label: String = bar.label.chars().take(40).collect();
        let style = font.color(&INK).pos(position);
        area.draw(&Text::new(label, (x, y + 8), style))
            .map_err(bad("a label"))?;
    }
    Ok(())
}

/// Not more digits than an axis needs.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_its_title_its_bars_and_its_mark() {
        let marks = [Mark {
            at: 94.0,
            label: "report".to_owned(),
        }];
        let svg = histogram("ceiling <pi>", "Mbit/s", &[94.1, 94.1, 93.9], &marks).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
            "{svg}"
        );
        for word in ["ceiling &lt;pi&gt;", "Mbit/s", "report", "<rect"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
    }

    #[test]
    fn columns_have_labels_and_what_was_published() {
        let bar = |label: &str, value| Bar {
            label: label.to_owned(),
            value,
            interval: Some([value * 0.9, value * 1.1]),
            values: vec![value],
            published: Some(2.0),
        };
        let svg = bars("loss", "%", &[bar("one", 1.0), bar("two", 0.0)]).unwrap();
        assert!(svg.contains("one") && svg.contains("two") && svg.contains("<circle"));
        let many: Vec<Bar> = (0..20).map(|n| bar(&format!("point {n}"), 1.0)).collect();
        assert!(bars("loss", "%", &many).unwrap().contains("point 19"));
    }

    #[test]
    fn nothing_and_nonsense_do_not_panic() {
        assert!(
            histogram("none", "s", &[], &[])
                .unwrap()
                .starts_with("<svg")
        );
        assert!(bars("none", "s", &[]).unwrap().starts_with("<svg"));
        assert!(histogram("bad", "s", &[f64::NAN], &[]).is_err());
        let bar = Bar {
            value: f64::INFINITY,
            ..Bar::default()
        };
        assert!(bars("bad", "s", &[bar]).is_err());
    }
}
