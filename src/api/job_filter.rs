//! Which jobs a caller means, from the names of a query or a body.

use jiff::Timestamp;

use super::limits::VALUES_MAX;
use super::problem::{Problem, shortened};
use super::wire::FilterText;
use crate::job::limits::IDEMPOTENCY_KEY_MAX_CHARS;
use crate::job::{GroupKey, Kind, NotAName, QueueName, Status, WorkerId};
use crate::store::JobFilter;

/// What a text that cannot be read comes to: 400 in a query, where all is text; 422 in a body, which is well-formed.
type Unreadable = fn(String) -> Problem;

/// The filter that these texts stand for. What can be read and is out of range is 422.
pub(super) fn job_filter(text: &FilterText, unreadable: Unreadable) -> Result<JobFilter, Problem> {
    let not_a_name = |error: NotAName| unreadable(error.to_string());
    let status = |text: &str| text.parse::<Status>().map_err(|error| unreadable(error.to_string()));
    let kind = |text: &str| Kind::new(text).map_err(not_a_name);
    let queue = |text: &str| QueueName::new(text).map_err(not_a_name);
    let group = text.group.as_deref().map(GroupKey::new).transpose();
    let key = text.key.clone().map(|key| sized("key", key, IDEMPOTENCY_KEY_MAX_CHARS)).transpose()?;
    let (created_after, created_before) = span("created", &text.created_after, &text.created_before, unreadable)?;
    let (finished_after, finished_before) = span("finished", &text.finished_after, &text.finished_before, unreadable)?;
    Ok(JobFilter::new()
        .statuses(values("status", text.status.as_deref(), status)?)
        .kinds(values("kind", text.kind.as_deref(), kind)?)
        .queues(values("queue", text.queue.as_deref(), queue)?)
        .worker(text.worker.as_deref().map(WorkerId::new).transpose().map_err(not_a_name)?)
        .group(group.map_err(|refusal| Problem::invalid(refusal.to_string()))?)
        .error(text.error.as_deref().map(|text| fingerprint(text, unreadable)).transpose()?)
        .key(key)
        .created_after(created_after)
        .created_before(created_before)
        .finished_after(finished_after)
        .finished_before(finished_before))
}

/// Values separated by commas.
fn values<T>(field: &str, text: Option<&str>, parse: impl Fn(&str) -> Result<T, Problem>) -> Result<Vec<T>, Problem> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let count = text.split(',').count();
    if count > VALUES_MAX {
        return Err(Problem::invalid(format!("{field} has {count} values: send at most {VALUES_MAX}")));
    }
    text.split(',').map(parse).collect()
}

/// 1 to so many characters.
pub(super) fn sized(field: &str, text: String, max_chars: usize) -> Result<String, Problem> {
    match text.is_empty() || text.chars().nth(max_chars).is_some() {
        true => Err(Problem::invalid(format!("{field} {} has to have 1 to {max_chars} characters", shortened(&text)))),
        false => Ok(text),
    }
}

/// `…_after` and `…_before`, which must leave something between them.
fn span(
    what: &str,
    after: &Option<String>,
    before: &Option<String>,
    unreadable: Unreadable,
) -> Result<(Option<Timestamp>, Option<Timestamp>), Problem> {
    let time = |side: &str, text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        text.parse::<Timestamp>().map(Some).map_err(|_| {
            unreadable(format!("{what}_{side} {} is not a time like 2030-01-31T12:00:00Z", shortened(text)))
        })
    };
    let (after, before) = (time("after", after)?, time("before", before)?);
    match (after, before) {
        (Some(after), Some(before)) if after >= before => {
            Err(Problem::invalid(format!("{what}_after {after} has to be earlier than {what}_before {before}")))
        }
        span => Ok(span),
    }
}

fn fingerprint(text: &str, unreadable: Unreadable) -> Result<i64, Problem> {
    let is_plain = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_plain);
    number
        .map(u64::cast_signed)
        .ok_or_else(|| unreadable(format!("error {} is not a fingerprint: send 16 digits of 0-9a-f", shortened(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_shown_as_it_can_be_sent_again() {
        let text = FilterText {
            status: Some("failed_permanent,cancelled".into()),
            kind: Some("mail,report".into()),
            queue: Some("slow".into()),
            worker: Some("w-1".into()),
            group: Some("Acme / é".into()),
            error: Some("ffffffffffffff9c".into()),
            key: Some("k".into()),
            created_after: Some("2029-05-06T07:08:09Z".into()),
            created_before: Some("2029-05-06T07:08:10.5Z".into()),
            finished_after: None,
            finished_before: Some("2029-05-07T07:08:09Z".into()),
        };
        assert_eq!(FilterText::from(&job_filter(&text, Problem::invalid).unwrap()), text);
    }
}
