//! Choices of the user of a view, made by keys: which nodes, in which order, which one.

use crate::demo::watch::Row;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sheaf_protocol::{EpnId, NodeId, Role};
use std::cmp::Ordering;

/// Longest filter: more than the name and the state of a node.
const FILTER_MAX: usize = 24;

/// Deed that a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// End the view.
    Quit,
    /// Drain this EPN.
    Drain(EpnId),
}

/// Order of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// By role and index.
    #[default]
    Node,
    /// Nodes in trouble first.
    State,
    /// The highest rate first.
    Rate,
    /// The most bytes first.
    Buffered,
    /// The highest latency first.
    Latency,
}

impl Sort {
    const ALL: [Self; 5] = [
        Self::Node,
        Self::State,
        Self::Rate,
        Self::Buffered,
        Self::Latency,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::State => "state",
            Self::Rate => "rate",
            Self::Buffered => "buffered",
            Self::Latency => "latency",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self);
        Self::ALL[(at.unwrap_or_default() + 1) % Self::ALL.len()]
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let p99 = |row: &Row| row.latency_us.map_or(0.0, |found| found.p99);
        match self {
            Self::Node => Ordering::Equal,
            Self::State => is_well(&one.state).cmp(&is_well(&other.state)),
            Self::Rate => other.mb_per_s.total_cmp(&one.mb_per_s),
            Self::Buffered => other.buffered_bytes.cmp(&one.buffered_bytes),
            Self::Latency => p99(other).total_cmp(&p99(one)),
        }
    }
}

/// Returns whether a node in `state` works.
pub(super) fn is_well(state: &str) -> bool {
    matches!(state, "up" | "leads" | "standby")
}

/// Target of the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asks {
    #[default]
    Nothing,
    /// The text of the filter.
    Filter,
    /// Whether to drain this EPN.
    Drain(EpnId),
}

/// How a user looks at a farm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    title: String,
    /// Whether orders can be given: the farm is not that of a demo, which ends it itself.
    can_order: bool,
    is_paused: bool,
    sort: Sort,
    filter: String,
    chosen: Option<NodeId>,
    asks: Asks,
    /// Nodes on the screen, as they were drawn last.
    shown: Vec<NodeId>,
}

impl Look {
    /// Look at a farm under `title`.
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// Lets the user give orders to the farm.
    #[must_use]
    pub(crate) fn with_orders(mut self) -> Self {
        self.can_order = true;
        self
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(super) fn chosen(&self) -> Option<NodeId> {
        self.chosen
    }

    /// Returns the line of keys and choices.
    pub(super) fn prompt(&self) -> String {
        match self.asks {
            Asks::Filter => {
                return format!("filter: {}_  Enter takes it, Esc clears it", self.filter);
            }
            Asks::Drain(epn) => return format!("drain {epn}? y or n"),
            Asks::Nothing => {}
        }
        let mut text = format!("q quit  p pause  s sort ({})  / filter", self.sort.name());
        if !self.filter.is_empty() {
            text += &format!(" ({})", self.filter);
        }
        text += "  ↑↓ choose";
        if self.can_order {
            text += "  d drain";
        }
        if self.is_paused {
            text += "  PAUSED";
        }
        text
    }

    /// Returns the rows that the user wants to see, in the order that is wanted.
    pub(super) fn select(&self, rows: Vec<Row>) -> Vec<Row> {
        let matches = |row: &Row| {
            self.filter.is_empty()
                || row.node.to_string().contains(&self.filter)
                || row.state.contains(&self.filter)
        };
        let mut rows: Vec<Row> = rows.into_iter().filter(matches).collect();
        rows.sort_by(|one, other| self.sort.compare(one, other));
        rows
    }

    /// Notes which nodes are on the screen.
    pub(super) fn note_shown(&mut self, shown: Vec<NodeId>) {
        self.shown = shown;
    }

    /// Handles a key. Returns what is to be done.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Option<Deed> {
        if key.kind != KeyEventKind::Press {
            return None;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Deed::Quit);
        }
        match std::mem::take(&mut self.asks) {
            Asks::Drain(epn) => (key.code == KeyCode::Char('y')).then_some(Deed::Drain(epn)),
            Asks::Filter => {
                self.type_filter(key.code);
                None
            }
            Asks::Nothing => self.handle_command(key.code),
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        self.asks = Asks::Filter;
        match code {
            KeyCode::Enter => self.asks = Asks::Nothing,
            KeyCode::Esc => {
                self.filter.clear();
                self.asks = Asks::Nothing;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(typed) if self.filter.len() < FILTER_MAX && typed.is_ascii_graphic() => {
                self.filter.push(typed);
            }
            _ => {}
        }
    }

    fn handle_command(&mut self, code: KeyCode) -> Option<Deed> {
        match code {
            KeyCode::Char('q') => return Some(Deed::Quit),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => self.asks = Asks::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down => self.choose(1),
            KeyCode::Up => self.choose(-1),
            KeyCode::Char('d') if self.can_order => {
                let chosen = self.chosen.filter(|node| node.role == Role::Epn);
                if let Some(node) = chosen {
                    self.asks = Asks::Drain(EpnId(node.index));
                }
            }
            _ => {}
        }
        None
    }

    /// Chooses the node that is `by` lines further down.
    fn choose(&mut self, by: isize) {
        let last = self.shown.len().saturating_sub(1);
        let at = (self.chosen).and_then(|node| self.shown.iter().position(|shown| *shown == node));
        let next = match at {
            Some(at) => at.saturating_add_signed(by).min(last),
            None if by > 0 => 0,
            None => last,
        };
        self.chosen = self.shown.get(next).copied();
    }
}
