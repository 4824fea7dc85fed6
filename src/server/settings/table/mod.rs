//! The table: every setting, named once. Flags, variables, TOML keys, `steadfast config`, the checks at start and the
//! table in `docs/operations.md` all come from here. Values are read by naming a row, such as [`LEASE_MS`].
//!
//! One file per subject: [`server`], [`outbound`], [`mail`], [`image`], [`text`].

mod image;
mod mail;
mod outbound;
mod server;
mod text;

pub(super) use self::image::*;
pub(super) use mail::*;
pub(super) use outbound::*;
pub(super) use server::*;
pub(super) use text::*;

use super::setting::Setting;

/// Makes a constant of each row, and of all rows of a subject a list.
macro_rules! rows {
    ($($name:ident: $type:ty = $row:expr;)*) => {
        $(pub(in crate::server::settings) const $name: $type = $row;)*

        /// All of them, in the order in which they are shown.
        pub(super) const ROWS: &[&crate::server::settings::setting::Setting] = &[$(&$name.setting),*];
    };
}
use rows;

const SUBJECTS: [&[&Setting]; 5] = [server::ROWS, outbound::ROWS, mail::ROWS, image::ROWS, text::ROWS];

/// All of them, in the order in which they are shown.
pub(in crate::server) const SETTINGS: &[&Setting] = &joined::<{ count() }>();

const fn count() -> usize {
    let (mut count, mut subject) = (0, 0);
    while subject < SUBJECTS.len() {
        count += SUBJECTS[subject].len();
        subject += 1;
    }
    count
}

/// Constants cannot be collected from an iterator.
const fn joined<const COUNT: usize>() -> [&'static Setting; COUNT] {
    let mut all = [server::ROWS[0]; COUNT];
    let (mut subject, mut at) = (0, 0);
    while subject < SUBJECTS.len() {
        let mut row = 0;
        while row < SUBJECTS[subject].len() {
            all[at] = SUBJECTS[subject][row];
            row += 1;
            at += 1;
        }
        subject += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_settings_share_a_key_or_a_variable() {
        let mut names: Vec<_> = SETTINGS.iter().flat_map(|setting| [setting.key, setting.variable]).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_default_is_one_of_the_allowed_values() {
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                assert!(setting.form.allows(default), "{}", setting.key);
            }
        }
    }

    #[test]
    fn no_secret_can_be_given_on_the_command_line() {
        for setting in SETTINGS.iter().filter(|setting| setting.form.is_secret()) {
            let refused = setting.form.refused_as_flag("postgres://me:secret@host/database");
            assert!(refused || setting.flag().is_none(), "{}", setting.key);
        }
    }
}
