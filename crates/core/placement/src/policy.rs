//! Choice of the target of the next job.
//!
//! One trait covers everything that is placed: a TF on an EPN, a file on a writer thread, a connection on a server. A
//! policy sees one job and the load as known now, and names one target. It does not book (the owner of the [`LoadView`]
//! does, at once), wait, retry or count.
//!
//! A timeframe on an EPN, in bytes of its memory:
//!
//! ```
//! use sheaf_placement::{Job, LoadView, TargetId, TargetLoad, policy};
//! use sheaf_protocol::Timestamp;
//!
//! let mut policy = policy::by_name("earliest-finish", 1)?;
//! let mut epns = LoadView::new();
//! for epn in 0..3 {
//!     epns.insert(TargetLoad::new(TargetId(epn), 64 << 30, 25)); // 64 GiB, 25 TFs at once
//! }
//! let avoid = [TargetId(0)]; // it failed with it before
//! let tf = Job { id: 4711, bytes: 1_800_000_000, avoid: &avoid, is_early: false };
//! let epn = policy.choose(Timestamp(0), &tf, &epns).expect("two have room");
//! epns.book(epn, tf.bytes);
//! assert_eq!(epn, TargetId(1));
//! # Ok::<(), policy::UnknownPolicy>(())
//! ```
//!
//! A file on a writer thread, by the work that the threads did lately:
//!
//! ```
//! # use sheaf_placement::{Finished, Job, LoadView, TargetId, TargetLoad, policy};
//! # use sheaf_protocol::Timestamp;
//! let mut policy = policy::by_name("weighted", 1)?;
//! let mut threads = LoadView::new();
//! for thread in 0..2 {
//!     threads.insert(TargetLoad::new(TargetId(thread), u64::MAX, 1000)); // as many files as it likes
//! }
//! // Thread 0 has written a file of 2 GB in 4 s.
//! let (placed_at, done_at) = (Timestamp(0), Timestamp(4_000_000_000));
//! let file = Finished { bytes: 2_000_000_000, placed_at, arrived_at: done_at, done_at };
//! threads.observe(TargetId(0), &file);
//! let next = Job { id: 18, bytes: 500_000_000, avoid: &[], is_early: false };
//! assert_eq!(policy.choose(done_at, &next, &threads), Ok(TargetId(1)));
//! # Ok::<(), policy::UnknownPolicy>(())
//! ```
//!
//! A connection on a server, the same one for every connection of one client while the server is there:
//!
//! ```
//! # use sheaf_placement::{Job, LoadView, TargetId, TargetLoad, policy};
//! # use sheaf_protocol::Timestamp;
//! let mut policy = policy::by_name("maglev", 1)?;
//! let mut servers = LoadView::new();
//! for server in [10, 11, 12] {
//!     servers.insert(TargetLoad::new(TargetId(server), 0, 4096)); // up to 4096 connections, bytes do not count
//! }
//! let client = Job { id: 0xC0A8_0107, bytes: 0, avoid: &[], is_early: false }; // 192.168.1.7
//! let server = policy.choose(Timestamp(0), &client, &servers).expect("all have room");
//! servers.book(server, 0);
//! assert_eq!(policy.choose(Timestamp(9), &client, &servers), Ok(server));
//! # Ok::<(), policy::UnknownPolicy>(())
//! ```
//!
//! A policy of one's own, without a change of Sheaf: [`register`].
//!
//! Why one trait, and what was refused: `docs/adr/2026-11-21-one-policy-trait.md`; why a policy reads what was
//! measured from the view: `docs/adr/2026-11-21-measured-in-the-view.md`. Which to take:
//! `docs/explanation/policies.md`.

pub mod calendar;
pub mod earliest_finish;
pub mod first_fit;
pub mod fixed;
pub mod join_idle_queue;
pub mod least_loaded;
pub mod maglev;
pub mod modulo;
mod own;
pub mod power_of_two;
pub mod power_of_two_memory;
pub mod random;
pub mod round_robin;
pub mod weighted;

pub use own::{RegisterError, is_name, register};

use crate::load::{Job, LoadView, TargetId};
use crate::refusal::Refusal;
use sheaf_protocol::Timestamp;

/// Chooses the target of the next job.
///
/// # Contract, checked for every policy by [`contract::check`](crate::contract::check)
///
/// - the choice is a member of `view` that has room for `job` ([`TargetLoad::fits`](crate::TargetLoad::fits));
/// - if any member has room, there is a choice: what a policy prefers is where it looks first;
/// - if none has room, the answer is [`LoadView::refusal`] at once, never a wait or a panic;
/// - equal seeds and equal calls give equal choices;
/// - members may join, leave and change in any way between two calls.
///
/// A choice does not allocate while the members of the view stay the same, and takes at most a few passes over it. What
/// a policy learns of the targets it reads from the view ([`LoadView::measured`]), which the owner feeds; its own
/// state, such as the next turn, starts over with a new owner.
pub trait Policy: Send {
    /// Returns the name in configuration files, metrics and reports, such as `"round-robin"`.
    fn name(&self) -> &'static str;

    /// Picks a target for `job` from `view`, the load as known at `now`.
    ///
    /// # Errors
    ///
    /// The reason why no target of `view` has room for `job`.
    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal>;
}

/// Maker of a policy from its argument and a seed; `None` if the argument is not of its form.
type Make = fn(Option<&str>, u64) -> Option<Box<dyn Policy>>;

/// Registration of a policy: names in farm files, on command lines and in reference pages derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// Name in configuration files, metrics and reports, such as `"round-robin"`.
    pub name: &'static str,
    /// Argument behind a colon, which may be left out; most policies have none.
    pub argument: Option<Argument>,
    make: Make,
}

/// Argument of a policy, as in `fixed:TARGET`.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Name in help texts, such as `"TARGET"`.
    pub name: &'static str,
    /// Meaning in error messages, such as `"the number of a target"`.
    pub meaning: &'static str,
}

/// Table of all policies: a policy is its own file and its line here. The simulator draws from it by place, so a new
/// one comes last.
pub const TABLE: &[Registration] = &[
    fixed::POLICY,
    random::POLICY,
    round_robin::POLICY,
    modulo::POLICY,
    first_fit::POLICY,
    least_loaded::POLICY,
    power_of_two::POLICY,
    weighted::POLICY,
    earliest_finish::POLICY,
    calendar::POLICY,
    maglev::POLICY,
    join_idle_queue::POLICY,
    power_of_two_memory::POLICY,
];

/// Name of the policy that a farm has if its file names none (docs/results/policies.md says why this one).
pub const DEFAULT: &str = earliest_finish::POLICY.name;

/// Names of [`TABLE`].
pub const NAMES: &[&str] = &names();

const fn names() -> [&'static str; TABLE.len()] {
    let mut names = [""; TABLE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TABLE[at].name;
        at += 1;
    }
    names
}

/// Lists in words what configuration files and command lines accept: `fixed, fixed:TARGET, random, … or maglev`.
#[must_use]
pub fn choices() -> String {
    let forms = TABLE.iter().flat_map(|policy| {
        let with_argument = policy
            .argument
            .map(|it| format!("{}:{}", policy.name, it.name));
        std::iter::once(policy.name.to_owned()).chain(with_argument)
    });
    let own = own::names().into_iter().map(str::to_owned);
    let mut forms: Vec<String> = forms.chain(own).collect();
    let last = forms.pop().unwrap_or_default();
    format!("{} or {last}", forms.join(", "))
}

/// Makes the policy that is called `name` in configuration files. `fixed` takes its target behind a
/// colon: `fixed:3`. Policies that draw lots draw them from `seed`; the others ignore it.
///
/// # Errors
///
/// [`UnknownPolicy`], which lists the names.
pub fn by_name(name: &str, seed: u64) -> Result<Box<dyn Policy>, UnknownPolicy> {
    let (of_table, argument) = match name.split_once(':') {
        Some((of_table, argument)) => (of_table, Some(argument)),
        None => (name, None),
    };
    let found = TABLE.iter().find(|policy| policy.name == of_table);
    found
        .filter(|policy| argument.is_none() || policy.argument.is_some())
        .and_then(|policy| (policy.make)(argument, seed))
        .or_else(|| own::make(name, seed))
        .ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
        })
}

/// Error for a name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy `{name}`, expected one of {}", expected())]
pub struct UnknownPolicy {
    /// Name that was asked for.
    pub name: String,
}

/// Returns all names, and the forms with an argument behind them.
fn expected() -> String {
    let with_argument = TABLE.iter().filter_map(|policy| {
        let argument = policy.argument?;
        Some(format!(
            ", or {}:{} with {}",
            policy.name, argument.name, argument.meaning
        ))
    });
    let mut names = NAMES.to_vec();
    names.extend(own::names());
    names.join(", ") + &with_argument.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::TargetLoad;

    const CAPACITY_BYTES: u64 = 1000;

    /// Places jobs of 10 bytes, one for each word of `choices`, on targets 0, 1, … with these free
    /// slots. Every choice is booked.
    pub(super) fn check(policy: impl Policy, free_slots: &[u32], choices: &str) {
        let targets: Vec<_> = (0..)
            .zip(free_slots)
            .map(|(id, slots)| TargetLoad::new(TargetId(id), CAPACITY_BYTES, *slots))
            .collect();
        let jobs: Vec<_> = (0..)
            .zip(choices.split(' '))
            .map(|(id, _)| (id, 10))
            .collect();
        check_jobs(policy, &targets, &jobs, choices);
    }

    /// Places `jobs`, each as its id and bytes, on `targets`. Every choice is booked.
    pub(super) fn check_jobs(
        mut policy: impl Policy,
        targets: &[TargetLoad],
        jobs: &[(u64, u64)],
        choices: &str,
    ) {
        let mut view = LoadView::new();
        for target in targets {
            view.insert(*target);
        }
        let answers = jobs.iter().map(|&(id, bytes)| {
            let avoid = &[];
            match policy.choose(
                Timestamp(id),
                &Job {
                    id,
                    bytes,
                    avoid,
                    is_early: false,
                },
                &view,
            ) {
                Ok(target) => {
                    view.book(target, bytes);
                    target.to_string()
                }
                Err(refusal) => format!("{refusal:?}"),
            }
        });
        assert_eq!(answers.collect::<Vec<_>>().join(" "), choices);
    }

    #[test]
    fn every_name_makes_the_policy_that_bears_it() {
        for &name in NAMES {
            assert_eq!(by_name(name, 1).expect(name).name(), name);
        }
        assert_eq!(by_name("fixed:3", 1).expect("has a number").name(), "fixed");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        for name in [
            "",
            "Random",
            "fixed:",
            "fixed:-1",
            "fixed:4294967296",
            "modulo:3",
        ] {
            let error = by_name(name, 1).err().expect("not a policy").to_string();
            // Those of other tests of this process may stand between.
            assert!(error.contains(&NAMES.join(", ")), "{error}");
            assert!(error.contains(", or fixed:TARGET with "), "{error}");
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
