//! Lines: values over loads and over sizes, such as throughput, CPU time and memory over the bytes of a message, as
//! posters of benchmarks have them.

use super::{INK, PlotError, bad, caption, short};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

/// Width and height of a figure, in pixels.
const SIZE: (u32, u32) = (860, 440);
/// Lines of others; ours is thick and blue.
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(40, 40, 40),
    RGBColor(196, 78, 36),
    RGBColor(74, 154, 90),
    RGBColor(138, 99, 176),
    RGBColor(184, 145, 42),
    RGBColor(60, 160, 170),
    RGBColor(200, 100, 150),
    RGBColor(130, 130, 130),
];

/// Quantity along an axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Words beside it.
    pub unit: String,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Title.
    pub label: String,
    /// Whether it stands out.
    pub is_ours: bool,
    /// Where along the axis, and value, least and most there.
    pub points: Vec<(f64, [f64; 3])>,
}

/// Way in which an axis grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By factors; values are above 0.
    Logarithmic,
}

/// Values over sizes, which are above 0 and have a logarithmic axis, as an SVG.
///
/// # Errors
///
/// [`PlotError`] if a value is not finite, or a size is not above 0.
pub fn over_sizes(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> Result<String, PlotError> {
    check(title, lines, |x, _| x > 0.0)?;
    let x_range = by_factors(range(lines, |(x, _)| [*x, *x]), [0.8, 1.25]).log_scale();
    let y_range = from_zero(range(lines, |(_, [_, least, most])| [*least, *most]));
    draw(title, (x, x_range, &size), (y, y_range, &short), lines)
}

/// Values over a quantity, with axes of these scales, below and beside, as an SVG.
///
/// # Errors
///
/// [`PlotError`] if a number is not finite, or one along a logarithmic axis is not above 0.
pub fn over(
    title: &str,
    x: &Axis,
    y: &Axis,
    scales: [Scale; 2],
    lines: &[Line],
) -> Result<String, PlotError> {
    let is_log = scales.map(|scale| scale == Scale::Logarithmic);
    check(title, lines, |x, values| {
        (!is_log[0] || x > 0.0) && (!is_log[1] || values.iter().all(|value| *value > 0.0))
    })?;
    let xs = range(lines, |(x, _)| [*x, *x]);
    let ys = range(lines, |(_, [_, least, most])| [*least, *most]);
    let (x_log, y_log) = (by_factors(xs, [0.8, 1.25]), by_factors(ys, [0.7, 1.4]));
    let (x_even, y_even) = (with_margin(xs), from_zero(ys));
    match is_log {
        [false, false] => draw(title, (x, x_even, &short), (y, y_even, &short), lines),
        [false, true] => {
            let y_range = y_log.log_scale();
            draw(title, (x, x_even, &short), (y, y_range, &short), lines)
        }
        [true, false] => {
            let x_range = x_log.log_scale();
            draw(title, (x, x_range, &short), (y, y_even, &short), lines)
        }
        [true, true] => {
            let (x_range, y_range) = (x_log.log_scale(), y_log.log_scale());
            draw(title, (x, x_range, &short), (y, y_range, &short), lines)
        }
    }
}

/// Returns the range of an axis of factors, a little wider than the numbers.
fn by_factors((low, high): (f64, f64), wider: [f64; 2]) -> Range<f64> {
    match low > high {
        true => 1.0..10.0,
        false => low * wider[0]..high * wider[1],
    }
}

/// Returns the range of an even axis, a little wider than the numbers.
fn with_margin((low, high): (f64, f64)) -> Range<f64> {
    match low < high {
        true => low - (high - low) * 0.04..high + (high - low) * 0.04,
        false if low > high => 0.0..1.0,
        false => low - 1.0..high + 1.0,
    }
}

/// Returns the range of an even axis that begins at 0, or below if numbers do.
fn from_zero((low, high): (f64, f64)) -> Range<f64> {
    let low = if low < 0.0 { low * 1.1 } else { 0.0 };
    let high = if high > 0.0 { high * 1.1 } else { 1.0 };
    low..high
}

fn check(
    title: &str,
    lines: &[Line],
    is_good: impl Fn(f64, &[f64; 3]) -> bool,
) -> Result<(), PlotError> {
    let mut points = lines.iter().flat_map(|line| &line.points);
    let is_number = |(x, values): &(f64, [f64; 3])| {
        x.is_finite() && values.iter().all(|value| value.is_finite()) && is_good(*x, values)
    };
    points
        .all(is_number)
        .then_some(())
        .ok_or_else(|| PlotError {
            what: title.to_owned(),
            why: "a value is not a finite number, or not above 0 on a logarithmic axis".to_owned(),
        })
}

/// Returns the least and the largest number of all points; the first is the larger one if there is no point.
fn range(lines: &[Line], of: impl Fn(&(f64, [f64; 3])) -> [f64; 2]) -> (f64, f64) {
    let points = lines.iter().flat_map(|line| &line.points);
    points.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
        let [least, most] = of(point);
        (low.min(least), high.max(most))
    })
}

/// Axis, its range, and how its numbers are written.
type Along<'a, R> = (&'a Axis, R, &'a dyn Fn(f64) -> String);

fn draw<X, Y>(
    title: &str,
    (x, x_range, x_number): Along<'_, X>,
    (y, y_range, y_number): Along<'_, Y>,
    lines: &[Line],
) -> Result<String, PlotError>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        caption(&area, title)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(14)
            .margin_top(38)
            .margin_right(130)
            .x_label_area_size(40)
            .y_label_area_size(62)
            .build_cartesian_2d(x_range, y_range)
            .map_err(bad("axes"))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(x.unit.as_str())
            .y_desc(y.unit.as_str())
            .x_label_formatter(&|x: &f64| x_number(*x))
            .y_label_formatter(&|y: &f64| y_number(*y))
            .draw()
            .map_err(bad("axes"))?;
        let (mut others, mut labels) = (COLOURS.iter().cycle(), Vec::new());
        for line in lines {
            let (colour, width) = match line.is_ours {
                true => (super::OURS, 3),
                false => (others.next().copied().unwrap_or(INK), 1),
            };
            let mut points = line.points.clone();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let values = points.iter().map(|(x, [value, _, _])| (*x, *value));
            let drawn = LineSeries::new(values.clone(), colour.stroke_width(width));
            chart.draw_series(drawn).map_err(bad("a line"))?;
            let dots = values.map(|at| Circle::new(at, 3, colour.filled()));
            chart.draw_series(dots).map_err(bad("dots"))?;
            let spread = points.iter().filter(|(_, [_, least, most])| least < most);
            let bars = spread.map(|(x, [value, least, most])| {
                ErrorBar::new_vertical(*x, *least, *value, *most, colour.stroke_width(1), 6)
            });
            chart.draw_series(bars).map_err(bad("a spread"))?;
            if let Some((x, [value, _, _])) = points.last() {
                labels.push((
                    chart.backend_coord(&(*x, *value)),
                    line.label.clone(),
                    colour,
                ));
            }
        }
        // At the end of its line, but not over another.
        labels.sort_by_key(|((_, y), _, _)| *y);
        let wanted = labels.iter().map(|((_, y), _, _)| *y).collect();
        let places = apart(wanted, SIZE.1 as i32 - LABEL_GAP);
        for (y, (_, label, colour)) in places.into_iter().zip(labels) {
            let at = (SIZE.0 as i32 - 126, y - 7);
            let style = ("sans-serif", 13).into_font().color(&colour);
            area.draw(&Text::new(label, at, style))
                .map_err(bad("a label"))?;
        }
        area.present().map_err(bad("a figure"))?;
    }
    Ok(svg)
}

/// From one label to the next below it.
const LABEL_GAP: i32 = 15;

/// Moves labels, given from the top down, so that none lies over another or below `lowest`.
fn apart(mut places: Vec<i32>, lowest: i32) -> Vec<i32> {
    let mut highest = i32::MIN;
    for y in &mut places {
        *y = highest.max(*y);
        highest = *y + LABEL_GAP;
    }
    let mut lowest = lowest;
    for y in places.iter_mut().rev() {
        *y = lowest.min(*y);
        lowest = *y - LABEL_GAP;
    }
    places
}

/// A size in the units of a person.
fn size(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1e6 => format!("{:.0} MB", bytes / 1e6),
        _ if bytes >= 1e3 => format!("{:.0} kB", bytes / 1e3),
        _ => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lie_apart_and_inside() {
        assert_eq!(apart(vec![10, 100, 200], 300), [10, 100, 200]);
        assert_eq!(apart(vec![10, 12, 13, 200], 300), [10, 25, 40, 200]);
        assert_eq!(apart(vec![10, 298, 299, 300], 300), [10, 270, 285, 300]);
        assert_eq!(apart(Vec::new(), 300), Vec::<i32>::new());
    }

    #[test]
    fn lines_have_their_names_and_nonsense_does_not_panic() {
        let axis = |unit: &str| Axis {
            unit: unit.to_owned(),
        };
        let line = |label: &str, value: f64| Line {
            label: label.to_owned(),
            is_ours: label == "sheaf",
            points: vec![
                (4096.0, [value, value * 0.9, value * 1.1]),
                (1e6, [value; 3]),
            ],
        };
        let draw =
            |lines: &[Line]| over_sizes("one <to> one", &axis("bytes"), &axis("MB/s"), lines);
        let svg = draw(&[line("sheaf", 5000.0), line("libzmq", 4000.0)]).unwrap();
        for word in [
            "one &lt;to&gt; one",
            "sheaf",
            "libzmq",
            "MB/s",
            "10 kB",
            "<polyline",
        ] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(draw(&[line("one", 0.0)]).is_ok() && draw(&[]).is_ok());
        assert!(draw(&[line("one", f64::NAN)]).is_err());
        let (even, by_factors) = (Scale::Linear, Scale::Logarithmic);
        let draw = |scales: [Scale; 2], lines: &[Line]| {
            over("waits", &axis("load"), &axis("wait, ms"), scales, lines)
        };
        for scales in [
            [even; 2],
            [even, by_factors],
            [by_factors, even],
            [by_factors; 2],
        ] {
            let svg = draw(scales, &[line("sheaf", 0.02), line("other", 11_000.0)]).unwrap();
            for word in ["waits", "wait, ms", "other", "<polyline"] {
                assert!(svg.contains(word), "{word}: {svg}");
            }
            assert!(draw(scales, &[]).is_ok());
        }
        assert!(draw([even; 2], &[line("one", 0.0)]).is_ok());
        assert!(draw([even, by_factors], &[line("one", 0.0)]).is_err());
    }
}
