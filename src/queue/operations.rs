//! Operations: one action on many jobs, previewed, then carried out at a rate by whatever processes there are.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{LimitError, Queue};
use crate::job::limits::{PRIORITY_MAX, PRIORITY_MIN};
use crate::job::operation::{
    Action, CANARY_MAX, Canary, OPERATION_IDS_MAX, OPERATION_RATE_DEFAULT, OPERATION_RATE_MAX, OPERATIONS_MAX,
    REASON_MAX_BYTES,
};
use crate::job::{OperationId, Status};
use crate::store::{
    BeginOperation, ChangeOperation, JobFilter, ListOperations, OperationBegun, OperationChange, OperationChanged,
    OperationPage, OperationPreview, OperationRecord, OperationStep, PreviewOperation, Selection, StatsRequest,
    StoreError, StoredSelection, WakeListener,
};

/// Why an operation was not previewed, begun or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// It is not valid.
    #[error("{0}")]
    Refused(String),
    /// It is not what was previewed.
    #[error("the preview is of another action or filter, or was cut: preview again, then begin with what it answers")]
    NotPreviewed,
    /// As many operations as may are running or paused.
    #[error("{OPERATIONS_MAX} operations are running or paused: wait for one to end, or stop one")]
    TooMany,
    /// The queue that jobs are to be moved to would be one too many.
    #[error(transparent)]
    Queue(#[from] LimitError),
    /// There is no such operation.
    #[error("there is no operation {0}")]
    NotFound(OperationId),
    /// It has ended.
    #[error("operation {} is {}: it takes no further steps", .0.id, .0.state.as_str())]
    Ended(Box<OperationRecord>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an operation is to do.
///
/// ```
/// use steadfast::job::Action;
/// use steadfast::queue::OperationRequest;
/// use steadfast::store::{JobFilter, Selection};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mails = JobFilter::new().kinds([steadfast::job::Kind::new("send_email")?]);
/// let redrive = OperationRequest::new(Action::Redrive, Selection::Filter(mails)).rate(50).reason("SMTP is back".to_owned());
/// # let _ = redrive;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OperationRequest {
    /// What is done.
    pub action: Action,
    /// To which jobs.
    pub selection: Selection,
    /// Jobs per second, 1 to 10,000; `None`: 100.
    pub rate: Option<i64>,
    /// At most so many jobs are changed.
    pub max: Option<i64>,
    /// So many jobs are redriven first, and the others only if so many of those succeed.
    pub canary: Option<(i64, i64)>,
    /// Why.
    pub reason: Option<String>,
    /// The token of the preview: only what was there then is changed.
    pub preview: Option<String>,
}

impl OperationRequest {
    /// Does this to these jobs.
    pub fn new(action: Action, selection: Selection) -> Self {
        Self { action, selection, rate: None, max: None, canary: None, reason: None, preview: None }
    }

    /// Sets the number of jobs per second.
    pub fn rate(mut self, jobs_per_second: impl Into<Option<i64>>) -> Self {
        self.rate = jobs_per_second.into();
        self
    }

    /// Changes at most so many jobs.
    pub fn max(mut self, jobs: impl Into<Option<i64>>) -> Self {
        self.max = jobs.into();
        self
    }

    /// Redrives `first` jobs first, and the others only if `need` of those succeed.
    pub fn canary(mut self, first_and_need: impl Into<Option<(i64, i64)>>) -> Self {
        self.canary = first_and_need.into();
        self
    }

    /// Sets why.
    pub fn reason(mut self, reason: impl Into<Option<String>>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the token of the preview.
    pub fn preview(mut self, token: impl Into<Option<String>>) -> Self {
        self.preview = token.into();
        self
    }
}

/// What an operation would do, and the token with which it does just that.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PreviewedOperation {
    /// The jobs that match.
    pub preview: OperationPreview,
    /// For [`OperationRequest::preview`].
    pub token: String,
}

/// Operations.
impl Queue {
    /// Counts the jobs that an operation would change, and shows some of them. Changes nothing.
    pub async fn preview_operation(
        &self,
        action: Action,
        selection: Selection,
    ) -> Result<PreviewedOperation, OperationError> {
        let selection = checked(&action, selection)?;
        let mut preview = self.inner.store.preview_operation(PreviewOperation::new(selection.clone())).await?;
        if !preview.exact
            && let Some(counted) = self.counted(&selection).await?
        {
            (preview.matches, preview.exact) = (counted.max(preview.matches), true);
        }
        let token = PreviewToken { cutoff: preview.as_of, matches: preview.matches }.text(&action, &selection);
        Ok(PreviewedOperation { preview, token })
    }

    /// How many jobs match, if the maintained counts can tell.
    async fn counted(&self, selection: &Selection) -> Result<Option<u64>, StoreError> {
        let Selection::Filter(filter) = selection else { return Ok(None) };
        let by_counts = JobFilter::new().statuses(filter.statuses.clone()).queues(filter.queues.clone());
        if *filter != by_counts {
            return Ok(None);
        }
        let request = match filter.queues.as_slice() {
            [] => StatsRequest::new().limit(0),
            queues => StatsRequest::of(queues.iter().cloned()),
        };
        let totals = self.inner.store.stats(request.without_ages()).await?.totals;
        Ok(Some(filter.statuses.iter().filter_map(|status| totals.get(status)).sum()))
    }

    /// Begins an operation. Every process that runs [`Worker`](crate::Worker) or `run_housekeeping` carries it on.
    pub async fn begin_operation(&self, request: OperationRequest) -> Result<OperationRecord, OperationError> {
        let selection = checked(&request.action, request.selection)?;
        let previewed = match &request.preview {
            Some(token) => Some(PreviewToken::read(token, &request.action, &selection)?),
            None => None,
        };
        let begin = BeginOperation::new(request.action.clone(), selection)
            .cutoff(previewed.as_ref().map(|previewed| previewed.cutoff))
            .of(previewed.as_ref().map(|previewed| previewed.matches))
            .rate(within("rate", request.rate, OPERATION_RATE_MAX.into())?.map_or(OPERATION_RATE_DEFAULT, |r| r as u32))
            .max(within("max", request.max, i64::MAX)?.map(|max| max as u64))
            .canary(canary(&request.action, request.canary)?)
            .reason(reason(request.reason)?)
            .by(self.actor());
        let admitted = match &request.action {
            Action::Move(queue) => Some((self.admit_limited(queue).await?, queue)),
            _ => None,
        };
        let begun = self.inner.store.begin_operation(begin).await;
        if let Some((admitted, queue)) = admitted
            && !matches!(begun, Ok(OperationBegun::Begun(_)))
        {
            self.inner.admission.release(&admitted, std::iter::once(queue));
        }
        match begun? {
            OperationBegun::Begun(operation) => {
                self.inner.operation_changes.wake();
                Ok(operation)
            }
            OperationBegun::TooMany => Err(OperationError::TooMany),
        }
    }

    /// Reads one operation.
    pub async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
        self.inner.store.operation(id).await
    }

    /// Lists operations, newest first, at most 200.
    pub async fn operations(&self, list: ListOperations) -> Result<OperationPage, StoreError> {
        let limit = list.limit.clamp(1, crate::job::limits::PAGE_MAX);
        self.inner.store.operations(list.limit(limit)).await
    }

    /// Pauses, resumes or stops an operation, or changes its rate. What is done stays done.
    pub async fn change_operation(
        &self,
        id: OperationId,
        change: OperationChange,
    ) -> Result<OperationRecord, OperationError> {
        if let OperationChange::Rate(rate) = change {
            within("rate", Some(rate.into()), OPERATION_RATE_MAX.into())?;
        }
        let change = ChangeOperation::new(id, change).by(self.actor());
        match self.inner.store.change_operation(change).await? {
            OperationChanged::Done(operation) => {
                self.inner.operation_changes.wake();
                Ok(operation)
            }
            OperationChanged::Ended(operation) => Err(OperationError::Ended(Box::new(operation))),
            OperationChanged::NotFound => Err(OperationError::NotFound(id)),
        }
    }

    /// Notifies when an operation was begun or changed through this process.
    pub fn operation_changes(&self) -> WakeListener {
        self.inner.operation_changes.listen()
    }

    /// Takes the next step of an operation that is due. [`Worker`](crate::Worker) and `run_housekeeping` do this for you.
    pub async fn step_operation(&self) -> Result<OperationStep, StoreError> {
        self.inner.store.step_operation().await
    }
}

/// The selection with the statuses that the action is about, or why it is refused.
fn checked(action: &Action, selection: Selection) -> Result<Selection, OperationError> {
    if let Action::Reprioritize(priority) = action
        && !(PRIORITY_MIN..=PRIORITY_MAX).contains(priority)
    {
        return Err(refused(format!("priority: {priority} is not within {PRIORITY_MIN} to {PRIORITY_MAX}")));
    }
    let mut filter = match selection {
        Selection::Ids(mut ids) => {
            if ids.is_empty() || ids.len() > OPERATION_IDS_MAX {
                return Err(refused(format!("ids: name 1 to {OPERATION_IDS_MAX} jobs, not {}", ids.len())));
            }
            ids.sort_unstable();
            ids.dedup();
            return Ok(Selection::Ids(ids));
        }
        Selection::Filter(filter) => filter,
    };
    if filter == JobFilter::new() {
        return Err(refused(
            "the filter is empty: name at least one of status, kind, queue, worker, group, error, key, a time, or ids"
                .to_owned(),
        ));
    }
    let allowed = applies_to(action);
    if let Some(other) = filter.statuses.iter().find(|status| !allowed.contains(status)) {
        let allowed: Vec<&str> = allowed.iter().map(|status| status.as_str()).collect();
        let action = action.as_str();
        return Err(refused(format!("status: {action} is for jobs that are {}, not {other}", allowed.join(", "))));
    }
    if filter.statuses.is_empty() {
        filter.statuses = match action {
            // Somebody wanted the cancelled ones to end: they are redriven only if they are asked for.
            Action::Redrive => vec![Status::FailedPermanent],
            Action::Delete if filter.error.is_none() => {
                return Err(refused("status: delete needs it: succeeded, failed_permanent or cancelled".to_owned()));
            }
            _ => allowed.to_vec(),
        };
    }
    filter.statuses.sort_unstable();
    filter.statuses.dedup();
    Ok(Selection::Filter(filter))
}

/// The statuses of jobs that an action changes.
fn applies_to(action: &Action) -> &'static [Status] {
    match action {
        Action::Redrive => &[Status::FailedPermanent, Status::Cancelled],
        Action::Cancel => &[Status::Queued, Status::Retrying, Status::Running],
        Action::Delete => &[Status::Succeeded, Status::FailedPermanent, Status::Cancelled],
        Action::Reprioritize(_) | Action::Move(_) => &[Status::Queued, Status::Retrying],
    }
}

fn refused(why: String) -> OperationError {
    OperationError::Refused(why)
}

fn within(field: &str, value: Option<i64>, max: i64) -> Result<Option<i64>, OperationError> {
    match value {
        Some(value) if !(1..=max).contains(&value) => {
            Err(refused(format!("{field}: {value} is not within 1 to {max}")))
        }
        value => Ok(value),
    }
}

fn canary(action: &Action, canary: Option<(i64, i64)>) -> Result<Option<Canary>, OperationError> {
    let Some((first, need)) = canary else { return Ok(None) };
    if *action != Action::Redrive {
        return Err(refused(format!("canary: only a redrive has one, not {}", action.as_str())));
    }
    within("canary.first", Some(first), CANARY_MAX.into())?;
    within("canary.need", Some(need), first)?;
    Ok(Some(Canary::new(first as u32, need as u32)))
}

fn reason(reason: Option<String>) -> Result<Option<String>, OperationError> {
    match reason {
        Some(reason) if reason.len() > REASON_MAX_BYTES => {
            Err(refused(format!("reason: {} bytes are more than {REASON_MAX_BYTES}", reason.len())))
        }
        reason => Ok(reason.filter(|reason| !reason.trim().is_empty())),
    }
}

/// What a preview hands over to the operation. Not a secret, and not proof of a permission: it only ensures that what is done
/// is what was looked at. So a digest is enough, and all processes agree on it.
struct PreviewToken {
    cutoff: Timestamp,
    matches: u64,
}

impl PreviewToken {
    fn text(&self, action: &Action, selection: &Selection) -> String {
        let (cutoff, matches) = (self.cutoff.as_microsecond(), self.matches);
        let meant = format!(
            "{cutoff} {matches} {} {} {}",
            action.as_str(),
            action.argument().unwrap_or_default(),
            StoredSelection::text(selection)
        );
        let digest: String = Sha256::digest(meant)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{cutoff:x}-{matches:x}-{digest}")
    }

    fn read(text: &str, action: &Action, selection: &Selection) -> Result<Self, OperationError> {
        let mut parts = text.split('-');
        let mut number = || parts.next().and_then(|part| i64::from_str_radix(part, 16).ok());
        let token = number().zip(number()).and_then(|(cutoff, matches)| {
            Some(Self { cutoff: Timestamp::from_microsecond(cutoff).ok()?, matches: matches.try_into().ok()? })
        });
        token.filter(|token| token.text(action, selection) == text).ok_or(OperationError::NotPreviewed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Kind;

    fn of_kind(kind: &str) -> Selection {
        Selection::Filter(JobFilter::new().kinds([Kind::new(kind).unwrap()]))
    }

    #[test]
    fn a_token_is_good_for_what_was_previewed_and_for_nothing_else() {
        let token = PreviewToken { cutoff: Timestamp::from_second(1_900_000_000).unwrap(), matches: 1204 };
        let text = token.text(&Action::Redrive, &of_kind("mail"));
        let read = PreviewToken::read(&text, &Action::Redrive, &of_kind("mail")).unwrap();
        assert_eq!((read.cutoff, read.matches), (token.cutoff, 1204));
        assert!(PreviewToken::read(&text, &Action::Delete, &of_kind("mail")).is_err());
        assert!(PreviewToken::read(&text, &Action::Redrive, &of_kind("mails")).is_err());
        for cut in ["", "-", "zz-1-2", &text[1..], &text[..text.len() - 1], &format!("{text}0")] {
            assert!(PreviewToken::read(cut, &Action::Redrive, &of_kind("mail")).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_redrive_is_of_what_failed_unless_cancelled_ones_are_asked_for() {
        let statuses = |action: &Action, filter: JobFilter| match checked(action, Selection::Filter(filter)) {
            Ok(Selection::Filter(filter)) => Ok(filter.statuses),
            Ok(Selection::Ids(_)) => unreachable!(),
            Err(error) => Err(error.to_string()),
        };
        let mail = || JobFilter::new().kinds([Kind::new("mail").unwrap()]);
        assert_eq!(statuses(&Action::Redrive, mail()), Ok(vec![Status::FailedPermanent]));
        let cancelled = mail().statuses([Status::Cancelled]);
        assert_eq!(statuses(&Action::Redrive, cancelled), Ok(vec![Status::Cancelled]));
        assert!(
            statuses(&Action::Redrive, mail().statuses([Status::Running])).unwrap_err().contains("failed_permanent")
        );
        assert!(statuses(&Action::Reprioritize(101), mail()).unwrap_err().contains("-100 to 100"));
        assert!(statuses(&Action::Delete, mail()).unwrap_err().contains("status"));
        assert!(statuses(&Action::Redrive, JobFilter::new()).unwrap_err().contains("empty"));
    }
}
