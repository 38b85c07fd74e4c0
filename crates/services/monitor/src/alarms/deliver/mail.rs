//! Notifications as e-mail.

use crate::alarms::settings::{AlarmsSettings, MailTls, host};
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Message, SmtpTransport, Transport as _};
use sheaf_alarms::{Notification, email};
use std::time::Duration;

/// Sends one e-mail to all addresses of the receiver.
pub(super) fn send(
    settings: &AlarmsSettings,
    notification: &Notification,
    to: &str,
    from: Option<&str>,
) -> Result<(), String> {
    let mail = email(notification, &settings.page);
    let mut message = Message::builder()
        .from(mailbox(from.unwrap_or(&settings.mail.from))?)
        .subject(mail.subject)
        .header(ContentType::TEXT_PLAIN);
    for address in to.split(',') {
        message = message.to(mailbox(address)?);
    }
    let message = message.body(mail.text).map_err(|error| error.to_string())?;
    let server = &settings.mail.server;
    let failed = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{server}: {error}: {source}"),
        None => format!("{server}: {error}"),
    };
    let sent = transport(settings)?.send(&message);
    sent.map(drop).map_err(|error| failed(&error))
}

fn transport(settings: &AlarmsSettings) -> Result<SmtpTransport, String> {
    let mail = &settings.mail;
    let name = host(&mail.server);
    let (tls, usual_port) = match mail.tls {
        MailTls::None => (Tls::None, 25),
        MailTls::StartTls => (Tls::Required(parameters(settings, name)?), 587),
        MailTls::Wrapped => (Tls::Wrapper(parameters(settings, name)?), 465),
    };
    let port = mail
        .server
        .rsplit_once(':')
        .and_then(|pair| pair.1.parse().ok());
    let mut builder = SmtpTransport::builder_dangerous(name)
        .port(port.unwrap_or(usual_port))
        .tls(tls)
        .timeout(Some(Duration::from_millis(settings.timeout_ms)));
    if !mail.user.is_empty() {
        let file = &mail.password_file;
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let password = text.lines().next().unwrap_or_default().to_owned();
        builder = builder.credentials(Credentials::new(mail.user.clone(), password));
    }
    Ok(builder.build())
}

fn parameters(settings: &AlarmsSettings, name: &str) -> Result<TlsParameters, String> {
    let ca = &settings.ca;
    let pem = std::fs::read(ca).map_err(|error| format!("{}: {error}", ca.display()))?;
    let failed = |error: lettre::transport::smtp::Error| format!("{}: {error}", ca.display());
    TlsParameters::builder(name.to_owned())
        .certificate_store(CertificateStore::None)
        .add_root_certificate(Certificate::from_pem(&pem).map_err(failed)?)
        .build_rustls()
        .map_err(failed)
}

fn mailbox(text: &str) -> Result<Mailbox, String> {
    let parsed = text.trim().parse();
    parsed.map_err(|error| format!("address {:?}: {error}", text.trim()))
}
