//! Makes each kind of its settings, or says what it lacks. What is set and cannot be right is an error at start.

use std::net::SocketAddr;

use anyhow::Result;

use super::Crew;
#[cfg(feature = "kinds-http")]
use super::calls::{Calls, Clients};
use super::state::{Duty, State};
use crate::kinds::command::{Command, CommandSettings};
#[cfg(feature = "kinds-http")]
use crate::kinds::push::{HttpRequests, HttpTargets, Push};
#[cfg(feature = "kinds-text")]
use crate::kinds::text::{Summarizer, TextSettings};
#[cfg(feature = "kinds-http")]
use crate::kinds::webhook::Webhooks;
use crate::kinds::{BuiltInKinds, HttpRequest, ResizeImage, SendEmail, SummarizeText, WebhookDelivery};
#[cfg(feature = "kinds-http")]
use crate::outbound::Outbound;
use crate::queue::Job;
#[cfg(feature = "kinds-mail")]
use crate::server::settings::OnAmbiguous;
use crate::server::settings::{CommandTable, RequestTargets, Settings, SettingsError, sqlite_path};
#[cfg(feature = "kinds-http")]
use crate::server::settings::{LlmFallback, WebhookSettings};

impl Crew<'_> {
    /// Whether the settings suffice for a kind.
    pub(super) fn built_in_state(&self, kind: &str) -> State {
        match kind {
            WebhookDelivery::KIND => self.calling(|| State::Ready(None)),
            HttpRequest::KIND => self.calling(|| self.requests_state()),
            SendEmail::KIND => self.mail_state(),
            ResizeImage::KIND => self.image_state(),
            SummarizeText::KIND => self.text_state(),
            _ => State::External,
        }
    }

    /// The state of a kind that calls other servers.
    fn calling(&self, state: impl FnOnce() -> State) -> State {
        #[cfg(feature = "kinds-http")]
        return if self.calls.is_some() { state() } else { State::Missing(super::calls::no_roots()) };
        #[cfg(not(feature = "kinds-http"))]
        {
            let _ = state;
            State::built_without("kinds-http")
        }
    }

    fn requests_state(&self) -> State {
        let endpoints = self.settings.declarations.endpoints.len();
        match (self.settings.built_in.request_targets, endpoints) {
            (RequestTargets::Any, _) => State::Ready(Some("to any public address".into())),
            (RequestTargets::Endpoints, 0) => {
                State::Missing("name an endpoint in the settings file with [endpoints.NAME]".into())
            }
            (RequestTargets::Endpoints, 1) => State::Ready(Some("to 1 endpoint".into())),
            (RequestTargets::Endpoints, several) => State::Ready(Some(format!("to {several} endpoints"))),
        }
    }

    fn mail_state(&self) -> State {
        let mail = &self.settings.built_in.mail;
        match (&mail.smtp_url, &mail.from) {
            _ if !cfg!(feature = "kinds-mail") => State::built_without("kinds-mail"),
            (Some(_), Some(from)) => State::Ready(Some(format!("from {from}"))),
            (None, None) => State::Missing("set STEADFAST_SMTP_URL and STEADFAST_MAIL_FROM".into()),
            (None, Some(_)) => State::Missing("set STEADFAST_SMTP_URL".into()),
            (Some(_), None) => State::Missing("set STEADFAST_MAIL_FROM".into()),
        }
    }

    fn image_state(&self) -> State {
        if !cfg!(feature = "kinds-image") {
            return State::built_without("kinds-image");
        }
        let s3 = |store: &String| store.starts_with("s3://");
        self.calling(|| match image_store(self.settings) {
            Some(store) if s3(&store) && !cfg!(feature = "kinds-s3") => State::built_without("kinds-s3"),
            Some(store) if s3(&store) => State::Ready(Some(format!("writes to {store}"))),
            Some(_) if self.settings.built_in.image.store.is_none() => {
                State::Ready(Some(format!("writes to the directory {}", beside_database(self.settings).display())))
            }
            Some(store) => {
                State::Ready(Some(format!("writes to the directory {}", store.trim_start_matches("file://"))))
            }
            None => State::Missing("set STEADFAST_IMAGE_STORE".into()),
        })
    }

    fn text_state(&self) -> State {
        match &self.settings.built_in.llm {
            _ if !cfg!(feature = "kinds-text") => State::built_without("kinds-text"),
            Some(_) if !cfg!(feature = "kinds-http") => State::built_without("kinds-http"),
            Some(llm) => State::Ready(Some(format!("texts are sent to {}", host_of(&llm.url)))),
            None => State::Ready(None),
        }
    }

    fn is_ready(&self, kind: &str) -> bool {
        self.states.iter().any(|known| known.kind == kind && matches!(known.state, State::Ready(_)))
    }

    /// What was ready turned out not to be.
    #[cfg(feature = "kinds-image")]
    fn lacks(&mut self, kind: &str, needs: &str) {
        for known in self.states.iter_mut().filter(|known| known.kind == kind) {
            known.state = State::Missing(needs.into());
        }
    }

    /// The kinds that this process runs. An API process makes those that have rules for payloads.
    pub(super) async fn make(&mut self, listeners: &[SocketAddr]) -> Result<BuiltInKinds> {
        let kinds = self.add_callers(BuiltInKinds::new(), listeners).await?;
        if self.duty == Duty::Requests {
            return Ok(kinds);
        }
        let kinds = self.add_mailer(kinds)?;
        let commands = &self.settings.declarations.commands;
        commands
            .iter()
            .try_fold(kinds, |kinds, table| Ok(kinds.command(table.definition.kind.clone(), command(table)?)))
    }

    /// Kinds that call other servers, and summaries, which may.
    #[cfg(feature = "kinds-http")]
    async fn add_callers(&mut self, mut kinds: BuiltInKinds, listeners: &[SocketAddr]) -> Result<BuiltInKinds> {
        let runs = self.duty != Duty::Requests;
        let Some(calls) = self.calls.clone() else {
            #[cfg(feature = "kinds-text")]
            let kinds = if runs { self.add_summarizer(kinds, TextSettings::new()) } else { kinds };
            return Ok(kinds);
        };
        let Clients { guarded, trusted } = calls.clients(self.settings, listeners).await;
        let Calls { gate, directory, .. } = calls;
        if self.is_ready(WebhookDelivery::KIND) {
            let settings = webhook_settings(&self.settings.built_in.webhook);
            let (guarded, trusted) = (guarded.clone(), trusted.clone());
            kinds = kinds.webhooks(Webhooks::new(settings, guarded, trusted, gate.clone(), directory.clone()));
        }
        if self.is_ready(HttpRequest::KIND) {
            let targets = match self.settings.built_in.request_targets {
                RequestTargets::Endpoints => HttpTargets::Endpoints,
                RequestTargets::Any => HttpTargets::Any,
            };
            let (guarded, trusted) = (guarded.clone(), trusted.clone());
            kinds = kinds.http_requests(HttpRequests::new(targets, guarded, trusted, gate.clone(), directory.clone()));
        }
        kinds = kinds.policy(guarded.policy().cloned());
        if !runs {
            return Ok(kinds);
        }
        for kind in [WebhookDelivery::KIND, HttpRequest::KIND, ResizeImage::KIND] {
            crate::outbound::expect_kind(kind);
        }
        for kind in &self.settings.declarations.kinds {
            // That there is such an endpoint was checked when the file was read.
            if let Some(endpoint) = kind.push.as_ref().and_then(|name| directory.endpoint(name)) {
                let push = Push::new(endpoint.clone(), trusted.clone(), gate.clone());
                kinds = kinds.push(kind.definition.kind.clone(), push);
            }
        }
        let kinds = self.add_images(kinds, &guarded, &trusted)?;
        #[cfg(feature = "kinds-text")]
        let kinds = self.add_summarizer(kinds, text_settings(self.settings, &trusted)?);
        Ok(kinds)
    }

    #[cfg(not(feature = "kinds-http"))]
    async fn add_callers(&mut self, kinds: BuiltInKinds, _: &[SocketAddr]) -> Result<BuiltInKinds> {
        #[cfg(feature = "kinds-text")]
        let kinds = match self.duty {
            Duty::Requests => kinds,
            Duty::Everything | Duty::Jobs => self.add_summarizer(kinds, TextSettings::new()),
        };
        Ok(kinds)
    }

    #[cfg(feature = "kinds-mail")]
    fn add_mailer(&self, kinds: BuiltInKinds) -> Result<BuiltInKinds> {
        use crate::kinds::mail;
        let settings = &self.settings.built_in.mail;
        let (Some(smtp_url), Some(from)) = (&settings.smtp_url, &settings.from) else { return Ok(kinds) };
        if !self.is_ready(SendEmail::KIND) {
            return Ok(kinds);
        }
        let mut mail =
            mail::MailSettings::new(smtp_url, from).max_in_flight(settings.max_in_flight).on_ambiguous(match settings
                .on_ambiguous
            {
                OnAmbiguous::Retry => mail::OnAmbiguous::Retry,
                OnAmbiguous::Fail => mail::OnAmbiguous::Fail,
            });
        if let Some(name) = &settings.hello_name {
            mail = mail.hello_name(name);
        }
        if let Some(recipients) = &settings.recipients {
            mail = mail.recipients(recipients.clone());
        }
        if let Some(path) = &self.settings.built_in.outbound.ca_file {
            let pem =
                std::fs::read(path).map_err(|error| SettingsError(format!("setting outbound_ca_file: {error}")))?;
            mail = mail.extra_roots_pem(pem);
        }
        let mailer = mail::Mailer::new(mail).map_err(|error| SettingsError(format!("{}: {error}", SendEmail::KIND)))?;
        Ok(kinds.mailer(mailer))
    }

    #[cfg(not(feature = "kinds-mail"))]
    fn add_mailer(&self, kinds: BuiltInKinds) -> Result<BuiltInKinds> {
        Ok(kinds)
    }

    #[cfg(feature = "kinds-image")]
    fn add_images(&mut self, kinds: BuiltInKinds, guarded: &Outbound, trusted: &Outbound) -> Result<BuiltInKinds> {
        use crate::kinds::image::ImageResizer;
        let image = &self.settings.built_in.image;
        let Some(store) = image_store(self.settings).filter(|_| self.is_ready(ResizeImage::KIND)) else {
            return Ok(kinds);
        };
        let wrong = |error| SettingsError(format!("{}: {error}", ResizeImage::KIND));
        let settings = image_settings(image, &store).map_err(wrong)?.per_host(super::calls::per_host(self.settings));
        match ImageResizer::new(settings, guarded.clone(), trusted.clone()) {
            Ok(images) => Ok(kinds.images(images)),
            Err(error) if image.store.is_some() => Err(wrong(error).into()),
            // Nobody asked for that directory, so nobody is stopped by it.
            Err(error) => {
                tracing::warn!("{}: {error}; set STEADFAST_IMAGE_STORE", ResizeImage::KIND);
                self.lacks(ResizeImage::KIND, "set STEADFAST_IMAGE_STORE");
                Ok(kinds)
            }
        }
    }

    #[cfg(all(feature = "kinds-http", not(feature = "kinds-image")))]
    fn add_images(&mut self, kinds: BuiltInKinds, _: &Outbound, _: &Outbound) -> Result<BuiltInKinds> {
        Ok(kinds)
    }

    #[cfg(feature = "kinds-text")]
    fn add_summarizer(&self, kinds: BuiltInKinds, settings: TextSettings) -> BuiltInKinds {
        if self.is_ready(SummarizeText::KIND) { kinds.summarizer(Summarizer::new(settings)) } else { kinds }
    }
}

#[cfg(all(feature = "kinds-text", feature = "kinds-http"))]
fn text_settings(settings: &Settings, trusted: &Outbound) -> Result<TextSettings, SettingsError> {
    use crate::kinds::text;
    let Some(llm) = &settings.built_in.llm else { return Ok(TextSettings::new()) };
    let wrong = |error| SettingsError(format!("{}: {error}", SummarizeText::KIND));
    let mut model = text::LlmSettings::new(&llm.url, &llm.model)
        .map_err(wrong)?
        .timeout(llm.timeout)
        .max_input_chars(llm.max_input_chars)
        .fallback(match llm.fallback {
            LlmFallback::None => text::LlmFallback::None,
            LlmFallback::Extractive => text::LlmFallback::Extractive,
        });
    if let Some(key) = &llm.api_key {
        model = model.api_key(key).map_err(wrong)?;
    }
    Ok(TextSettings::new().llm(model, trusted.clone()))
}

#[cfg(feature = "kinds-image")]
fn image_settings(
    image: &crate::server::settings::ImageSettings,
    store: &str,
) -> Result<crate::kinds::image::ImageSettings, crate::kinds::image::ImageSetupError> {
    use crate::kinds::image::{ImageSettings, ImageStoreSettings};
    let mut store = ImageStoreSettings::parse(store)?;
    if let ImageStoreSettings::S3(bucket) = &mut store {
        bucket.endpoint.clone_from(&image.s3_endpoint);
        bucket.region.clone_from(&image.s3_region);
        bucket.path_style = image.s3_path_style;
        if let (Some(id), Some(secret)) = (&image.s3_access_key_id, &image.s3_secret_access_key) {
            *bucket = bucket.clone().key(id, secret);
        }
    }
    let settings =
        ImageSettings::new(store).max_bytes(image.max_bytes).max_pixels(image.max_pixels).quality(image.quality);
    let settings = image.concurrency.into_iter().fold(settings, ImageSettings::concurrency);
    Ok(image.public_url.iter().fold(settings, ImageSettings::public_url))
}

#[cfg(feature = "kinds-http")]
fn webhook_settings(settings: &WebhookSettings) -> crate::kinds::webhook::WebhookSettings {
    crate::kinds::webhook::WebhookSettings::default()
        .timeout(settings.timeout)
        .keep_response(settings.keep_response)
        .final_statuses(settings.final_statuses.clone())
        .require_signature(settings.require_signature)
        .inline_secrets(settings.inline_secrets)
}

fn command(table: &CommandTable) -> Result<Command, SettingsError> {
    let mut settings = CommandSettings::new(&table.program).args(table.args.iter().cloned());
    for (name, value) in &table.env {
        settings = settings.env(name, value.reveal());
    }
    settings = table.directory.iter().fold(settings, CommandSettings::directory);
    settings = table.timeout.into_iter().fold(settings, CommandSettings::timeout);
    settings = table.concurrency.into_iter().fold(settings, CommandSettings::concurrency);
    let name = &table.definition.kind;
    Command::new(settings).map_err(|error| SettingsError(format!("the settings file: [commands.{name}]: {error}")))
}

/// Where images go: where the settings say, else beside the SQLite file.
fn image_store(settings: &Settings) -> Option<String> {
    let beside = || {
        sqlite_path(&settings.database_url)?;
        Some(format!("file://{}", std::path::absolute(beside_database(settings)).ok()?.display()))
    };
    settings.built_in.image.store.clone().or_else(beside)
}

/// The directory beside the SQLite file, as the settings name that one.
fn beside_database(settings: &Settings) -> std::path::PathBuf {
    let file = sqlite_path(&settings.database_url).unwrap_or(std::path::Path::new(""));
    file.parent().unwrap_or(std::path::Path::new("")).join("images")
}

/// `api.openai.com` of `https://api.openai.com/v1`.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}
