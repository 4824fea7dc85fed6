/** Where the worker writes what operators should know. One line each; never payloads, results or tokens. */

export type LogFields = Record<string, string | number | boolean | null | undefined>;

/** Pino, winston and console fit with a line each. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

/** Lines on stderr: `2030-01-01T00:00:00.000Z WARN message key=value`. Debug lines only if `STEADFAST_LOG=debug`. */
export function stderrLogger(): Logger {
  const shown = process.env["STEADFAST_LOG"] === "debug";
  const write = (level: string) => (message: string, fields: LogFields = {}): void => {
    const pairs = Object.entries(fields).filter(([, value]) => value !== undefined).map(([key, value]) => ` ${key}=${quoted(value)}`);
    // A log that cannot be written must not end the process.
    try {
      process.stderr.write(`${new Date().toISOString()} ${level} ${oneLine(message)}${pairs.join("")}\n`);
    } catch {
      return;
    }
  };
  return {
    debug: shown ? write("DEBUG") : () => undefined,
    info: write("INFO"),
    warn: write("WARN"),
    error: write("ERROR"),
  };
}

/** The same logger with fields that are always there. */
export function withFields(logger: Logger, always: LogFields): Logger {
  return {
    debug: (message, fields) => logger.debug(message, { ...always, ...fields }),
    info: (message, fields) => logger.info(message, { ...always, ...fields }),
    warn: (message, fields) => logger.warn(message, { ...always, ...fields }),
    error: (message, fields) => logger.error(message, { ...always, ...fields }),
  };
}

function quoted(value: LogFields[string]): string {
  const text = String(value);
  return /^[\w.:/+-]+$/.test(text) ? text : JSON.stringify(text);
}

function oneLine(text: string): string {
  return text.replaceAll(/\s*[\r\n]+\s*/g, " | ");
}
