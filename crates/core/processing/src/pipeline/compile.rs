//! Compilation of the chain of one series: every decision that follows from its labels.

use super::Core;
use crate::chain::{Chain, End, Link, WindowLink};
use crate::operator::window::Window;
use crate::operator::{Draft, Flow};
use crate::output::{Destinations, Output, Partial, PartialEvent};
use crate::plan::{Plan, Planned};
use crate::stats::Fate;
use crate::windows::Mode;
use sheaf_samples::Labels;
use std::sync::Arc;

/// Links of a chain before a reload, with the place that their operator has now.
pub(super) type Carried = Vec<(u16, Link)>;

impl Core {
    /// Returns the chain of the operators from `from` on for a series with `labels`, with the state of `carried`.
    pub(super) fn compile(
        &mut self,
        plan: &Plan,
        from: usize,
        labels: &Labels,
        mut carried: Carried,
    ) -> Chain {
        let mut draft = Draft {
            labels: labels.clone(),
            destinations: Destinations::ALL,
            is_unmatched: false,
        };
        let mut links = Vec::new();
        let mut stop = None;
        for (place, planned) in plan.operators.iter().enumerate().skip(from) {
            if !planned.selector.is_match(&draft.labels) && !planned.operator.sees_all() {
                continue;
            }
            let operator = u16::try_from(place).expect("bounded by the plan");
            draft.is_unmatched = false;
            let flow = match planned.operator.apply(&mut draft) {
                Ok(flow) => flow,
                Err(error) => {
                    let named = format_args!("{}: {error}", draft.labels);
                    self.stats.over("labels", &planned.id, 0, &named);
                    stop = Some((operator, Fate::Refused));
                    break;
                }
            };
            self.stats.operators[place].unmatched_lookups += u64::from(draft.is_unmatched);
            match flow {
                Flow::Pass => {}
                Flow::Discard => stop = Some((operator, Fate::Discarded)),
                Flow::Work(mut work) => {
                    if let Some(Link::Work { work: old, .. }) = take(&mut carried, operator) {
                        work.resume(old);
                    }
                    links.push(Link::Work { operator, work });
                }
                Flow::Window => {
                    let window = planned.operator.window().expect("a window says so");
                    let old = take(&mut carried, operator);
                    match self.bind(plan, place, planned, window, &draft.labels) {
                        Some(group) => {
                            let last = match old {
                                Some(Link::Window(old)) => old.last,
                                _ => None,
                            };
                            links.push(Link::Window(WindowLink {
                                operator,
                                window: planned.window.expect("a window has a place"),
                                group,
                                consumes: window.consumes,
                                last,
                            }));
                        }
                        None if window.consumes => stop = Some((operator, Fate::Refused)),
                        None => links.push(Link::RefusedCopy { operator }),
                    }
                    if window.consumes && stop.is_none() {
                        // The window ends every sample itself.
                        stop = Some((operator, Fate::Aggregated));
                    }
                }
            }
            if stop.is_some() {
                break;
            }
        }
        let end = match stop {
            Some((operator, fate)) => End::Stop { operator, fate },
            None => self.leave(plan, &draft),
        };
        Chain {
            links: links.into(),
            end,
        }
    }

    fn leave(&mut self, plan: &Plan, draft: &Draft) -> End {
        let max = plan.limits.outputs_max;
        match self.outputs.acquire(&draft.labels, max, &mut self.pending) {
            Some(handle) => End::Out {
                handle,
                destinations: draft.destinations,
            },
            None => {
                self.stats
                    .over("outputs_max", "", max as u64, &draft.labels);
                End::Unknown
            }
        }
    }

    /// Returns the group of the window that a series with `labels` belongs to, which is made if need be.
    fn bind(
        &mut self,
        plan: &Plan,
        place: usize,
        planned: &Planned,
        window: &Window,
        labels: &Labels,
    ) -> Option<u32> {
        let at = usize::from(planned.window.expect("a window has a place"));
        let group = window.group_of(labels);
        let number = match self.windows[at].find(&group) {
            Some(number) => number,
            None => self.insert_group(plan, place, planned, window, &Arc::new(group))?,
        };
        self.windows[at].group(number).chains += 1;
        Some(number)
    }

    /// Makes the group `labels` of the window operator at `place`; nothing if there is no room.
    pub(super) fn insert_group(
        &mut self,
        plan: &Plan,
        place: usize,
        planned: &Planned,
        window: &Window,
        labels: &Arc<Labels>,
    ) -> Option<u32> {
        let at = usize::from(planned.window.expect("a window has a place"));
        if self.groups() >= self.groups_max {
            let max = self.groups_max as u64;
            self.stats.over("groups_max", &planned.id, max, labels);
            return None;
        }
        let results = match self.windows[at].mode {
            Mode::Shard => None,
            Mode::Whole | Mode::Merger => {
                Some(self.compile_results(plan, place, window, labels, Vec::new()))
            }
        };
        let is_shard = results.is_none();
        let number = self.windows[at].insert(Arc::clone(labels), results);
        if is_shard {
            let (group, labels) = (number, Arc::clone(labels));
            self.pending.partials.push(Partial {
                generation: self.generation,
                window: planned.window.expect("a window has a place"),
                event: PartialEvent::Group { group, labels },
            });
        }
        Some(number)
    }

    /// Returns the chains behind the window operator at `place`, one for each function of the group `labels`.
    pub(super) fn compile_results(
        &mut self,
        plan: &Plan,
        place: usize,
        window: &Window,
        labels: &Labels,
        carried: Vec<Carried>,
    ) -> Box<[Chain]> {
        let mut carried = carried.into_iter();
        let mut compile = |function| {
            let carried = carried.next().unwrap_or_default();
            match window.output_of(labels, function) {
                Ok(labels) => self.compile(plan, place + 1, &labels, carried),
                Err(error) => {
                    let id = &plan.operators[place].id;
                    let named = format_args!("{labels}: {error}");
                    self.stats.over("labels", id, 0, &named);
                    Chain::unknown()
                }
            }
        };
        let chains: Box<[Chain]> = window.functions.iter().map(|one| compile(*one)).collect();
        self.note_feeds(plan, place, &chains);
        chains
    }

    /// Notes that windows in `chains` get results of the window operator at `place`.
    fn note_feeds(&mut self, plan: &Plan, place: usize, chains: &[Chain]) {
        let feeder = plan.operators[place].window.expect("a window has a place");
        let links = chains.iter().flat_map(|chain| &chain.links);
        for link in links {
            if let Link::Window(link) = link {
                let fed = &mut self.windows[usize::from(link.window)].fed_by;
                if !fed.contains(&feeder) {
                    fed.push(feeder);
                }
            }
        }
    }

    /// Gives up what `chain` leads to.
    pub(super) fn release(&mut self, chain: Chain) {
        let mut output = std::mem::take(&mut self.pending);
        self.release_into(chain, &mut output);
        self.pending = output;
    }

    fn release_into(&mut self, chain: Chain, output: &mut Output) {
        if let End::Out { handle, .. } = chain.end {
            self.outputs.release(handle, output);
        }
        for link in chain.links {
            if let Link::Window(link) = link {
                let at = usize::from(link.window);
                let group = self.windows[at].group(link.group);
                group.chains -= 1;
                self.remove_unused(at, link.group, output);
            }
        }
    }

    /// Removes a group of the window at `at` that nothing leads to and that has nothing open.
    pub(super) fn remove_unused(&mut self, at: usize, number: u32, output: &mut Output) {
        let Some(group) = self.windows[at].remove_unused(number) else {
            return;
        };
        if self.windows[at].mode == Mode::Shard {
            output.partials.push(Partial {
                generation: self.generation,
                window: u16::try_from(at).expect("a place of the plan"),
                event: PartialEvent::Ended { group: number },
            });
        }
        for chain in group.results.into_iter().flatten() {
            self.release_into(chain, output);
        }
    }
}

fn take(carried: &mut Carried, operator: u16) -> Option<Link> {
    let at = carried.iter().position(|one| one.0 == operator)?;
    Some(carried.swap_remove(at).1)
}
