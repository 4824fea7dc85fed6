//! What a setting is: a row of the [`table`](super::table), and the type of its value.
//!
//! A [`Setting`] is what all rows have in common. [`Required`] and [`Optional`] know the type besides, so that whoever
//! reads a value names the row, not its key, and gets what the row promises.

use std::fmt::Debug;

/// One row.
#[derive(Debug)]
pub(in crate::server) struct Setting {
    /// Its TOML key; with `-` for `_`, its flag.
    pub(in crate::server) key: &'static str,
    pub(in crate::server) variable: &'static str,
    /// As it would be written; `None`: unset.
    pub(in crate::server) default: Option<&'static str>,
    pub(in crate::server) form: &'static dyn AnyForm,
    given_by: GivenBy,
    /// The feature without which it has no effect, if this program was built without it.
    pub(in crate::server) missing_feature: Option<&'static str>,
    pub(in crate::server) doc: &'static str,
}

/// Where a setting may be given, besides its variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenBy {
    /// As a flag and in the file.
    Everywhere,
    /// In the file, never as a flag: every user of a machine can read the arguments of its programs.
    NoFlag,
    /// As a flag, not in the file: it is needed to find the file.
    NoFile,
}

impl Setting {
    /// `--lease-ms`, without the dashes.
    pub(in crate::server) fn flag(&self) -> Option<String> {
        (self.given_by != GivenBy::NoFlag).then(|| self.key.replace('_', "-"))
    }

    pub(in crate::server) fn in_file(&self) -> bool {
        self.given_by != GivenBy::NoFile
    }
}

/// A setting that always has a value: it has a default.
#[derive(Debug)]
pub(super) struct Required<F: 'static> {
    pub(super) setting: Setting,
    pub(super) default: &'static str,
    pub(super) form: &'static F,
}

/// A setting that may be unset.
#[derive(Debug)]
pub(super) struct Optional<F: 'static> {
    pub(super) setting: Setting,
    pub(super) form: &'static F,
}

pub(super) const fn required<F: Form>(
    key: &'static str,
    variable: &'static str,
    default: &'static str,
    form: &'static F,
    doc: &'static str,
) -> Required<F> {
    Required { setting: setting(key, variable, Some(default), form, doc), default, form }
}

pub(super) const fn optional<F: Form>(
    key: &'static str,
    variable: &'static str,
    form: &'static F,
    doc: &'static str,
) -> Optional<F> {
    Optional { setting: setting(key, variable, None, form, doc), form }
}

const fn setting(
    key: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    form: &'static dyn AnyForm,
    doc: &'static str,
) -> Setting {
    Setting { key, variable, default, form, given_by: GivenBy::Everywhere, missing_feature: None, doc }
}

impl<F> Required<F> {
    /// Has no effect without this feature, which is built in or not.
    pub(super) const fn needs(mut self, (feature, built_in): (&'static str, bool)) -> Self {
        self.setting.missing_feature = if built_in { None } else { Some(feature) };
        self
    }
}

impl<F> Optional<F> {
    pub(super) const fn never_a_flag(mut self) -> Self {
        self.setting.given_by = GivenBy::NoFlag;
        self
    }

    /// Has no effect without this feature, which is built in or not.
    pub(super) const fn needs(mut self, (feature, built_in): (&'static str, bool)) -> Self {
        self.setting.missing_feature = if built_in { None } else { Some(feature) };
        self
    }

    pub(super) const fn never_in_the_file(mut self) -> Self {
        self.setting.given_by = GivenBy::NoFile;
        self
    }
}

/// What the values of a setting look like: which are allowed, what they mean, and how they are shown.
pub(super) trait Form: Debug + Sync + 'static {
    type Value;

    /// `None` for what is not allowed.
    fn parse(&self, text: &str) -> Option<Self::Value>;

    /// What is allowed, in words that follow "use".
    fn allowed(&self) -> String;

    /// The value as it may be shown to anybody.
    fn shown(&self, text: &str) -> String {
        crate::server::stdio::escaped(text)
    }

    /// Whether an error message must not quote the value.
    fn is_secret(&self) -> bool {
        false
    }

    /// Whether this value must not stand on a command line.
    fn refused_as_flag(&self, _text: &str) -> bool {
        false
    }

    /// A default, in the documentation.
    fn documented(&self, default: &str) -> String {
        format!("`{default}`")
    }

    /// What is in force when it is unset, for `steadfast config` and for the documentation.
    fn unset(&self) -> (String, &'static str) {
        ("(unset)".into(), "unset")
    }
}

/// A [`Form`] whose type of value does not matter.
pub(in crate::server) trait AnyForm: Debug + Sync {
    fn allows(&self, text: &str) -> bool;
    fn allowed(&self) -> String;
    fn shown(&self, text: &str) -> String;
    fn is_secret(&self) -> bool;
    fn refused_as_flag(&self, text: &str) -> bool;
    fn documented(&self, default: &str) -> String;
    fn unset(&self) -> (String, &'static str);
}

impl<F: Form> AnyForm for F {
    fn allows(&self, text: &str) -> bool {
        self.parse(text).is_some()
    }

    fn allowed(&self) -> String {
        Form::allowed(self)
    }

    fn shown(&self, text: &str) -> String {
        Form::shown(self, text)
    }

    fn is_secret(&self) -> bool {
        Form::is_secret(self)
    }

    fn refused_as_flag(&self, text: &str) -> bool {
        Form::refused_as_flag(self, text)
    }

    fn documented(&self, default: &str) -> String {
        Form::documented(self, default)
    }

    fn unset(&self) -> (String, &'static str) {
        Form::unset(self)
    }
}
