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

// Call it before any subcommand is added. The app's name is the program's.
void SetUpCommandLine(CLI::App& app);

// Returns the fault in the arguments, for people: "longhaul cluster: unknown command 'upp'; did you
// mean 'up'?". `app`: the program, whose parse threw `error`.
std::string DescribeUsageError(const CLI::App& app, const CLI::Error& error);

// Checks that the values of `flags` (name, value) are host:port. Returns the first problem with its
// flag, "--relay: ..."; empty: all values are valid. A flag with an empty value counts as omitted.
std::string ProblemOfAddresses(
    std::initializer_list<std::pair<std::string_view, std::string_view>> flags);

// A check for options of unsigned types, because the library accepts -1 as 2^64 - 1.
CLI::Validator WholeNumber();

}  // namespace longhaul
