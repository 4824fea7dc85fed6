//! How many connections there may be: so many in all, so many of them from one address, and a small reserve beyond.
//!
//! The reserve is for probes and workers, which must get in when others have taken every permit. What a connection is
//! for is known only once its request has been read, so anybody may enter; but a connection there has one short request,
//! and while it has not sent it, it makes way for a newer one. Holding the reserve would take a stream of new
//! connections that is faster than any honest request is read.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::planted::{Bug, planted};

/// 64 connections beyond the limit …
const RESERVE_MAX: usize = 64;
/// … three quarters of them from one address.
const RESERVE_PER_ADDRESS: usize = 48;
/// More connections than a process can have.
const CONNECTIONS_POSSIBLE: u32 = 1 << 30;

pub(super) struct ConnectionLimit {
    max: usize,
    max_per_address: usize,
    taken: Mutex<Taken>,
    /// One permit for each connection: all of them are free when every connection has ended.
    ended: Arc<Semaphore>,
}

#[derive(Default)]
struct Taken {
    ordinary: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Oldest first.
    reserve: Vec<ReserveConnection>,
    next_id: u64,
}

struct ReserveConnection {
    id: u64,
    address: IpAddr,
    /// Dropped to close the connection; used up once its request has arrived.
    close: Option<oneshot::Sender<()>>,
}

/// Where a connection got in.
pub(super) enum ConnectionPermit {
    Ordinary(OrdinaryPermit),
    Reserve(ReservePermit),
}

/// Given back when dropped.
pub(super) struct OrdinaryPermit {
    address: IpAddr,
    limit: Arc<ConnectionLimit>,
    _running: Option<OwnedSemaphorePermit>,
}

/// Given back when dropped.
pub(super) struct ReservePermit {
    pub(super) request: Arc<ReserveRequest>,
    /// An error when the permit is needed for a newer connection.
    evicted: oneshot::Receiver<()>,
    _running: Option<OwnedSemaphorePermit>,
}

/// The one request of a connection in the reserve.
pub(super) struct ReserveRequest {
    id: u64,
    limit: Arc<ConnectionLimit>,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        let ended = Arc::new(Semaphore::new(CONNECTIONS_POSSIBLE as usize));
        Arc::new(Self { max, max_per_address, taken: Mutex::default(), ended })
    }

    /// A permit for a connection from this address; `None` if even the reserve is busy.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let mut taken = self.taken();
        let from_address = taken.by_address.get(&address).copied().unwrap_or_default();
        let is_within = from_address < self.max_per_address || planted(Bug::OneAddressTakesAll);
        if is_within && taken.ordinary < self.max {
            taken.ordinary += 1;
            taken.by_address.insert(address, from_address + 1);
            return Some(ConnectionPermit::Ordinary(OrdinaryPermit {
                address,
                limit: self.clone(),
                _running: self.running(),
            }));
        }
        if planted(Bug::OneAddressTakesAll) {
            return None;
        }
        let (id, evicted) = taken.enter_reserve(address)?;
        let request = Arc::new(ReserveRequest { id, limit: self.clone() });
        Some(ConnectionPermit::Reserve(ReservePermit { request, evicted, _running: self.running() }))
    }

    /// Waits until every connection has ended.
    pub(super) async fn all_ended(&self) {
        // Never closed.
        let _ = self.ended.acquire_many(CONNECTIONS_POSSIBLE).await;
    }

    fn running(&self) -> Option<OwnedSemaphorePermit> {
        self.ended.clone().try_acquire_owned().ok()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn enter_reserve(&mut self, address: IpAddr) -> Option<(u64, oneshot::Receiver<()>)> {
        let from_address = self.reserve.iter().filter(|other| other.address == address).count();
        let is_waiting = |other: &ReserveConnection| other.close.is_some();
        let in_the_way = if from_address >= RESERVE_PER_ADDRESS {
            // An address pushes out its own connections first.
            Some(self.reserve.iter().position(|other| is_waiting(other) && other.address == address)?)
        } else if self.reserve.len() >= RESERVE_MAX {
            Some(self.reserve.iter().position(is_waiting)?)
        } else {
            None
        };
        if let Some(oldest) = in_the_way {
            self.reserve.remove(oldest);
        }
        let (close, evicted) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        self.reserve.push(ReserveConnection { id, address, close: Some(close) });
        Some((id, evicted))
    }
}

impl ReservePermit {
    /// Gives up serving when the permit is needed for a newer connection.
    pub(super) async fn unless_evicted(mut self, serving: impl Future<Output = ()>) {
        let mut serving = pin!(serving);
        tokio::select! {
            () = serving.as_mut() => {}
            evicted = &mut self.evicted => if evicted.is_ok() {
                // Its request has begun.
                serving.await;
            }
        }
    }
}

impl ReserveRequest {
    /// Call when the request has arrived: it is not pushed out any more.
    pub(super) fn begin(&self) {
        if let Some(own) = self.limit.taken().reserve.iter_mut().find(|other| other.id == self.id) {
            // Sent, not dropped: a drop would close the connection.
            if let Some(close) = own.close.take() {
                let _ = close.send(());
            }
        }
    }
}

impl Drop for OrdinaryPermit {
    fn drop(&mut self) {
        let mut taken = self.limit.taken();
        taken.ordinary -= 1;
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

impl Drop for ReservePermit {
    fn drop(&mut self) {
        self.request.limit.taken().reserve.retain(|other| other.id != self.request.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn reserve(limit: &Arc<ConnectionLimit>, address: IpAddr) -> ReservePermit {
        match limit.admit(address) {
            Some(ConnectionPermit::Reserve(permit)) => permit,
            Some(ConnectionPermit::Ordinary(_)) => panic!("an ordinary permit is free"),
            None => panic!("the reserve is busy"),
        }
    }

    fn is_evicted(permit: &mut ReservePermit) -> bool {
        permit.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn one_address_gets_its_share_and_the_rest_is_for_others() {
        let limit = ConnectionLimit::new(4, 3);
        let mut held: Vec<_> = (0..3).map(|_| limit.admit(HERE).unwrap()).collect();
        assert!(held.iter().all(|permit| matches!(permit, ConnectionPermit::Ordinary(_))));
        assert!(matches!(limit.admit(HERE), Some(ConnectionPermit::Reserve(_))));
        held.push(limit.admit(THERE).unwrap());
        assert!(
            matches!(held[3], ConnectionPermit::Ordinary(_))
                && matches!(limit.admit(THERE), Some(ConnectionPermit::Reserve(_)))
        );
        held.clear();
        assert!(matches!(limit.admit(HERE), Some(ConnectionPermit::Ordinary(_))));
        assert!(limit.taken().by_address.is_empty() && limit.taken().ordinary == 0);
    }

    #[test]
    fn a_silent_connection_makes_room_in_the_reserve_for_a_newer_one() {
        let limit = ConnectionLimit::new(0, 0);
        let mut own: Vec<_> = (0..RESERVE_PER_ADDRESS).map(|_| reserve(&limit, HERE)).collect();
        let mut foreign = reserve(&limit, THERE);
        let _newest = reserve(&limit, HERE);
        assert!(is_evicted(&mut own[0]) && !is_evicted(&mut own[1]) && !is_evicted(&mut foreign));
        let mut others: Vec<_> = (own.len() + 1..RESERVE_MAX).map(|_| reserve(&limit, THERE)).collect();
        let _another = reserve(&limit, THERE);
        assert!(is_evicted(&mut own[1]) && !is_evicted(&mut others[0]), "the oldest of all goes");
    }

    #[test]
    fn a_request_that_has_begun_is_not_pushed_out() {
        let limit = ConnectionLimit::new(0, 0);
        let begun: Vec<_> = (0..RESERVE_PER_ADDRESS).map(|_| reserve(&limit, HERE)).collect();
        begun.iter().for_each(|permit| permit.request.begin());
        assert!(limit.admit(HERE).is_none(), "its address waits until one of them has been answered");
        assert!(limit.admit(THERE).is_some());
        drop(begun);
        assert!(limit.admit(HERE).is_some() && limit.taken().reserve.is_empty());
    }
}
