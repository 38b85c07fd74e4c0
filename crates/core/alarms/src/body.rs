//! Bodies of notifications: what the driver writes to a log, posts, or mails. Pure functions of a notification.

use crate::duration::rfc3339;
use crate::notify::{Notification, NotifiedAlert, Status};
use crate::saved::fingerprint;
use serde_json::{Map, Value, json};
use sheaf_samples::Labels;
use std::fmt::Write;

/// Header that carries the signature of a webhook.
pub const SIGNATURE_HEADER: &str = "X-Sheaf-Signature-256";

/// Longest subject of an e-mail, in characters.
const SUBJECT_MAX: usize = 200;

/// Returns the notification in one line: status, receiver, and each alert with its labels and summary.
#[must_use]
pub fn log_line(notification: &Notification) -> String {
    let mut line = format!(
        "{} alerts for {}",
        notification.status.name(),
        notification.receiver
    );
    for alert in &notification.alerts {
        let _ = write!(line, "; {} {}", alert.status.name(), alert.labels);
        if let Some(summary) = annotation(alert, "summary") {
            let _ = write!(line, " {summary:?}");
        }
    }
    if notification.truncated > 0 {
        let _ = write!(line, "; {} more", notification.truncated);
    }
    line
}

/// Returns the JSON that Alertmanager posts to webhooks, version 4.
///
/// `page` is the address of the page of alarms, empty if there is none.
#[must_use]
pub fn webhook(notification: &Notification, page: &str) -> String {
    let alerts: Vec<Value> = notification
        .alerts
        .iter()
        .map(|alert| webhook_alert(alert, page))
        .collect();
    json!({
        "version": "4",
        "groupKey": notification.group_key,
        "truncatedAlerts": notification.truncated,
        "status": notification.status.name(),
        "receiver": notification.receiver,
        "groupLabels": labels_json(&notification.group_labels),
        "commonLabels": common(notification.alerts.iter().map(|one| pairs(&one.labels))),
        "commonAnnotations": common(notification.alerts.iter().map(|one| one.annotations.clone())),
        "externalURL": page,
        "alerts": alerts,
    })
    .to_string()
}

fn webhook_alert(alert: &NotifiedAlert, page: &str) -> Value {
    json!({
        "status": alert.status.name(),
        "labels": labels_json(&alert.labels),
        "annotations": annotations_json(alert),
        "startsAt": rfc3339(alert.starts_ms),
        // Go's zero time says that there is no end yet.
        "endsAt": alert.ends_ms.map_or("0001-01-01T00:00:00Z".to_owned(), rfc3339),
        "generatorURL": page,
        "fingerprint": format!("{:016x}", fingerprint(&alert.labels)),
    })
}

/// Returns the value of [`SIGNATURE_HEADER`] for `body`: `sha256=` and the HMAC-SHA-256 in hexadecimal.
///
/// `hmac` computes the code with the key of the receiver; the driver has the key and the library.
#[must_use]
pub fn signature(body: &str, hmac: impl FnOnce(&[u8]) -> [u8; 32]) -> String {
    let mut text = "sha256=".to_owned();
    for byte in hmac(body.as_bytes()) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the JSON for `POST /api/v2/alerts` of an Alertmanager.
///
/// An alert that is on ends for the Alertmanager at the time by which the next notification is due.
#[must_use]
pub fn alertmanager(notification: &Notification, page: &str) -> String {
    let alert = |alert: &NotifiedAlert| {
        let mut object = json!({
            "labels": labels_json(&alert.labels),
            "annotations": annotations_json(alert),
            "startsAt": rfc3339(alert.starts_ms),
            "endsAt": rfc3339(alert.ends_ms.unwrap_or(notification.expires_ms)),
        });
        if !page.is_empty() {
            object["generatorURL"] = page.into();
        }
        object
    };
    Value::Array(notification.alerts.iter().map(alert).collect()).to_string()
}

/// An e-mail: subject in one line, and plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email {
    /// Subject, without control characters.
    pub subject: String,
    /// Text, lines end with `\n`.
    pub text: String,
}

/// Returns the e-mail of a notification.
#[must_use]
pub fn email(notification: &Notification, page: &str) -> Email {
    let firing = notification
        .alerts
        .iter()
        .filter(|one| one.status == Status::Firing)
        .count();
    let mut subject = match notification.status {
        Status::Firing => format!("[FIRING:{}]", firing + notification.truncated),
        Status::Resolved => "[RESOLVED]".to_owned(),
    };
    let names = common(notification.alerts.iter().map(|one| pairs(&one.labels)));
    let group: Vec<&str> = notification
        .group_labels
        .iter()
        .map(|pair| pair.1)
        .collect();
    let title = match names.get("alertname").and_then(Value::as_str) {
        Some(name) if !group.contains(&name) => format!("{name} {}", group.join(" ")),
        _ => group.join(" "),
    };
    let _ = write!(subject, " {title}");
    // A line end in a label would begin another header.
    let subject = subject
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one });
    let subject: String = subject.take(SUBJECT_MAX).collect();
    let mut text = String::new();
    for status in [Status::Firing, Status::Resolved] {
        for alert in notification
            .alerts
            .iter()
            .filter(|one| one.status == status)
        {
            let _ = writeln!(text, "{} {}", status.name().to_uppercase(), alert.labels);
            for (name, value) in &alert.annotations {
                let _ = writeln!(text, "  {name}: {}", value.replace('\n', "\n    "));
            }
            let _ = writeln!(text, "  value: {}", alert.value);
            let _ = writeln!(text, "  since: {}", rfc3339(alert.starts_ms));
            if let Some(ends_ms) = alert.ends_ms {
                let _ = writeln!(text, "  until: {}", rfc3339(ends_ms));
            }
            text.push('\n');
        }
    }
    if notification.truncated > 0 {
        let _ = writeln!(
            text,
            "{} more alerts are not listed.\n",
            notification.truncated
        );
    }
    if !page.is_empty() {
        let _ = writeln!(text, "All alarms: {page}");
    }
    Email {
        subject: subject.trim_end().to_owned(),
        text,
    }
}

fn annotation<'a>(alert: &'a NotifiedAlert, name: &str) -> Option<&'a str> {
    let found = alert.annotations.iter().find(|one| one.0 == name);
    found.map(|one| one.1.as_str())
}

fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn labels_json(labels: &Labels) -> Value {
    object(pairs(labels))
}

fn annotations_json(alert: &NotifiedAlert) -> Value {
    object(alert.annotations.clone())
}

fn object(pairs: Vec<(String, String)>) -> Value {
    Value::Object(
        pairs
            .into_iter()
            .map(|(name, value)| (name, Value::String(value)))
            .collect(),
    )
}

/// Pairs that all lists have.
fn common(mut lists: impl Iterator<Item = Vec<(String, String)>>) -> Value {
    let Some(mut found) = lists.next() else {
        return Value::Object(Map::new());
    };
    for list in lists {
        found.retain(|pair| list.contains(pair));
    }
    object(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Channel;
    use std::sync::Arc;

    fn notification() -> Notification {
        let alert = |epn: &str, status, ends_ms| NotifiedAlert {
            status,
            labels: Arc::new(Labels::new([("alertname", "Hot"), ("epn", epn)]).unwrap()),
            annotations: vec![("summary".to_owned(), format!("EPN {epn} is hot\nvery"))],
            starts_ms: 1_000,
            ends_ms,
            value: 61.5,
        };
        Notification {
            id: 1,
            receiver: "ops".to_owned(),
            channel: Channel::Log,
            group_key: "0:{alertname=\"Hot\"}".to_owned(),
            group_labels: Arc::new(Labels::new([("alertname", "Hot")]).unwrap()),
            status: Status::Firing,
            alerts: vec![
                alert("1", Status::Firing, None),
                alert("2", Status::Resolved, Some(2_000)),
            ],
            truncated: 0,
            at_ms: 3_000,
            expires_ms: 9_000,
        }
    }

    #[test]
    fn a_webhook_has_the_fields_of_version_4() {
        let body: Value =
            serde_json::from_str(&webhook(&notification(), "http://sheaf/alarms")).unwrap();
        assert_eq!(body["version"], "4");
        assert_eq!(body["commonLabels"], json!({"alertname": "Hot"}));
        assert_eq!(body["commonAnnotations"], json!({}));
        assert_eq!(body["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
        assert_eq!(body["alerts"][1]["endsAt"], "1970-01-01T00:00:02.000Z");
        assert_eq!(body["alerts"][1]["status"], "resolved");
    }

    #[test]
    fn a_signature_is_that_of_rfc_4231() {
        // RFC 4231, test case 2.
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"Jefe");
        let hmac = |body: &[u8]| {
            ring::hmac::sign(&key, body)
                .as_ref()
                .try_into()
                .expect("32 bytes")
        };
        assert_eq!(
            signature("what do ya want for nothing?", hmac),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn alerts_for_an_alertmanager_end_when_no_news_come() {
        let body: Value = serde_json::from_str(&alertmanager(&notification(), "")).unwrap();
        let ends: Vec<_> = body
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["endsAt"].as_str().unwrap())
            .collect();
        assert_eq!(
            ends,
            ["1970-01-01T00:00:09.000Z", "1970-01-01T00:00:02.000Z"]
        );
        assert!(body[0].get("generatorURL").is_none());
    }

    #[test]
    fn an_email_has_one_line_as_subject_and_every_alert() {
        let mut one = notification();
        one.group_labels = Arc::new(Labels::new([("rack", "a\r\nBcc: x@y")]).unwrap());
        let email = email(&one, "http://sheaf/alarms");
        assert_eq!(email.subject, "[FIRING:1] Hot a  Bcc: x@y");
        assert!(email.text.contains("FIRING {alertname=\"Hot\", epn=\"1\"}\n  summary: EPN 1 is hot\n    very\n  value: 61.5\n"));
        assert!(email.text.contains("  until: 1970-01-01T00:00:02.000Z\n"));
        assert!(email.text.ends_with("All alarms: http://sheaf/alarms\n"));
    }

    #[test]
    fn a_log_line_is_one_line() {
        let line = log_line(&notification());
        assert!(!line.contains('\n'));
        assert!(line.starts_with("firing alerts for ops; firing {alertname=\"Hot\", epn=\"1\"} \"EPN 1 is hot\\nvery\""), "{line}");
    }
}
