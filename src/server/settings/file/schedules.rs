//! `[[schedules]]`: schedules that belong to the file, with the keys of `PUT /schedules/NAME` and a `name`.

use jiff::Timestamp;
use serde_json::{Map, Value as Json};
use toml::Value as Toml;

use super::only;
use crate::job::{ScheduleName, ScheduleRequest, ScheduleSpec};

/// One of them.
#[derive(Debug, Clone)]
pub(in crate::server) struct DeclaredSchedule {
    pub(in crate::server) name: ScheduleName,
    pub(in crate::server) request: ScheduleRequest,
}

const KEYS: [&str; 14] = [
    "name",
    "cron",
    "tz",
    "every_ms",
    "anchor_at",
    "job",
    "overlap",
    "catch_up",
    "catch_up_max",
    "catch_up_window_ms",
    "jitter_ms",
    "start_at",
    "end_at",
    "paused",
];

const JOB_KEYS: [&str; 6] = ["kind", "payload", "queue", "priority", "max_attempts", "timeout_ms"];

pub(super) fn schedules(value: Toml) -> Result<Vec<DeclaredSchedule>, String> {
    let Toml::Array(tables) = value else { return Err("schedules must be tables: [[schedules]]".into()) };
    let mut declared: Vec<DeclaredSchedule> = Vec::with_capacity(tables.len());
    for table in tables {
        let Toml::Table(table) = table else { return Err("schedules must be tables: [[schedules]]".into()) };
        let Some(Toml::String(name)) = table.get("name").cloned() else {
            return Err("[[schedules]]: each needs a name, such as name = \"nightly\"".into());
        };
        let one = schedule(&name, table).map_err(|problem| format!("[[schedules]] {name:?}: {problem}"))?;
        if declared.iter().any(|other| other.name == one.name) {
            return Err(format!("[[schedules]] {name:?}: there are two of this name"));
        }
        declared.push(one);
    }
    Ok(declared)
}

fn schedule(name: &str, table: toml::Table) -> Result<DeclaredSchedule, String> {
    if table.contains_key("kind") {
        return Err("kind belongs to its job: job = { kind = \"…\", payload = { … } }".into());
    }
    only(&table, &KEYS)?;
    match table.get("job") {
        Some(Toml::Table(job)) => only(job, &JOB_KEYS).map_err(|problem| format!("job: {problem}"))?,
        _ => return Err("it needs a job: job = { kind = \"…\", payload = { … } }".into()),
    }
    let paused = match table.get("paused") {
        None => None,
        Some(Toml::Boolean(paused)) => Some(*paused),
        Some(_) => return Err("paused is true or false".into()),
    };
    let mut keys = Map::new();
    for (key, value) in table.into_iter().filter(|(key, _)| !matches!(&**key, "name" | "paused")) {
        let value = json(value).map_err(|problem| format!("{key}: {problem}"))?;
        keys.insert(key, value);
    }
    if let Some(job) = keys.get_mut("job").and_then(Json::as_object_mut) {
        job.entry("payload").or_insert_with(|| Json::Object(Map::new()));
    }
    // As text: payloads are kept as they stand there.
    let text = Json::Object(keys).to_string();
    let mut request: ScheduleRequest = serde_json::from_str(&text).map_err(|error| without_place(&error))?;
    request.paused = paused;
    ScheduleSpec::new(request.clone(), Timestamp::now()).map_err(|refusal| refusal.to_string())?;
    Ok(DeclaredSchedule { name: ScheduleName::new(name).map_err(|error| error.to_string())?, request })
}

/// Line and column are of a text that nobody wrote.
fn without_place(error: &serde_json::Error) -> String {
    let said = error.to_string();
    said.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Times become text.
fn json(value: Toml) -> Result<Json, String> {
    Ok(match value {
        Toml::String(text) => text.into(),
        Toml::Integer(number) => number.into(),
        Toml::Float(number) => {
            serde_json::Number::from_f64(number).map(Json::Number).ok_or("is not a number that JSON has")?
        }
        Toml::Boolean(switch) => switch.into(),
        Toml::Datetime(time) => time.to_string().into(),
        Toml::Array(items) => Json::Array(items.into_iter().map(json).collect::<Result<_, _>>()?),
        Toml::Table(table) => {
            let fields = table.into_iter().map(|(key, value)| Ok((key, json(value)?)));
            Json::Object(fields.collect::<Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<DeclaredSchedule>, String> {
        let mut file: toml::Table = text.parse().unwrap();
        schedules(file.remove("schedules").unwrap())
    }

    #[test]
    fn a_schedule_has_the_keys_of_the_api() {
        let read = read(
            r#"
            [[schedules]]
            name = "nightly"
            cron = "30 2 * * *"
            tz = "Europe/Berlin"
            start_at = 2027-01-01T00:00:00Z
            overlap = "queue_one"
            paused = true
            job = { kind = "report", payload = { day = "{{tick_local}}", pages = [1, 2.5, true] }, queue = "reports" }

            [[schedules]]
            name = "often"
            every_ms = 900000
            job = { kind = "ping" }
            "#,
        );
        let read = read.unwrap();
        let (nightly, often) = (&read[0].request, &read[1].request);
        assert_eq!((nightly.cron.as_deref(), nightly.paused), (Some("30 2 * * *"), Some(true)));
        assert_eq!(nightly.start_at, Some("2027-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(nightly.job.payload.as_str(), r#"{"day":"{{tick_local}}","pages":[1,2.5,true]}"#);
        assert_eq!((often.every_ms, often.job.payload.as_str(), often.paused), (Some(900_000), "{}", None));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_name_of_the_schedule() {
        let job = "job = { kind = \"report\" }";
        for (keys, said) in [
            (format!("cron = \"30 2 * *\"\n{job}"), "4 fields"),
            (format!("cron = \"0 0 30 2 *\"\n{job}"), "never fires"),
            (format!("cron = \"@daily\"\ntz = \"Europe/Berln\"\n{job}"), "did you mean Europe/Berlin"),
            (format!("cron = \"@daily\"\noverlapp = \"skip\"\n{job}"), "did you mean overlap?"),
            (format!("cron = \"@daily\"\noverlap = \"jump\"\n{job}"), "unknown variant `jump`"),
            ("cron = \"@daily\"\njob = { kind = \"report\", queu = \"a\" }".to_owned(), "did you mean queue?"),
            (
                "cron = \"@daily\"\njob = { kind = \"report\", payload = \"{{tock}}\" }".to_owned(),
                "placeholder {{tock}}",
            ),
            ("cron = \"@daily\"\nkind = \"report\"".to_owned(), "belongs to its job"),
            ("cron = \"@daily\"".to_owned(), "needs a job"),
            (job.to_owned(), "cron or every_ms is required"),
        ] {
            let error = read(&format!("[[schedules]]\nname = \"nightly\"\n{keys}")).unwrap_err();
            assert!(error.contains("\"nightly\"") && error.contains(said), "{error}");
        }
        let twice = format!("[[schedules]]\nname = \"a\"\ncron = \"@daily\"\n{job}\n").repeat(2);
        assert!(read(&twice).unwrap_err().contains("two of this name"));
        assert!(read("[[schedules]]\ncron = \"@daily\"").unwrap_err().contains("needs a name"));
        assert!(read("[schedules.a]\ncron = \"@daily\"").unwrap_err().contains("[[schedules]]"));
    }
}
