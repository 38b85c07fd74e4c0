//! `sheaf top`: a farm that runs, live on the terminal, by its own status.
//!
//! One thread asks the leading ICN and gives it the orders of the user; this one shows what comes.

use crate::demo::screen::{Audience, Screen};
#[cfg(feature = "tui")]
use crate::demo::view::Deed;
use crate::demo::watch::Watch;
use crate::duration;
use crate::reach::Way;
use anyhow::Context as _;
use sheaf_node::operator::{IcnSeen, Operator, Told};
use sheaf_protocol::EpnId;
use sheaf_protocol::control::Order;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// News that may wait for the screen; more news wait for their place.
const NEWS_MAX: usize = 16;
/// Orders of the user that may wait. A further one is not taken.
const ORDERS_MAX: usize = 4;
/// Longest time between two looks at keys and news.
const LOOK: Duration = Duration::from_millis(100);
/// Time for the ICNs that do not lead to answer the first time.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);

/// Show a running farm live: rates, latencies, holds and states of all nodes.
///
/// Keys: q quits, p pauses the view, s sorts, / filters, the arrows choose a node, d drains the chosen EPN. Without a
/// terminal, or with TERM=dumb, it prints a line a second until the farm ends. Exit status: 0 when the user or the farm
/// has ended it, 1 if no leading ICN answered at the start, 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf top --config farm.toml
  sheaf top --icn 10.0.0.1:7000 10.0.0.2:7000 10.0.0.3:7000
  sheaf top --config farm.toml --no-tui | tee top.log")]
pub(crate) struct Args {
    #[command(flatten)]
    way: Way,
    /// Ask the farm at this interval.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = duration::parse)]
    every: Duration,
    /// Print lines, on a terminal too.
    #[arg(long)]
    no_tui: bool,
}

/// Something new for the screen.
enum News {
    /// Status of the farm, and its ICNs.
    Told(Box<Told>, Vec<IcnSeen>),
    /// The farm does not answer.
    Lost(String),
    /// Outcome of an order.
    Answered(String),
    /// The user has seen enough.
    Quit,
}

/// Runs the command.
///
/// # Errors
///
/// The reason why no ICN answers, or why the screen cannot be used.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut operator = args.way.operator()?;
    let first = operator.status(args.way.timeout)?;
    let icns = operator.icns(OTHERS_WITHIN);
    let mut watch = Watch::default();
    take(&mut watch, first, &icns);
    let (sender, news) = sync_channel(NEWS_MAX);
    let (orders, ordered) = sync_channel(ORDERS_MAX);
    let (every, patience) = (args.every, args.way.timeout);
    let asking = sender.clone();
    std::thread::Builder::new()
        .name("status".to_owned())
        .spawn(move || ask(&mut operator, &asking, &ordered, every, patience))
        .context("cannot make a thread")?;
    let mut screen = open_screen(&title(args), !args.no_tui, sender, orders)?;
    while screen.show(&watch)? == Audience::There {
        match news.recv_timeout(LOOK) {
            Ok(News::Told(told, icns)) => take(&mut watch, *told, &icns),
            Ok(News::Lost(why)) => watch.lose(&why),
            Ok(News::Answered(text)) => watch.tell(watch.status().duration_s, text),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(News::Quit) | Err(RecvTimeoutError::Disconnected) => break,
        }
        if screen.is_plain() && watch.has_ended() {
            screen.show(&watch)?;
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for the status again and again, and gives the orders of the user, until the screen has gone.
fn ask(
    operator: &mut Operator,
    news: &SyncSender<News>,
    orders: &Receiver<EpnId>,
    every: Duration,
    patience: Duration,
) {
    loop {
        let next = match orders.recv_timeout(every) {
            Ok(epn) => match operator.order(Order::Drain { epn }, patience) {
                Ok(answer) => News::Answered(answer.detail),
                Err(error) => News::Answered(format!("{epn} is not drained: {error}")),
            },
            // Without a terminal there are no orders.
            Err(_) => match operator.status(patience) {
                Ok(told) => {
                    let icns = operator.icns(Duration::ZERO);
                    News::Told(Box::new(told), icns)
                }
                Err(error) => News::Lost(error.to_string()),
            },
        };
        if news.send(next).is_err() {
            return;
        }
    }
}

/// Takes in a status, and the states of the ICNs where their indexes are known.
fn take(watch: &mut Watch, told: Told, icns: &[IcnSeen]) {
    let leader = usize::from(told.status.ledger.icn);
    watch.add(told.status);
    // Addresses on the command line may come in another order than in the farm file.
    if icns.get(leader).is_some_and(|icn| icn.state == "leads") {
        let icns = icns.iter().enumerate();
        watch.note_icns(icns.filter_map(|(at, icn)| Some((u16::try_from(at).ok()?, icn.state))));
    }
}

fn title(args: &Args) -> String {
    let farm = match &args.way.config {
        Some(file) => file.display().to_string(),
        None => args.way.icn.join(" "),
    };
    format!("sheaf top: {farm}, every {} s", args.every.as_secs_f64())
}

#[cfg(feature = "tui")]
fn open_screen(
    title: &str,
    wants_terminal: bool,
    news: SyncSender<News>,
    orders: SyncSender<EpnId>,
) -> anyhow::Result<Screen> {
    Screen::with_orders(title, wants_terminal, move |deed| match deed {
        Deed::Quit => drop(news.send(News::Quit)),
        Deed::Drain(epn) => {
            if orders.try_send(epn).is_err() {
                let text = format!("{epn} is not drained: other orders wait for their answers");
                drop(news.send(News::Answered(text)));
            }
        }
    })
}

#[cfg(not(feature = "tui"))]
fn open_screen(
    title: &str,
    wants_terminal: bool,
    news: SyncSender<News>,
    _orders: SyncSender<EpnId>,
) -> anyhow::Result<Screen> {
    Screen::new(title, wants_terminal, false, move || {
        drop(news.send(News::Quit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::watch::tests::status_at;
    use sheaf_protocol::Term;

    fn seen(state: &'static str) -> IcnSeen {
        IcnSeen {
            address: "10.0.0.1:7000".to_owned(),
            state,
            why: String::new(),
        }
    }

    #[test]
    fn standbys_and_lost_icns_have_their_rows() {
        let told = || {
            let mut status = status_at(3);
            status.ledger.icn = 1;
            status.ledger.office = "leader".to_owned();
            status.ledger.term = 2;
            Told {
                icn: "10.0.0.1:7000".to_owned(),
                term: Term(2),
                status,
            }
        };
        let states = |watch: &Watch| -> Vec<String> {
            let rows = watch.rows().into_iter().take(3);
            rows.map(|row| format!("{} {}", row.node, row.state))
                .collect()
        };
        let mut watch = Watch::default();
        take(
            &mut watch,
            told(),
            &[seen("standby"), seen("leads"), seen("away")],
        );
        assert_eq!(
            states(&watch),
            ["icn:0 standby", "icn:1 leads", "icn:2 away"]
        );
        take(
            &mut watch,
            told(),
            &[seen("standby"), seen("leads"), seen("standby")],
        );
        assert_eq!(states(&watch)[2], "icn:2 standby");
        let mut other = Watch::default();
        take(&mut other, told(), &[seen("leads"), seen("standby")]);
        assert_eq!(
            states(&other)[0],
            "icn:1 up",
            "addresses came in another order"
        );
    }
}
