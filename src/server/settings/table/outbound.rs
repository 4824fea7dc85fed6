//! Settings of everything that calls other servers: the guard, webhooks, `http_request`.

use super::rows;
use crate::server::settings::built_in::RequestTargets;
use crate::server::settings::forms::{Choice, FilePath, Millis, Number, SWITCH};
use crate::server::settings::kind_forms::{List, Statuses};
use crate::server::settings::setting::{Optional, Required, optional, required};

const HTTP: (&str, bool) = ("kinds-http", cfg!(feature = "kinds-http"));

const TARGETS: &Choice<RequestTargets> =
    &Choice(&[("endpoints", RequestTargets::Endpoints), ("any", RequestTargets::Any)]);

rows! {
    OUTBOUND_ALLOW: Optional<List> = optional(
        "outbound_allow",
        "STEADFAST_OUTBOUND_ALLOW",
        &List { of: "networks or addresses, each with a port or without (10.1.2.0/24, 10.1.2.3:8080, [fd00::/8]:443), or the words private, loopback" },
        "addresses that are not public and that callers' URLs may lead to all the same; printed at start",
    ).needs(HTTP);
    OUTBOUND_DENY: Optional<List> = optional(
        "outbound_deny",
        "STEADFAST_OUTBOUND_DENY",
        &List { of: "networks or addresses, each with a port or without, as for outbound_allow" },
        "addresses that callers' URLs may never lead to; counts before outbound_allow",
    ).needs(HTTP);
    OUTBOUND_PORTS: Required<List> = required(
        "outbound_ports",
        "STEADFAST_OUTBOUND_PORTS",
        "80,443,1024-65535",
        &List { of: "ports or ranges of ports" },
        "ports that callers' URLs may name",
    ).needs(HTTP);
    OUTBOUND_NAT64: Optional<List> = optional(
        "outbound_nat64",
        "STEADFAST_OUTBOUND_NAT64",
        &List { of: "prefixes of 96 bits like 64:ff9b::/96" },
        "prefixes through which this network reaches IPv4; the IPv4 address inside is judged",
    ).needs(HTTP);
    OUTBOUND_PER_HOST: Required<Number<usize>> = required(
        "outbound_per_host",
        "STEADFAST_OUTBOUND_PER_HOST",
        "16",
        &Number { min: 1, max: 10_000 },
        "calls to one host at the same time, from one process, and never more than half of worker_concurrency; further jobs wait without occupying a slot",
    ).needs(HTTP);
    OUTBOUND_CA_FILE: Optional<FilePath> = optional(
        "outbound_ca_file",
        "STEADFAST_OUTBOUND_CA_FILE",
        &FilePath,
        "certificates (PEM) that are trusted besides those of the system",
    ).needs(HTTP);
    WEBHOOK_TIMEOUT_MS: Required<Millis> = required(
        "webhook_timeout_ms",
        "STEADFAST_WEBHOOK_TIMEOUT_MS",
        "30000",
        &Millis { min: 100, max: 900_000 },
        "how long a webhook may take, unless its endpoint says; never longer than the job's own timeout",
    ).needs(HTTP);
    WEBHOOK_KEEP_RESPONSE: Required<Number<usize>> = required(
        "webhook_keep_response",
        "STEADFAST_WEBHOOK_KEEP_RESPONSE",
        "1024",
        &Number { min: 0, max: 8_192 },
        "bytes of the receiver's answer that are kept with the job; 0: none",
    ).needs(HTTP);
    WEBHOOK_FINAL_STATUSES: Required<Statuses> = required(
        "webhook_final_statuses",
        "STEADFAST_WEBHOOK_FINAL_STATUSES",
        "400, 405, 406, 410, 411, 413, 414, 415, 422, 431, 451, 501, 505",
        &Statuses,
        "answers after which a webhook is not tried again",
    ).needs(HTTP);
    WEBHOOK_REQUIRE_SIGNATURE: Required<Choice<bool>> = required(
        "webhook_require_signature",
        "STEADFAST_WEBHOOK_REQUIRE_SIGNATURE",
        "false",
        SWITCH,
        "refuse webhooks without a secret to sign them with",
    ).needs(HTTP);
    WEBHOOK_INLINE_SECRETS: Required<Choice<bool>> = required(
        "webhook_inline_secrets",
        "STEADFAST_WEBHOOK_INLINE_SECRETS",
        "true",
        SWITCH,
        "accept secrets that stand in the payload; they are stored with the job",
    ).needs(HTTP);
    HTTP_REQUEST_TARGETS: Required<Choice<RequestTargets>> = required(
        "http_request_targets",
        "STEADFAST_HTTP_REQUEST_TARGETS",
        "endpoints",
        TARGETS,
        "where http_request may go: to the endpoints of the file, or to any public address; it returns what it reads",
    ).needs(HTTP);
}
