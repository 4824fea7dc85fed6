//! What a caller asks an operation for: the action and the jobs, from their names. A value that is not acceptable is 422,
//! and is named.

use uuid::Uuid;

use super::job_filter::job_filter;
use super::problem::{Problem, shortened};
use super::wire::{self, FilterText, Integer, within};
use crate::job::limits::{PRIORITY_MAX, PRIORITY_MIN};
use crate::job::{Action, JobId, QueueName};
use crate::queue::OperationRequest;
use crate::store::Selection;

/// The action and the jobs.
pub(super) fn target(request: wire::OperationPreviewRequest) -> Result<(Action, Selection), Problem> {
    let wire::OperationPreviewRequest { action, filter, ids, priority, to } = request;
    Ok((self::action(&action, priority, to)?, selection(filter, ids)?))
}

/// All of it.
pub(super) fn request(submission: wire::OperationSubmission) -> Result<OperationRequest, Problem> {
    let number = |value: Option<Integer>| value.map(|Integer(number)| number);
    let action = action(&submission.action, submission.priority, submission.to)?;
    let selection = selection(submission.filter, submission.ids)?;
    let canary = submission.canary.map(|canary| (canary.first.0, canary.need.0));
    Ok(OperationRequest::new(action, selection)
        .rate(number(submission.rate))
        .max(number(submission.max))
        .canary(canary)
        .reason(submission.reason)
        .preview(submission.preview))
}

fn action(name: &str, priority: Option<Integer>, to: Option<String>) -> Result<Action, Problem> {
    let needs = |what: &str| Problem::invalid(format!("{what}: {name} needs it"));
    let excess = |what: &str| Problem::invalid(format!("{what}: {} does not take it; leave it out", shortened(name)));
    let priority = within("priority", priority, PRIORITY_MIN.into()..=PRIORITY_MAX.into())?;
    let action = match name {
        "redrive" => Action::Redrive,
        "cancel" => Action::Cancel,
        "delete" => Action::Delete,
        // Within the range that was checked.
        "reprioritize" => Action::Reprioritize(priority.ok_or_else(|| needs("priority"))? as i16),
        "move" => Action::Move(QueueName::new(to.as_deref().ok_or_else(|| needs("to"))?)?),
        other => {
            let known = "redrive, cancel, delete, reprioritize or move";
            return Err(Problem::invalid(format!("action {} is not known: use {known}", shortened(other))));
        }
    };
    match action {
        Action::Reprioritize(_) if to.is_some() => Err(excess("to")),
        Action::Move(_) if priority.is_some() => Err(excess("priority")),
        Action::Reprioritize(_) | Action::Move(_) => Ok(action),
        _ if priority.is_some() => Err(excess("priority")),
        _ if to.is_some() => Err(excess("to")),
        action => Ok(action),
    }
}

fn selection(filter: Option<FilterText>, ids: Option<Vec<Uuid>>) -> Result<Selection, Problem> {
    match (filter, ids) {
        (Some(filter), None) => job_filter(&filter, Problem::invalid).map(Selection::Filter),
        (None, Some(ids)) => Ok(Selection::Ids(ids.into_iter().map(JobId::from).collect())),
        (Some(_), Some(_)) => Err(Problem::invalid("filter and ids exclude each other: send one of them")),
        (None, None) => Err(Problem::invalid("say which jobs: send filter or ids")),
    }
}
