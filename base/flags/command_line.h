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

// Adds --help, --version and the error messages of DescribeUsageError to `app`. The name of `app`
// must be the program's. Call SetUpCommandLine before any subcommand is added.
void SetUpCommandLine(CLI::App& app);

// Describes the fault in the arguments for people: "longhaul cluster: unknown command 'upp'; did
// you mean 'up'?". Ends with a line end. `app` is the program, and `error` the exception that
// app.parse() threw.
std::string DescribeUsageError(const CLI::App& app, const CLI::Error& error);

// Checks flags whose values are addresses. `flags` has the name and the value of each; the value
// must be host:port, or empty because the flag was omitted. Returns the first problem, which begins
// with the flag's name, as in "--relay: ...". Returns "" if there is no problem.
std::string ProblemOfAddresses(
    std::initializer_list<std::pair<std::string_view, std::string_view>> flags);

// Returns a check that accepts only digits, up to 2^64 - 1. Options of unsigned types need this
// check, because CLI11 accepts -1 as 2^64 - 1.
CLI::Validator WholeNumber();

}  // namespace longhaul
