//! The pattern of an error text: what is left when everything that differs from one failure to the next is replaced by `*`.
//!
//! Replaced are UUIDs, hexadecimal numbers of 8 digits or more, numbers with their units, times, IP addresses and ports, e-mail addresses,
//! absolute paths, paths and queries of URLs, quoted text of 12 characters or more, and words of more than 64 characters. Kept
//! are words, hosts of URLs, and numbers that say what happened: `HTTP 503`, `exit code 137`, `os error 28`.
//!
//! Its work is bounded by the limits below, whatever the text is. [`fingerprint`](super::fingerprint) hashes what comes out.

/// 2,000 characters of the text are looked at: the words that tell errors apart come first.
const INPUT_MAX_CHARS: usize = 2_000;
/// 3 lines: the message of a panic stands in the second.
const LINES_MAX: usize = 3;
/// 512 characters of pattern.
pub(super) const PATTERN_MAX_CHARS: usize = 512;
/// 64 characters in a word; longer ones are tokens or encoded data.
const WORD_MAX_CHARS: usize = 64;
/// 12 characters in quotes or more are data; shorter ones are often the name of a field.
const QUOTED_MIN_CHARS: usize = 12;
/// 300 characters between quotes: how far a closing one is looked for.
const QUOTED_MAX_CHARS: usize = 300;
/// 8 passes, where 2 are usual: replacing can reveal something else to replace.
const PASSES_MAX: usize = 8;

/// The number behind one of these says what happened.
const CODE_WORDS: [&str; 12] =
    ["answered", "code", "errno", "error", "exit", "http", "https", "returned", "signal", "smtp", "status", "exited"];
/// 3 digits at most: status and exit codes.
const CODE_MAX_DIGITS: usize = 3;

/// Begins the stack trace of a language that puts the error last.
const TRACE_BEFORE_ERROR: &str = "Traceback (most recent call last)";

/// The pattern of an error text. The pattern of a pattern is itself.
pub(super) fn pattern(text: &str) -> String {
    let mut pattern = telling_lines(text).to_lowercase();
    for _ in 0..PASSES_MAX {
        let next = shortened(replaced(&pattern));
        if next == pattern {
            break;
        }
        pattern = next;
    }
    pattern
}

/// The beginning of the text, where the error is told; its end after a stack trace.
fn telling_lines(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut told: Vec<&str> = lines.by_ref().take(LINES_MAX).collect();
    if told.first().is_some_and(|first| first.starts_with(TRACE_BEFORE_ERROR)) {
        told = lines.next_back().or(told.last().copied()).into_iter().collect();
    }
    told.join(" ").chars().take(INPUT_MAX_CHARS).collect()
}

/// At most so many characters, whole words if there are several.
fn shortened(mut pattern: String) -> String {
    if let Some((end, _)) = pattern.char_indices().nth(PATTERN_MAX_CHARS) {
        let end = pattern[..end].rfind(' ').unwrap_or(end);
        pattern.truncate(end);
    }
    pattern
}

fn replaced(line: &str) -> String {
    let mut made = Pattern { text: String::with_capacity(line.len()), word: 0, last_word: String::new() };
    for word in without_quoted(line).split_whitespace() {
        if !made.text.is_empty() {
            made.text.push(' ');
        }
        made.push_word(word);
    }
    made.text
}

/// Long quoted text becomes `*`.
fn without_quoted(line: &str) -> String {
    let (mut out, mut rest, mut previous) = (String::with_capacity(line.len()), line, ' ');
    while let Some(c) = rest.chars().next() {
        let opens = matches!(c, '"' | '\'' | '`') && (previous.is_whitespace() || "([{<=:,".contains(previous));
        let quoted = opens.then(|| closing(&rest[1..], c)).flatten();
        match quoted {
            Some(bytes) => {
                let whole = bytes + 2;
                match rest[1..=bytes].chars().nth(QUOTED_MIN_CHARS - 1) {
                    Some(_) => out.push('*'),
                    None => out.push_str(&rest[..whole]),
                }
                (rest, previous) = (&rest[whole..], c);
            }
            None => {
                out.push(c);
                (rest, previous) = (&rest[c.len_utf8()..], c);
            }
        }
    }
    out
}

/// How many bytes before the quote that ends this.
fn closing(text: &str, quote: char) -> Option<usize> {
    let ends = |after: &str| after.chars().next().is_none_or(|c| c.is_whitespace() || ")]}>,.;:!?".contains(c));
    let mut quotes = text.char_indices().take(QUOTED_MAX_CHARS).filter(|(_, c)| *c == quote);
    quotes.find(|(at, _)| ends(&text[at + 1..])).map(|(at, _)| at)
}

/// A pattern in the making.
struct Pattern {
    text: String,
    /// Where the word that is being written begins.
    word: usize,
    /// The letters written last, if nothing was replaced since.
    last_word: String,
}

impl Pattern {
    fn push_word(&mut self, word: &str) {
        let core = word.trim_start_matches(['(', '[', '{', '<', '"', '\'', '`']);
        self.text.push_str(&word[..word.len() - core.len()]);
        let bare = core.trim_end_matches([')', ']', '}', '>', '"', '\'', '`', ',', '.', ';', ':', '!', '?']);
        self.word = self.text.len();
        self.push_core(bare);
        self.text.push_str(&core[bare.len()..]);
    }

    fn push_core(&mut self, core: &str) {
        if let Some((before, after)) = core.split_once("://") {
            self.push_url(before, after);
        } else if is_email(core) || is_absolute_path(core) || is_ip6(core) || core.chars().nth(WORD_MAX_CHARS).is_some()
        {
            self.push_star();
        } else {
            self.push_runs(core);
        }
    }

    /// The host is kept: which service failed is part of the cause.
    fn push_url(&mut self, before: &str, after: &str) {
        self.push_runs(before);
        self.text.push_str("://");
        self.word = self.text.len();
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let (authority, path) = after.split_at(end);
        let host = authority.rsplit('@').next().unwrap_or_default();
        let without_port =
            host.rsplit_once(':').filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit() || c == '*'));
        let host = without_port.map_or(host, |(host, _)| host);
        self.push_runs(if host.chars().nth(WORD_MAX_CHARS).is_some() { "*" } else { host });
        if !matches!(path, "" | "/") {
            self.text.push_str("/*");
        }
        self.last_word.clear();
    }

    /// Letters and digits, run by run; what stands between them is kept.
    fn push_runs(&mut self, core: &str) {
        let mut rest = core;
        while let Some(c) = rest.chars().next() {
            if let Some(after) = after_uuid(rest) {
                self.push_star();
                rest = after;
            } else if c.is_alphanumeric() {
                let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                let (run, after) = rest.split_at(end);
                self.push_run(run, after);
                rest = after;
            } else {
                match c {
                    '*' => self.push_star(),
                    other => self.text.push(other),
                }
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    fn push_run(&mut self, run: &str, after: &str) {
        if is_hexadecimal(run) {
            return self.push_star();
        }
        let Some(first_digit) = run.find(char::is_numeric) else {
            self.text.push_str(run);
            self.last_word = run.to_owned();
            return;
        };
        let changes = run.chars().zip(run.chars().skip(1)).filter(|(a, b)| a.is_numeric() != b.is_numeric()).count();
        let letters = run.trim_start_matches(char::is_numeric);
        match changes {
            0 if self.is_code(run, after) => {
                self.text.push_str(run);
                self.last_word.clear();
            }
            1 if first_digit > 0 => {
                self.text.push_str(&run[..first_digit]);
                self.push_star();
            }
            // More letters than a unit has.
            1 if letters.chars().nth(3).is_some() => {
                self.push_star();
                self.text.push_str(letters);
            }
            _ => self.push_star(),
        }
    }

    fn is_code(&self, run: &str, after: &str) -> bool {
        let mut next = after.chars();
        let goes_on =
            next.next().is_some_and(|c| ".,:-/_".contains(c)) && next.next().is_some_and(char::is_alphanumeric);
        run.len() <= CODE_MAX_DIGITS && !goes_on && CODE_WORDS.contains(&self.last_word.as_str())
    }

    /// What is replaced piece by piece becomes one `*`: a time, an address with its port, a position in a file.
    fn push_star(&mut self) {
        self.last_word.clear();
        let written = &self.text[self.word..];
        if !written.is_empty() && written.chars().all(|c| matches!(c, '-' | '+')) {
            self.text.truncate(self.word);
        }
        let written = &self.text[self.word..];
        if written.ends_with('*') {
            return;
        }
        let before = written.strip_suffix(['.', ',', ':', '-', '/', '+', '_']);
        match before.filter(|before| before.ends_with('*')) {
            Some(before) => self.text.truncate(self.word + before.len()),
            None => self.text.push('*'),
        }
    }
}

/// The rest behind a UUID that stands alone.
fn after_uuid(text: &str) -> Option<&str> {
    let uuid = text.get(..36)?;
    let is_uuid = uuid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let rest = &text[36..];
    (is_uuid && !rest.starts_with(char::is_alphanumeric)).then_some(rest)
}

fn is_hexadecimal(run: &str) -> bool {
    let all_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match run.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && all_hexadecimal(digits),
        None => run.len() >= 8 && all_hexadecimal(run),
    }
}

fn is_email(core: &str) -> bool {
    core.split_once('@').is_some_and(|(user, domain)| {
        user.ends_with(char::is_alphanumeric) && domain.starts_with(char::is_alphanumeric)
    })
}

fn is_absolute_path(core: &str) -> bool {
    let begins_name = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
    let behind_drive = || core.get(1..3).filter(|_| core.starts_with(|c: char| c.is_ascii_alphabetic()));
    core.strip_prefix('/').is_some_and(begins_name)
        || core.starts_with("~/")
        || core.starts_with("\\\\")
        || behind_drive() == Some(":\\")
}

fn is_ip6(core: &str) -> bool {
    let inner = core.trim_start_matches('[');
    inner.matches(':').count() >= 2
        && inner.bytes().any(|byte| byte.is_ascii_digit())
        && inner.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b']'))
}
