//! A time as PostgreSQL keeps it, which may be one that [`Timestamp`] cannot hold: 'infinity', or the year 20000. A
//! manual edit can write such a row, and it must not keep any other row from being read. Nothing is decided here.

use std::error::Error;

use jiff::Timestamp;
// The macro below names it by this path too; it is the driver's own buffer.
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// 2000-01-01, from where PostgreSQL counts, in microseconds since 1970.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Exactly what is stored, so that it can be compared and sent back. The infinities are the ends of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PgTimestamp(i64);

impl PgTimestamp {
    /// 'infinity' and '-infinity'.
    pub(super) const MAX: Self = Self(i64::MAX);
    pub(super) const MIN: Self = Self(i64::MIN);

    /// From microseconds since 2000, as on the wire.
    pub(super) fn from_wire(us: i64) -> Self {
        Self(us)
    }

    /// From microseconds since 1970.
    #[cfg(all(feature = "sqlite", feature = "server"))]
    pub(super) fn from_micros(us: i64) -> Self {
        Self(us.saturating_sub(EPOCH_US))
    }

    /// Microseconds since 2000, as on the wire.
    pub(super) fn to_wire(self) -> i64 {
        self.0
    }

    /// The nearest time there is a word for.
    pub(super) fn timestamp(self) -> Timestamp {
        let nearest = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_microsecond(self.0.saturating_add(EPOCH_US)).unwrap_or(nearest)
    }
}

impl From<Timestamp> for PgTimestamp {
    fn from(time: Timestamp) -> Self {
        Self(time.as_microsecond() - EPOCH_US)
    }
}

impl<'a> FromSql<'a> for PgTimestamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::from_wire(i64::from_be_bytes(raw.try_into()?)))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for PgTimestamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_same_there_and_back_and_the_infinities_are_the_ends() {
        for text in ["1970-01-01T00:00:00Z", "2000-01-01T00:00:00.000001Z", "2030-06-01T12:00:00.5Z"] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(PgTimestamp::from(time).timestamp(), time);
        }
        assert_eq!(PgTimestamp::from_wire(i64::MAX).timestamp(), Timestamp::MAX);
        assert_eq!(PgTimestamp::from_wire(i64::MIN).timestamp(), Timestamp::MIN);
        assert!(PgTimestamp::from_wire(i64::MIN) < PgTimestamp::from(Timestamp::MIN));
    }
}
