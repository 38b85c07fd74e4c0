//! Policies of a program that Sheaf is a part of, beside those of the table.

use super::{NAMES, Policy};
use std::sync::{PoisonError, RwLock};

/// Policy that a program has brought along.
struct Own {
    name: &'static str,
    make: Box<dyn Fn(u64) -> Box<dyn Policy> + Send + Sync>,
}

/// Policies brought along, in the order of their registration.
static OWN: RwLock<Vec<Own>> = RwLock::new(Vec::new());

/// Error for a policy that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name cannot stand in a farm file or on a command line.
    #[error(
        "policy name `{0}`, expected a letter a-z, then letters a-z, digits, `-` or `_`, 64 at most"
    )]
    Name(String),
    /// Another policy has the name.
    #[error("policy name `{0}` is taken, expected one that no other policy has")]
    Taken(String),
}

/// Registers a policy: from then on `name` stands for it wherever this program reads the name of a policy, in farm
/// files, experiments and on command lines. `make` is called with a seed for each run.
///
/// To be called before anything else of Sheaf, once for a policy. `sheaf new policy NAME` writes a program that does.
///
/// ```
/// use sheaf_placement::{Job, LoadView, Policy, Refusal, TargetId, contract, policy};
/// use sheaf_protocol::Timestamp;
///
/// /// Takes the last target that has room.
/// struct LastFit;
///
/// impl Policy for LastFit {
///     fn name(&self) -> &'static str {
///         "last-fit"
///     }
///
///     fn choose(&mut self, _: Timestamp, job: &Job<'_>, view: &LoadView) -> Result<TargetId, Refusal> {
///         let mut targets = view.targets().iter().rev();
///         let target = targets.find(|target| target.fits(job));
///         target.map(|target| target.id).ok_or_else(|| view.refusal(job))
///     }
/// }
///
/// policy::register("last-fit", |_seed| Box::new(LastFit))?;
/// contract::check(|seed| policy::by_name("last-fit", seed).expect("registered"));
/// # Ok::<(), policy::RegisterError>(())
/// ```
///
/// # Errors
///
/// [`RegisterError`] if the name is not of the form of one, or is taken.
pub fn register(
    name: &str,
    make: impl Fn(u64) -> Box<dyn Policy> + Send + Sync + 'static,
) -> Result<(), RegisterError> {
    if !is_name(name) {
        return Err(RegisterError::Name(name.to_owned()));
    }
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    if NAMES.contains(&name) || own.iter().any(|it| it.name == name) {
        return Err(RegisterError::Taken(name.to_owned()));
    }
    own.push(Own {
        // Once for a policy of a process: reports keep names of policies as those of the table are.
        name: Box::leak(name.to_owned().into_boxed_str()),
        make: Box::new(make),
    });
    Ok(())
}

/// Returns whether `name` has the form of a name: a letter a-z, then letters a-z, digits, `-` or `_`, 64 at most.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let rest =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(rest)
}

/// Returns the names of the policies that were registered.
pub(super) fn names() -> Vec<&'static str> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    own.iter().map(|it| it.name).collect()
}

/// Makes the policy that was registered as `name`.
pub(super) fn make(name: &str, seed: u64) -> Option<Box<dyn Policy>> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    let found = own.iter().find(|it| it.name == name)?;
    Some((found.make)(seed))
}

#[cfg(test)]
mod tests {
    use super::super::{by_name, choices, least_loaded::LeastLoaded};
    use super::*;

    #[test]
    fn a_registered_policy_is_made_by_its_name_and_listed() {
        register("of-a-test", |_| Box::new(LeastLoaded)).expect("a new name");
        let made = by_name("of-a-test", 1).expect("registered");
        assert_eq!(made.name(), "least-loaded");
        assert!(choices().ends_with(" or of-a-test"), "{}", choices());
        let error = by_name("of-another", 1).err().expect("no such policy");
        assert!(
            error.to_string().contains(", of-a-test, or fixed:TARGET"),
            "{error}"
        );
        assert!(by_name("of-a-test:3", 1).is_err());
        let again = register("of-a-test", |_| Box::new(LeastLoaded));
        assert_eq!(again, Err(RegisterError::Taken("of-a-test".to_owned())));
    }

    #[test]
    fn a_name_that_cannot_be_written_or_is_taken_is_refused() {
        for name in ["", "Mine", "3d", "a b", "fixed:3", "-x", &"x".repeat(65)] {
            let refused = register(name, |_| Box::new(LeastLoaded));
            assert_eq!(refused, Err(RegisterError::Name(name.to_owned())));
        }
        let taken = register("maglev", |_| Box::new(LeastLoaded));
        assert_eq!(taken, Err(RegisterError::Taken("maglev".to_owned())));
    }
}
