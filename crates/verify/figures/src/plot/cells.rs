//! Cells: which of several things is best at each pair of two quantities, as phase diagrams have it.

use super::lines::COLOURS;
use super::{INK, OURS, PlotError, bad, caption};
use plotters::prelude::*;

/// Width of the labels of rows, and of a cell, in pixels.
const LABELS: i32 = 318;
const WIDTH: i32 = 152;
/// Height of a cell, of the name of a group, of what stands above the cells and of a line of the legend.
const HEIGHT: i32 = 34;
const GROUP: i32 = 24;
const TOP: i32 = 72;
const LEGEND: i32 = 22;

/// Best thing at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Name of the best.
    pub best: String,
    /// Words below the name.
    pub note: String,
    /// Strength of its colour, from 0 to 1.
    pub strength: f64,
}

/// Row of cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the rows that belong together.
    pub group: String,
    /// Words at the left.
    pub label: String,
    /// One for each column; `None` where nothing is known.
    pub cells: Vec<Option<Cell>>,
}

/// Draws rows of cells below the names of their columns, with a colour for each name; `ours` has the blue one.
///
/// # Errors
///
/// [`PlotError`] if a row has not as many cells as there are columns.
pub fn cells(
    title: &str,
    axis: &str,
    columns: &[String],
    rows: &[Row],
    ours: &str,
) -> Result<String, PlotError> {
    if let Some(row) = rows.iter().find(|row| row.cells.len() != columns.len()) {
        return Err(PlotError {
            what: title.to_owned(),
            why: format!(
                "{}: found {} cells, expected {}",
                row.label,
                row.cells.len(),
                columns.len()
            ),
        });
    }
    let mut names: Vec<&str> = rows
        .iter()
        .flat_map(|row| row.cells.iter().flatten())
        .map(|cell| cell.best.as_str())
        .collect();
    names.sort_unstable_by_key(|name| (*name != ours, *name));
    names.dedup();
    let colour = |name: &str| match names
        .iter()
        .filter(|other| **other != ours)
        .position(|other| *other == name)
    {
        Some(at) => COLOURS[(at + 1) % COLOURS.len()],
        None => OURS,
    };
    let groups = rows.chunk_by(|a, b| a.group == b.group).count() as i32;
    let width = LABELS + WIDTH * columns.len() as i32 + 14;
    let body = GROUP * groups + HEIGHT * rows.len() as i32;
    let per_line = ((width - 28) / 190).max(1);
    let lines = (names.len() as i32 + per_line - 1) / per_line;
    let legend = LEGEND * (lines + 1);
    let height = TOP + body + legend + 14;
    let mut svg = String::new();
    {
        let size = (width as u32, height as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        caption(&area, title)?;
        let text = |words: &str, at: (i32, i32), size: i32| {
            let style = ("sans-serif", size).into_font().color(&INK);
            area.draw(&Text::new(words.to_owned(), at, style))
                .map_err(bad("a text"))
        };
        text(axis, (14, TOP - 20), 13)?;
        for (column, name) in columns.iter().enumerate() {
            text(name, (LABELS + WIDTH * column as i32 + 6, TOP - 20), 13)?;
        }
        let (mut y, mut group) = (TOP, None);
        for row in rows {
            if group != Some(&row.group) {
                group = Some(&row.group);
                text(&row.group, (14, y + 6), 14)?;
                y += GROUP;
            }
            text(&row.label, (22, y + 10), 12)?;
            for (column, cell) in row.cells.iter().enumerate() {
                let Some(cell) = cell else {
                    continue;
                };
                let x = LABELS + WIDTH * column as i32;
                let tint = tint(colour(&cell.best), cell.strength);
                let corners = [(x + 1, y + 1), (x + WIDTH - 1, y + HEIGHT - 1)];
                area.draw(&Rectangle::new(corners, tint.filled()))
                    .map_err(bad("a cell"))?;
                text(&cell.best, (x + 6, y + 4), 12)?;
                text(&cell.note, (x + 6, y + 18), 11)?;
            }
            y += HEIGHT;
        }
        for (at, name) in names.iter().enumerate() {
            let (column, line) = (at as i32 % per_line, at as i32 / per_line);
            let (x, y) = (14 + 190 * column, y + 14 + LEGEND * line);
            let square = [(x, y), (x + 12, y + 12)];
            area.draw(&Rectangle::new(square, tint(colour(name), 1.0).filled()))
                .map_err(bad("a legend"))?;
            text(name, (x + 18, y - 1), 12)?;
        }
        area.present().map_err(bad("a figure"))?;
    }
    Ok(svg)
}

/// Mixes a colour with white, so that words on it can be read.
fn tint(colour: RGBColor, strength: f64) -> RGBColor {
    let share = 0.12 + 0.5 * strength.clamp(0.0, 1.0);
    let mix = |part: u8| (f64::from(part) * share + 255.0 * (1.0 - share)).round() as u8;
    RGBColor(mix(colour.0), mix(colour.1), mix(colour.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(best: &str) -> Option<Cell> {
        Some(Cell {
            best: best.to_owned(),
            note: "next ×1.30".to_owned(),
            strength: 0.5,
        })
    }

    #[test]
    fn every_cell_and_group_is_drawn_and_a_gap_is_left_out() {
        let row = |group: &str, label: &str, cells| Row {
            group: group.to_owned(),
            label: label.to_owned(),
            cells,
        };
        let rows = [
            row("speeds", "35 EPNs", vec![cell("ours"), cell("theirs")]),
            row("speeds", "36 EPNs", vec![None, cell("ours")]),
        ];
        let columns = ["0.5".to_owned(), "0.9".to_owned()];
        let svg = cells("best", "load", &columns, &rows, "ours").expect("cells that fit");
        assert_eq!(svg.matches("next ×1.30").count(), 3);
        assert_eq!(svg.matches("speeds").count(), 1);
        // Once in a cell each, and in the legend.
        assert_eq!(svg.matches("theirs").count(), 2);
        let short = [row("speeds", "35 EPNs", vec![cell("ours")])];
        let error =
            cells("best", "load", &columns, &short, "ours").expect_err("one cell is missing");
        assert_eq!(
            error.to_string(),
            "cannot draw best: 35 EPNs: found 1 cells, expected 2"
        );
    }

    #[test]
    fn a_stronger_colour_is_darker_and_none_hides_its_words() {
        let of = |strength| tint(OURS, strength);
        assert!(of(0.0).0 > of(0.5).0 && of(0.5).0 > of(1.0).0);
        assert_eq!(of(2.0), of(1.0));
        assert!(of(1.0).0 > 100, "{:?}", of(1.0));
    }
}
