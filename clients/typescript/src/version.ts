/** The version of this package, as the server lists it with its workers. test/package.test.ts compares it with package.json. */
export const VERSION = "0.1.0";
