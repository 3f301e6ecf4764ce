// Common parts of all programs' command lines: --help, --version, and error messages that name the
// command and suggest the probably intended word.
//
//   CLI::App app("...", "longhaul-worker");
//   SetUpCommandLine(app);
//   ...
//   } catch (const CLI::ParseError& error) {
//     return app.exit(error) == 0 ? kOk : kWrongUsage;
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

// Only declared here: files that add options include <CLI/CLI.hpp>, which takes seconds to compile.
namespace CLI {
class App;
class Error;
class Validator;
}  // namespace CLI

namespace longhaul {

// Adds --help, --version and such error messages to `app`, whose name must be the program's. Call
// it before any subcommand is added.
void SetUpCommandLine(CLI::App& app);

// Describes the fault in the arguments for people: "longhaul cluster: unknown command 'upp'; did
// you mean 'up'?". `app` is the program, and `error` is what its parse has thrown.
std::string DescribeUsageError(const CLI::App& app, const CLI::Error& error);

// Checks that the value of each flag (name, value) is host:port, or empty because the flag was
// omitted. Returns the first problem with the name of its flag, "--relay: ...", or "".
std::string ProblemOfAddresses(
    std::initializer_list<std::pair<std::string_view, std::string_view>> flags);

// Returns a check that accepts only digits. Options of unsigned types need it, because the library
// accepts -1 as 2^64 - 1.
CLI::Validator WholeNumber();

}  // namespace longhaul
