//! `send_email`: mail over SMTP.
