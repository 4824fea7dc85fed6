//! What one caller may take up, named once, each with its reason. `docs/api.md` tells callers.
//!
//! Some can be changed: see [`ApiLimits`](super::ApiLimits). Limits on a job itself (payload, priority, schedule …) are in [`job::limits`](crate::job::limits).

use std::time::Duration;

/// 10 s for the head of a request, and for an idle connection: a head is a few packets.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// 30 s for a body: 8 MiB over a slow line.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// 60 s for the whole request; a handler that needs longer is stuck.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// 30 s for requests in flight to end after the shutdown began.
pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);
/// 60 s for the client to read one response: 8 MiB over a slow line.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// 10 s beyond `wait_ms` for a long poll to be answered.
pub(super) const LONG_POLL_SLACK: Duration = Duration::from_secs(10);
/// 30 s: proxies cut connections that are silent for a minute.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);
/// 1 s for a long poll on a connection of the reserve, which has to be free again soon.
pub(super) const IN_RESERVE_WAIT_MAX: Duration = Duration::from_secs(1);
/// 1 s for the head of the one request on such a connection …
pub(super) const IN_RESERVE_HEADER_TIMEOUT: Duration = Duration::from_secs(1);
/// … and 10 s for its response to be read.
pub(super) const IN_RESERVE_WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// 320 KiB: a payload of 256 KiB and what stands around it.
pub(super) const SINGLE_BODY_MAX: usize = 320 * 1024;
/// 8 MiB for batches and settles.
pub(super) const BATCH_BODY_MAX: usize = 8 * 1024 * 1024;
/// 16 MiB beyond a limit are read and thrown away, so that the caller gets to see the refusal.
pub(super) const DISCARD_MAX: usize = 16 * 1024 * 1024;
/// 1 MiB of a body that a handler left unread is read …
pub(super) const REFUSED_BODY_MAX: usize = 1024 * 1024;
/// … for at most 1 s.
pub(super) const REFUSED_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// 100 ms on a connection of the reserve: who sends no body must not hold it.
pub(super) const IN_RESERVE_BODY_TIMEOUT: Duration = Duration::from_millis(100);
/// 256 MiB of request bodies in memory at one time, over all connections.
pub(super) const BODIES_MAX: usize = 256 * 1024 * 1024;
/// 64 MiB besides for the bodies of workers: a flood of enqueues must not make them lose their leases.
pub(super) const WORKER_BODIES_MAX: usize = 64 * 1024 * 1024;
/// 16 KiB: smaller responses are free. 4,096 connections cannot hold more than 64 MiB of them, and they fit the sockets'
/// own buffers.
pub(super) const RESPONSE_FREE_BYTES: usize = 16 * 1024;
/// 32 MiB of responses to readers at one time: four full pages, or hundreds of ordinary ones.
pub(super) const READ_RESPONSES_MAX: usize = 32 * 1024 * 1024;
/// 64 MiB besides for leased jobs: readers must not keep workers from their jobs.
pub(super) const WORKER_RESPONSES_MAX: usize = 64 * 1024 * 1024;
/// 64 MiB besides for the responses to calls that changed something: those are done, and the caller should learn of it.
pub(super) const WRITE_RESPONSES_MAX: usize = 64 * 1024 * 1024;
/// 4 pages are read at one time: what one step of each reads is in memory before it can be charged.
pub(super) const PAGES_AT_ONCE_MAX: usize = 4;
/// 16 schedules of a page are read in one step: 4 MiB if every payload is as large as it may be.
pub(super) const LIST_STEP: usize = 16;
/// 500 jobs are claimed in one step: besides the payloads, 8 MiB if every last error is as long as it may be …
pub(super) const LEASE_STEP: usize = 500;
/// … and 8 MiB of payloads, and none further once a response has as much of jobs.
pub(super) const LEASES_MAX_BYTES: usize = 8 * 1024 * 1024;
/// 8 MiB of jobs on a page; a page that would be larger is cut and links to the next.
pub(super) const PAGE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// 100 levels: any JSON reader's own limit is higher, also for what we wrap around it.
pub(super) const JSON_DEPTH_MAX: usize = 100;
/// 10,000: skipping is walking; `cursor` goes on from anywhere at no cost.
pub(super) const OFFSET_MAX: usize = 10_000;
/// 50 values in a list of a query: beyond it, one asks for all.
pub(super) const VALUES_MAX: usize = 50;
/// 200 characters of a text to look for.
pub(super) const TEXT_MAX_CHARS: usize = 200;
/// 4,096 connections: well below the usual limit of open files times the memory of each.
pub(super) const CONNECTIONS_MAX: usize = 4096;
/// 4,096 enqueues in flight: what a second of a good disk can take.
pub(super) const ENQUEUES_MAX: usize = 4096;
/// 64 KiB for the head of a request; hyper itself allows 100 header lines.
pub(super) const HEAD_MAX_BYTES: usize = 64 * 1024;
/// 512 bytes: our tokens have 81, an operator's own may be longer.
pub(super) const TOKEN_MAX_BYTES: usize = 512;
/// 1,000 queues are shown one by one by `/metrics`; the rest are added up.
pub(super) const QUEUE_LABELS_MAX: usize = 1000;
/// 10 s between two records of which workers were heard of: not once per fetch or heartbeat.
pub(super) const WORKER_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// 256 streams of the overview at one time: a tab each, of a large team.
pub(super) const PULSE_STREAMS_MAX: usize = 256;
/// 15 s without an event: a comment is sent, so that proxies do not take the stream for dead.
pub(super) const PULSE_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// 10 s for a stream's reader to take an event; who does not is closed.
pub(super) const PULSE_SLOW_AFTER: Duration = Duration::from_secs(10);
/// 20 s for a write of a stream to go on.
pub(super) const STREAM_WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// 10 s for the overview to be made.
pub(super) const PULSE_TIMEOUT: Duration = Duration::from_secs(10);
/// 2 s for the store to answer a health check.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
