//! Meters a pass over a payload, and stops it when its allowance is used up.
//!
//! The meter is thread-local: a pass never moves to another thread. It is stopped by unwinding to [`metered`], without a
//! panic message. [`metered_json`](super::metered_json) charges it.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::planted::{Bug, planted};

/// 16 bytes of text cost what one look costs.
pub(super) const BYTES_PER_STEP: u64 = 16;
/// 4,096 steps take well below a millisecond, unless something is wrong that the steps do not show.
const STEPS_PER_LOOK_AT_THE_CLOCK: u64 = 4096;

/// What one pass over a payload may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// Looks at the payload, each a few nanoseconds.
    pub(super) steps: u64,
    /// Error values that may be made; each may hold others.
    pub(super) errors: usize,
    /// Bytes of stack below the caller.
    pub(super) stack_bytes: usize,
    /// The deadline, for costs that steps do not show.
    pub(super) until: Instant,
    pub(super) prices: Prices,
}

/// Prices that depend on the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prices {
    /// Steps for handing out a member or an element: a schema may spend time on it without a look.
    pub(super) child: u64,
    /// Steps for a byte of a long text: patterns differ.
    pub(super) long_text_byte: u64,
    /// Text up to this size is short: no pattern takes long on it, and the deadline bounds them together.
    pub(super) short_text_max_bytes: usize,
}

/// A pass was stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The steps are used up.
    Steps,
    /// Payload and schema are nested too deeply for the stack.
    Stack,
    /// It took too long, although there were steps left: the machine is busy, or a pattern is slow.
    Time,
    /// As many errors as allowed were made, at these addresses of the payload.
    Errors(Vec<usize>),
}

#[derive(Clone, Copy)]
struct Meter {
    steps_left: u64,
    steps_until_clock: u64,
    errors_left: usize,
    stack_floor: usize,
    until: Option<Instant>,
    prices: Prices,
}

thread_local! {
    static METER: Cell<Meter> = const {
        Cell::new(Meter {
            steps_left: 0,
            steps_until_clock: 0,
            errors_left: 0,
            stack_floor: 0,
            until: None,
            prices: Prices { child: 1, long_text_byte: 1, short_text_max_bytes: 0 },
        })
    };
    static FAILED_AT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static STEPS_TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Steps of all passes on this thread, stopped ones included: the difference is what a check took.
pub(super) fn steps_taken() -> u64 {
    STEPS_TAKEN.get()
}

/// Runs one pass; answers what it found and how many steps that took.
pub(super) fn metered<T>(allowance: Allowance, pass: impl FnOnce() -> T) -> Result<(T, u64), Stopped> {
    let Allowance { mut steps, mut errors, stack_bytes, mut until, prices } = allowance;
    if planted(Bug::CheckBudgetIgnored) {
        (steps, errors, until) = (u64::MAX, usize::MAX, until + Duration::from_secs(3600));
    }
    METER.set(Meter {
        steps_left: steps,
        steps_until_clock: STEPS_PER_LOOK_AT_THE_CLOCK,
        errors_left: errors,
        stack_floor: stack_position().saturating_sub(stack_bytes),
        until: Some(until),
        prices,
    });
    FAILED_AT.take();
    let ended = catch_unwind(AssertUnwindSafe(pass));
    let taken = steps.saturating_sub(METER.get().steps_left);
    STEPS_TAKEN.set(STEPS_TAKEN.get().wrapping_add(taken));
    match ended {
        Ok(found) => Ok((found, taken)),
        Err(cause) => match cause.downcast::<Stopped>() {
            Ok(stopped) => Err(*stopped),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Where the stack is now, near enough: it grows downwards.
#[inline(always)]
fn stack_position() -> usize {
    let here = 0u8;
    std::ptr::from_ref(&here) as usize
}

#[inline]
pub(super) fn charge(steps: u64) {
    let mut meter = METER.get();
    if meter.steps_left < steps {
        stop(Stopped::Steps);
    }
    if stack_position() < meter.stack_floor {
        stop(Stopped::Stack);
    }
    meter.steps_left -= steps;
    match meter.steps_until_clock.checked_sub(steps) {
        Some(left) => meter.steps_until_clock = left,
        None => {
            if meter.until.is_some_and(|until| Instant::now() > until) {
                stop(Stopped::Time);
            }
            meter.steps_until_clock = STEPS_PER_LOOK_AT_THE_CLOCK;
        }
    }
    METER.set(meter);
}

#[inline]
pub(super) fn charge_child() {
    charge(METER.get().prices.child);
}

/// For reading a text once, as patterns and formats do.
pub(super) fn charge_text(text: &str) {
    let (bytes, prices) = (text.len() as u64, METER.get().prices);
    let read = 1 + bytes / BYTES_PER_STEP;
    if text.len() > prices.short_text_max_bytes {
        return charge(read.max(bytes.saturating_mul(prices.long_text_byte)));
    }
    charge(read);
    // A slow pattern shows in time, not in steps.
    let mut meter = METER.get();
    meter.steps_until_clock = meter.steps_until_clock.saturating_sub(bytes);
    METER.set(meter);
}

#[cold]
fn stop(why: Stopped) -> ! {
    // Not `panic_any`: that would run the panic hook, and this is no bug.
    resume_unwind(Box::new(why))
}

/// An error is being made about the value at this address.
pub(super) fn charge_error(address: usize) {
    charge(1);
    FAILED_AT.with_borrow_mut(|addresses| addresses.push(address));
    let mut meter = METER.get();
    if meter.errors_left == 0 {
        stop(Stopped::Errors(FAILED_AT.take()));
    }
    meter.errors_left -= 1;
    METER.set(meter);
}
